"""Captures in which counting frames tells the wrong story, and what a report says of them.

What happened is taken from the logs of the clients and from what the recording's manifest says they
saw, what a naive count says from the manifest's frames, and the report from the capture alone.
"""

import functools
import itertools
import re
from collections import Counter
from typing import Any

import pytest

from dissector.dissection import Options
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.observed import Case, Row, ids_of
from tests.numbers import Numbers


def case_of(name: str) -> Case:
    """A capture of the Apache broker by its name."""
    return Case("pulsar-apache", name)


# The queries run once for all of them: to plan them costs more than to run them over one.
NAMES = (
    "cpp-c40_killed_Failover.pcap", "cpp-c40_killed_Shared.pcap", "cpp-s08_nack-proxy-any.pcap",
    "cpp-s08_nack-proxy-back.pcap", "cpp-s08_nack-proxy-front.pcap", "go-g02_batch_zstd-bem.pcap",
    "java-j12_nack.pcap", "java-j12_nack_batch_index.pcap", "java-j17_blocked_unacked.pcap",
    "java-j24_unload.pcap", "java-j26_backlog_quota.pcap", "java-j27_dedup.pcap",
    "java-j28_compaction.pcap", "java-j38_throttled.pcap", "java-j61_txn_abort.pcap",
    "java-j74_corrupt.pcap",
    "java-j80_geo-link.pcap", "../pulsar/var-snaplen96.pcap",
)  # fmt: skip


@functools.cache
def reports() -> dict[str, dict[str, Any]]:
    """What `dissector summary --json` prints of each capture."""
    summary = Numbers()
    for name in NAMES:
        (chain,) = chains([str(case_of(name).path)], "auto").chains
        for block in dissect(chain, Options()):
            summary.add_block(block, name)
    return summary.results()


def report_of(name: str) -> dict[str, Any]:
    """The report of a capture."""
    return reports()[name]


def frames_of(name: str, command: str) -> int:
    """What an independent decoder counted."""
    counted: int = case_of(name).truth["frames"].get(command, 0)
    return counted


def events_of(name: str, *kinds: str) -> list[Row]:
    """Lines of the client's log."""
    return [event for event in case_of(name).events if event["ev"] in kinds]


def sent(name: str) -> list[Row]:
    """Sends that succeeded for the application."""
    return [event for event in events_of(name, "send") if event.get("mid") is not None]


def entries(events: list[Row]) -> set[tuple[int, int]]:
    """Entries that events name, batch indexes apart."""
    return {(found.ledger, found.entry) for event in events for found in ids_of(event)}


def total_of(name: str, section: str) -> Row:
    """A section's total."""
    total: Row = report_of(name)[section]["total"]
    return total


def flipped_mask(failure: Row) -> int:
    """What tells the damaged frame from its copies in the file, byte by byte, at one place."""
    data = case_of("java-j74_corrupt.pcap").path.read_bytes()
    head = b"\x0e\x01" + failure["crc32c_stored"].to_bytes(4, "big")
    size = 4 + failure["metadata_bytes"] + failure["payload_bytes"]
    copies = [
        data[match.end() : match.end() + size] for match in re.finditer(re.escape(head), data)
    ]
    assert len(copies) > 2
    odd = [copy for copy in copies if copies.count(copy) == 1]
    (even,) = set(copies) - set(odd)
    differing = [place for place in range(size) if odd[0][place] != even[place]]
    (place,) = differing
    (at,) = failure["differs_at"]
    assert at == failure["frame_bytes"] - size + place and len(odd) == 1
    return odd[0][place] ^ even[place]


def test_a_flipped_bit_makes_sixty_five_sends_of_thirty_messages() -> None:
    name = "java-j74_corrupt.pcap"
    log = sent(name)
    assert len({(event["producer"], event["seq"]) for event in log}) == 30
    assert frames_of(name, "to_broker SEND") == 65
    assert frames_of(name, "to_client SEND_RECEIPT") == 42
    sends = total_of(name, "send_latency")
    assert (sends["messages"], sends["sends"], sends["outcomes"]["ok"]) == (30, 65, 42)
    # What was sent on the old connection after the error got no receipt, and was stored all the
    # same: the consumer was given every stored entry once, so it says how many there are.
    stored = entries(events_of(name, "recv"))
    again = total_of(name, "redelivery")
    assert len(stored) == 64 == again["deliveries"] - again["redelivered"]
    assert sends["sends"] - sends["outcomes"]["error"] == len(stored)
    assert again["by_cause"] == {"reconnect": again["redelivered"]}
    # One bit of one frame was flipped on the way to the broker.
    sums = total_of(name, "checksum_failures")
    assert (sums["mismatch"], sums["confirmed_by_peer"]) == (1, 1)
    (failure,) = report_of(name)["checksum_failures"]["failures"]
    assert (failure["differs"], failure["differs_masks"]) == ("one_bit", [flipped_mask(failure)])
    # Every message was confirmed in the end; the client's time has the send and callback in it.
    assert sends["logical_latency_ms"]["count"] == 30
    assert sends["logical_latency_ms"]["max"] <= max(event["lat_ms"] for event in log)


