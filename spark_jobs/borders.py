"""Frames at the border of two captures of one connection.

Some are in both; of one that begins in the first and ends in the second, others tell more. Where
packets were sent again at the border, the second capture begins with bytes that the first one has;
frames of these bytes are left out of the second. A frame that the end of the first cut is left out
of the first, if the second has all of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.links import Place, Plan, Row, begin_of, distance, end_of
from spark_jobs.tables import CONNECTION

_WRAP: Final = 1 << 32

Frame = tuple[str, int, int]  # capture, connection, number
Way = tuple[str, int, str]  # capture, connection, direction


class Overlap(NamedTuple):
    """Bytes that are in two captures; in each, stream offsets of the first one and behind the last.

    before, after: (capture, connection); shift: what an offset of the second is more in the first.
    """

    before: Place
    after: Place
    direction: str
    in_before: tuple[int, int]
    in_after: tuple[int, int]
    shift: int

    def windows(self) -> dict[Way, tuple[int, int]]:
        """Where in both streams to look for frames."""
        return {
            (*self.before, self.direction): self.in_before,
            (*self.after, self.direction): self.in_after,
        }


def overlaps(plan: Plan, connections: Iterable[Row]) -> list[Overlap]:
    """Where two captures of a connection have the same bytes."""
    rows = {(row["capture"], row["connection_id"]): row for row in connections}
    found = []
    for seam in plan.seams:
        if seam.missing is None or seam.missing >= 0 or seam.after not in plan.chains:
            continue
        before, after = rows[seam.before], rows[seam.after]
        way = seam.direction
        origin = before[f"isn_{way}"]
        origin = before[f"first_seq_{way}"] if origin is None else (origin + 1) % _WRAP
        end = _unwrapped(distance(origin, end_of(before, way)), before[f"stream_bytes_{way}"])
        start = after[f"first_seq_{way}"]
        first = distance(start, begin_of(after, way))
        border = distance(start, end_of(before, way))
        if end is None or first is None or border is None:
            continue
        shift = end - border
        found.append(
            Overlap(seam.before, seam.after, way, (first + shift, end), (first, border), shift)
        )
    return found


def _unwrapped(offset: int | None, length: int | None) -> int | None:
    """A stream offset of which only the lowest 32 bits are known, near the stream's length."""
    if offset is None or length is None:
        return offset
    return offset + _WRAP * round((length - offset) / _WRAP)


def repeated(found: Iterable[Overlap], frames: Iterable[Row]) -> list[Frame]:
    """The frames to leave out. frames: those of `windows`, of both captures."""
    by_way: dict[Way, list[Row]] = defaultdict(list)
    for row in frames:
        by_way[row["capture"], row["connection_id"], row["direction"]].append(row)
    left_out: list[Frame] = []
    for one in found:
        before = by_way[(*one.before, one.direction)]
        after = by_way[(*one.after, one.direction)]
        whole = {row["stream_offset"] for row in before if row["status"] != "cut_by_end"}
        again = {row["stream_offset"] + one.shift for row in after}
        left_out += [_key(row) for row in after if row["stream_offset"] + one.shift in whole]
        left_out += [
            _key(row)
            for row in before
            if row["status"] == "cut_by_end" and row["stream_offset"] in again
        ]
    return sorted(left_out)


def _key(row: Mapping[str, Any]) -> Frame:
    return row["capture"], row["connection_id"], row["frame_no"]


def counts(unread: Iterable[Row], sends: Iterable[Row], deliveries: Iterable[Row]) -> list[Row]:
    """Deliveries that end in the next capture, with the messages in them that their own bytes do
    not tell: as the publish of the same entry says it, or another delivery of all of it.

    Args:
        unread: deliveries without message_count, with group.
        sends: publishes and receipts of their groups, with chain: a receipt may be in another
            capture than its send. deliveries: of the same entries, message_count known.
    """
    known: dict[tuple[int, int, int], set[int]] = defaultdict(set)
    asked: dict[tuple[int, int, int, int], set[int]] = defaultdict(set)
    stored: list[tuple[tuple[int, int, int, int], tuple[int, int, int]]] = []
    for row in sends:
        entry = (row["group"], row["ledger_id"], row["entry_id"])
        sent = (row["group"], row["chain"], row["producer_id"], row["sequence_id"])
        if row["message_count"] is not None:
            asked[sent].add(row["message_count"])
            if row["ledger_id"] is not None:
                known[entry].add(row["message_count"])
        elif row["ledger_id"] is not None:
            stored.append((sent, entry))
    for sent, entry in stored:
        known[entry] |= asked[sent]
    for row in deliveries:
        known[row["group"], row["ledger_id"], row["entry_id"]].add(row["message_count"])
    found = []
    for row in unread:
        said = known[row["group"], row["ledger_id"], row["entry_id"]]
        if len(said) == 1:
            found.append({**row, "message_count": next(iter(said))})
    return found


