"""What consumers received, acknowledged and asked for again, in rows made by hand."""

from typing import Any

import pytest

from dissector.report.merged_tables import MergedTables
from dissector.report.sections.ack_latency import ack_latency
from dissector.report.sections.permit_utilization import permit_utilization
from dissector.report.sections.redelivery import redelivery
from tests.dissector.queries.query_engine import QueryEngine, Row

SECOND = 1_000_000


@pytest.fixture(scope="module")
def db() -> QueryEngine:
    return QueryEngine()


def delivery(frame_no: int, **values: Any) -> Row:
    return {
        "connection_id": 0, "consumer_id": 0, "incarnation": 0, "frame_no": frame_no,
        "ts": 1000 * frame_no, "topic": "t", "subscription": "s", "message_count": 1,
        "entry_id": frame_no, "is_redelivered": False, **values,
    }  # fmt: skip


def ack(frame_no: int, **values: Any) -> Row:
    return {
        "connection_id": 0, "consumer_id": 0, "incarnation": 0, "frame_no": frame_no,
        "ts": 1000 * frame_no, "topic": "t", "subscription": "s", "action": "ack", "ledger_id": 1,
        "ack_type": "Individual", **values,
    }  # fmt: skip


def grant(at_us: int, balance: int, consumer: int = 0, **values: Any) -> Row:
    return {
        "connection_id": 0, "consumer_id": consumer, "incarnation": 0, "frame_no": at_us,
        "ts": at_us, "event": "grant", "delta": balance, "available_after": balance, **values,
    }  # fmt: skip


# -- deliveries


def test_only_a_later_ack_of_the_same_consumer_passes_a_delivery_over(db: QueryEngine) -> None:
    said = [
        (1, 0, "acked"), (2, 0, "consumer_closed"), (3, 0, "redelivery_requested"),
        (4, 1, "unacked_at_end"), (5, 0, "acked"), (6, 0, "conn_closed"), (7, 0, "discarded"),
        (8, 1, "unacked_at_end"), (9, None, "unacked_at_end"), (10, None, "acked"),
    ]  # fmt: skip
    rows = [delivery(frame, consumer_id=who, outcome=outcome) for frame, who, outcome in said]
    frames = [{"connection_id": 0, "frame_no": n, "last_packet": 10 * n} for n in range(9)]
    db.give({"deliveries": rows, "frames": frames})
    rows = db.per_capture("passed_deliveries")
    found = sorted((row["frame_no"], row["packet"]) for row in rows)
    assert found == [(2, 20), (7, 70), (9, None)]
    counts = db.per_capture("passed_delivery_counts")
    counted = {row["outcome"]: row["passed_over"] for row in counts}
    assert counted == {"consumer_closed": 1, "discarded": 1, "unacked_at_end": 1}


def test_the_first_that_came_again_are_listed_with_their_packets(db: QueryEngine) -> None:
    rows = [
        delivery(n, connection_id=n % 2, is_redelivered=n > 10, previous_frame_no=n - 5)
        for n in range(200)
    ]
    frames = [{"connection_id": n % 2, "frame_no": n, "last_packet": n} for n in range(20)]
    db.give({"deliveries": rows, "frames": frames})
    found = sorted(db.per_capture("redelivered"), key=lambda row: int(row["at_us"]))
    assert [row["frame_no"] for row in found] == list(range(11, 61))
    assert [row["packet"] for row in found[:10]] == [*range(11, 20), None]
    assert found[0]["previous_frame_no"] == 6


def test_names_learnt_late_and_older_consumers(db: QueryEngine) -> None:
    consumers = [
        {"connection_id": 0, "consumer_id": 0, "incarnation": 0, "topic": "late",
         "subscription": "later", "name": "n", "opened_frame_no": 1},
        {"connection_id": 0, "consumer_id": 1, "incarnation": 0},
    ]  # fmt: skip
    rows = [delivery(1, topic=None, subscription=None), delivery(2, consumer_id=1), delivery(3)]
    rows.append(delivery(4, message_count=None, redelivery_count=3, previous_frame_no=1))
    db.give({"deliveries": rows, "consumers": consumers})
    found = {
        (row["topic"], row["subscription"], row["is_older"]): row
        for row in db.per_capture("deliveries")
    }
    counts = {key: row["deliveries"] for key, row in found.items()}
    assert counts == {("late", "later", False): 1, ("t", "s", True): 1, ("t", "s", False): 2}
    row = found["t", "s", False]
    assert (row["messages"], row["counts_unknown"], row["seen_before"]) == (1, 1, 1)
    assert (row["counted_by_broker"], row["redelivery_count_max"]) == (1, 3)


