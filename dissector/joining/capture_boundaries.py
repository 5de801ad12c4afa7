"""Frames at the boundary of two captures of one connection.

If packets were retransmitted at the boundary, the second capture begins with bytes of the first;
frames of these bytes are left out of the second. A frame that the end of the first capture cut is
left out of the first, if the second has all of it. For a delivery that begins in the first and ends
in the second, other rows of the same entry give the number of its messages.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from dissector.joining.links import ConnectionId, Handover, Row, begin_of, distance, end_of

if TYPE_CHECKING:
    import duckdb

_WRAP: Final = 1 << 32

Flow = tuple[str, int, str]  # capture, connection, direction
LEFT_OUT: Final = pa.schema(
    [("capture", pa.string()), ("connection_id", pa.int64()), ("frame_no", pa.int64())]
)
_REPEATS: Final = pa.schema([*LEFT_OUT, ("direction", pa.string()), ("bytes", pa.int64())])
_COUNTS: Final = LEFT_OUT.append(pa.field("message_count", pa.int64()))
_WINDOWS: Final = pa.schema(
    [
        ("capture", pa.string()), ("connection_id", pa.int64()), ("direction", pa.string()),
        ("low", pa.int64()), ("high", pa.int64()),
    ]
)  # fmt: skip


class Repeat(NamedTuple):
    """A frame to leave out; bytes: the number of its bytes that the other capture has, too."""

    capture: str
    connection_id: int
    frame_no: int
    direction: str
    bytes: int


class Overlap(NamedTuple):
    """Bytes of one direction that two captures have.

    in_before, in_after: the stream offsets of the first byte and behind the last one in each.
    shift: an offset in the first capture minus the same byte's offset in the second.
    """

    before: ConnectionId
    after: ConnectionId
    direction: str
    in_before: tuple[int, int]
    in_after: tuple[int, int]
    shift: int

    def windows(self) -> dict[Flow, tuple[int, int]]:
        """The ranges of stream offsets to search for frames, of both captures."""
        return {
            (*self.before, self.direction): self.in_before,
            (*self.after, self.direction): self.in_after,
        }


def overlaps(handovers: Iterable[Handover], connections: Iterable[Row]) -> list[Overlap]:
    """The bytes that two captures of a connection have in common, by handover."""
    rows = {(row["capture"], row["connection_id"]): row for row in connections}
    overlapping = []
    for handover in handovers:
        if handover.missing is None or handover.missing >= 0:
            continue
        before, after = rows[handover.before], rows[handover.after]
        direction = handover.direction
        origin = before[f"isn_{direction}"]
        origin = before[f"first_seq_{direction}"] if origin is None else (origin + 1) % _WRAP
        end = _unwrapped(
            distance(origin, end_of(before, direction)), before[f"stream_bytes_{direction}"]
        )
        start = after[f"first_seq_{direction}"]
        first = distance(start, begin_of(after, direction))
        last = distance(start, end_of(before, direction))
        if end is None or first is None or last is None:
            continue
        shift = end - last
        overlapping.append(
            Overlap(
                handover.before,
                handover.after,
                direction,
                (first + shift, end),
                (first, last),
                shift,
            )
        )
    return overlapping


def _unwrapped(offset: int | None, length: int | None) -> int | None:
    """The stream offset nearest to the stream's length that has these lowest 32 bits."""
    if offset is None or length is None:
        return offset
    return offset + _WRAP * round((length - offset) / _WRAP)


