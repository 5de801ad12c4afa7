"""Random clients at a real broker (captures/make/random_clients.py): what each of them saw, alone.

What each client was asked to do comes from a seed. Nothing here repeats how the program decides:
the clients' logs say which messages were confirmed, received and acknowledged, which topics were
unloaded, and who sought or asked again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.dissector.observed import RANDOM_CASES as CASES
from tests.dissector.observed import Case, Row, ids_of, is_topic
from tests.dissector.random_clients import (
    Acked,
    deliveries,
    entry_of,
    indices,
    logged,
    place_of,
    place_of_event,
    shown_by,
    times,
)  # fmt: skip

each_capture = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# Clients print thousandths of a millisecond.
SLACK_MS = 0.01
ENDED = ("consumer_closed", "conn_closed", "redelivery_requested")
SHOWN = (
    "MESSAGE behind a close", "ACK behind an unload", "redeliver_all on Shared", "seek",
    "unload of Shared", "unload of Failover", "unload of Key_Shared", "batch index ack",
    "batch acked in part", "cumulative ack", "chunk", "delayed", "SIGKILL", "partition",
)  # fmt: skip


def publishes(case: Case) -> list[Row]:
    return [row for row in case.tables["exchanges"] if row["kind"] == "publish"]


# -- frames and publishing


def test_every_capture_is_in_the_manifest() -> None:
    paths = {path.name for path in CASES[0].path.parent.glob("*.pcap*")}
    assert paths == {case.name for case in CASES} and len(CASES) >= 6
    for case in CASES:
        assert case.path.stat().st_size <= 250_000
        assert case.seen == dict(sorted(seen_in_sum(case).items()))


def seen_in_sum(case: Case) -> Counter[str]:
    found = Counter(event["ev"] for event in case.events)
    found["send_ok"] = sum("mid" in event for event in logged(case, "send"))
    found["recv_redelivered"] = sum(each["redelivery_count"] > 0 for each in logged(case, "recv"))
    return found


@each_capture
def test_frames_are_those_that_wireshark_puts_together(case: Case) -> None:
    rows = case.tables["frames"]
    assert Counter(f"{row['direction']} {row['command']}" for row in rows) == case.truth["frames"]
    assert {row["status"] for row in rows} == {"complete"}
    (file,) = case.tables["capture_files"]
    assert file["packets"] == case.truth["packets"]


@each_capture
def test_confirmed_sends_are_answered_exchanges(case: Case) -> None:
    stored = defaultdict(list)
    for row in publishes(case):
        if row["outcome"] == "ok":
            stored[entry_of(row)].append(row)
    confirmed = defaultdict(list)
    for event in logged(case, "send"):
        for each in ids_of(event):
            confirmed[each.ledger, each.entry].append(event)
    assert confirmed
    for entry, events in confirmed.items():
        (row,) = stored[entry]
        assert row["message_count"] == len(events)
        for event in events:
            assert is_topic(row["topic"], event["topic"])
            assert row["producer_name"] == event["producer"]
            assert 0 <= row["latency_ns"] / 1e6 <= event["lat_ms"] + SLACK_MS
            assert event["t0"] - SLACK_MS <= row["request_first_ns"] / 1e6
            assert row["response_last_ns"] / 1e6 <= event["t"] + SLACK_MS


@each_capture
def test_every_receipt_is_one_that_a_client_saw(case: Case) -> None:
    """But for all chunks before the last, for what was sent again before its receipt came, and for
    the last ones of a process that was killed."""
    confirmed = {(each.ledger, each.entry) for e in logged(case, "send") for each in ids_of(e)}
    killed = {event["pid"] for event in logged(case, "SIGKILL")}
    producers = {e["producer"] for e in logged(case, "open_producer") if e["pid"] in killed}
    again = {(row["producer_name"], row["topic"], row["sequence_id"])
             for row in publishes(case) if entry_of(row) in confirmed}  # fmt: skip
    for row in publishes(case):
        if row["outcome"] == "ok" and entry_of(row) not in confirmed:
            sent = row["producer_name"], row["topic"], row["sequence_id"]
            assert sent in again or row["producer_name"] in producers


# -- deliveries


@each_capture
def test_messages_received_were_delivered_as_often(case: Case) -> None:
    """To that consumer, with that redelivery count, and not later."""
    came = times(case)
    arrived = defaultdict(list)
    for row in case.tables["deliveries"]:
        for index in indices(row):
            key = place_of(row), row["consumer_name"], index, row["redelivery_count"]
            arrived[key].append(came[row["frame_no"]])
    received = defaultdict(list)
    for event in logged(case, "recv"):
        index = int(event["mid"].split(":")[3])
        key = place_of_event(event), event["consumer"], index, event["redelivery_count"]
        received[key].append(event["t"])
    for key, taken in received.items():
        known = sorted(arrived[key])
        assert len(taken) <= len(known), key
        assert all(at <= t + SLACK_MS for at, t in zip(known, sorted(taken), strict=False)), key


@each_capture
def test_nothing_is_acked_that_no_application_acked(case: Case) -> None:
    """But for chunks of messages that a consumer could not put together: its library acks these."""
    acked, came = Acked(case), times(case)
    taken = {(*place_of_event(event), event["consumer"]) for event in logged(case, "recv")}
    for row in case.tables["deliveries"]:
        if row["outcome"] == "acked":
            last = acked.last_chunk.get(entry_of(row))
            if last and (*place_of(row)[:2], *last, row["consumer_name"]) not in taken:
                continue
            done = acked.of(row, came[row["ack_frame_no"]] + SLACK_MS)
            assert done == indices(row), row
            assert row["messages_acked"] == row["message_count"] == len(done)


@each_capture
def test_a_batch_acked_in_part_has_as_many(case: Case) -> None:
    """As its application acknowledged before the last ACK that came before the next delivery; of
    what was delivered before, an application may have acknowledged more."""
    acked, came = Acked(case), times(case)
    named = defaultdict(list)
    for row in case.tables["acks"]:
        if row["action"] == "ack":
            named[place_of(row)].append(row["frame_no"])
    for place, rows in deliveries(case).items():
        for row, again in pairwise([*rows, {"frame_no": 2**62}]):
            if row["outcome"] != "acked" and row["messages_acked"]:
                last = max(each for each in named[place] if each < again["frame_no"])
                done = acked.of(row, came[last] + SLACK_MS)
                assert row["messages_acked"] <= len(done), (row, done)
                if row is rows[0]:
                    assert row["messages_acked"] == len(done) < row["message_count"], (row, done)


def acked_on_the_wire(case: Case) -> Iterator[tuple[Row, Row]]:
    """Deliveries whose entry an ACK names behind them and before the entry's next delivery."""
    named = defaultdict(list)
    for row in case.tables["acks"]:
        if row["action"] == "ack" and row["ack_type"] == "Individual" and not row["ack_set"]:
            named[place_of(row)].append(row)
    for place, rows in deliveries(case).items():
        ends = [row["frame_no"] for row in rows[1:]] + [2**62]
        for row, end in zip(rows, ends, strict=True):
            for ack in named[place]:
                if row["frame_no"] < ack["frame_no"] < end:
                    yield row, ack


