"""Reports of parts: what lasts beyond a part of the time, or comes behind it, is known there."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dissector.limits import MAX_OPENING_CHAINS
from tests.choosing import LOOKS_AT_ALL, examples
from tests.dissector.joining.cutting import land, parts, read
from tests.dissector.lake.samples import landed
from tests.dissector.observed import CASES, RANDOM_CASES, name_of
from tests.reports import SOME_RULES, differences, reported
from tests.split import quiet_places, without

SECTIONS = (
    "coverage", "send_latency", "permit_utilization", "publish_to_delivery", "redelivery",
    "checksum_failures", "ack_latency", "requests", "connecting", "findings",
)  # fmt: skip
RULES = frozenset(("V09", "V15", "V18", "V19"))
SEEDS = examples(4, 1)
CAUSES = (
    "migrated", "seek", "terminated", "refused", "opened_again", "not_opened_again", "unknown",
)  # fmt: skip
# Stalls, closed consumers, batches, parts of batches asked for again, batches that waited in their
# clients; at night also lost packets and sends that were repeated.
SAMPLES = (
    "pulsar-apache/java-j40_slow_consumer.pcap",
    "pulsar-apache/cpp-c40_killed_Shared.pcap",
    "pulsar-apache/go-g02_batch_zstd-bem.pcap",
    "pulsar-apache/java-j12_nack_batch_index.pcap",
    "pulsar-apache/java-j03_batch_lz4.pcap",
)
# That are cut into three captures: also with a transaction.
JOINED = (
    *SAMPLES[:2],
    "pulsar-apache/java-j17_blocked_unacked.pcap",
    "pulsar-apache/java-j61_txn_abort.pcap",
)
PERMITS = ("permit_utilization",)
JOINED_SECTIONS = ("permit_utilization", "publish_to_delivery", "redelivery")
ALL = tuple(name for name in map(name_of, [*CASES, *RANDOM_CASES]) if name.startswith("pulsar"))
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
Report = Mapping[str, Any]
# Lists of which a row says what a report of its names alone says.
ROWS = (
    ("send_latency", "by_topic", ("topic",)),
    ("send_latency", "by_client", ("client_ip",)),
    *(
        (section, "by_subscription", ("topic", "subscription"))
        for section in ("ack_latency", "publish_to_delivery", "permit_utilization")
    ),
)
# What reports of names are asked for: those of the rows, and connections.
OF_ROWS = ("connecting", *dict.fromkeys(section for section, _, _ in ROWS))
# A transaction that is aborted, a client with two topics, and entries that never came.
OF_NAMES = (
    "pulsar-apache/go-g06_txn-bem.pcap",
    "pulsar/tap-mirror-saga.pcap",
    "pulsar-live/live-paused.pcap",
)


def reports(name: str, folder: Path) -> tuple[Report, list[Report]]:
    """Of the whole of a sample, and of the parts between drawn moments at which frames ended."""
    lake = landed(folder, (name,))
    made = 0

    def report(since: str | None, until: str | None) -> Report:
        nonlocal made
        made += 1
        return reported(
            lake, folder / f"report-{made}", since=since, until=until, sections=SECTIONS,
            rules=RULES, tell=lambda _: None,
        )  # fmt: skip

    whole = report(None, None)
    drawn = moments(lake, name, 1 + SEEDS)
    return whole, [report(since, until) for since, until in pairwise((None, *drawn, None))]


def moments(lake: Path, seed: str, count: int) -> list[str]:
    """Drawn moments at which frames ended, in order."""
    (frames,) = (lake / "frames").glob("*/*/*.parquet")
    times = sorted({*pq.read_table(frames, columns=["ts"])["ts"].cast("int64").to_pylist()})
    if len(times) < 2:
        pytest.skip("the sample has no frames that can be read")
    drawn = sorted(random.Random(seed).sample(times[1:], min(count, len(times) - 1)))
    return [(BEGINNING + timedelta(microseconds=at)).isoformat() for at in drawn]


def sums(report: Report) -> dict[str, float]:
    """What the parts of the time add up to."""
    permits, stored = report["permit_utilization"], report["publish_to_delivery"]["total"]
    again = report["redelivery"]["total"]
    sends, connecting = report["send_latency"]["total"], report["connecting"]["total"]
    closed = connecting["closed_by_broker"]
    consumers = permits["by_consumer"]
    return {
        "observed": sum(row["observed_ms"] or 0 for row in consumers),
        "without": sum(
            (row["exhausted_share"] or 0) * (row["observed_ms"] or 0) for row in consumers
        ),
        "granted": sum(row["granted"] for row in consumers),
        "delivered": sum(row["delivered"] for row in consumers),
        "stored": stored["stored"] or 0,
        "undelivered": stored["undelivered"] or 0,
        "asked after": again["asked_after_ms"]["count"] or 0,
        "came after": again["came_after_ms"]["count"] or 0,
        "published": sends["published"] or 0,
        "logical": (sends["logical_latency_ms"] or {"count": 0})["count"],
        "application": (sends["application_ms"] or {"count": 0})["count"],
        "sends passed over": sends["passed_over"] or 0,
        "deliveries passed over": report["ack_latency"]["total"]["passed_over"] or 0,
        "confirmed mismatches": report["checksum_failures"]["total"]["confirmed_by_peer"] or 0,
        "opened": connecting["opened"],
        "not established": connecting["not_established"],
        "chains": connecting["chains"],
        **{f"closed {name}": count for name, count in closed.items()},
        **{f"closed as {name}": connecting["closed_by_cause"].get(name, 0) for name in CAUSES},
    }  # fmt: skip


def longest(report: Report) -> dict[str, float]:
    """What was longest: it was so in the part that has it, too."""
    sends, connecting = report["send_latency"]["total"], report["connecting"]["total"]
    times = {
        "logical": sends["logical_latency_ms"],
        "application": sends["application_ms"],
        "round trip": connecting["network_round_trip_ms"],
        "chain": connecting["chain_ms"],
    }
    known = {name: spread["max"] or 0 for name, spread in times.items() if spread is not None}
    return {**dict.fromkeys(times, 0), **known}


def stalls(report: Report) -> set[tuple[Any, ...]]:
    return {
        (row["consumer_id"], row["start_frame_no"], row["end_frame_no"], row["stall_ms"])
        for row in report["permit_utilization"]["longest_stalls"] or ()
    }


def backlog(report: Report) -> list[Mapping[str, Any]]:
    return list(report["publish_to_delivery"]["backlog"]["points"])


def lines(report: Report) -> set[str]:
    return {line["id"] for line in report["findings"]["verdicts"]}


@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else SAMPLES)
def test_parts_of_the_time_add_up_to_the_whole(name: str, tmp_path: Path) -> None:
    whole, parts = reports(name, tmp_path)
    expected = sums(whole)
    found = {key: sum(sums(part)[key] for part in parts) for key in expected}
    assert found == pytest.approx(expected, rel=1e-3, abs=0.01)
    times = longest(whole)
    assert {key: max(longest(part)[key] for part in parts) for key in times} == times
    assert set().union(*map(stalls, parts)) == stalls(whole)
    assert "V19" in lines(whole) or name != SAMPLES[0]
    assert not any("V19" in lines(part) for part in parts), "a part knows nothing of the end"
    for part in parts:  # a step in which a part ends has a part of its changes
        for point in backlog(part)[1:-1]:
            assert point in backlog(whole)
    for name in ("unacked_max", "drift", "last_ack_ts", "last_delivery_ts"):
        values = [part["permit_utilization"]["total"][name] for part in parts]
        known = [value for value in values if value is not None]
        assert max(known, default=None) == whole["permit_utilization"]["total"][name], name


@pytest.mark.parametrize("name", JOINED)
def test_parts_of_joined_captures_are_those_of_one_capture(name: str, tmp_path: Path) -> None:
    data = read(f"../{name}")
    whole, joined = tmp_path / "whole", tmp_path / "joined"
    land(data, "whole", whole, tmp_path)
    cuts = sorted(random.Random(name).sample(quiet_places(data, whole), 2))
    for number, part in enumerate(parts(data, cuts)):
        land(part, f"part{number}", joined, tmp_path)
    first, last = moments(whole, name, 2)
    spans = (first, None), (None, last), (first, last)
    for number, (since, until) in enumerate(spans if LOOKS_AT_ALL else spans[2:]):
        said, expected = (
            reported(
                lake, tmp_path / f"report-{lake.name}-{number}", since=since, until=until,
                sections=JOINED_SECTIONS, rules=SOME_RULES, tell=lambda _: None,
            )
            for lake in (joined, whole)
        )  # fmt: skip
        assert differences(without(expected), without(said)) == []


def test_an_ack_counts_at_its_time(tmp_path: Path) -> None:
    """One consumer of the sample acknowledges for two seconds what it got before the moment."""
    lake = landed(tmp_path, SAMPLES[:1])
    ends = {
        since: reported(
            lake, tmp_path / f"report-{since}", since=since, sections=PERMITS, rules=SOME_RULES
        )
        for since in (None, "2026-11-21T09:50:04.8")
    }
    whole, behind = (report["permit_utilization"]["total"] for report in ends.values())
    assert whole["last_ack_ts"] == behind["last_ack_ts"] == "2026-11-21T09:50:06.913369Z"


def test_a_consumer_that_was_closed_before_is_not_observed(tmp_path: Path) -> None:
    lake = landed(tmp_path, ("pulsar/cpp-s06_keys_props.pcap",))
    behind_close = "2026-11-21T01:47:13.066680"
    part = reported(
        lake, tmp_path / "report", since=behind_close, sections=PERMITS, rules=SOME_RULES
    )
    assert part["permit_utilization"]["total"]["observed_ms"] in (0, None)


def test_a_consumer_that_has_granted_nothing_yet_was_opened(tmp_path: Path) -> None:
    """The third one of the sample subscribes just before, and grants behind."""
    lake = landed(tmp_path, ("pulsar-apache/java-j24_unload.pcap",))
    until = "2026-11-21T09:47:47.162949"
    part = reported(lake, tmp_path / "report", until=until, sections=PERMITS, rules=SOME_RULES)
    total = part["permit_utilization"]["total"]
    assert (total["consumers"], total["not_evaluated_by_reason"]["baseline_unknown"]) == (3, 0)


def test_what_another_client_got_came(tmp_path: Path) -> None:
    """Of two consumers of the subscription one ends, and the other one gets the rest."""
    lake = landed(tmp_path, ("pulsar/fake-f13_failover_two_clients.pcap",))
    report = reported(
        lake, tmp_path / "report", clients=("127.0.0.1:58976",), rules=SOME_RULES,
        sections=("publish_to_delivery",),
    )  # fmt: skip
    total = report["publish_to_delivery"]["total"]
    assert (total["deliveries"], total["stored"], total["undelivered"]) == (15, 20, 0)


@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else OF_NAMES)
def test_a_name_says_what_its_row_in_the_whole_says(name: str, tmp_path: Path) -> None:
    lake = landed(tmp_path, (name,))
    whole = reported(lake, tmp_path / "whole", sections=OF_ROWS, rules=RULES)
    made: dict[str, Report] = {}
    for section, listed, keys in ROWS:
        for row in whole[section][listed]:
            names = {key: (row[key],) for key in keys if row[key]}
            if len(names) < len(keys):
                continue
            place = repr(names)
            if place not in made:
                made[place] = reported(
                    lake, tmp_path / f"report-{len(made)}", sections=OF_ROWS, rules=RULES,
                    tell=lambda _: None, topics=names.get("topic", ()),
                    subscriptions=names.get("subscription", ()), clients=names.get("client_ip", ()),
                )  # fmt: skip
            total = made[place][section]["total"]
            common = row.keys() & total.keys()
            assert {name: total[name] for name in common} == {name: row[name] for name in common}
    assert made
    slowest = whole["connecting"]["slowest_chains"]
    least = min((chain["chain_ms"] for chain in slowest), default=0)
    for part in made.values():
        for chain in part["connecting"]["slowest_chains"]:
            # The list of the whole ends where it is full.
            assert chain in slowest or (
                len(slowest) == MAX_OPENING_CHAINS and chain["chain_ms"] <= least
            )
