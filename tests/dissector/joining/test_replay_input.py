"""The order in which the replay reads the rows of captures, on hand-made rows."""

from typing import Any

from dissector.joining.capture_boundaries import find_left_out
from dissector.joining.connection_ends import find_events
from dissector.joining.gaps import find_gaps
from dissector.joining.links import Row
from dissector.joining.replay_cursus import InputKind
from dissector.joining.replay_input import input_rows
from tests.dissector.joining.made import placed, planned
from tests.dissector.joining.test_links import S, after, row


def frame(capture: str, connection: int, number: int, packet: int, **more: Any) -> Row:
    return {
        "capture": capture, "connection_id": connection, "frame_no": number,
        "protocol": "cursus", "direction": "to_broker", "status": "complete", "command": "BATCH",
        "stream_offset": 0, "frame_bytes": 9, "last_packet": packet, "last_ts_ns": packet, **more,
    }  # fmt: skip


def fed(connections: list[Row], frames: list[Row], **rows: list[Row]) -> list[Row]:
    """Rows of the replay's input, in its order; connections are those of Cursus."""
    connections = [{**each, "protocol": "cursus"} for each in connections]
    names = ("deliveries", "events", "exchanges", "messages", "notices")
    db = placed(connections, frames=frames, **{name: rows.get(name, []) for name in names})
    db.execute("CREATE VIEW all_frames AS FROM frames")
    db.execute("ALTER TABLE events RENAME TO all_events")
    plan = planned(connections, [sorted({each["capture"] for each in connections})])
    find_left_out(db, plan.handovers)
    find_events(db)
    find_gaps(db)
    (group,) = plan.groups
    return [
        each for batch in input_rows(db, is_in_turn=group.is_in_turn) for each in batch.to_pylist()
    ]


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return [(each["rank"], each["frame_no"]) for each in rows if each["kind"] == InputKind.FRAME]


def test_frames_come_by_turns_and_captures_one_behind_the_other() -> None:
    connections = [row("a", 0), row("a", 1, connection_key="x"),
                   after("b", 0)]  # fmt: skip
    # Frame 3 was held back at the begin of its capture; frame 2 came whole before frame 1.
    frames = [frame("a", 1, 1, 5), frame("a", 1, 2, 4), frame("a", 0, 3, 2), frame("b", 0, 1, 1)]
    assert places(fed(connections, frames)) == [(0, 3), (0, 1), (0, 2), (1, 1)]


def test_captures_that_lasted_at_once_are_merged_by_time() -> None:
    connections = [
        row("a", 0, last_ts_ns=9 * S), row("a", 1, connection_key="x"),
        row("b", 0, connection_key="y", first_ts_ns=S),
    ]  # fmt: skip
    times = {("a", 1): 50, ("a", 2): 70, ("a", 3): 20, ("b", 1): 10, ("b", 2): 60}
    packets = {("a", 1): 5, ("a", 2): 7, ("a", 3): 2, ("b", 1): 1, ("b", 2): 2}
    frames = [
        frame(capture, int(capture == "a" and number < 3), number, packets[capture, number],
              last_ts_ns=time)
        for (capture, number), time in times.items()
    ]  # fmt: skip
    assert places(fed(connections, frames)) == [(1, 1), (0, 3), (0, 1), (1, 2), (0, 2)]


def test_what_a_batch_says_comes_behind_it() -> None:
    at = {"capture": "a", "connection_id": 0}
    got = {**at, "frame_no": 1, "entry_id": 7, "message_count": 2, "place": 0}
    sent = {**at, "request_frame_no": 2, "request_command": "BATCH", "outcome": "not_awaited"}
    frames = [frame("a", 0, 1, 5), frame("a", 0, 2, 6)]
    rows = fed([row("a"), row("b", connection_key="x")], frames, deliveries=[got], exchanges=[sent])
    found = [(each["kind"], each["entry_id"], each["permits"]) for each in rows]
    assert found == [
        (InputKind.FRAME, None, None), (InputKind.COST, 7, None),
        (InputKind.FRAME, None, None), (InputKind.COST, None, 0),
    ]  # fmt: skip


def test_a_frame_that_goes_on_keeps_its_place() -> None:
    cut = frame("a", 0, 1, 5, status="cut_by_end")
    assert places(fed([row("a"), after("b")], [cut])) == [(0, 1)]
