"""Holes among the frames of both directions, on hand-made rows."""

from collections.abc import Sequence
from typing import Any

from dissector.joining.gaps import find_gaps
from tests.dissector.joining.made import placed
from tests.dissector.joining.test_links import row

FRAME = ("direction", "frame_no", "stream_offset", "frame_bytes", "first_packet", "last_packet")
NOTICE = ("direction", "code", "stream_offset", "bytes", "packet")


EVENT = ("direction", "event", "stream_offset", "bytes", "packet")


def places(
    frames: list[Any], notices: list[Any], events: Sequence[Any] = (), **connection: Any
) -> list[tuple[Any, ...]]:
    """Per hole: offset, turn, frame number, and whether frames may be missing."""
    own = {"capture": "a", "connection_id": 0}
    db = placed(
        [row("a", protocol="pulsar", **connection), row("b", connection_key="other")],
        frames=[own | dict(zip(FRAME, each, strict=True)) for each in frames],
        notices=[own | dict(zip(NOTICE, each, strict=True)) for each in notices],
        events=[own | dict(zip(EVENT, each, strict=True)) for each in events],
    )
    db.execute("ALTER TABLE events RENAME TO all_events")
    find_gaps(db)
    names = "stream_offset, turn, frame_no, frames_missing"
    return db.sql(f"SELECT {names} FROM gaps ORDER BY stream_offset").fetchall()


def test_a_hole_comes_with_the_packet_that_reveals_it() -> None:
    frames = [
        ("to_client", 1, 0, 100, 3, 3), ("to_client", 4, 150, 50, 8, 8),
        ("to_client", 9, 200, 300, 12, 15), ("to_broker", 2, 0, 900, 5, 5),
    ]  # fmt: skip
    notices = [
        ("to_client", "gap_lost", 100, 50, 10),  # by the packet behind it
        ("to_client", "gap_lost", 220, 10, 14),  # within a frame
        ("to_client", "gap_lost", 500, 30, 18),  # by an acknowledgement
        ("to_client", "other", 0, 10, 1), ("to_broker", "resync", 0, 7, 5),
    ]  # fmt: skip
    assert places(frames, notices) == [
        (0, None, 1, 1), (100, 8, 0, 1), (220, None, 8, 0), (500, 18, 0, 1),
    ]  # fmt: skip


def test_holes_that_leave_together_have_places_of_their_own() -> None:
    frames = [
        ("to_client", 1, 0, 100, 3, 3), ("to_client", 4, 150, 50, 8, 8),
        ("to_client", 7, 220, 50, 11, 11),
    ]  # fmt: skip
    for packet in (20, 25):
        notices = [
            ("to_client", "gap_lost", 100, 50, 20),
            ("to_client", "gap_lost", 200, 20, packet),
        ]
        assert places(frames, notices) == [(100, 8, 0, 1), (200, 11, 0, 1)]


def test_inside_tls_holes_lie_where_frames_lost_bytes() -> None:
    """Notices of the stream count the bytes of TCP."""
    frames = [("to_client", 1, 0, 100, 3, 3), ("to_client", 4, 150, 50, 8, 8)]
    notices = [("to_client", "gap_lost", 400, 80, 8)]
    events = [("to_client", "gap", 100, 50, 8), ("to_client", "fin", 200, None, 9)]
    inside = {"tls_decryption": "decrypted"}
    assert places(frames, notices, events, **inside) == [(100, 8, 0, 1)]
    assert places(frames, [("to_client", "gap_lost", 100, 50, 8)], events) == [(100, 8, 0, 1)]
