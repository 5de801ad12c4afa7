"""Events that the rows of connections tell, on hand-made rows."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.protocols.columns import EVENT_CLOSE, EVENT_FIN, EVENT_GAP
from dissector.stream.columns import ENDED_FIN, ENDED_RST
from spark_jobs import endings, links
from tests.spark_jobs.test_links import after, row


def events(*rows: links.Row) -> list[tuple[Any, ...]]:
    spans = {each["capture"]: (each["first_ts_ns"], each["last_ts_ns"]) for each in rows}
    found = endings.ends(links.plan(rows, spans), rows)
    names = ("rank", "event_code", "direction", "last_packet", "frames_missing")
    return [tuple(each.get(name) for name in names) for each in found]


def test_a_connection_ends_where_its_row_says() -> None:
    then = after("b", ended="rst", ended_packet=9, fin_packet_to_broker=7)
    assert events(row("a"), then) == [
        (1, EVENT_FIN, "to_broker", 7, None), (1, EVENT_CLOSE, "to_client", 9, ENDED_RST),
    ]  # fmt: skip


def test_directions_that_end_in_different_captures_end_their_connection() -> None:
    before = row("a", fin_packet_to_client=8)
    then = after("b", first_seq_to_client=901, fin_packet_to_broker=3)
    assert events(before, then) == [
        (0, EVENT_FIN, "to_client", 8, None), (1, EVENT_FIN, "to_broker", 3, None),
        (1, EVENT_CLOSE, "to_client", 3, ENDED_FIN),
    ]  # fmt: skip


def test_bytes_between_captures_are_a_hole_before_the_second() -> None:
    found = events(row("a"), after("b", first_seq_to_broker=2040, protocol="cursus"))
    assert found == [(1, EVENT_GAP, "to_broker", None, 1)]


def test_connections_of_cursus_are_told() -> None:
    rows = [row("a", protocol="cursus"), after("b", protocol="none"),
            row("a", 1, protocol="pulsar", connection_key="else")]  # fmt: skip
    plan = links.plan(rows, {"a": (0, 10), "b": (10, 20)})
    assert endings.cursus_chains(plan, {endings.place_of(each): each for each in rows}) == {(0, 0)}