def repeated(overlapping: Iterable[Overlap], frames: Iterable[Row]) -> list[Repeat]:
    """The frames to leave out, sorted. frames: in the `windows` of both captures."""
    by_flow: dict[Flow, list[Row]] = defaultdict(list)
    for row in frames:
        by_flow[row["capture"], row["connection_id"], row["direction"]].append(row)
    left_out: list[Repeat] = []
    for one in overlapping:
        before = by_flow[(*one.before, one.direction)]
        after = by_flow[(*one.after, one.direction)]
        complete = {row["stream_offset"] for row in before if row["status"] != "cut_by_end"}
        begun_after = {row["stream_offset"] + one.shift for row in after}
        left_out += [
            _repeat(row, row["frame_bytes"])
            for row in after
            if row["stream_offset"] + one.shift in complete
        ]
        left_out += [
            _repeat(row, one.in_before[1] - row["stream_offset"])
            for row in before
            if row["status"] == "cut_by_end" and row["stream_offset"] in begun_after
        ]
    return sorted(left_out)


def _key(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["capture"], row["connection_id"], row["frame_no"]


def _repeat(row: Mapping[str, Any], size: int) -> Repeat:
    return Repeat(*_key(row), row["direction"], size)


def counts(unread: Iterable[Row], sends: Iterable[Row], deliveries: Iterable[Row]) -> list[Row]:
    """Deliveries that end in the next capture, with message_count from the publish of the same
    entry, or from another delivery of it; without the ones whose count is unknown or ambiguous.

    Args:
        unread: deliveries without message_count.
        sends: publishes and receipts of their group, with chain: a receipt may be in another
            capture than its send.
        deliveries: of the same entries, with message_count.
    """
    known: dict[tuple[int, int], set[int]] = defaultdict(set)
    asked: dict[tuple[int, int, int], set[int]] = defaultdict(set)
    stored: list[tuple[tuple[int, int, int], tuple[int, int]]] = []
    for row in sends:
        entry = (row["ledger_id"], row["entry_id"])
        sent = (row["chain"], row["producer_id"], row["sequence_id"])
        if row["message_count"] is not None:
            asked[sent].add(row["message_count"])
            if row["ledger_id"] is not None:
                known[entry].add(row["message_count"])
        elif row["ledger_id"] is not None:
            stored.append((sent, entry))
    for sent, entry in stored:
        known[entry] |= asked[sent]
    for row in deliveries:
        known[row["ledger_id"], row["entry_id"]].add(row["message_count"])
    counted_rows = []
    for row in unread:
        counts = known[row["ledger_id"], row["entry_id"]]
        if len(counts) == 1:
            counted_rows.append({**row, "message_count": next(iter(counts))})
    return counted_rows


def find_left_out(
    db: "duckdb.DuckDBPyConnection", handovers: Sequence[Handover], *, has_near: bool = False
) -> None:
    """Create the table left_out: the frames that two captures have, and the common bytes of each.

    Args:
        db: with connections and handovers of the group, and all_frames.
        has_near: whether there are near_connections and near_frames, of captures of other
            increments (see `increments`) that share connections with these.
    """
    connections, frames = (
        f"(FROM {own} UNION ALL BY NAME FROM near_{table})" if has_near else own
        for own, table in (("connections", "connections"), ("all_frames", "frames"))
    )
    overlapping = []
    if any(handover.missing is not None and handover.missing < 0 for handover in handovers):
        rows = db.sql(
            f"SELECT c.* FROM {connections} AS c SEMI JOIN (SELECT before_capture AS capture, "
            "before_connection_id AS connection_id FROM handovers WHERE missing < 0 UNION ALL "
            "SELECT after_capture, after_connection_id FROM handovers WHERE missing < 0) "
            "USING (capture, connection_id)"
        )
        overlapping = overlaps(handovers, rows.to_arrow_table().to_pylist())
    # A capture may share bytes with the one before it and with the one behind it.
    windows = {(*flow, *window) for one in overlapping for flow, window in one.windows().items()}
    left_out: list[Repeat] = []
    if windows:
        db.register("windows", _table(sorted(windows), _WINDOWS))
        near = db.sql(
            "SELECT DISTINCT capture, connection_id, direction, frame_no, stream_offset, status, "
            f"frame_bytes FROM {frames} JOIN windows USING (capture, connection_id, direction) "
            "WHERE stream_offset >= low AND stream_offset < high"
        )
        left_out = repeated(overlapping, near.to_arrow_table().to_pylist())
    db.register("repeats", _table(left_out, _REPEATS))
    db.execute("CREATE TABLE left_out AS FROM repeats SEMI JOIN connections USING (capture)")


# Connections of near captures with the chain that they continue; others have a number of their own.
_NEAR_PLACED: Final = """
CREATE TABLE near_placed AS
SELECT capture, connection_id,
  coalesce(chain, -row_number() OVER (ORDER BY capture, connection_id)) AS chain
FROM (
  SELECT c.capture, c.connection_id, min(coalesce(b.chain, p.chain)) AS chain
  FROM near_connections AS c
  LEFT JOIN handovers AS s
    ON s.after_capture = c.capture AND s.after_connection_id = c.connection_id
  LEFT JOIN placed AS b
    ON b.capture = s.before_capture AND b.connection_id = s.before_connection_id
  LEFT JOIN placed AS p ON p.capture = c.capture AND p.connection_id = c.connection_id
  GROUP BY c.capture, c.connection_id
)
"""


def find_message_counts(db: "duckdb.DuckDBPyConnection", *, has_near: bool = False) -> None:
    """Create the table message_counts: the messages of deliveries that end in the next capture.

    Args:
        db: with frames, deliveries, exchanges, handovers and placed.
        has_near: as for `find_left_out`, of near_exchanges and near_deliveries, too.
    """
    db.execute(
        """
        CREATE TABLE unread AS
        WITH to_client_handovers AS (
          SELECT before_capture AS capture, before_connection_id AS connection_id FROM handovers
          WHERE direction = 'to_client'
        ),
        cut AS (
          SELECT capture, connection_id, frame_no
          FROM frames SEMI JOIN to_client_handovers USING (capture, connection_id)
          WHERE status = 'cut_by_end' AND command = 'MESSAGE'
        )
        SELECT capture, connection_id, frame_no, ledger_id, entry_id, crc32c_stored
        FROM deliveries SEMI JOIN cut USING (capture, connection_id, frame_no)
        WHERE message_count IS NULL AND ack_set IS NULL
        """
    )
    unread = db.table("unread").to_arrow_table().to_pylist()
    counted: list[Row] = []
    if unread:
        exchanges, deliveries, placed = "exchanges", "deliveries", "placed"
        if has_near:
            db.execute(_NEAR_PLACED)
            exchanges, deliveries = (
                f"(FROM {name} UNION ALL BY NAME FROM near_{name})"
                for name in (exchanges, deliveries)
            )
            placed = (
                "(SELECT capture, connection_id, chain FROM placed UNION BY NAME FROM near_placed)"
            )
        entries = "(SELECT DISTINCT ledger_id, entry_id FROM unread)"
        sends = db.sql(
            "SELECT p.chain, e.ledger_id, e.entry_id, e.producer_id, e.sequence_id, "
            f"e.message_count FROM {exchanges} AS e JOIN {placed} AS p "
            f"USING (capture, connection_id) LEFT JOIN {entries} AS u "
            "USING (ledger_id, entry_id) WHERE e.kind = 'publish' "
            "AND (u.entry_id IS NOT NULL OR e.outcome IN ('unanswered_at_end', 'lost_in_gap'))"
        )
        others = db.sql(
            f"SELECT ledger_id, entry_id, message_count FROM {deliveries} SEMI JOIN {entries} "
            "USING (ledger_id, entry_id) WHERE message_count IS NOT NULL AND ack_set IS NULL"
        )
        counted = counts(
            unread, sends.to_arrow_table().to_pylist(), others.to_arrow_table().to_pylist()
        )
    keys = [(*_key(row), row["message_count"]) for row in counted]
    db.register("costs", _table(keys, _COUNTS))
    db.execute("CREATE TABLE message_counts AS FROM costs")


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema
    )
