"""Which captures and connections belong together, on hand-made rows."""

from typing import Any

import pytest

from dissector import limits
from dissector.joining import links

S = 1_000_000_000


def row(capture: str, number: int = 0, **given: Any) -> links.Row:
    """A connection that is cut on both sides: bytes 1000 to 2000 there, 500 to 900 back."""
    row: links.Row = dict.fromkeys(links.COLUMNS)
    row |= {
        "capture": capture, "connection_id": number, "connection_key": "a:1 b:2",
        "started": "midstream", "ended": "capture_end", "first_ts_ns": 0, "last_ts_ns": 10 * S,
        "first_seq_to_broker": 1000, "last_seq_to_broker": 2000,
        "first_seq_to_client": 500, "last_seq_to_client": 900,
    }  # fmt: skip
    return row | given


def after(capture: str, number: int = 0, **given: Any) -> links.Row:
    """The connection that goes on where `row` stops."""
    more = {
        "first_ts_ns": 10 * S, "last_ts_ns": 20 * S, "first_seq_to_broker": 2000,
        "last_seq_to_broker": 3000, "first_seq_to_client": 900, "last_seq_to_client": 1500,
    }  # fmt: skip
    return row(capture, number, **(more | given))


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ({}, {}),
        ({"last_seq_to_broker": (1 << 32) - 10}, {"first_seq_to_broker": 90}),
        ({"last_seq_to_client": None}, {}),
        ({"last_seq_to_client": None, "last_seq_to_broker": None}, {}),
        ({"last_seq_to_broker": None, "isn_to_broker": 1999}, {}),
        ({"fin_packet_to_broker": 4}, {"first_seq_to_broker": 2001}),
    ],
)
def test_a_connection_goes_on(before: dict[str, Any], then: dict[str, Any]) -> None:
    one, other = row("a", **before), after("b", **then)
    assert links.continues(one, other)
    assert links.missing(one, other, "to_broker") in (0, 100, None)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ({"ended": "fin"}, {}),
        ({}, {"started": "syn"}),
        ({}, {"first_ts_ns": 5 * S}),
        ({}, {"first_seq_to_broker": 2000 + 2 * limits.MAX_HANDOVER_BYTES}),
        ({"last_seq_to_client": None, "last_seq_to_broker": None}, {"first_ts_ns": 3600 * S}),
    ],
)
def test_another_connection_of_the_same_ends(before: dict[str, Any], then: dict[str, Any]) -> None:
    assert not links.continues(row("a", **before), after("b", **then))


def test_a_border_within_a_handshake_divides_no_connection() -> None:
    """One capture ends with the SYN, the next begins with the SYN-ACK; a second SYN of the same
    port is another connection."""
    syn = {"started": "syn", "isn_to_broker": 1999, "first_seq_to_broker": 1999}
    asked = row("a", **syn, last_seq_to_broker=2000, first_seq_to_client=None,
                last_seq_to_client=None)  # fmt: skip
    answered = after("b", started="syn", isn_to_broker=1999, isn_to_client=899)
    pair = links.find_handovers([asked, answered])
    assert [(each.before, each.after) for each in pair] == [(("a", 0), ("b", 0))] * 2
    for other in ({"isn_to_broker": 77}, {"isn_to_client": None}):
        assert links.find_handovers([asked, answered | other]) == []


@pytest.mark.parametrize(("first", "missing"), [(900, None), (950, 50), (1 << 30, None)])
def test_a_capture_without_bytes_of_a_direction_hides_no_missing_ones(
    first: int, missing: int | None
) -> None:
    silent = after("b", first_seq_to_client=None, last_seq_to_client=None)
    third = after(
        "c", first_ts_ns=20 * S, first_seq_to_broker=3000, first_seq_to_client=first,
        last_seq_to_client=first + 600, last_ts_ns=30 * S,
    )  # fmt: skip
    found = {
        (handover.after[0], handover.direction): handover.missing
        for handover in links.find_handovers([row("a"), silent, third])
    }
    assert found == {
        ("b", "to_broker"): 0, ("b", "to_client"): None,
        ("c", "to_broker"): 0, ("c", "to_client"): missing,
    }  # fmt: skip


def test_what_comes_behind_an_end_belongs_to_it() -> None:
    ended = row("a", ended="fin", ended_packet=9, fin_packet_to_broker=8, fin_packet_to_client=9)
    tail = after("b", protocol="none", first_seq_to_broker=2001, first_seq_to_client=901)
    assert links.continues(ended, tail)
    assert {handover.missing for handover in links.find_handovers([ended, tail])} == {None}
    assert not links.continues(ended, tail | {"protocol": "pulsar"})
    assert not links.continues(ended, tail | {"first_seq_to_broker": 2100})
    assert not links.continues(ended, tail | {"first_ts_ns": 900 * S, "last_ts_ns": 901 * S})


