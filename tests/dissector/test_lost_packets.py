"""Packets that a tap lost: what they hid is called lost, and nobody is blamed for it."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import accumulate
from typing import Any

import pytest

from tests.anycut import bytes_of, rows_of
from tests.choosing import LOOKS_AT_ALL, examples
from tests.dissector.observed import CAPTURES, CASES, RANDOM_CASES, Tables, name_of
from tests.wire.recut import is_pcap, with_losses

RATES = (0.02, 0.15)
SEEDS = range(examples(3, 1))
# Slow receipts, sends that are resent, an unload, a broker's restart, seeks, acks that are asked
# for, a proxy, several consumers.
SAMPLES = (
    "pulsar/fake-f12_slow_receipts.pcap",
    "pulsar-apache/java-j60_txn_commit.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/cpp-c41_unload.pcap",
    "pulsar-apache/java-j12_nack.pcap",
    "pulsar-apache/java-j15_ackreceipt.pcap",
    "pulsar-apache/java-j21_seek.pcap",
    "pulsar-apache/cpp-s08_nack-proxy-any.pcap",
    "pulsar-apache/cpp-c40_killed_Shared.pcap",
    "pulsar-live/live-short_runs.pcap",
)
# Several requests that wait share their number, and nothing says which one an answer is for
# (errors, chunking); a tap shows packets twice.
AMBIGUOUS = ("errors", "chunk", "tap-duplicated")
# Nobody acknowledges a hole of the broker for two seconds: behind a window the client passes it,
# and its own hole, with the acks in it, stands before the messages that wait.
PASSED = ("pulsar-apache/java-j21_seek.pcap", 0.15, 2)
# What blames a broker or a client for an answer that does not come.
BLAMED = ("conn_closed", "unanswered_at_end", "dropped_after_close")
NOT_ACKED = ("consumer_closed", "conn_closed", "unacked_at_end")
ANSWERED = ("ok", "error", "dup_or_dropped")

# Of Cursus: members that commit on one connection, on one for each commit, on the one they read on.
COMMITS = (
    "cursus/go-auth_sasl.pcap",
    "cursus/go-consume_polling.pcap",
    "cursus/go-crash_redelivery_streaming.pcap",
    "cursus/go-group_rebalance_two_consumers.pcap",
    "cursus/raw-commands_all.pcap",
)
CURSUS = tuple(f"cursus/{path.name}" for path in sorted(CAPTURES.glob("cursus/*.pcap*")))
ALL = tuple(
    name for name in map(name_of, [*CASES, *RANDOM_CASES])
    if name.startswith("pulsar") and not any(each in name for each in AMBIGUOUS)
)  # fmt: skip


@cache
def whole(name: str) -> tuple[bytes, Tables]:
    """A sample, and its rows."""
    data = bytes_of(CAPTURES / name)
    if not is_pcap(data):
        pytest.skip("the sample is no pcap")
    return data, rows_of(data)


def by_request(tables: Tables) -> dict[Any, dict[str, Any]]:
    """Exchanges whose request was captured, by what names them in any capture of the traffic."""
    return _named(
        tables, tables["exchanges"],
        ("kind", "request_command", "request_last_ns", "producer_id", "consumer_id", "sequence_id"),
    )  # fmt: skip


def by_message(tables: Tables) -> dict[Any, dict[str, Any]]:
    """Deliveries, by the same."""
    return _named(tables, tables["deliveries"], ("consumer_id", "ledger_id", "entry_id", "ts"))


def _ends(tables: Tables) -> dict[int, Any]:
    return {
        row["connection_id"]: (row["client_ip"], row["client_port"], row["broker_ip"])
        for row in tables["connections"]
    }


def _named(
    tables: Tables, rows: Iterable[dict[str, Any]], names: tuple[str, ...]
) -> dict[Any, dict[str, Any]]:
    """Rows by connection and some columns, but for those that share them."""
    ends = _ends(tables)
    found = defaultdict(list)
    for row in rows:
        found[ends[row["connection_id"]], *(row[name] for name in names)].append(row)
    return {key: same[0] for key, same in found.items() if len(same) == 1}


def known_balances(tables: Tables) -> dict[Any, set[tuple[int, int]]]:
    """What balances of permits, and messages held, were said to be known, by change.

    A frame of which packets are missing has another time.
    """
    ends = _ends(tables)
    found = defaultdict(set)
    entire = {row["frame_no"] for row in tables["frames"] if row["status"] == "complete"}
    for row in tables["permits"]:
        if row["baseline_known"] and row["frame_no"] in entire:
            key = ends[row["connection_id"]], row["consumer_id"], row["ts"], row["event"]
            found[key].add((row["delta"], row["available_after"], row["unacked_after"]))
    return found


def last_heard(tables: Tables) -> dict[Any, int]:
    """When the last frame of a broker was captured, ns: behind it nothing tells of a loss."""
    ends = _ends(tables)
    found = dict.fromkeys(ends.values(), 0)
    for row in tables["frames"]:
        if row["direction"] == "to_client":
            key = ends[row["connection_id"]]
            found[key] = max(found[key], row["last_ts_ns"])
    return found


def in_order(tables: Tables) -> set[int]:
    """Frames before which there is none of a later time, and none of an earlier one behind them.

    What waits for lost bytes longer than a reorder window is passed by the other side, and by other
    connections at once.
    """
    rows = sorted(tables["frames"], key=lambda row: row["frame_no"])
    times = [row["last_ts_ns"] for row in rows]
    latest = [*accumulate(times, max)]
    earliest = [*accumulate(reversed(times), min)][::-1]
    return {
        row["frame_no"]
        for row, at, before, behind in zip(rows, times, latest, earliest, strict=True)
        if before <= at <= behind
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else SAMPLES)
def test_an_answer_that_was_lost_is_nobody_s_silence(name: str, rate: float, seed: int) -> None:
    capture, expected = whole(name)
    said = rows_of(with_losses(capture, rate, f"{name} {seed}"))
    answered = {key: row for key, row in by_request(expected).items() if row["outcome"] in ANSWERED}
    found = by_request(said)
    silent = {
        key for key in found.keys() & answered.keys()
        if found[key]["outcome"] in BLAMED and not found[key]["tainted"]
    }  # fmt: skip
    heard = last_heard(said)
    assert not {key for key in silent if answered[key]["response_last_ns"] < heard[key[0]]}
    if name in SAMPLES:
        assert len(found) > len(answered) // 4
        assert rate == min(RATES) or any(row["outcome"] == "lost_in_gap" for row in found.values())
    acked = {key: row for key, row in by_message(expected).items() if row["outcome"] == "acked"}
    ordered = in_order(said)
    wrong = [
        key for key, row in by_message(said).items()
        if key in acked and row["outcome"] in NOT_ACKED and row["frame_no"] in ordered
    ]  # fmt: skip
    assert bool(wrong) == ((name, rate, seed) == PASSED)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else SAMPLES)
def test_balances_and_causes_that_are_told_are_right(name: str, rate: float, seed: int) -> None:
    capture, expected = whole(name)
    said = rows_of(with_losses(capture, rate, f"{name} {seed}"))
    balances, known = known_balances(said), known_balances(expected)
    assert not {key for key in balances.keys() & known.keys() if balances[key] - known[key]}
    causes = {key: row["redelivery_cause"] for key, row in by_message(expected).items()}
    ordered = in_order(said)
    for key, row in by_message(said).items():
        if key in causes and row["frame_no"] in ordered:
            told = row["redelivery_cause"]
            assert told in (causes[key], None, "unknown"), key


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", CURSUS if LOOKS_AT_ALL else COMMITS)
def test_a_commit_that_was_lost_is_no_missing_one(name: str, rate: float, seed: int) -> None:
    """Be it the request or the answer; but for connections of which not one frame was captured."""
    capture, expected = whole(name)
    said = rows_of(with_losses(capture, rate, f"{name} {seed}"))
    frames, ends = {row["frame_no"]: row for row in expected["frames"]}, _ends(expected)
    seen = _ends(said)
    heard = {seen[row["connection_id"]] for row in said["frames"]}
    by = {
        key: ends[frames[row["ack_frame_no"]]["connection_id"]]
        for key, row in by_message(expected).items() if row["outcome"] == "acked"
    }  # fmt: skip
    found = {key: row["outcome"] for key, row in by_message(said).items()}
    missing = {key for key in found.keys() & by.keys() if found[key] in NOT_ACKED}
    assert not {key for key in missing if by[key] in heard}
    assert by or name not in COMMITS
