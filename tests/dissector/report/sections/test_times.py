"""Round trips, acks, deliveries and connecting: against naive counts, and what is not known."""

from typing import Any

import pyarrow as pa
import pytest

from dissector.buckets import bucket_of
from dissector.report import parts as report_parts
from dissector.report.names import LEGS, Names, no_names
from dissector.report.parts import Parts
from dissector.report.sections import ack_latency, publish_to_delivery
from dissector.report.sections.connecting import BURST, chains, connecting
from dissector.report.sections.requests import requests
from tests.numbers import Numbers
from dissector.report.tallies import ACK_TIMES
from tests.dissector.report import made
from tests.dissector.report.sections.test_sections import report_of, tables_of
from tests.naive import report as naive

CASES = ("21", "22", "java-j74_corrupt.pcap", "java-j24_unload.pcap", "java-j61_txn_abort.pcap",
         "cpp-s08_nack-proxy-any.pcap")  # fmt: skip
each = pytest.mark.parametrize("name", CASES)
SECOND = 1_000_000_000


def timed_of(section: made.Row, key: str) -> tuple[int, float | None, float | None]:
    return section[key]["count"], section[key]["min"], section[key]["max"]


def spread(values: list[int]) -> tuple[int, float | None, float | None]:
    """Count, least and greatest of durations in ns, as a report prints them."""
    if not values:
        return 0, None, None
    low, high = ((2 * each + 1000) // 2000 / 1000 for each in (min(values), max(values)))
    return len(values), low, high


@each
def test_round_trips_are_those_of_all_requests(name: str) -> None:
    rows = naive.settled(tables_of(name))["exchanges"]
    asked = [row for row in rows if row["kind"] != "publish"]
    section = report_of(name)["requests"]
    timed = [row["latency_ns"] for row in asked
             if row["outcome"] in ("ok", "error") and row["latency_ns"] is not None]  # fmt: skip
    assert timed_of(section["total"], "latency_ms") == spread(timed)
    for row in section["by_command"]:
        mine = [each for each in asked if each["request_command"] == row["request_command"]]
        if row["request_command"] is not None:
            assert row["requests"] == len(mine)
    sent = {
        (row["connection_id"], row["frame_no"]): row["direction"]
        for row in tables_of(name)["frames"] if row["command"] == "PING"
    }  # fmt: skip
    for asker, way in (("client", "to_broker"), ("broker", "to_client")):
        pings = [row for row in asked if row["request_command"] == "PING"
                 and sent[row["connection_id"], row["request_frame_no"]] == way]  # fmt: skip
        found = [row["requests"] for row in section["pings"] if row["asked_by"] == asker]
        assert sum(found) == len(pings)


@each
def test_acks_and_the_time_until_they_came(name: str) -> None:
    tables = naive.settled(tables_of(name))
    section = report_of(name)["ack_latency"]
    acked = [row for row in tables["deliveries"] if row["outcome"] == "acked"]
    timed = [row["ack_latency_ns"] for row in acked if row["ack_latency_ns"] is not None]
    assert section["total"]["acked"] == len(acked)
    assert timed_of(section["total"], "ack_latency_ms") == spread(timed)
    acks = [row for row in tables["acks"] if row["action"] == "ack"]
    frames = {(row["connection_id"], row["frame_no"]) for row in acks}
    assert section["total"]["ack_commands"] == len(frames)
    single = [row for row in acks if row["ack_type"] != "Cumulative"]
    assert section["total"]["ids_acked"] == len(single)
    assert sum(row["acked"] for row in section["by_subscription"]) == len(acked)


@each
def test_first_deliveries_are_timed_from_their_publish(name: str) -> None:
    tables = naive.settled(tables_of(name))
    section = report_of(name)["publish_to_delivery"]
    timed = [
        row["publish_to_delivery_ns"] for row in tables["deliveries"]
        if row["publish_to_delivery_ns"] is not None and not row["is_redelivered"]
        and not (row["deliver_at_ms"] or 0) > 0
    ]  # fmt: skip
    assert timed_of(section["total"], "transit_ms") == spread(timed)
    total = section["total"]
    assert sum(total["not_judged"].values()) + len(timed) == total["deliveries"]
    stored = {
        (row["ledger_id"], row["entry_id"]) for row in tables["exchanges"]
        if row["kind"] == "publish" and row["outcome"] == "ok" and row["ledger_id"] is not None
    }  # fmt: skip
    delivered = {(row["ledger_id"], row["entry_id"]) for row in tables["deliveries"]}
    assert total["entries_confirmed"] == len(stored)
    assert total["entries_delivered"] == len(delivered)
    assert total["entries_stored"] == len(stored | delivered)


@pytest.mark.parametrize(
    ("commands", "ids", "all_answered", "floor"),
    [(0, 0, False, None), (2, 9, False, 100.0), (2, 2, True, 0.0), (2, 2, False, None)],
    ids=["nothing", "gathered", "answered", "single"],
)
def test_how_long_acks_may_have_been_kept_back(
    commands: int, ids: int, all_answered: bool, floor: float | None
) -> None:
    found = Numbers()
    rows = [
        {"connection_id": 1, "frame_no": min(number, commands - 1), "action": "ack",
         "ledger_id": 1, "entry_id": number, "ack_type": "Individual",
         "request_id": 7 if all_answered else None}
        for number in range(ids)
    ]  # fmt: skip
    for row in rows:  # the ids of one frame may come in several pieces
        found.add("acks", made.batch("acks", [row]))
    total = found.result()["ack_latency"]["total"]
    assert (total["ack_commands"], total["ids_acked"]) == (commands, ids)
    assert total["grouping_floor_ms"] == floor
    assert ack_latency.GROUPING_FLOOR_MS == 100.0 and publish_to_delivery.ENTRIES is not None


# -- connecting


def step(command: str, at: int, took: int | None, **more: Any) -> dict[str, Any]:
    """A request that a client sent at a time and that took so long, both in ms."""
    sent = at * 1_000_000
    row = {
        "capture": "c", "connection_id": 0, "request_command": command, "topic": "t",
        "client_ip": "10.0.0.1", "outcome": "ok", "error_code": None, "request_first_ns": sent,
        "response_last_ns": None if took is None else sent + took * 1_000_000,
        "request_frame_no": at, "response_frame_no": at + 1,
    }  # fmt: skip
    return row | more


def test_a_chain_runs_from_the_first_question_to_what_is_open() -> None:
    steps = [
        step("PARTITIONED_METADATA", 0, 5),
        step("LOOKUP", 10, 5),
        step("CONNECT", 20, 10, topic=None, connection_id=3),
        step("PRODUCER", 40, 10, connection_id=3),
        step("LOOKUP", 60, 5),  # for another one, which is never open
    ]
    (chain,) = chains(steps[::-1])
    assert (chain["chain_ms"], chain["opened"], chain["lookups"]) == (50.0, "PRODUCER", 1)
    assert (chain["lookup_ms"], chain["connect_ms"], chain["open_ms"]) == (10.0, 10.0, 10.0)
    assert chain["pauses_ms"] == 20.0 and chain["refused"] == 0


def test_refusals_belong_to_the_chain_that_they_lengthen() -> None:
    steps = [step("LOOKUP", 0, 1), step("PRODUCER", 5, 1, outcome="error"),
             step("LOOKUP", 200, 1), step("PRODUCER", 205, 5)]  # fmt: skip
    (chain,) = chains(steps)
    assert (chain["chain_ms"], chain["refused"], chain["lookups"]) == (210.0, 1, 2)
    # After a long silence it is another attempt.
    late = [row | {"request_first_ns": row["request_first_ns"] + 300 * SECOND,
                   "response_last_ns": row["response_last_ns"] + 300 * SECOND}
            for row in steps[2:]]  # fmt: skip
    (chain,) = chains([*steps[:2], *late])
    assert (chain["chain_ms"], chain["refused"]) == (10.0, 0)


def legs(times_ms: list[int], **more: Any) -> list[dict[str, Any]]:
    """Connections that one client opened at these times."""
    row = {
        "client_ip": "10.0.0.1", "broker_ip": "10.0.0.2", "broker_port": 6650, "protocol": "pulsar",
        "started": "syn", "ended": "fin", "packets_to_broker": 3, "packets_to_client": 3,
    }  # fmt: skip
    return [
        row | {"connection_id": number, "client_port": 40_000 + number,
               "first_ts_ns": made.START_NS + at * 1_000_000,
               "last_ts_ns": made.START_NS + at * 1_000_000 + SECOND,
               "handshake_rtt_ns": 1_000_000} | more
        for number, at in enumerate(times_ms)
    ]  # fmt: skip


def section_of(connections: list[dict[str, Any]]) -> dict[str, Any]:
    found = Numbers()
    found.add("connections", made.batch("connections", connections))
    section: dict[str, Any] = found.result()["connecting"]
    return section


def test_many_connections_at_once_are_a_storm() -> None:
    calm = section_of(legs([20_000 * number for number in range(30)]))
    assert (calm["total"]["opened_within_10_s"], calm["total"]["bursts"]) == (1, 0)
    storm = section_of(legs([100 * number for number in range(BURST)]))
    (row,) = storm["bursts"]
    assert row["opened_within_10_s"] == BURST and row["not_established"] == 0
    assert storm["total"]["network_round_trip_ms"]["p50"] == 1.0


def test_captures_that_were_joined_are_one_storm_and_end_together() -> None:
    rows = [{"capture": "b" if number % 2 else "a", **row}
            for number, row in enumerate(legs([0] * BURST))]  # fmt: skip
    names = no_names()._replace(legs=pa.Table.from_pylist(rows, schema=LEGS))
    ends = {"a": SECOND, "b": 3 * SECOND}
    files = [{"capture": name, "last_ts_ns": last} for name, last in ends.items()]
    waiting = {"capture": "a", "outcome": "unacked_at_end", "deliveries": 1, "at_us_min": 500_000}
    tables = report_parts.no_parts().tables | {
        "files": pa.Table.from_pylist(files, schema=report_parts.FILES),
        "ack_times": pa.Table.from_pylist([waiting], schema=ACK_TIMES.schema()),
    }
    found = {}
    for wholes in ({}, {"a": "a", "b": "a"}):
        parts = Parts(tables, names, SECOND, {}, {}, {}, wholes)
        total = ack_latency.ack_latency(parts)["total"]
        found[len(wholes)] = connecting(parts)["total"]["bursts"], total["oldest_unacknowledged_ms"]
    assert found == {0: (0, 500.0), 2: (1, 2500.0)}


def test_attempts_in_vain_are_told_from_handshakes_that_were_not_captured() -> None:
    attempts = legs([0, 1, 2], protocol="none", handshake_rtt_ns=None, closed_first_by="broker")
    refused = section_of(attempts)
    assert refused["total"]["not_established"] == 3
    assert refused["total"]["closed_by_broker"]["connections"] == 0
    assert refused["total"]["network_round_trip_ms"]["p50"] is None
    one_way = section_of(legs([0, 1], handshake_rtt_ns=None, packets_to_client=0))
    assert one_way["total"]["not_established"] == 0
    # A SYN-ACK without the client's half: whether the client went on is not known.
    other_way = legs([0], protocol="none", handshake_rtt_ns=None, packets_to_broker=0)
    assert section_of(other_way)["total"]["not_established"] == 0
    before = section_of(legs([0], started="midstream", handshake_rtt_ns=None))
    assert before["total"]["opened_within_10_s"] is None
    assert before["total"]["not_judged"] == {"opened_before_capture": 1, "request_unread": 0}


@pytest.mark.parametrize(
    ("latency_ns", "kind", "asked_by", "nearer"),
    [
        (200_000, "request", None, "broker"),
        (200_000, "ping", "broker", "client"),
        (200_000, "auth", None, "client"),
        (900_000, "request", None, None),
    ],
    ids=["broker", "client", "challenge", "uncertain"],
)
def test_the_side_of_the_tap_is_said_where_it_is_certain(
    latency_ns: int, kind: str, asked_by: str | None, nearer: str | None
) -> None:
    """The whole path takes 1 ms there and back: what comes back in 0.2 ms is at hand."""
    tables = dict(report_parts.no_parts().tables)
    tally = tables["requests"].schema
    row = dict.fromkeys(tally.names) | {
        "capture": "c", "connection_id": 0, "kind": kind, "request_command": "X",
        "asked_by": asked_by, "outcome": "ok", "bucket": int(bucket_of(latency_ns)),
        "requests": 1, "tainted": 0, "latencies": 1, "latency_ns": latency_ns,
        "latency_ns_min": latency_ns, "latency_ns_max": latency_ns,
    }  # fmt: skip
    tables["requests"] = tables["requests"].from_pylist([row], schema=tally)
    names = no_names()
    known = names.legs.from_pylist([{"capture": "c", **legs([0])[0]}], schema=names.legs.schema)
    found = Parts(tables, Names(known, names.producers, names.consumers), 1_000_000, {}, {})
    assert requests(found)["total"]["tap_nearer_to"] == nearer
    assert connecting(found)["total"]["opened"] == 1