def test_an_unloaded_topic_is_delivered_almost_twice_and_consumed_once() -> None:
    name = "java-j24_unload.pcap"
    received = events_of(name, "recv")
    assert len(received) == len(entries(received)) == 314
    assert frames_of(name, "to_client MESSAGE") == 557
    again = total_of(name, "redelivery")
    assert again["deliveries"] - again["redelivered"] == 314
    assert again["delivery_outcomes"]["acked"] == len(events_of(name, "ack")) == 314
    assert again["by_cause"] == {"unload": 557 - 314} and again["counted_by_broker"] == 0
    sends = total_of(name, "send_latency")
    log = sent(name)
    assert sends["messages"] == len(log) == 310
    assert sends["resent"] == frames_of(name, "to_broker SEND") - 310 == 10
    # Across attempts, the slowest are those that an unload hit; the client waited for these too.
    slowest = sends["logical_latency_ms"]["max"]
    assert slowest > 5 * sends["latency_ms"]["max"]
    assert slowest <= max(event["lat_ms"] for event in log)


@pytest.mark.parametrize("kind", ["Shared", "Failover"])
def test_messages_of_a_killed_consumer_come_again_without_a_count(kind: str) -> None:
    name = f"cpp-c40_killed_{kind}.pcap"
    case = case_of(name)
    assert case.seen["heir_redelivery_count_gt0"] == 0
    again = total_of(name, "redelivery")
    # A count of redeliveries that trusts the broker's field finds nothing.
    assert again["counted_by_broker"] == again["max_redelivery_count"] == 0
    prefetched = frames_of(name, "to_client MESSAGE") - case.seen["heir_received"]
    cause = {"Shared": "consumer_gone", "Failover": "failover_switch"}[kind]
    assert again["by_cause"] == {cause: prefetched}
    assert again["infrastructure"] == prefetched and again["asked_for"] == 0
    assert again["delivery_outcomes"] == {
        "acked": len(events_of(name, "ack")),
        "conn_closed": prefetched,
    }


def test_four_messages_of_two_batches_come_again_not_twenty() -> None:
    name = "java-j12_nack_batch_index.pcap"
    case = case_of(name)
    nacked = len(events_of(name, "nack"))
    again = total_of(name, "redelivery")
    assert frames_of(name, "to_client MESSAGE") == 2 * case.seen["batches"]
    assert (again["redelivered"], again["redelivered_messages"]) == (2, nacked)
    assert nacked == case.seen["recv_redelivered"] == 4
    assert again["messages"] == case.seen["recv_total"] == 24
    # Two of four entries, but four of twenty-four messages.
    assert (again["rate_entries"], again["rate_messages"]) == (0.5, round(4 / 24, 6))
    assert total_of(name, "permit_utilization")["delivered"] == 24


def test_a_balance_below_zero_is_a_batch_and_no_fault() -> None:
    name = "go-g02_batch_zstd-bem.pcap"
    permits = total_of(name, "permit_utilization")
    size = len(events_of(name, "recv")) // frames_of(name, "to_client MESSAGE")
    queue = report_of(name)["permit_utilization"]["by_consumer"][0]["first_grant"]
    assert (size, queue) == (50, 10)
    assert permits["overshoot"] == size - queue == 40
    assert permits["delivered"] == case_of(name).seen["recv_total"] == 300
    assert permits["grants"] == frames_of(name, "to_broker FLOW")
    assert permits["stalls"]["count"] == 0 and permits["utilization"] <= 1


