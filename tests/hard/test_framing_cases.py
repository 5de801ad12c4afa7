"""What comes of the hard cases of framing, worked out from what their generators sent."""

from collections import Counter

import pytest

from dissector.limits import MAX_FRAME_BYTES
from tests.hard import framing_cases as cases
from tests.hard.tape import Row, Tables, Tape, capture, codes, commands, dissected

SENDS = cases.SENDS
Seen = tuple[str, str]


def seen(tables: Tables, way: str) -> list[Seen]:
    """Commands and statuses of a direction."""
    rows = [row for row in tables.get("frames", []) if row["direction"] == way]
    return [(row["command"], row["status"]) for row in rows]


def told(tape: Tape) -> Tables:
    return dissected(capture(tape.records()))


def only(tables: Tables) -> Row:
    (row,) = tables["connections"]
    return row


def outcomes(tables: Tables, kind: str = "publish") -> Counter[str]:
    return Counter(row["outcome"] for row in tables["exchanges"] if row["kind"] == kind)


def test_b32_lost_and_acknowledged_is_a_gap_of_its_length() -> None:
    tape = cases.one_send_lost()
    tables = told(tape)
    assert seen(tables, "to_broker").count(("SEND", "complete")) == SENDS - 1
    row = only(tables)
    assert row["gap_bytes_to_broker"] == len(tape.frames[0][2 + 4])
    assert row["stream_bytes_to_broker"] == len(tape.sent[0])
    assert row["unparsed_bytes_to_broker"] == 0
    assert codes(tables) == ["gap_lost"]
    assert outcomes(tables) == {"ok": SENDS - 1, "orphan_response": 1}


def test_b35_gap_at_the_start_is_counted_and_the_rest_found() -> None:
    tape = cases.leading_gap()
    tables = told(tape)
    assert seen(tables, "to_broker") == [("SEND", "complete")] * (SENDS - 1)
    lost = sum(map(len, tape.frames[0][:2])) + len(tape.frames[0][6])
    assert only(tables)["gap_bytes_to_broker"] == lost
    assert only(tables)["stream_bytes_to_broker"] == len(tape.sent[0])


def test_b35_gap_at_the_end_is_counted() -> None:
    tape = cases.trailing_gap()
    tables = told(tape)
    assert seen(tables, "to_broker").count(("SEND", "complete")) == SENDS - 5
    lost = sum(map(len, tape.frames[0][-4:])) + len(tape.frames[0][6])
    assert only(tables)["gap_bytes_to_broker"] == lost
    assert only(tables)["stream_bytes_to_broker"] == len(tape.sent[0])


def test_b35_gap_over_many_frames_costs_what_it_touches() -> None:
    tape = cases.wide_gap()
    tables = told(tape)
    numbers_seen = seen(tables, "to_broker")
    # Three packets a send: the hole is from the second of send 1 to the first of send 6.
    assert numbers_seen == [("CONNECT", "complete"), ("PRODUCER", "complete"), ("SEND", "complete"),
                     ("SEND", "cut_by_gap")] + [("SEND", "complete")] * 5  # fmt: skip
    cut = next(row for row in tables["frames"] if row["status"] == "cut_by_gap")
    assert cut["frame_bytes"] == len(tape.frames[0][3]) and cut["sequence_id"] == 1
    row = only(tables)
    there = [each for each in tape.packets if each.payload and each.to_broker]
    assert row["gap_bytes_to_broker"] == len(tape.sent[0]) - sum(len(e.payload) for e in there)
    (resync,) = [each for each in tables["notices"] if each["code"] == "resync"]
    assert resync["bytes"] == len(tape.frames[0][8]) - 2 * tape.mss


@pytest.mark.parametrize("lost", [range(3, 150, 9), range(1, 155), range(1, 2)])
def test_b36_holes_in_a_frame_of_5_mb_cost_that_frame_alone(lost: range) -> None:
    tape = cases.holed_giant(lost)
    tables = told(tape)
    rows = [row for row in tables["frames"] if row["command"] == "SEND"]
    assert [row["status"] for row in rows] == ["cut_by_gap", "complete"]
    assert [row["frame_bytes"] for row in rows] == [len(each) for each in tape.frames[0][2:]]
    assert [row["sequence_id"] for row in rows] == [0, 1]
    assert [row["checksum"] for row in rows] == ["not_evaluated", "ok"]
    assert only(tables)["gap_bytes_to_broker"] == len(lost) * tape.mss
    assert outcomes(tables) == {"ok": 2}
    assert set(codes(tables)) == {"gap_lost"}


@pytest.mark.parametrize(
    "make", [cases.begins_inside_a_frame, cases.begins_inside_a_recorded_stream]
)
def test_b49_a_start_inside_a_frame_is_skipped_to_the_next(make: object) -> None:
    tables = dissected(make())  # type: ignore[operator]
    assert commands(tables, "to_broker") == ["SEND"] * 10
    assert {row["checksum"] for row in tables["frames"]} == {"ok", None}
    assert outcomes(tables) == {"ok": 10}
    row = only(tables)
    assert row["started"] == "midstream"
    assert row["decoded_bytes_to_broker"] == sum(each["frame_bytes"] for each in tables["frames"]
                                                 if each["direction"] == "to_broker")  # fmt: skip
    start = next(each for each in tables["notices"] if each["code"] == "midstream_start")
    assert start["bytes"] == row["unparsed_bytes_to_broker"] > 0
    assert "resync_unconfirmed" not in codes(tables)