def test_what_a_proxy_carries_twice_counts_once(db: QueryEngine) -> None:
    legs = [{"connection_id": 0, "leg": "broker", "twin_connection_id": 1}, {"connection_id": 1}]
    twice = {"connections": legs}
    for table, row in (("deliveries", delivery(1)), ("acks", ack(2)), ("permits", grant(3, 5))):
        twice[table] = [row, row | {"connection_id": 1}]
    db.give(twice)
    for query, count in (("deliveries", "deliveries"), ("ack_commands", "ids"),
                         ("consumers", "grants")):  # fmt: skip
        assert [row[count] for row in db.per_capture(query)] == [1]


# -- acks and lags


def test_commands_and_the_ids_in_them(db: QueryEngine) -> None:
    acks = [ack(1), ack(1, ledger_id=2), ack(2), ack(3, request_id=5), ack(4, action="redeliver"),
            ack(5, action="redeliver", ledger_id=None)]  # fmt: skip
    db.give({"acks": acks})
    found = {row["is_answered"]: (row["ack_commands"], row["ids"])
             for row in db.per_capture("ack_commands")}  # fmt: skip
    assert found == {False: (2, 3), True: (1, 1)}
    (row,) = db.per_capture("redeliver_requests")
    assert (row["ids_requested"], row["requests_for_all"]) == (1, 1)


def test_the_age_of_what_nobody_acknowledged_ends_with_all_captures_read_together(
    db: QueryEngine,
) -> None:
    files = [{"capture": "c", "last_ts_ns": 10**9}, {"capture": "d", "last_ts_ns": 7 * 10**9}]
    rows = [
        delivery(1, outcome="unacked_at_end", ts=2 * SECOND),
        delivery(2, outcome="unacked_at_end", ts=3 * SECOND),
        delivery(3, outcome="acked", ts=0, ack_latency_ns=900),
        delivery(4, outcome="acked", ts=0),
    ]
    db.give({"deliveries": rows, "capture_files": files})
    (oldest,) = db.per_capture("unacknowledged")
    assert (oldest["frame_no"], oldest["waited_us"]) == (1, 5 * SECOND)
    total = ack_latency(MergedTables(db.tables(), 1_000_000))["total"]
    assert total["oldest_unacknowledged_ms"] == 5000.0
    assert total["oldest_unacknowledged"]["frame_no"] == 1
    db.give({"deliveries": rows[2:], "capture_files": files})
    total = ack_latency(MergedTables(db.tables(), 1_000_000))["total"]
    assert total["oldest_unacknowledged_ms"] is total["oldest_unacknowledged"] is None


def lags(db: QueryEngine, acks: list[Row], deliveries: list[Row]) -> tuple[Row, list[list[Any]]]:
    db.give({"acks": acks, "deliveries": deliveries})
    section = ack_latency(MergedTables(db.tables(), 1_000_000))
    rows = [section["total"], *section["by_subscription"]]
    return section, [[row[name] for name in row if name.startswith("lag_")] for row in rows]


def committed(frame_no: int, partition: int, lag: int | None, **values: Any) -> Row:
    return ack(frame_no, **{"consumer_id": None, "partition": partition, "lag": lag, **values})


def handed(frame_no: int, lag: int | None, **values: Any) -> Row:
    return delivery(frame_no, **{"consumer_id": None, "partition": 0, "lag": lag, **values})