def test_a_consumer_may_get_nothing_with_permits_left() -> None:
    name = "java-j17_blocked_unacked.pcap"
    case = case_of(name)
    permits = total_of(name, "permit_utilization")
    blocked, first_ack = events_of(name, "blocked"), events_of(name, "ack")[0]
    last_before = events_of(name, "recv")[case.seen["received_before_ack"] - 1]
    assert blocked and permits["unacked_max"] == case.seen["received_before_ack"] == 20
    # Its balance never came near 0: no stall. The silence is told apart, without a cause, and it
    # holds the time in which the application waited.
    assert permits["exhausted_share"] == 0 and permits["stalls"]["count"] == 0
    silence = permits["stalls"]["idle_or_broker_limited"]
    assert silence["longest_ms"] >= first_ack["t"] - last_before["t"] > 1000
    assert permits["delivered"] == case.seen["recv_total"] == 60


def test_fifteen_refusals_of_a_full_backlog_are_one_incident() -> None:
    name = "java-j26_backlog_quota.pcap"
    errors = report_of(name)["errors"]
    assert frames_of(name, "to_client ERROR") == errors["total"]["answers"] == 15
    (incident,) = errors["incidents"]
    assert incident["error_code"] == "ProducerBlockedQuotaExceededException"
    told = [event["t"] for event in events_of(name, "error")]
    assert incident["span_ms"] >= max(told) - min(told)
    # Every message that left the client was stored; what failed was never on the wire.
    sends = total_of(name, "send_latency")
    assert sends["outcomes"] == {"ok": len(sent(name))} and len(sent(name)) == 34


def test_receipts_without_an_id_are_no_stored_messages_and_no_latency() -> None:
    name = "java-j27_dedup.pcap"
    log = sent(name)
    stored = [event for event in log if event["mid"].startswith("108:")]
    sends = total_of(name, "send_latency")
    assert len(log) == 42 and len(stored) == case_of(name).seen["recv_total"] == 26
    assert frames_of(name, "to_client SEND_RECEIPT") == sends["sends"] == 34
    assert sends["outcomes"] == {"ok": len(entries(stored)), "dup_or_dropped": 16}
    assert sends["messages_by_outcome"]["ok"] == 26
    # They are answered without storing anything: in the latencies they would halve the median.
    assert sends["latency_ms"]["count"] == sends["outcomes"]["ok"] == 18
    quickest = min(event["lat_ms"] for event in log if event not in stored)
    assert sends["latency_ms"]["min"] > quickest


def test_throttled_sends_are_slow_and_nothing_else_shows_it() -> None:
    name = "java-j38_throttled.pcap"
    sends = total_of(name, "send_latency")
    times = sorted(event["lat_ms"] for event in sent(name))
    assert sends["outcomes"] == {"ok": 100}
    # The client's time holds the capture's, and little besides.
    for mine, theirs in (("p50", times[49]), ("max", times[-1])):
        assert 0 <= theirs - sends["latency_ms"][mine] < 110, mine
    assert sends["transmit_ms"]["max"] < 1
    assert report_of(name)["errors"]["total"]["answers"] == 0
    # 20 messages a second are what the topic allows.
    seconds = report_of(name)["coverage"]["total"]["span_ns"] / 1e9
    assert 100 / seconds < 25


def test_an_aborted_transaction_redelivers_what_nobody_asked_for() -> None:
    name = "java-j61_txn_abort.pcap"
    case = case_of(name)
    again = total_of(name, "redelivery")
    undone = len(events_of(name, "txn_ack"))
    assert frames_of(name, "to_broker REDELIVER_UNACKNOWLEDGED_MESSAGES") == 0
    assert again["ids_requested"] == 0
    assert again["by_cause"] == {"txn_abort": undone}
    assert undone == case.seen["in_redelivered_after_abort"] == again["counted_by_broker"] == 10
    # Ten messages, consumed once each: the other ten acknowledgements were taken back.
    assert len(events_of(name, "ack")) == undone == 10
    assert again["delivery_outcomes"] == {"acked": 10, "ack_rolled_back": undone}
    acks = total_of(name, "ack_latency")
    assert (acks["acked"], acks["refused"], acks["rolled_back"]) == (10, 0, undone)
    assert total_of(name, "send_latency")["messages"] == case.seen["sent_ok"]


def test_a_compacted_batch_counts_messages_that_are_no_more() -> None:
    name = "java-j28_compaction.pcap"
    case = case_of(name)
    again = total_of(name, "redelivery")
    readers = case.seen["read_compacted"] + case.seen["reader_compacted"]
    assert readers == 16 and case.seen["recv_total"] == 8
    assert again["messages"] == 28
    assert again["messages"] - again["compacted_out"] == readers
    assert again["redelivered"] == 0
    assert total_of(name, "send_latency")["messages"] == len(sent(name)) == 51