def left_out(frames: DataFrame, plan: Plan, connections: Iterable[Row]) -> list[Frame]:
    """The frames of a lake to leave out, since another capture has them."""
    found = overlaps(plan, connections)
    windows = {way: window for one in found for way, window in one.windows().items()}
    if not windows:
        return []
    near = frames.sparkSession.createDataFrame(
        [(*way, *window) for way, window in windows.items()],
        "capture string, connection_id bigint, direction string, low bigint, high bigint",
    )
    rows = frames.join(F.broadcast(near), on=[*CONNECTION, "direction"])
    at = F.col("stream_offset")
    rows = rows.where((at >= F.col("low")) & (at < F.col("high")))
    names = (*CONNECTION, "direction", "frame_no", "stream_offset", "status")
    return repeated(found, rows.select(*names).toArrow().to_pylist())


def without(rows: DataFrame, found: Sequence[Frame]) -> DataFrame:
    """Rows that name frames, without those of some frames."""
    if not found:
        return rows
    schema = "capture string, connection_id bigint, frame_no bigint"
    keys = rows.sparkSession.createDataFrame(list(found), schema)
    return rows.join(F.broadcast(keys), on=[*CONNECTION, "frame_no"], how="left_anti")


def costs(tables: Mapping[str, DataFrame], plan: Plan) -> list[Row]:
    """Deliveries that end in the next capture, with the messages in them that their own bytes do
    not tell: capture, connection_id, frame_no, message_count.

    Args:
        tables: frames, exchanges and deliveries of the lake, with their capture.
    """
    borders = {seam.before for seam in plan.seams if seam.direction == "to_client"}
    captures = sorted({place[0] for place in borders})
    of_border = F.col("capture").isin(*captures)
    cut = tables["frames"].where(
        of_border & (F.col("status") == "cut_by_end") & (F.col("command") == "MESSAGE")
    )
    keys = {_key(row) for row in _rows(cut, *CONNECTION, "frame_no") if _place(row) in borders}
    if not keys:
        return []
    names = (*CONNECTION, "frame_no", "ledger_id", "entry_id", "message_count", "ack_set")
    is_cut = of_border & F.col("frame_no").isin(*{key[2] for key in keys})
    unread = [
        _with_group(row, plan)
        for row in _rows(tables["deliveries"].where(is_cut), *names)
        if _key(row) in keys and row["message_count"] is None and row["ack_set"] is None
    ]
    if not unread:
        return []
    entry = F.col("ledger_id").isin(*{row["ledger_id"] for row in unread}) & F.col("entry_id").isin(
        *{row["entry_id"] for row in unread}
    )
    here = F.col("capture").isin(*plan.captures)
    waiting = F.col("outcome").isin("unanswered_at_end", "lost_in_gap")
    publishes = tables["exchanges"].where(here & (F.col("kind") == "publish") & (entry | waiting))
    others = tables["deliveries"].where(
        here & entry & F.col("message_count").isNotNull() & F.col("ack_set").isNull()
    )
    sends = _rows(
        publishes, *CONNECTION, "ledger_id", "entry_id", "producer_id", "sequence_id",
        "message_count",
    )  # fmt: skip
    return counts(
        unread,
        [_with_group(row, plan) for row in sends],
        [_with_group(row, plan) for row in _rows(others, *names)],
    )


def _rows(rows: DataFrame, *names: str) -> list[Row]:
    found: list[Row] = rows.select(*names).toArrow().to_pylist()
    return found


def _place(row: Row) -> Place:
    return row["capture"], row["connection_id"]


def _with_group(row: Row, plan: Plan) -> Row:
    number, _ = plan.group_of()[row["capture"]]
    return {**row, "group": number, "chain": plan.chains.get(_place(row))}
