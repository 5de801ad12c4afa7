"""Events that the rows of connections tell, on hand-made rows."""

from typing import Any

from dissector.joining import links
from dissector.joining.connection_ends import find_events
from dissector.protocols.columns import FrameEvent
from dissector.stream.columns import ENDED_FIN, ENDED_RST
from tests.dissector.joining.made import placed
from tests.dissector.joining.test_links import after, row


def events(*rows: links.Row) -> list[tuple[Any, ...]]:
    db = placed([each | {"protocol": each["protocol"] or "pulsar"} for each in rows])
    find_events(db)
    names = "rank, event_code, direction, last_packet, frames_missing"
    return db.sql(f"SELECT {names} FROM events ORDER BY rank, place").fetchall()


def test_a_connection_ends_where_its_row_says() -> None:
    then = after("b", ended="rst", ended_packet=9, fin_packet_to_broker=7)
    assert events(row("a"), then) == [
        (1, FrameEvent.FIN, "to_broker", 7, None), (1, FrameEvent.CLOSE, "to_client", 9, ENDED_RST),
    ]  # fmt: skip


def test_directions_that_end_in_different_captures_end_their_connection() -> None:
    before = row("a", fin_packet_to_client=8)
    then = after("b", first_seq_to_client=901, fin_packet_to_broker=3)
    assert events(before, then) == [
        (0, FrameEvent.FIN, "to_client", 8, None), (1, FrameEvent.FIN, "to_broker", 3, None),
        (1, FrameEvent.CLOSE, "to_client", 3, ENDED_FIN),
    ]  # fmt: skip


def test_bytes_between_captures_are_a_hole_before_the_second() -> None:
    found = events(row("a"), after("b", first_seq_to_broker=2040, protocol="cursus"))
    assert found == [(1, FrameEvent.GAP, "to_broker", None, 1)]


def test_what_has_no_frames_has_no_events() -> None:
    scan = row("b", 4, connection_key="scan", protocol="none", ended="rst", ended_packet=3)
    assert events(row("a"), scan) == []