@pytest.mark.parametrize(
    ("make", "client_port", "source"),
    [
        (cases.client_by_command, 40_000, "command"),
        (cases.client_by_port, 40_000, "port"),
        (cases.client_by_first_packet, 16_999, "first_seen"),
        (cases.opener_is_the_broker, 40_000, "command"),
    ],
)
def test_b50_who_is_the_client(make: object, client_port: int, source: str) -> None:
    tables = dissected(make())  # type: ignore[operator]
    row = only(tables)
    assert (row["client_port"], row["role_source"]) == (client_port, source)
    ways = {each["direction"] for each in tables["frames"]}
    assert ways == ({"unknown"} if source == "first_seen" else {"to_broker", "to_client"})
    assert ("role_flipped" in codes(tables)) == (make is cases.opener_is_the_broker)


def test_b52_one_direction_has_frames_and_no_latencies() -> None:
    tables = told(cases.one_way(True))
    assert commands(tables) == ["CONNECT", "PRODUCER"] + ["SEND"] * 8
    assert outcomes(tables) == {"other_side_not_captured": 8}
    tables = told(cases.one_way(False))
    assert commands(tables) == ["CONNECTED", "PRODUCER_SUCCESS"] + ["SEND_RECEIPT"] * 8
    assert outcomes(tables) == {"orphan_response": 8}
    for each in (cases.one_way(True), cases.one_way(False)):
        assert all(row["latency_ns"] is None for row in told(each)["exchanges"])


def test_b53_each_answer_that_fails_has_its_outcome() -> None:
    tables = told(cases.answers())
    rows = [row for row in tables["exchanges"] if row["kind"] == "publish"]
    by_id = sorted((row["sequence_id"], row["outcome"]) for row in rows)
    assert by_id == [
        (0, "ok"),
        (1, "lost_in_gap"),
        (2, "ok"),
        (2, "orphan_response"),
        (3, "ok"),
        (4, "conn_closed"),
    ]
    (late,) = [row for row in rows if row["sequence_id"] == 3]
    assert late["latency_ns"] > 3_000_000_000


def test_b53_ids_of_another_connection_are_other_ids() -> None:
    tables = dissected(cases.ids_again_after_a_reconnect())
    rows = [row for row in tables["exchanges"] if row["kind"] == "publish"]
    found = sorted((row["connection_id"], row["outcome"]) for row in rows)
    assert found == [(0, "conn_closed"), (1, "ok")]


def test_b57_tls_is_one_opaque_connection() -> None:
    for make, name in (
        (cases.inside_tls, "broker.example"),
        (cases.inside_tls_from_the_middle, None),
    ):
        tables = dissected(make())
        row = only(tables)
        assert (row["protocol"], row["tls_sni"]) == ("tls", name)
        assert tables.get("frames", []) == [] and codes(tables) == []
        for way in ("to_broker", "to_client"):
            assert row[f"unparsed_bytes_{way}"] == row[f"stream_bytes_{way}"] > 0


@pytest.mark.parametrize(
    ("make", "protocol", "notices"),
    [
        (cases.http_on_the_port, "http", []),
        (cases.health_check, "none", []),
        (cases.garbage_on_the_port, "unknown", ["not_recognised"]),
    ],
)
def test_b58_other_protocols_are_named(make: object, protocol: str, notices: list[str]) -> None:
    tables = dissected(make())  # type: ignore[operator]
    row = only(tables)
    assert (row["protocol"], codes(tables)) == (protocol, notices)
    assert row["unparsed_bytes_to_broker"] == row["stream_bytes_to_broker"]
    assert tables.get("frames", []) == []


@pytest.mark.parametrize("header", [cases.PROXY_V1, cases.PROXY_V2], ids=["v1", "v2"])
def test_b58_proxy_headers_come_off(header: bytes) -> None:
    tape = cases.proxied(header)
    tables = told(tape)
    row = only(tables)
    assert (row["protocol"], row["proxied_client_ip"]) == ("pulsar", "203.0.113.9")
    assert row["unparsed_bytes_to_broker"] == len(header)
    assert commands(tables, "to_broker") == ["CONNECT", "PRODUCER", "SEND"]


@pytest.mark.parametrize("name", cases.ODD_LENGTHS)
def test_b60_a_length_that_cannot_be_costs_its_bytes(name: str) -> None:
    tape = cases.odd_length(name)
    tables = told(tape)
    assert commands(tables, "to_broker") == ["CONNECT", "PRODUCER"] + ["SEND"] * 8
    assert {row["status"] for row in tables["frames"]} == {"complete"}
    row = only(tables)
    assert row["unparsed_bytes_to_broker"] == len(cases.ODD_LENGTHS[name])
    assert codes(tables) == ["desync", "resync"]
    assert [each["bytes"] for each in tables["notices"]][1] == len(cases.ODD_LENGTHS[name])


def test_b60_a_body_that_overruns_its_command_is_malformed() -> None:
    tables = dissected(cases.body_longer_than_its_command())
    assert [row["status"] for row in tables["frames"] if row["command"] == "SEND"] == [
        "complete",
        "malformed",
        "complete",
    ]
    assert "malformed_frame" in codes(tables)


def test_b60_the_longest_frame_is_what_the_broker_says() -> None:
    for size, status in ((MAX_FRAME_BYTES - 100, "complete"), (MAX_FRAME_BYTES + 100, None)):
        tape = cases.opened(mss=60_000)
        tape.publish(0, bytes(size))
        tape.publish(1, b"behind")
        tape.publish(2, b"behind")
        tables = told(tape)
        rows = {row["sequence_id"]: row for row in tables["frames"] if row["command"] == "SEND"}
        assert rows[1]["status"] == rows[2]["status"] == "complete"
        assert (rows[0]["status"] if 0 in rows else None) == status
        assert ("desync" in codes(tables)) == (status is None)
