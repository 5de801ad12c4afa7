"""What Spark does to join captures, in plain Python: the input of the replay, and its rows."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
from spark_jobs.replay_cursus import AllReplays

from dissector.dissection import Dissection, Options
from dissector.limits import REORDER_WINDOW_MS
from dissector.protocols.columns import EVENT_GAP, EVENT_SKIPPED
from dissector.schemas.rows import arrow_batch
from spark_jobs import borders, closing, endings, links, replay

Row = dict[str, Any]
Rows = dict[str, list[Row]]
TABLES = ("exchanges", "deliveries", "permits")
READ = (*TABLES, "frames", "acks", "notices", "connections", "messages")


def dissected(data: bytes) -> Rows:
    """The rows of a capture file."""
    dissection = Dissection(Options())
    dissection.start_file()
    _, blocks = dissection.feed(np.frombuffer(bytearray(data), np.uint8), 0, len(data), True)
    dissection.end_file()
    found: Rows = {name: [] for name in READ}
    for block in [*blocks, *dissection.finish()]:
        if block.table in found:
            found[block.table] += arrow_batch(block).to_pylist()
    return found


def planned(captures: dict[str, Rows]) -> tuple[links.Plan, list[Row]]:
    """The plan that reads captures one behind the other, and their connections."""
    connections = [
        {**row, "capture": name} for name, rows in captures.items() for row in rows["connections"]
    ]
    spans = {}
    for name, rows in captures.items():
        times = [row[key] for row in rows["connections"] for key in ("first_ts_ns", "last_ts_ns")]
        spans[name] = (min(times, default=0), max(times, default=0))
    return links.plan(connections, spans, [sorted(captures)]), connections


def replay_input(captures: dict[str, Rows], plan: links.Plan, connections: list[Row]) -> list[Row]:
    """The rows that the replay reads, in order."""
    places = {
        (row["capture"], row["connection_id"]): row
        for row in closing.places(plan, connections).to_pylist()
    }
    captures = _once(captures, plan, connections)
    nothing = dict.fromkeys((*replay.INPUT.names, "last_packet"))
    found = [nothing | row for row in endings.ends(plan, connections)]
    for name, rows in captures.items():
        mine = {place[1]: row for place, row in places.items() if place[0] == name}
        costs = _counts(name, captures, places) + _of_batches(rows, mine)
        for kind, kept in (
            (replay.FRAME, [row for row in rows["frames"] if _is_read(row, mine)]),
            (replay.ID, rows["acks"]),
            (replay.COST, [row for row in rows["deliveries"] if _has_cost(row)] + costs),
            (replay.EVENT, _gaps(rows, mine)),
        ):
            found += [_input(row, kind, mine) for row in kept if row["connection_id"] in mine]
    return _in_order(found, places)


def _once(captures: dict[str, Rows], plan: links.Plan, connections: list[Row]) -> dict[str, Rows]:
    """Captures without frames that another one has as well."""
    frames = [{**row, "capture": name} for name, rows in captures.items() for row in rows["frames"]]
    found = set(borders.repeated(borders.overlaps(plan, connections), frames))
    return {
        name: rows | {
            table: [row for row in rows[table]
                    if (name, row["connection_id"], row["frame_no"]) not in found]
            for table in ("frames", "acks", "deliveries")
        }
        for name, rows in captures.items()
    }  # fmt: skip


def _counts(name: str, captures: dict[str, Rows], places: dict[links.Place, Row]) -> list[Row]:
    """Deliveries of a capture that end in the next, with the messages in them."""

    def of_all(table: str) -> list[Row]:
        return [
            {**row, "capture": each, **_placed(places, each, row)}
            for each, rows in captures.items() for row in rows[table]
            if (each, row["connection_id"]) in places
        ]  # fmt: skip

    cut = {
        row["frame_no"] for row in captures[name]["frames"]
        if row["status"] == "cut_by_end" and row["command"] == "MESSAGE"
    }  # fmt: skip
    unread = [row for row in of_all("deliveries") if row["capture"] == name
              and row["frame_no"] in cut and row["message_count"] is None]  # fmt: skip
    whole = [row for row in of_all("deliveries")
             if row["message_count"] is not None and row["ack_set"] is None]  # fmt: skip
    sends = [row for row in of_all("exchanges") if row["kind"] == "publish"]
    return borders.counts(unread, sends, whole)


def _placed(places: dict[links.Place, Row], capture: str, row: Row) -> Row:
    placed = places[capture, row["connection_id"]]
    return {"group": placed["group"], "chain": placed["chain"]}


def _input(row: Row, kind: int, mine: dict[int, Row]) -> Row:
    placed = mine[row["connection_id"]]
    made = {name: row.get(name) for name in (*replay.INPUT.names, "last_packet", "turn")}
    more = {name: placed[name] for name in ("group", "rank", "chain", "is_cursus")}
    return made | more | {"kind": kind}


def _is_read(row: Row, mine: dict[int, Row]) -> bool:
    if row["connection_id"] not in mine:
        return False
    if mine[row["connection_id"]]["is_cursus"]:
        return bool(row["protocol"] == "cursus")
    if row["protocol"] != "pulsar":
        return False
    is_named = row["command"] in ("SEND", "MESSAGE") and (
        row["producer_id"] is not None or row["consumer_id"] is not None
    )
    way = "to_client" if row["direction"] == "to_client" else "to_broker"
    goes_on = mine[row["connection_id"]][f"goes_on_{way}"]
    return not (goes_on and row["status"] == "cut_by_end" and not is_named)


def _of_batches(rows: Rows, mine: dict[int, Row]) -> list[Row]:
    """What is told of batches of Cursus: offsets and first record, or how they were answered."""
    first = {row["frame_no"]: row for row in rows["messages"] if not row["batch_index"]}
    found = []
    for row in rows["deliveries"]:
        if row["connection_id"] in mine and mine[row["connection_id"]]["is_cursus"]:
            record = first.get(row["frame_no"], {})
            names = ("producer_name", "sequence_id")
            found.append({**row, **{name: record.get(name) for name in names}})
    for row in rows["exchanges"]:
        if row["connection_id"] in mine and row["request_command"] == "BATCH":
            told = {"frame_no": row["request_frame_no"], "connection_id": row["connection_id"],
                    "permits": 0 if row["outcome"] == "not_awaited" else 1,
                    "redelivery_count": int(row["outcome"] == "dup_or_dropped")}  # fmt: skip
            found.append(told)
    return found


def _has_cost(row: Row) -> bool:
    plain = 1 if row["batch_size"] is None else row["batch_size"]
    return row["ack_set"] is not None or plain != row["message_count"]


def _gaps(rows: Rows, mine: dict[int, Row]) -> list[Row]:
    codes = {"gap_lost": EVENT_GAP, "resync": EVENT_SKIPPED, "midstream_start": EVENT_SKIPPED}
    found = []
    for notice in rows["notices"]:
        at, placed = notice["stream_offset"], mine.get(notice["connection_id"])
        if notice["code"] not in codes or at is None or placed is None:
            continue
        way = "to_client" if notice["direction"] == "to_client" else "to_broker"
        if notice["code"] == "midstream_start" and placed[f"comes_from_{way}"]:
            continue
        same = [
            row for row in rows["frames"]
            if (row["connection_id"], row["direction"])
            == (notice["connection_id"], notice["direction"])
        ]  # fmt: skip
        behind = [row for row in same if _stop(row) > at]
        last = max((row for row in same if _stop(row) <= at), key=_stop, default=None)
        frame = min(behind, key=_stop, default=None)
        is_hole = notice["code"] == "gap_lost"
        if frame is None and (not is_hole or placed[f"goes_on_{way}"]):
            continue
        revealed = None
        if is_hole and (frame is None or frame["stream_offset"] >= at):
            packets = [notice["packet"], frame and frame["first_packet"]]
            revealed = min(packet for packet in packets if packet is not None)
        is_inside = frame is not None and frame["stream_offset"] < at
        is_inside = is_inside and _stop(frame) >= at + (notice["bytes"] or 0)
        found.append(
            {
                "connection_id": notice["connection_id"], "direction": notice["direction"],
                "event_code": codes[notice["code"]], "stream_offset": at,
                "frame_bytes": notice["bytes"], "frames_missing": 0 if is_inside else 1,
                "revealed": revealed, "given_up": notice["packet"], "before": last,
                "frame_no": frame["frame_no"] - 1 if frame else 0, "turn": None,
            }
        )  # fmt: skip
    for row in found:
        if row["revealed"] is not None:
            others = [
                other for other in found
                if other["connection_id"] == row["connection_id"]
                and other["revealed"] is not None
                and other["revealed"] < row["revealed"]
                and other["given_up"] >= row["given_up"]
            ]  # fmt: skip
            row |= {"turn": row["revealed"], "frame_no": 0}
            if others and row["before"] is not None:
                row["turn"] = row["before"]["last_packet"]
                row["frame_no"] = row["before"]["frame_no"]
    return found


def _stop(row: Row) -> int:
    stop: int = row["stream_offset"] + row["frame_bytes"]
    return stop


def _in_order(rows: list[Row], places: dict[links.Place, Row]) -> list[Row]:
    times = {(row["group"], row["rank"]): row for row in places.values()}
    latest: dict[Any, int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: (row["frame_no"], row["kind"])):
        key = row["group"], row["rank"], row["chain"]
        latest[key] = max(latest[key], row["last_packet"] or 0)
        if row.get("turn") is None:
            row["turn"] = latest[key]
    stamps: dict[Any, int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: (row["turn"], row["frame_no"], row["kind"])):
        placed = times[row["group"], row["rank"]]
        if not placed["is_in_turn"]:
            key = row["group"], row["rank"]
            stamps[key] = max(stamps[key], row["last_ts_ns"] or 0, placed["floor_ns"])
            row["time"] = stamps[key]
    names = ("group", "time", "rank", "turn", "frame_no", "kind")
    return sorted(rows, key=lambda row: tuple(row.get(name) or 0 for name in names))


def joined(captures: dict[str, Rows], at_once: int = 500) -> Rows:
    """The rows that joining captures of one group gives."""
    plan, connections = planned(captures)
    run = AllReplays(REORDER_WINDOW_MS * 1_000_000)
    rows = replay_input(captures, plan, connections)
    found: Rows = {name: [] for name in TABLES}
    tables = []
    for start in range(0, len(rows), at_once):
        part = [{name: row[name] for name in replay.INPUT.names}
                for row in rows[start : start + at_once]]  # fmt: skip
        tables += list(run.feed(pa.Table.from_pylist(part, schema=replay.INPUT)))
    heads = {row["chain"]: row for row in reversed(closing.places(plan, connections).to_pylist())}
    for table in [*tables, *run.finish()]:
        for row in table.to_pylist():
            if row["table"] == "exchanges":
                head = heads[row["connection_id"]]
                row |= {"client_ip": head["head_client_ip"], "broker_ip": head["head_broker_ip"]}
            if row["table"] in found:
                found[row["table"]].append(row)
    return found