def test_what_is_acked_is_acked() -> None:
    """Whose ACK, of the whole entry, comes before the delivery ends otherwise."""
    checked = 0
    for case in CASES:
        for row, ack in acked_on_the_wire(case):
            if row["outcome"] not in ENDED:
                assert row["outcome"] == "acked" and row["ack_frame_no"] <= ack["frame_no"]
                checked += 1
    assert checked > 300


def test_what_is_acked_behind_the_end_of_its_delivery_is_acked() -> None:
    """By any consumer of the subscription, before the entry is delivered again."""
    late = [
        (case.name, place_of(row), row["frame_no"], ack["frame_no"], row["outcome"])
        for case in CASES
        for row, ack in acked_on_the_wire(case)
        if row["outcome"] != "acked"
    ]
    assert not late, late[:5]


# -- causes


def subscriptions(case: Case, *kinds: str) -> set[tuple[str, str]]:
    return {(event["topic"], event.get("sub")) for event in logged(case, *kinds)}


@each_capture
def test_causes_are_what_clients_and_operators_did(case: Case) -> None:
    unloaded = {event["topic"] for event in logged(case, "unload")}
    sought = subscriptions(case, "seek")
    asked = subscriptions(case, "nack", "redeliver_all")
    closed = subscriptions(case, "close_consumer", "error")
    killed = {event["pid"] for event in logged(case, "SIGKILL")}
    left = {(e["topic"], e["sub"]) for e in logged(case, "open_consumer") if e["pid"] in killed}
    for row in case.tables["deliveries"]:
        where, cause = place_of(row)[:2], row["redelivery_cause"]
        assert (cause is None) == (not row["is_redelivered"])
        assert cause not in ("unknown", "pre_capture", "txn_abort"), row
        assert cause != "seek" or where in sought, row
        assert cause != "unload" or where[0] in unloaded, row
        assert cause != "explicit" or where in asked, row
        assert cause != "consumer_gone" or where in closed | left, row
        assert row["outcome"] not in ("unknown_gap", "discarded"), row


def test_the_captures_show_what_they_were_made_for() -> None:
    found: Counter[str] = Counter()
    for case in CASES:
        found.update(shown_by(case))
    assert all(found[each] for each in SHOWN), {each: found[each] for each in SHOWN}
