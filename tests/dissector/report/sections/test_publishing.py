"""Distinct messages and entries, latency over attempts, the slowest and refusals: small truths."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.report.merged_tables import MergedTables
from dissector.report.sections.errors import errors
from dissector.report.sections.publish_to_delivery import publish_to_delivery
from dissector.report.sections.requests import requests
from dissector.report.sections.slowest import slowest
from tests.choosing import examples
from tests.dissector.queries.query_engine import QueryEngine, Row
from tests.dissector.report import made
from tests.dissector.report.made import START_NS

MS = 1_000_000
SECOND = 1000 * MS


@pytest.fixture(scope="module")
def db() -> QueryEngine:
    return QueryEngine()


# -- messages and attempts

SENDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "z"]),  # capture; a and b are read together
        st.integers(0, 1),  # connection, with an address of its own
        st.sampled_from(["t", None]),
        st.sampled_from(["p", "q", None]),
        st.integers(0, 2),  # sequence id
        st.sampled_from([1, 2, None]),  # attempt
        st.sampled_from([0, 1, 3, None]),  # message count
        st.sampled_from(["ok", "ok", "unanswered_at_end", "other_side_not_captured"]),
        st.sampled_from([0, 1, None]),  # producer id; none: no id tells messages apart
    ),
    max_size=25,
)
UNITS = {"a": "a", "b": "a", "z": "z"}


def sends_of(drawn: list[Any]) -> list[Row]:
    sends = []
    for number, (capture, connection, topic, name, sequence, attempt, count, outcome,
                 producer) in enumerate(drawn):  # fmt: skip
        answered = outcome == "ok"
        sends.append({"capture": capture} | made.publish(
            connection_id=connection, topic=topic, producer_name=name, sequence_id=sequence,
            attempt=attempt, message_count=count, outcome=outcome, producer_id=producer,
            request_frame_no=number, response_frame_no=1000 + number if answered else None,
            client_ip=f"10.0.0.{connection}", request_last_ns=START_NS + number * MS,
            latency_ns=(number * 7 % 11) * MS if answered else None,
        ))  # fmt: skip
    return sends


def by_capture(rows: list[Row]) -> dict[str, dict[str, list[Row]]]:
    found: dict[str, dict[str, list[Row]]] = {name: {"exchanges": []} for name in UNITS}
    for row in rows:
        found[row["capture"]]["exchanges"].append(row)
    return found


def who(row: Row) -> tuple[Any, ...]:
    """What tells messages of equal ids apart."""
    if row["topic"] is not None and row["producer_name"] is not None:
        return UNITS[row["capture"]], row["topic"], row["producer_name"]
    place = (row["capture"], row["connection_id"], row["producer_id"])
    return UNITS[row["capture"]], row["topic"], row["producer_name"], *place


@settings(deadline=None, max_examples=25)
@given(SENDS)
def test_messages_are_distinct_within_their_producer(db: QueryEngine, drawn: list[Any]) -> None:
    rows = sends_of(drawn)
    largest: dict[str, dict[Any, int]] = defaultdict(dict)
    for number, row in enumerate(rows):
        count = row["message_count"] or 0
        message: Any = row["sequence_id"]
        if row["producer_id"] is None:
            message = ("alone", number)
            count = count if row["attempt"] in (1, None) else 0
        for grouping, extra in (("producer", ()), ("client", (row["client_ip"],))):
            shown = (row["topic"], row["producer_name"]) if grouping == "producer" else extra
            key = (shown, who(row), message, *extra)
            largest[grouping][key] = max(largest[grouping].get(key, 0), count)
    wanted: dict[Any, int] = defaultdict(int)
    for grouping, counts in largest.items():
        for key, count in counts.items():
            wanted[(grouping, *key[0])] += count
    found = {}
    for row in db.put(by_capture(rows), UNITS).rows("messages"):
        if row["grouping"] == "producer":
            found[("producer", row["topic"], row["producer_name"])] = row["messages"]
        elif row["grouping"] == "client":
            found[("client", row["client_ip"])] = row["messages"]
    assert found == dict(wanted)


@settings(deadline=None, max_examples=25)
@given(SENDS)
def test_a_message_takes_until_its_first_receipt(db: QueryEngine, drawn: list[Any]) -> None:
    rows = sends_of(drawn)
    wanted = []
    waiting: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if row["outcome"] == "ok" and row["attempt"] in (1, None):
            wanted.append(row["latency_ns"])
        elif row["attempt"] is not None and row["outcome"] != "other_side_not_captured":
            waiting[who(row), row["sequence_id"]].append(row)
    for attempts in waiting.values():
        answers = [row["response_last_ns"] for row in attempts if row["outcome"] == "ok"]
        if answers and min(row["attempt"] for row in attempts) == 1:
            took = min(answers) - min(row["request_last_ns"] for row in attempts)
            wanted += [took] if took >= 0 else []
    db.put(by_capture(rows), UNITS)
    found = db.table("SELECT logical_ns FROM logical_sends").column(0).to_pylist()
    assert sorted(found) == sorted(wanted)


# -- entries


def test_an_entry_counts_once_where_captures_are_read_together(db: QueryEngine) -> None:
    sent = made.publish(ledger_id=7, entry_id=1)
    got = {"connection_id": 1, "frame_no": 5, "ledger_id": 7, "entry_id": 1, "topic": "t"}
    captures = {
        "a": {"exchanges": [sent, sent, made.publish(ledger_id=7, entry_id=2)]},
        "b": {"deliveries": [got, got, got | {"topic": "non-persistent://x"},
                             got | {"ledger_id": None}]},
    }  # fmt: skip
    (row,) = db.put(captures, {"a": "a", "b": "a"}).rows("entries")
    assert (row["confirmed"], row["delivered"], row["either"]) == (2, 1, 2)
    (row,) = db.put(captures).rows("entries")  # of clusters that have nothing in common
    assert (row["confirmed"], row["delivered"], row["either"]) == (2, 1, 3)


STEP = 4000  # ns, of series over time
CHANGES = ("stored", "delivered", "acknowledged")
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        # Subscriptions that got it, a microsecond later, and how long until they acknowledged, us.
        st.dictionaries(st.sampled_from(["s", "r"]), st.none() | st.integers(0, 5)),
        st.integers(0, 3),  # how long after the last one it was stored, us
    ),
    max_size=12,
)
# When subscriptions of the first topic had permits, us.
BEGINNINGS = st.dictionaries(st.sampled_from(["s", "r"]), st.integers(0, 20))


def traffic(
    entries: list[Any], beginnings: dict[str, int]
) -> tuple[dict[str, list[Row]], dict[str, list[tuple[int, dict[str, int | None]]]]]:
    """Rows of tables, and by topic when each entry was stored, us, with who got it."""
    names = {name: number for number, name in enumerate(sorted(beginnings))}
    numbers = {"connection_id": 0, "incarnation": 0}
    permits = [
        numbers | {"topic": "persistent://t", "subscription": name, "consumer_id": names[name]} | {
            "ts": START_NS // 1000 + since, "event": "grant", "delta": 5, "frame_no": names[name],
        }
        for name, since in beginnings.items()
    ]  # fmt: skip
    exchanges, deliveries, at = [], [], 0
    stored: dict[str, list[tuple[int, dict[str, int | None]]]] = {}
    for number, (topic, takers, pause) in enumerate(entries):
        at += pause
        stored.setdefault(topic, []).append((at, takers))
        exchanges.append(made.publish(
            topic=f"persistent://{topic}", outcome="ok", ledger_id=1, entry_id=number,
            request_frame_no=number, request_last_ns=START_NS, latency_ns=at * 1000,
        ))  # fmt: skip
        deliveries += [
            numbers | {"topic": f"persistent://{topic}", "subscription": name, "consumer_id": 9,
                       "ledger_id": 1, "entry_id": number, "frame_no": 100 + number,
                       "ts": START_NS // 1000 + at + 1,
                       "outcome": "unacked_at_end" if wait is None else "acked",
                       "ack_latency_ns": None if wait is None else wait * 1000}
            for name, wait in takers.items()
        ]  # fmt: skip
    return {"permits": permits, "exchanges": exchanges, "deliveries": deliveries}, stored


@settings(deadline=None, max_examples=examples(100, 25))
@given(ENTRIES, BEGINNINGS)
def test_what_was_stored_and_not_delivered_is_counted_by_subscription(
    db: QueryEngine, entries: list[Any], beginnings: dict[str, int]
) -> None:
    rows, stored = traffic(entries, beginnings)
    expected = {}
    for topic, found in stored.items():
        if topic == "u" or not beginnings:
            expected[topic, None] = (len(found), len(found), min(time for time, _ in found))
            continue
        for name, since in beginnings.items():
            mine = [(time, takers) for time, takers in found if time >= since]
            missing = [time for time, takers in mine if name not in takers]
            if mine:
                expected[topic, name] = (len(mine), len(missing), min(missing, default=None))
    told = {
        (row["topic"].removeprefix("persistent://"), row["subscription"]): (
            row["stored"], row["undelivered"],
            None if row["oldest_ns"] is None else (row["oldest_ns"] - START_NS) // 1000,
        )
        for row in db.put({"c": rows}).rows("undelivered")
    }  # fmt: skip
    assert told == expected


@settings(deadline=None, max_examples=examples(100, 25))
@given(ENTRIES, BEGINNINGS)
def test_a_backlog_is_counted_by_steps_of_time(
    db: QueryEngine, entries: list[Any], beginnings: dict[str, int]
) -> None:
    rows, stored = traffic(entries, beginnings)
    wanted: dict[str, Counter[int]] = {name: Counter() for name in CHANGES}
    for at, takers in stored.get("t", ()):
        for name in (name for name, since in beginnings.items() if at >= since):
            wait = takers.get(name)
            for change, micros, is_so in (
                ("stored", at, True),
                ("delivered", at + 1, name in takers),
                ("acknowledged", at + 1 + (wait or 0), wait is not None),
            ):
                wanted[change][(START_NS + micros * 1000) // STEP * STEP] += is_so
    found = db.put({"c": rows}, step_ns=STEP).rows("backlog")
    for change in CHANGES:
        counted = Counter({row["at_ns"]: row[change] for row in found})
        assert +counted == +wanted[change], change


def test_what_was_sent_in_an_aborted_transaction_is_for_nobody(db: QueryEngine) -> None:
    bits = {"connection_id": 0, "txn_most_bits": 0}
    frames, exchanges = [], []
    for number, action in enumerate(("ABORT", "COMMIT", None)):
        bits["txn_least_bits"] = number
        frames.append(bits | {"frame_no": number, "command": "SEND", "ts": 0})
        exchanges.append(made.publish(
            topic="persistent://t", outcome="ok", ledger_id=1, entry_id=number,
            request_frame_no=number, connection_id=0,
        ))  # fmt: skip
        if action is not None:
            detail = f'{{"end_txn":{{"txn_action":"{action}"}}}}'
            frames.append(bits | {
                "frame_no": 10 + number, "command": "END_TXN", "detail": detail, "ts": 0,
            })  # fmt: skip
            exchanges.append(made.publish(
                kind="request", request_command="END_TXN", outcome="ok", producer_id=None,
                request_frame_no=10 + number, connection_id=0,
            ))  # fmt: skip
    tables = {"frames": frames, "exchanges": exchanges, "connections": [{"connection_id": 0}]}
    rows = db.put({"c": tables}).table("SELECT entry_id FROM stored_entries").to_pylist()
    assert sorted(row["entry_id"] for row in rows) == [1, 2]


def test_a_backlog_grows_and_shrinks_over_time(db: QueryEngine) -> None:
    rows = [{"capture": "c", "at_ns": START_NS + step * SECOND, "stored": stored,
             "delivered": delivered, "acknowledged": acknowledged}
            for step, stored, delivered, acknowledged in ((3, 0, 5, 4), (0, 7, 1, 0))]  # fmt: skip
    names = ["transits", "entries", "undelivered", "unread", "directions"]
    merged = db.put({"c": {}}).parts(names)
    merged = MergedTables({**merged.tables, "backlog": rows}, SECOND)
    backlog = publish_to_delivery(merged)["backlog"]
    assert [(point["undelivered"], point["unacknowledged"]) for point in backlog["points"]] == [
        (6, 1),
        (1, 2),
    ]
    assert publish_to_delivery(merged._replace(only_totals=True))["backlog"] is None


def test_only_first_deliveries_that_nobody_wanted_late_are_timed(db: QueryEngine) -> None:
    row = {"connection_id": 0, "consumer_id": 1, "incarnation": 0, "frame_no": 1,
           "publish_to_delivery_ns": 5 * MS}  # fmt: skip
    deliveries = [row, row | {"is_redelivered": True}, row | {"deliver_at_ms": 9},
                  row | {"deliver_at_ms": 0, "publish_to_delivery_ns": None}]  # fmt: skip
    late = {"connection_id": 0, "consumer_id": 1, "incarnation": 0, "topic": "t",
            "subscription": "s"}  # fmt: skip
    found = db.put({"c": {"deliveries": deliveries, "consumers": [late]}}).rows("transits")
    assert {(each["topic"], each["subscription"]) for each in found} == {("t", "s")}
    assert sum(each["deliveries"] for each in found) == 4
    assert [each["publish_to_delivery_ns_max"] for each in found if each["timed"]] == [5 * MS]
    total = publish_to_delivery(
        db.parts(["transits", "entries", "undelivered", "backlog", "unread", "directions"])
    )["total"]
    assert (total["deliveries"], total["transit_ms"]["count"]) == (4, 1)
    assert total["not_evaluated_by_reason"] == {
        "delay_wanted": 1,
        "redelivered": 1,
        "send_not_known": 1,
    }


# -- the slowest


def test_the_fifty_slowest_of_each_list_come_with_their_packets(db: QueryEngine) -> None:
    sends = [
        made.publish(request_frame_no=2 * n, response_frame_no=2 * n + 1, latency_ns=(n % 80) * MS)
        for n in range(200)
    ]
    refused = made.publish(outcome="error", latency_ns=SECOND, request_frame_no=9001)
    other = made.publish(kind="request", latency_ns=SECOND, request_frame_no=9003, producer_id=None)
    frames = [{"connection_id": 0, "frame_no": n, "last_packet": 10_000 + n} for n in range(400)]
    db.put({"c": {"exchanges": [*sends, refused, other], "frames": frames}})
    section = slowest(db.parts(["slow"]))
    wanted = sorted((each["latency_ns"] for each in sends), reverse=True)[:50]
    assert [row["latency_ms"] for row in section["publish"]] == [ns / 1e6 for ns in wanted]
    assert all(row["request_packet"] == 10_000 + row["request_frame_no"]
               and row["response_packet"] == row["request_packet"] + 1
               for row in section["publish"])  # fmt: skip
    (row,) = section["other"]
    assert row["request_frame_no"] == 9003 and row["request_packet"] is None


# -- refusals


def refused(at_s: float, **values: Any) -> Row:
    row = {
        "connection_id": 0, "kind": "request", "request_command": "PRODUCER",
        "response_command": "ERROR", "error_code": "ProducerBusy", "error_text": "busy",
        "topic": "t", "client_ip": "10.0.0.1", "outcome": "error",
        "response_last_ns": START_NS + int(at_s * 1e9), "request_frame_no": int(at_s),
        "response_frame_no": int(at_s) + 1,
    }  # fmt: skip
    return row | values


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        ([refused(0), refused(60), refused(170)], [3]),
        ([refused(0), refused(121)], [1, 1]),
        ([refused(0), refused(120)], [2]),
        ([refused(0), refused(1, topic="other")], [1, 1]),
        ([refused(0), refused(1, client_ip="10.0.0.9")], [2]),
        ([refused(0, topic=None), refused(1, topic=None, client_ip="10.0.0.9")], [1, 1]),
        ([refused(0, kind="publish", sequence_id=1), refused(1, kind="publish", sequence_id=2)],
         [1, 1]),
        ([refused(0), refused(1, response_last_ns=None)], [1]),
    ],
    ids=["repeats", "a pause", "no pause", "another topic", "another client", "no topic",
         "two messages", "no time"],
)  # fmt: skip
def test_repeats_of_one_refused_request_are_one_incident(
    db: QueryEngine, rows: list[Row], lengths: list[int]
) -> None:
    db.put({"c": {"exchanges": rows[::-1]}})
    section = errors(db.parts(["refused", "refused_texts", "incidents", "directions"]))
    assert sorted(row["answers"] for row in section["incidents"]) == lengths
    assert section["total"]["incidents"] == len(lengths)
    assert section["total"]["answers"] == sum(lengths)
    assert section["total"]["texts"] == ["busy"]


def test_connections_topics_and_texts_count_once(db: QueryEngine) -> None:
    rows = [
        refused(0, error_text="z"), refused(1, connection_id=1, error_text="a"),
        refused(2, connection_id=1, error_code="X", topic=None, error_text="z"),
        refused(3, connection_id=1, topic="u", error_text="a"),
    ]  # fmt: skip
    db.put({"c": {"exchanges": rows}})
    section = errors(db.parts(["refused", "refused_texts", "incidents", "directions"]))
    total = section["total"]
    assert (total["answers"], total["connections"], total["topics"]) == (4, 2, 2)
    assert total["texts"] == ["z", "a"]  # in time
    busy, other = section["by_code"]
    assert (busy["error_code"], busy["answers"], busy["connections"]) == ("ProducerBusy", 3, 2)
    assert (other["answers"], other["connections"], other["topics"]) == (1, 1, 0)
    assert [(row["error_text"], row["answers"]) for row in section["by_text"]] == [
        ("a", 2), ("z", 1), ("z", 1),
    ]  # fmt: skip


# -- requests


@pytest.mark.parametrize(
    ("latency_ns", "command", "is_of_broker", "nearer"),
    [
        (200_000, "LOOKUP", False, "broker"),
        (200_000, "PING", True, "client"),
        (200_000, "PING", False, "broker"),
        (200_000, "AUTH_CHALLENGE", False, "client"),
        (900_000, "LOOKUP", False, None),
    ],
)
def test_the_side_of_the_tap_is_said_where_it_is_certain(
    db: QueryEngine, latency_ns: int, command: str, is_of_broker: bool, nearer: str | None
) -> None:
    """The whole path takes 1 ms there and back: what comes back in 0.2 ms is at hand."""
    kind = {"PING": "ping", "AUTH_CHALLENGE": "auth"}.get(command, "request")
    row = made.publish(kind=kind, request_command=command, latency_ns=latency_ns)
    frame = {"connection_id": 0, "frame_no": 1, "command": command,
             "direction": "to_client" if is_of_broker else "to_broker"}  # fmt: skip
    leg = {"connection_id": 0, "handshake_rtt_ns": MS}
    db.put({"c": {"exchanges": [row], "frames": [frame], "connections": [leg]}})
    section = requests(db.parts(["requests", "unread", "directions"]))
    assert section["total"]["tap_nearer_to"] == nearer
    if kind == "ping":
        assert [row["asked_by"] for row in section["pings"]] == [
            "broker" if is_of_broker else "client"
        ]
