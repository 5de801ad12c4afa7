"""What stands between frames: each hole, skipped range and end at its place among them."""

import random
from typing import Any

import numpy as np

from dissector.dissection.event_rows import EventRows
from dissector.limits import NULL
from dissector.protocols.columns import FrameEvent, new_frame_columns
from dissector.protocols.interface import FrameBlock
from dissector.stream.columns import ENDED_NAMES
from tests.hard.tape import START_NS, STEP_NS, Tape, capture, dissected, simple, talk
from tests.plain import rows_of_block
from tests.wire.packets import ACK, RST

EMPTY = np.empty(0, np.uint8)
SOURCES = (EMPTY, EMPTY, EMPTY, EMPTY)
SHOWN = ("event", "direction", "behind_frame_no", "bytes", "is_inside", "ended")


def shown(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in SHOWN) for row in events]


def test_ends_stand_behind_the_last_frame() -> None:
    tape = talk(sends=2)
    tables = dissected(capture(tape.records()))
    last = tables["frames"][-1]["frame_no"]
    assert shown(tables["events"]) == [
        ("fin", "to_broker", last, None, None, None),
        ("fin", "to_client", last, None, None, None),
        ("close", None, last, None, None, "fin"),
    ]
    assert [row["event_no"] for row in tables["events"]] == [1, 2, 3]
    fin = tables["events"][0]
    count = len(tape.packets)
    assert fin["packet"] == count - 2 and fin["stream_offset"] == len(tape.sent[0])
    assert fin["ts_ns"] == START_NS + (count - 3) * STEP_NS


def test_a_hole_of_whole_frames_stands_between_those_around_it() -> None:
    """The first of three pings is missing, and its answer tells that more was said since."""
    tape = Tape()
    tape.open()
    tape.connect()
    lost = len(tape.packets)
    for _ in range(3):
        tape.frame(True, simple("PING"))
        tape.frame(False, simple("PONG"))
    ping = tape.packets[lost]
    del tape.packets[lost : lost + 2]
    tables = dissected(capture(tape.records()))
    gaps = [row for row in tables["events"] if row["event"] == "gap"]
    (gap,) = gaps
    assert gap["bytes"] == len(ping.payload) and gap["is_inside"] is False
    assert gap["direction"] == "to_broker"
    assert gap["stream_offset"] == sum(map(len, tape.frames[0][:2]))
    said = {row["frame_no"]: row["command"] for row in tables["frames"]}
    before = [said[number] for number in said if number <= gap["behind_frame_no"]]
    assert before[:4] == ["CONNECT", "CONNECTED", "PRODUCER", "PRODUCER_SUCCESS"]
    assert before.count("PING") == 0


def test_a_hole_in_one_frame_hides_no_other() -> None:
    tape = Tape()
    tape.open()
    tape.connect()
    begin = len(tape.packets)
    tape.publish(0, b"x" * 6000)
    del tape.packets[begin + 2]
    tape.publish(1, b"y")
    tape.close()
    tables = dissected(capture(tape.records()))
    (gap,) = (row for row in tables["events"] if row["event"] == "gap")
    (send,) = (row for row in tables["frames"] if row["status"] == "cut_by_gap")
    assert gap["bytes"] == tape.mss and gap["is_inside"] is True
    assert gap["behind_frame_no"] < send["frame_no"]
    begins = send["stream_offset"]
    assert begins < gap["stream_offset"] < begins + send["frame_bytes"]


def test_bytes_without_frames_stand_before_the_frame_that_follows() -> None:
    tape = Tape()
    tape.open()
    tape.connect()
    tape.publish(0, b"one")
    noise = random.Random(1).randbytes(700)
    tape.say(True, noise)
    for number in range(1, 8):
        tape.publish(number, b"two")
    tape.close()
    tables = dissected(capture(tape.records()))
    (skipped,) = (row for row in tables["events"] if row["event"] == "skipped")
    assert skipped["bytes"] == len(noise) and skipped["is_inside"] is False
    sends = [row for row in tables["frames"] if row["command"] == "SEND"]
    assert skipped["stream_offset"] == sends[1]["stream_offset"]
    assert sends[0]["frame_no"] <= skipped["behind_frame_no"] < sends[1]["frame_no"]


def test_a_connection_that_is_reset_says_so() -> None:
    tape = talk(sends=1)
    del tape.packets[-3:]
    tape.add(False, RST | ACK)
    assert shown(dissected(capture(tape.records()))["events"])[-1][-1] == "rst"


def test_what_is_not_read_has_none() -> None:
    tape = Tape()
    tape.open()
    tape.say(True, b"\x16\x03\x01" + bytes(400))
    tape.close()
    assert "events" not in dissected(capture(tape.records()))


def block(*rows: dict[str, int]) -> FrameBlock:
    matrix, frames = new_frame_columns(len(rows))
    for at, row in enumerate(rows):
        for name, value in ({"connection_id": 0, "protocol": 0, "direction": 1} | row).items():
            getattr(frames, name)[at] = value
    return FrameBlock(matrix, frames, len(rows), SOURCES)


def test_numbers_go_on_from_block_to_block() -> None:
    made = EventRows(2)
    close = {"command": int(FrameEvent.CLOSE), "status": ENDED_NAMES.index("idle")}
    gap = {"command": int(FrameEvent.GAP), "frames_missing": 0, "frame_bytes": 9}
    assert made.rows(block()) == []
    assert made.rows(block({"frame_no": 1, "command": 3})) == []
    (first,) = made.rows(block(gap, {"frame_no": 2, "command": 3}, close))
    (second,) = made.rows(block(gap | {"protocol": 1}))
    rows = rows_of_block(first) + rows_of_block(second)
    assert shown(rows) == [
        ("gap", "to_client", 1, 9, True, None),
        ("close", None, 2, None, None, "idle"),
        ("gap", "to_client", 2, 9, True, None),
    ]
    assert [row["event_no"] for row in rows] == [1, 2, 3]
    assert made.rows(block(gap | {"protocol": 2}, gap | {"protocol": NULL})) == []