def test_two_connections_of_one_capture_are_two() -> None:
    assert not links.continues(row("a"), after("a", 1))


def test_three_captures_are_one_chain_and_the_fourth_stands_alone() -> None:
    third = after(
        "c", 4, first_ts_ns=20 * S, last_ts_ns=30 * S, first_seq_to_broker=3010,
        last_seq_to_broker=4000, first_seq_to_client=1500, last_seq_to_client=1600,
    )  # fmt: skip
    rows = [third, after("b", 2), row("a", 7), row("d", 0, connection_key="x:1 y:2")]
    spans = {"a": (0, 10 * S), "b": (10 * S, 20 * S), "c": (20 * S, 30 * S), "d": (0, 30 * S)}
    plan = links.plan(rows, spans)
    assert [group.captures for group in plan.groups] == [("a", "b", "c")]
    assert plan.groups[0].floors == (0, 10 * S, 20 * S) and plan.groups[0].is_in_turn
    assert plan.moved == {("b", 2): ("a", 7), ("c", 4): ("a", 7)}
    assert {(each.before, each.direction): each.missing for each in plan.handovers} == {
        (("a", 7), "to_broker"): 0, (("a", 7), "to_client"): 0,
        (("b", 2), "to_broker"): 10, (("b", 2), "to_client"): 0,
    }  # fmt: skip


def test_captures_with_messages_in_common_are_read_together_by_time() -> None:
    rows = [row("a"), row("b", connection_key="other")]
    plan = links.plan(rows, {"a": (5 * S, 9 * S), "b": (0, 7 * S)}, [["a", "b"]])
    assert [group.captures for group in plan.groups] == [("b", "a")]
    assert not plan.groups[0].is_in_turn
    assert plan.moved == {}


def test_a_copy_of_a_capture_is_not_put_together_with_it() -> None:
    rows = [row("a"), row("b"), after("c")]
    plan = links.plan(rows, {"a": (0, 10), "b": (0, 10), "c": (10, 20)}, [["a", "b", "c"]])
    assert plan.copies == ("b",) and plan.proxy_peers == plan.copied == {("b", 0)}
    assert [group.captures for group in plan.groups] == [("a", "c")]


def test_what_is_sent_again_at_a_border_is_no_second_view_of_it() -> None:
    rows = [row("a"), after("b")]
    apart = {"a": (0, 10 * S), "b": (10 * S, 20 * S)}
    plan = links.plan(rows, apart, [["a", "b"]], [["a", "b"]], [("b", 0)])
    assert plan.copies == () and plan.proxy_peers == frozenset()
    assert [group.captures for group in plan.groups] == [("a", "b")]
    at_once = {"a": (0, 10 * S), "b": (2 * S, 11 * S)}
    proxied = [row("a"), row("b", connection_key="proxy")]
    plan = links.plan(proxied, at_once, [["a", "b"]], [["b", "a"]], [("a", 0)])
    assert plan.copies == ("a",) and plan.proxy_peers == {("a", 0)} and plan.groups == ()
    assert plan.copied == frozenset()


def test_a_copy_of_a_proxy_s_leg_is_no_connection_of_its_own() -> None:
    rows = [row("a", leg="client"), row("a", 1, connection_key="proxy", leg="broker")]
    rows += [row("b"), row("c", connection_key="proxy")]
    plan = links.plan(rows, dict.fromkeys("abc", (0, 10 * S)))
    assert plan.proxy_peers == {("b", 0), ("c", 0)} and plan.copied == {("b", 0)}


def test_what_connections_alone_put_together_is_one_unless_it_may_be_the_same_traffic() -> None:
    rows = [row("a"), after("b"), row("c", connection_key="else")]
    spans = {"a": (0, 10 * S), "b": (10 * S, 20 * S), "c": (0, 10 * S)}
    assert links.wholes(rows, spans) == {"a": "a", "b": "a", "c": "c"}
    at_once = spans | {"b": (1 * S, 20 * S)}
    assert links.wholes(rows, at_once) == {"a": "a", "b": "b", "c": "c"}


def test_a_capture_that_continues_another_comes_behind_it_whatever_its_clock_says() -> None:
    rows = [row("b", last_ts_ns=S), after("a", first_ts_ns=S - 5)]
    plan = links.plan(rows, {"b": (10, S), "a": (S - 5, 2 * S)})
    assert [group.captures for group in plan.groups] == [("b", "a")]
    assert plan.groups[0].floors == (0, S)