def test_the_last_lags_of_all_partitions_and_the_highest_of_one(db: QueryEngine) -> None:
    acks = [committed(3, 0, 9), committed(7, 0, 4), committed(5, 1, 2), committed(6, 1, None)]
    _, partition_lags = lags(db, acks, [handed(2, 30), handed(4, 12)])
    assert partition_lags == [[4 + 2, 9, 12, 30, 1]] * 2


def test_the_last_lag_is_the_latest_whatever_its_connection_numbers_its_frames(
    db: QueryEngine,
) -> None:
    acks = [committed(900, 0, 9, ts=1), committed(3, 0, 4, ts=2, connection_id=1)]
    _, partition_lags = lags(db, acks, [])
    assert partition_lags[0][:2] == [4, 9]


def test_unknown_is_not_nothing(db: QueryEngine) -> None:
    _, partition_lags = lags(db, [committed(1, 0, None)], [handed(2, None)])
    assert partition_lags[0] == [None, None, None, None, 2]


def test_other_protocols_empty_batches_and_readers_without_a_group_have_no_lag(
    db: QueryEngine,
) -> None:
    others = [handed(2, None, consumer_id=4), handed(3, None, entry_id=None),
              handed(4, 7, subscription=None)]  # fmt: skip
    _, partition_lags = lags(db, [committed(1, 0, None, consumer_id=4)], others)
    assert partition_lags[0] == [None] * 5


# -- permits


def test_a_subscribe_that_was_refused_is_a_consumer_only_if_it_was_used(db: QueryEngine) -> None:
    who = {"connection_id": 0, "incarnation": 0, "refused_code": "ConsumerBusy"}
    rows = [grant(1, 5), grant(2, 0, 1, event="reset", delta=None)]
    consumers = [{"consumer_id": 0, **who}, {"consumer_id": 1, **who}]
    db.give({"permits": rows, "consumers": consumers})
    assert [row["consumer_id"] for row in db.per_capture("consumers")] == [0]


def test_the_balance_of_the_most_hindered_consumer_is_drawn(db: QueryEngine) -> None:
    rows = [
        grant(1 * SECOND, 100), grant(9 * SECOND, 100),
        grant(1 * SECOND, 5, 1), grant(9 * SECOND, 8, 1),
        grant(2 * SECOND, 0, 1, event="delivery", delta=-5),
        grant(9 * SECOND + 5, 7, 1, event="delivery", delta=-1),
        grant(3 * SECOND, 0, 2, delta=1, available_after=None),
        # Its deliveries lie outside the time of known balance, so it is not judged.
        grant(1 * SECOND, 0, 3, event="delivery", delta=-1, available_after=None),
        grant(2 * SECOND, 5, 3), grant(2 * SECOND + 1, 0, 3, delta=1),
    ]  # fmt: skip
    db.give({"permits": rows, "connections": [{"connection_id": 0, "last_ts_ns": 10**12}]})
    points = sorted(db.per_capture("balances"), key=lambda row: int(row["at_ns"]))
    assert {row["consumer_id"] for row in points} == {1}
    found = [(row["at_ns"], row["available_min"], row["available_max"], row["available_last"])
             for row in points]  # fmt: skip
    assert found == [(10**9, 5, 5, 5), (2 * 10**9, 0, 0, 0), (9 * 10**9, 7, 8, 7)]


@pytest.mark.parametrize("consumers", [10_000])
def test_sections_take_time_in_line_with_their_consumers(db: QueryEngine, consumers: int) -> None:
    rows = []
    for number in range(consumers):
        who = {"connection_id": number, "topic": f"t-{number % 100}", "subscription": "s"}
        rows += [grant(SECOND, 1, **who), grant(2 * SECOND, 0, event="delivery", delta=-1, **who),
                 grant(5 * SECOND, 1, **who)]  # fmt: skip
    db.give({"permits": rows, "deliveries": [delivery(1)], "acks": [ack(1)]})
    parts = MergedTables(db.tables(), 1_000_000)
    section = permit_utilization(parts)
    assert section["total"]["stalls"]["unconfirmed"]["count"] == consumers
    assert len(section["by_consumer"]) == consumers and len(section["longest_stalls"]) == 50
    assert redelivery(parts)["total"]["deliveries"] == 1
