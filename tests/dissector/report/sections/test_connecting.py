"""Chains of opening something, storms of connecting, and what the broker closed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.report.sections.connecting import connecting
from tests.dissector.queries.query_engine import QueryEngine, Row
from tests.dissector.report.made import START_NS

QUERIES = (
    "connecting", "chain_times", "slow_chains", "bursts", "closed_by_broker", "closed_causes",
    "links", "unread",
)  # fmt: skip
MS = 1_000_000
SECOND = 1000 * MS
BURST = 10


@pytest.fixture(scope="module")
def db() -> QueryEngine:
    return QueryEngine()


def section_of(db: QueryEngine, units: dict[str, str] | None = None, **tables: Any) -> Row:
    """The section of one capture, or of those that rows name."""
    captures: dict[str, dict[str, list[Row]]] = {}
    for table, rows in tables.items():
        for row in rows:
            mine = captures.setdefault(row.get("capture", "c"), {})
            mine.setdefault(table, []).append(row)
    return connecting(db.put(captures, units).parts(QUERIES))


# -- chains


def step(command: str, at: int, took: int | None, **more: Any) -> Row:
    """A request that a client sent at a time and that took so long, both in ms."""
    sent = START_NS + at * MS
    row = {
        "connection_id": 0, "kind": "request", "request_command": command, "topic": "t",
        "client_ip": "10.0.0.1", "outcome": "ok", "request_first_ns": sent,
        "response_last_ns": None if took is None else sent + took * MS,
        "request_frame_no": at, "response_frame_no": at + 1,
    }  # fmt: skip
    return row | more


def test_a_chain_runs_from_the_first_question_to_what_is_open(db: QueryEngine) -> None:
    steps = [
        step("PARTITIONED_METADATA", 0, 5),
        step("LOOKUP", 10, 5),
        step("CONNECT", 20, 10, topic=None, connection_id=3),
        step("PRODUCER", 40, 10, connection_id=3),
        step("LOOKUP", 60, 5),  # for another one, which is never open
    ]
    section = section_of(db, exchanges=steps[::-1])
    (chain,) = section["slowest_chains"]
    assert (chain["chain_ms"], chain["opened"], chain["lookups"]) == (50.0, "PRODUCER", 1)
    assert (chain["lookup_ms"], chain["connect_ms"], chain["open_ms"]) == (10.0, 10.0, 10.0)
    assert chain["pauses_ms"] == 20.0 and chain["refused"] == 0
    assert (chain["request_frame_no"], chain["response_frame_no"]) == (0, 41)
    assert section["total"]["chains"] == 1 and section["total"]["chain_ms"]["max"] == 50.0


def test_refusals_belong_to_the_chain_that_they_lengthen(db: QueryEngine) -> None:
    steps = [step("LOOKUP", 0, 1), step("PRODUCER", 5, 1, outcome="error"),
             step("LOOKUP", 200, 1), step("PRODUCER", 205, 5)]  # fmt: skip
    section = section_of(db, exchanges=steps)
    (chain,) = section["slowest_chains"]
    assert (chain["chain_ms"], chain["refused"], chain["lookups"]) == (210.0, 1, 2)
    assert section["total"]["chains_with_refusals"] == 1
    # After a long silence it is another attempt.
    late = [row | {"request_first_ns": row["request_first_ns"] + 300 * SECOND,
                   "response_last_ns": row["response_last_ns"] + 300 * SECOND}
            for row in steps[2:]]  # fmt: skip
    (chain,) = section_of(db, exchanges=[*steps[:2], *late])["slowest_chains"]
    assert (chain["chain_ms"], chain["refused"]) == (10.0, 0)


def test_a_chain_goes_over_captures_only_where_they_are_read_together(db: QueryEngine) -> None:
    steps = [step("LOOKUP", 0, 1, capture="a"), step("PRODUCER", 5, 5, capture="b")]
    for units, took in (({}, 5.0), ({"a": "a", "b": "a"}, 10.0)):
        (chain,) = section_of(db, units, exchanges=steps)["slowest_chains"]
        assert (chain["chain_ms"], chain["capture"]) == (took, "b")
        # A frame of another capture has no number here.
        assert chain["request_frame_no"] == (5 if took == 5.0 else None)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["CONNECT", "LOOKUP", "PARTITIONED_METADATA", "PRODUCER", "SUBSCRIBE"]),
        st.sampled_from(["t", "u", None]),
        st.sampled_from(["ok", "ok", "error", "unanswered_at_end"]),
        st.integers(0, 1),  # connection
        st.sampled_from([0, 3, 3, 3, 50_000, 130_000]),  # after the one before, ms
        st.sampled_from([1, 2, -2, 40]),  # until the answer, ms
    ),
    max_size=20,
)


def plain_chains(rows: list[Row]) -> list[tuple[int, int, int]]:
    """One step after the other: how long each chain took, its lookups, its refusals."""
    waiting: dict[Any, list[Row]] = {}
    connects: dict[int, Row] = {}
    found = []
    for row in rows:
        if row["request_command"] == "CONNECT":
            connects[row["connection_id"]] = row
            continue
        if row["topic"] is None:
            continue
        steps = waiting.setdefault(row["topic"], [])
        if steps and row["request_first_ns"] - steps[-1]["request_first_ns"] > 120 * SECOND:
            steps.clear()
        steps.append(row)
        is_end = row["request_command"] in ("PRODUCER", "SUBSCRIBE") and row["outcome"] == "ok"
        if is_end and row["response_last_ns"] is not None:
            first = steps[0]["request_first_ns"]
            connect = connects.get(row["connection_id"])
            if connect is not None and connect["request_first_ns"] >= first:
                steps.append(connect)
            took = row["response_last_ns"] - first
            if took >= 0:
                lookups = sum(each["request_command"] == "LOOKUP" for each in steps)
                found.append((took, lookups, sum(each["outcome"] == "error" for each in steps)))
            del waiting[row["topic"]]
    return sorted(found)


@settings(deadline=None, max_examples=25)
@given(STEPS)
def test_chains_are_those_of_one_step_after_the_other(db: QueryEngine, drawn: list[Any]) -> None:
    rows = []
    at = 0
    for number, (command, topic, outcome, connection, after, took) in enumerate(drawn):
        at += after
        is_answered = outcome != "unanswered_at_end"
        rows.append(step(
            command, at, took if is_answered else None, topic=topic, outcome=outcome,
            connection_id=connection, request_frame_no=number, response_frame_no=1000 + number,
        ))  # fmt: skip
    db.put({"c": {"exchanges": rows}})
    found = db.table("SELECT chain_ns, lookups, refused FROM chains").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == plain_chains(rows)


# -- storms


def legs(times_ms: list[int], **more: Any) -> list[Row]:
    """Connections that one client opened at these times."""
    row = {
        "client_ip": "10.0.0.1", "broker_ip": "10.0.0.2", "broker_port": 6650, "protocol": "pulsar",
        "started": "syn", "ended": "fin", "packets_to_broker": 3, "packets_to_client": 3,
    }  # fmt: skip
    return [
        row | {"connection_id": number, "client_port": 40_000 + number,
               "first_ts_ns": START_NS + at * MS, "last_ts_ns": START_NS + at * MS + SECOND,
               "handshake_rtt_ns": MS} | more
        for number, at in enumerate(times_ms)
    ]  # fmt: skip


def test_many_connections_at_once_are_a_storm(db: QueryEngine) -> None:
    calm = section_of(db, connections=legs([20_000 * number for number in range(30)]))
    assert (calm["total"]["opened_within_10_s"], calm["total"]["bursts"]) == (1, 0)
    storm = section_of(db, connections=legs([100 * number for number in range(BURST)]))
    (row,) = storm["bursts"]
    assert row["opened_within_10_s"] == BURST and row["not_established"] == 0
    assert storm["total"]["network_round_trip_ms"]["p50"] == 1.0
    assert storm["total"]["bursts"] == 1


def test_captures_that_are_read_together_are_one_storm(db: QueryEngine) -> None:
    rows = [row | {"capture": "b" if n % 2 else "a"} for n, row in enumerate(legs([0] * BURST))]
    assert section_of(db, connections=rows)["total"]["bursts"] == 0
    together = section_of(db, {"a": "a", "b": "a"}, connections=rows)
    assert together["total"]["bursts"] == 1 and together["bursts"][0]["opened"] == BURST


STARTS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["a", "b", None]), st.integers(0, 40), st.booleans()
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=25)
@given(STARTS)
def test_peaks_are_those_of_every_window(db: QueryEngine, starts: list[Any]) -> None:
    rows = [
        {"connection_id": n, "client_ip": client, "broker_ip": "x", "broker_port": port,
         "started": "syn", "first_ts_ns": seconds * SECOND,
         "protocol": "none" if is_vain else "pulsar", "handshake_rtt_ns": None if is_vain else 5}
        for n, (port, client, seconds, is_vain) in enumerate(starts)
    ]  # fmt: skip
    db.put({"c": {"connections": rows}})
    wanted = []
    for pair in {(client, port) for port, client, *_ in starts}:
        mine = [each for each in starts if (each[1], each[0]) == pair]
        times = sorted(seconds for *_, seconds, _ in mine)
        peak, begun = max((sum(t <= u <= t + 10 for u in times), -t) for t in times)
        vain = sum(is_vain for *_, is_vain in mine)
        wanted.append({
            "client_ip": pair[0], "broker_port": pair[1], "opened": len(mine), "vain": vain,
            "within_10_s": peak, "at_ns": -begun * SECOND,
        })  # fmt: skip
    table = db.table("SELECT client_ip, broker_port, opened, vain, within_10_s, at_ns FROM storms")
    assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, wanted))


def test_attempts_in_vain_are_told_from_handshakes_that_were_not_captured(db: QueryEngine) -> None:
    def of(rows: list[Row]) -> Row:
        total: Row = section_of(db, connections=rows)["total"]
        return total

    refused = of(legs([0, 1, 2], protocol="none", handshake_rtt_ns=None, closed_first_by="broker"))
    assert refused["not_established"] == 3
    assert refused["closed_by_broker"]["connections"] == 0
    assert refused["network_round_trip_ms"]["p50"] is None
    assert of(legs([0, 1], handshake_rtt_ns=None, packets_to_client=0))["not_established"] == 0
    # A SYN-ACK without the client's half: whether the client went on is not known.
    other_way = legs([0], protocol="none", handshake_rtt_ns=None, packets_to_broker=0)
    assert of(other_way)["not_established"] == 0
    before = of(legs([0], started="midstream", handshake_rtt_ns=None))
    assert before["opened_within_10_s"] is None
    assert before["not_evaluated_by_reason"] == {"opened_before_capture": 1, "request_unread": 0}


def test_what_the_broker_closed_is_listed_in_order_and_what_it_refused_is_not(
    db: QueryEngine,
) -> None:
    row = {"connection_id": 0, "incarnation": 0, "topic": "t", "closed_by": "broker"}
    producers = [
        row | {"producer_id": 1, "closed_frame_no": 9},
        row | {"producer_id": 2, "closed_frame_no": 3, "refused_code": "ProducerBusy"},
        row | {"producer_id": 3, "closed_frame_no": 4, "closed_by": "client"},
    ]
    consumers = [row | {"consumer_id": 1, "closed_frame_no": 5, "subscription": "s"}]
    section = section_of(db, producers=producers, consumers=consumers)
    assert [each["closed_frame_no"] for each in section["closed_by_broker"]] == [5, 9]
    closed = section["total"]["closed_by_broker"]
    assert (closed["producers"], closed["consumers"]) == (1, 1)
    assert section["total"]["closed_by_cause"] == {"unknown": 2}


def answer(command: str, frame_no: int, outcome: str = "ok", **more: Any) -> Row:
    """A request on the topic and its answer in the frame behind it."""
    return {
        "connection_id": 0, "kind": "publish" if command == "SEND" else "request",
        "request_command": command, "request_frame_no": frame_no, "topic": "t",
        "response_frame_no": frame_no + 1, "outcome": outcome,
        "request_last_ns": START_NS + frame_no, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("what", "exchanges", "frames", "cause"),
    [
        ("producer", [answer("SEND", 4, "error", producer_id=1, error_code="TopicTerminatedError")],
         [], "terminated"),
        ("producer", [answer("PRODUCER", 14, "error", error_code="TopicTerminatedError")], [],
         "terminated"),
        ("producer", [answer("SEND", 4, "error", producer_id=1, error_code="ProducerFenced")], [],
         "refused"),
        ("producer", [answer("SEND", 4, "error", producer_id=1, error_code="PersistenceError"),
                      answer("SEND", 6, producer_id=1)], [], "unknown"),
        ("producer", [answer("PRODUCER", 14)], [], "opened_again"),
        ("producer", [answer("PRODUCER", 4)], [], "unknown"),
        ("producer", [answer("SUBSCRIBE", 14)], [], "unknown"),
        ("producer", [answer("PRODUCER", 14, "error", error_code="TopicNotFound")], [],
         "not_opened_again"),
        ("producer", [answer("PRODUCER", 14, "error"), answer("PRODUCER", 16)], [], "opened_again"),
        ("producer", [answer("PRODUCER", 9, "error")], [], None),
        ("producer", [answer("PRODUCER", 14)], [{"producer_id": 1}], "migrated"),
        ("producer", [answer("PRODUCER", 14)], [{"consumer_id": 1}], "opened_again"),
        ("consumer", [answer("SUBSCRIBE", 14)], [{"consumer_id": 1}], "migrated"),
        ("consumer", [answer("SEEK", 4, subscription="s"), answer("SUBSCRIBE", 14)], [], "seek"),
        ("consumer", [answer("SEEK", 4, subscription="z"), answer("SUBSCRIBE", 14)], [],
         "opened_again"),
        ("consumer", [answer("SEEK", 2, subscription="s")], [], "unknown"),
    ],
)  # fmt: skip
def test_why_a_broker_closed_something_is_what_the_capture_shows(
    db: QueryEngine, what: str, exchanges: list[Row], frames: list[Row], cause: str | None
) -> None:
    """It was opened in frame 3 and closed in frame 10."""
    row = {
        "connection_id": 0, "incarnation": 0, "topic": "t", "closed_by": "broker", f"{what}_id": 1,
        "opened_frame_no": 3, "closed_frame_no": 10,
    }  # fmt: skip
    if what == "consumer":
        row["subscription"] = "s"
    told = [
        {"connection_id": 0, "command": "TOPIC_MIGRATED", "frame_no": 9, **each} for each in frames
    ]
    told.append({"connection_id": 0, "frame_no": 10, "last_ts_ns": START_NS + 10})
    tables = {f"{what}s": [row], "exchanges": exchanges, "frames": told}
    section = section_of(db, **{name: rows for name, rows in tables.items() if rows})
    causes = [each["cause"] for each in section["closed_by_broker"]]
    assert causes == ([] if cause is None else [cause])