def test_a_replicator_sends_on_for_several_producers() -> None:
    """Their sequence ids are equal: counted by id, two of 44 messages would be lost."""
    name = "java-j80_geo-link.pcap"
    case = case_of(name)
    sends = report_of(name)["send_latency"]
    arrived = case.seen["west_replicated_from"] + case.seen["local_replicated_from"]
    assert sends["total"]["messages"] == arrived == 44
    assert sends["total"]["outcomes"] == {"ok": frames_of(name, "to_broker SEND")}
    assert {row["producer_name"]: row["messages"] for row in sends["by_producer"]} == {
        "pulsar.repl.standalone-->west": case.seen["west_replicated_from"],
        "pulsar.repl.west-->standalone": case.seen["local_replicated_from"],
    }
    assert total_of(name, "coverage")["connections"] == 13


def test_how_long_a_message_waits_until_it_comes_again_is_measured() -> None:
    name = "java-j12_nack.pcap"
    came: dict[str, list[int]] = {}
    for event in events_of(name, "recv"):
        came.setdefault(event["mid"], []).append(event["t"])
    waits = sorted(
        later - before for times in came.values() for before, later in itertools.pairwise(times)
    )
    again = total_of(name, "redelivery")
    asked, answered = again["asked_after_ms"], again["came_after_ms"]
    assert asked["count"] == answered["count"] == len(waits) == 10
    # The client's times are those of its application, which takes messages one after another, the
    # first of all late.
    assert waits[0] - 40 < asked["min"] + answered["min"] < waits[0] + 1
    assert abs(asked["p50"] + answered["p50"] - waits[4]) < 40
    assert 0 < asked["max"] + answered["max"] - waits[-1] < 150


@pytest.mark.parametrize("side", ["front", "back", "any"])
def test_both_sides_of_a_proxy_are_counted_once(side: str) -> None:
    name = f"cpp-s08_nack-proxy-{side}.pcap"
    seen = case_of(name).seen
    sends, again = total_of(name, "send_latency"), total_of(name, "redelivery")
    frames = Counter(
        (row["command"]) for row in case_of(name).tables["frames"] if row["command"] == "SEND"
    )
    # Where both sides were captured, each frame is there twice.
    assert frames["SEND"] == seen["sent"] * (2 if side == "any" else 1)
    assert (sends["sends"], sends["messages"], sends["outcomes"]) == (20, 20, {"ok": seen["sent"]})
    assert again["deliveries"] == seen["received"] == 25
    assert again["by_cause"] == {"explicit": seen["nacked"]}
    assert again["delivery_outcomes"]["acked"] == seen["acked"]
    assert total_of(name, "coverage")["broker_leg_connections"] == (1 if side == "any" else 0)


def test_what_was_cut_off_is_unknown_and_not_nothing() -> None:
    """A capture that kept 96 bytes of each packet: commands can be told, contents cannot."""
    report = report_of("../pulsar/var-snaplen96.pcap")
    frames = report["coverage"]["total"]["frames_by_command"]
    assert frames["to_client"]["MESSAGE"] == frames["to_broker"]["SEND"] == 590
    sends = report["send_latency"]["total"]
    assert (sends["sends"], sends["messages"], sends["sends_of_unknown_count"]) == (590, None, 590)
    for section, keys in (
        ("redelivery", ("deliveries", "messages", "redelivered", "asked_for")),
        ("permit_utilization", ("deliveries", "delivered", "utilization", "unacked_max")),
        ("publish_to_delivery", ("deliveries", "entries_delivered", "entries_stored")),
        ("ack_latency", ("deliveries", "acked", "ids_acked", "ack_commands")),
    ):
        total = report[section]["total"]
        assert {key: total[key] for key in keys} == dict.fromkeys(keys), section
        assert total["not_evaluated_by_reason"]["message_unread"] == 590, section
        assert "too little was captured" in report[section]["about"], section
    asked = report["requests"]["total"]
    every = ("CONNECT", "PARTITIONED_METADATA", "LOOKUP", "PRODUCER", "SUBSCRIBE",
             "CLOSE_PRODUCER", "CLOSE_CONSUMER")  # fmt: skip
    assert asked["requests"] + asked["not_evaluated_by_reason"]["request_unread"] == sum(
        frames["to_broker"][name] for name in every
    )
    acks = report["ack_latency"]["total"]
    assert acks["not_evaluated_by_reason"]["ack_unread"] == frames["to_broker"]["ACK"] == 50
