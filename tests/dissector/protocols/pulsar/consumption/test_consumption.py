"""Deliveries, permits and acks: balances, outcomes, causes of redeliveries, batches, bounds."""

from typing import Any

import pytest

from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pulsar.wire import commands
from tests.wire.frames import STEP_NS
from tests.wire.talk import (
    CUMULATIVE,
    EXCLUSIVE,
    FAILOVER,
    SHARED,
    TOPIC,
    Talk,
    chosen,
)

BALANCE = ("event", "delta", "available_after", "unacked_after", "baseline_known")


def ready(subscription_type: int = SHARED, consumers: int = 1) -> Talk:
    talk = Talk()
    talk.connect()
    for number in range(consumers):
        talk.subscribe(number, subscription_type=subscription_type)
        talk.flow(1000, number)
    return talk


def deliveries(talk: Talk, **bounds: Any) -> list[dict[str, Any]]:
    return sorted(talk.rows(**bounds)["deliveries"], key=lambda row: row["frame_no"])


def outcomes(talk: Talk, **bounds: Any) -> list[str]:
    return [row["outcome"] for row in deliveries(talk, **bounds)]


def last_cause(talk: Talk) -> str | None:
    cause: str | None = deliveries(talk)[-1]["redelivery_cause"]
    return cause


# -- permits


def test_a_balance_is_what_was_granted_less_what_deliveries_cost() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(10)
    talk.message(0, message_count=3, is_batch=1)
    talk.message(1)
    talk.ack(0)
    talk.flow(5)
    assert chosen(talk.rows()["permits"], *BALANCE) == [
        ("grant", 10, 10, 0, 1),
        ("delivery", -3, 7, 3, 1),
        ("delivery", -1, 6, 4, 1),
        ("grant", 5, 11, 1, 1),
    ]


def test_a_balance_may_fall_below_nothing() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.flow(1)
    talk.message(0, message_count=50, is_batch=1)
    assert chosen(talk.rows()["permits"], "available_after") == [(1,), (-49,)]


def test_a_flow_before_the_subscription_counts_nothing_and_is_noticed() -> None:
    talk = Talk()
    talk.connect()
    request = talk.request()
    talk.client(
        commands.SUBSCRIBE, request_id=request, consumer_id=0, topic=TOPIC, subscription="s"
    )
    early = talk.flow(7)
    talk.broker(commands.SUCCESS, request_id=request)
    talk.flow(5)
    tables = talk.rows()
    assert chosen(tables["permits"], "delta", "available_after") == [(0, 0), (5, 5)]
    assert [(row["code"], row["frame_no"], row["value"]) for row in tables["notices"]] == [
        ("flow_before_subscribe", early, 7)
    ]


def test_a_reopened_consumer_starts_at_nothing() -> None:
    talk = ready()
    talk.close_consumer()
    talk.subscribe()
    talk.flow(3)
    rows = talk.rows()["permits"]
    assert chosen(rows, *BALANCE)[1:] == [("reset", None, 0, 0, 1), ("grant", 3, 3, 0, 1)]


def test_a_balance_is_not_known_in_the_middle_until_the_broker_tells_it() -> None:
    talk = Talk()
    talk.flow(10)
    talk.message(0)
    talk.client(commands.CONSUMER_STATS, request_id=5, consumer_id=0)
    talk.broker(commands.CONSUMER_STATS_RESPONSE, request_id=5, available_permits=77)
    talk.message(1)
    rows = talk.rows()["permits"]
    assert chosen(rows, "available_after", "baseline_known") == [(None, 0), (None, 0), (76, 1)]
    assert [row["delta"] for row in rows] == [10, -1, -1]


@pytest.mark.parametrize("endpoint_index", [TO_BROKER, TO_CLIENT])
def test_a_hole_makes_the_balance_unknown(endpoint_index: int) -> None:
    talk = ready()
    talk.message(0)
    talk.gap(endpoint_index)
    talk.message(1)
    assert [row["baseline_known"] for row in talk.rows()["permits"]] == [1, 1, 0]


def test_a_message_whose_size_was_not_read_makes_the_balance_unknown() -> None:
    talk = ready()
    talk.message(0, message_count=None, status=2)
    talk.message(1)
    rows = talk.rows()["permits"]
    assert chosen(rows, "delta", "available_after")[1:] == [(None, None), (-1, None)]
    assert rows[1]["unacked_after"] is None


def test_a_side_that_is_not_captured_says_nothing_about_a_first_flow() -> None:
    """Also where the capture began behind the CONNECT."""
    talk = Talk()
    talk.client(commands.SUBSCRIBE, request_id=1, consumer_id=0, topic=TOPIC, subscription="s")
    talk.flow(10)
    assert chosen(talk.rows()["permits"], *BALANCE) == [("grant", 10, None, None, 0)]


def test_a_refusal_shows_that_what_the_broker_says_is_captured() -> None:
    """Where its CONNECTED was lost."""
    talk = Talk()
    talk.client(commands.CONNECT)
    talk.gap(TO_CLIENT)
    for _ in range(2):
        request = talk.request()
        talk.client(
            commands.SUBSCRIBE, request_id=request, consumer_id=0, topic=TOPIC, subscription="s"
        )
        talk.broker(commands.ERROR, request_id=request, error_code=5)
    assert chosen(talk.rows()["permits"], *BALANCE) == [("reset", None, 0, 0, 1)]


# -- how deliveries end


def test_every_way_in_which_a_delivery_ends() -> None:
    talk = ready(consumers=3)
    for entry in range(4):
        talk.message(entry)
    acked = talk.ack(0)
    talk.ack(1, validation_error=2)
    talk.redeliver(2)
    talk.message(10, 1)
    talk.close_consumer(1)
    talk.message(11, 2)
    rows = deliveries(talk)
    assert [row["outcome"] for row in rows] == [
        "acked", "discarded", "redelivery_requested", "unacked_at_end", "consumer_closed",
        "unacked_at_end",
    ]  # fmt: skip
    assert (rows[0]["ack_frame_no"], rows[0]["ack_latency_ns"]) == (acked, 4 * STEP_NS)
    talk.hang_up()
    assert outcomes(talk)[3] == outcomes(talk)[5] == "conn_closed"


def test_a_hole_to_the_broker_may_hold_the_ack() -> None:
    talk = ready()
    talk.message(0)
    talk.gap(TO_BROKER)
    talk.message(1)
    talk.ack(1)
    assert outcomes(talk) == ["unknown_gap", "acked"]


def test_a_cumulative_ack_closes_everything_up_to_its_id() -> None:
    talk = ready(EXCLUSIVE)
    for entry in range(5):
        talk.message(entry)
    talk.ack(2, ack_type=CUMULATIVE)
    assert outcomes(talk) == ["acked"] * 3 + ["unacked_at_end"] * 2
    assert len(talk.rows()["acks"]) == 1


def test_a_cumulative_ack_on_a_shared_subscription_is_ignored_as_the_broker_does() -> None:
    talk = ready(SHARED)
    talk.message(0)
    talk.ack(0, ack_type=CUMULATIVE)
    assert outcomes(talk) == ["unacked_at_end"]


def test_a_batch_is_acked_when_no_bit_is_left() -> None:
    talk = ready()
    talk.message(0, message_count=4, is_batch=1)
    talk.ack(ids=[{"ledger_id": 7, "entry_id": 0, "ack_set": [0b1010], "batch_size": 4}])
    talk.flow(1)
    last = talk.ack(ids=[{"ledger_id": 7, "entry_id": 0, "ack_set": [0b0101], "batch_size": 4}])
    tables = talk.rows()
    (row,) = tables["deliveries"]
    assert (row["outcome"], row["ack_frame_no"], row["messages_acked"]) == ("acked", last, 4)
    assert [row["remaining_in_batch"] for row in tables["acks"]] == [2, 2]
    assert [row["unacked_after"] for row in tables["permits"]] == [0, 4, 2]


def test_what_is_left_of_a_batch_is_what_its_delivery_costs() -> None:
    talk = ready()
    talk.message(0, message_count=10, is_batch=1, ack_set=[0b11], redelivery_count=1)
    tables = talk.rows()
    (row,) = tables["deliveries"]
    assert (row["message_count"], row["batch_size"], row["ack_set"]) == (2, 10, [0b11])
    assert tables["permits"][-1]["delta"] == -2


def test_publish_to_delivery_needs_both_ends() -> None:
    talk = ready()
    talk.produce()
    talk.send(0)
    talk.receipt(0, entry=5)
    talk.message(5)
    talk.message(6)
    assert [row["publish_to_delivery_ns"] for row in deliveries(talk)] == [2 * STEP_NS, None]


# -- why messages come again


def test_a_consumer_that_asks_gets_it_again() -> None:
    talk = ready()
    first = talk.message(0)
    talk.redeliver(0)
    talk.message(0, redelivery_count=1)
    row = deliveries(talk)[-1]
    assert (row["is_redelivered"], row["redelivery_cause"]) == (1, "explicit")
    assert row["previous_frame_no"] == first


def test_a_request_without_ids_is_for_all_of_the_consumer() -> None:
    talk = ready(consumers=2)
    talk.message(0, 0)
    talk.message(1, 1)
    talk.redeliver(consumer=0)
    assert outcomes(talk) == ["redelivery_requested", "unacked_at_end"]
    (ack,) = talk.rows()["acks"]
    assert (ack["action"], ack["ledger_id"], ack["entry_id"]) == ("redeliver", None, None)


def test_a_list_on_an_exclusive_subscription_means_all() -> None:
    talk = ready(EXCLUSIVE)
    talk.message(0)
    talk.message(1)
    talk.redeliver(0)
    assert outcomes(talk) == ["redelivery_requested"] * 2


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
def test_a_negative_ack_is_for_what_it_names(kind: int) -> None:
    talk = ready(kind)
    for entry in range(3):
        talk.message(entry)
    ids = [{"ledger_id": 7, "entry_id": entry} for entry in (0, 2)]
    talk.client(commands.NEGATIVE_ACK, 0, consumer_id=0, ids=ids)
    talk.client(commands.NEGATIVE_ACK, 0, consumer_id=0, ids=[])
    assert outcomes(talk) == ["redelivery_requested", "unacked_at_end", "redelivery_requested"]
    assert [(row["action"], row["entry_id"]) for row in talk.rows()["acks"]] == [
        ("nack", 0),
        ("nack", 2),
    ]


def test_another_consumer_gets_what_one_that_went_held() -> None:
    talk = ready(consumers=2)
    talk.message(0, 0)
    talk.close_consumer(0)
    talk.message(0, 1)
    assert last_cause(talk) == "consumer_gone"


def test_a_consumer_that_comes_back_gets_its_own_again() -> None:
    talk = ready()
    talk.message(0)
    talk.hang_up()
    talk.connect(1)
    talk.subscribe(0, 1)
    talk.flow(10, 0, 1)
    talk.message(0, 0, 1)
    assert last_cause(talk) == "reconnect"


def test_a_broker_that_closes_the_consumer_unloads_the_topic() -> None:
    talk = ready()
    talk.message(0)
    talk.broker(commands.CLOSE_CONSUMER, consumer_id=0, request_id=-1)
    talk.subscribe(0)
    talk.message(0)
    assert last_cause(talk) == "unload"


def test_a_seek_explains_what_comes_after_it() -> None:
    talk = ready(EXCLUSIVE)
    talk.message(0)
    talk.ack(0)
    talk.client(commands.SEEK, request_id=88, consumer_id=0)
    talk.broker(commands.SUCCESS, request_id=88)
    talk.message(0)
    assert last_cause(talk) == "seek"


def test_a_seek_that_is_refused_explains_nothing() -> None:
    talk = ready(EXCLUSIVE)
    talk.message(0)
    talk.client(commands.SEEK, request_id=88, consumer_id=0)
    talk.broker(commands.ERROR, request_id=88, error_code=1)
    talk.message(0)
    assert last_cause(talk) == "unknown"


def test_a_failover_gives_the_messages_to_the_next() -> None:
    talk = ready(FAILOVER, consumers=2)
    talk.message(0, 0)
    talk.broker(commands.ACTIVE_CONSUMER_CHANGE, consumer_id=0, is_active=0)
    talk.broker(commands.ACTIVE_CONSUMER_CHANGE, consumer_id=1, is_active=1)
    talk.message(0, 1)
    assert last_cause(talk) == "failover_switch"


@pytest.mark.parametrize(("action", "cause"), [(1, "txn_abort"), (0, "unknown")])
def test_an_ack_in_a_transaction_that_is_aborted_did_not_hold(action: int, cause: str) -> None:
    talk = ready()
    talk.message(0)
    talk.ack(0, txn_most_bits=3, txn_least_bits=4)
    talk.client(
        commands.END_TXN, request_id=99, txn_most_bits=3, txn_least_bits=4, txn_action=action
    )
    talk.broker(commands.END_TXN_RESPONSE, request_id=99)
    talk.message(0)
    assert last_cause(talk) == cause


def test_a_count_without_a_delivery_before_is_older_than_the_capture() -> None:
    talk = ready()
    talk.message(0, redelivery_count=3)
    row = deliveries(talk)[0]
    assert (row["redelivery_cause"], row["previous_frame_no"]) == ("pre_capture", None)


def test_without_a_partition_or_with_one_an_entry_is_the_same() -> None:
    talk = ready()
    talk.message(0, partition=-1)
    talk.message(0, partition=2)
    assert deliveries(talk)[1]["previous_frame_no"] is not None
    assert [row["partition"] for row in deliveries(talk)] == [None, 2]


def test_a_topic_that_is_not_persistent_has_no_identities() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe(topic="non-persistent://public/default/t")
    talk.flow(10)
    talk.message(0, ledger_id=0)
    talk.message(0, ledger_id=0)
    assert [row["is_redelivered"] for row in deliveries(talk)] == [0, 0]


def test_two_subscriptions_and_two_topics_know_nothing_of_each_other() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription="a")
    talk.subscribe(1, subscription="b")
    talk.subscribe(2, topic="persistent://public/default/other")
    for consumer in range(3):
        talk.message(0, consumer)
    assert [row["is_redelivered"] for row in deliveries(talk)] == [0, 0, 0]


# -- bounds


def test_the_oldest_open_delivery_makes_room() -> None:
    talk = ready()
    for entry in range(2000):
        talk.message(entry)
    tables = talk.rows(deliveries=1000)
    ends = [row["outcome"] for row in tables["deliveries"]]
    assert ends.count("unresolved_at_limit") > 0 and len(ends) == 2000
    assert ends.count("unresolved_at_limit") + ends.count("unacked_at_end") == 2000
    assert "deliveries_limit" in {row["code"] for row in tables["notices"]}


def test_consumers_beyond_the_bound_still_have_rows() -> None:
    talk = Talk()
    talk.connect()
    for number in range(300):
        talk.subscribe(number)
        talk.flow(10, number)
        talk.message(number, number)
    tables = talk.rows(consumers=200)
    assert len(tables["deliveries"]) == 300
    assert {"unresolved_at_limit", "unacked_at_end"} == {
        row["outcome"] for row in tables["deliveries"]
    }
    assert "consumers_limit" in {row["code"] for row in tables["notices"]}


# -- batches, and what is known of neither end


@pytest.mark.parametrize("size", [62, 63, 64, 65, 127, 128, 200])
def test_batches_of_any_size_are_acked_message_by_message(size: int) -> None:
    """Clients name what they leave, in words of 64 bits whose last may be the sign bit."""
    talk = ready()
    talk.message(0, message_count=size, is_batch=1)
    words = -(-size // 64)
    for taken in range(size):
        left = ((1 << size) - 1) & ~(1 << taken)
        parts = [left >> 64 * index & (1 << 64) - 1 for index in range(words)]
        signed = [part - (1 << 64) if part >> 63 else part for part in parts]
        talk.ack(ids=[{"ledger_id": 7, "entry_id": 0, "ack_set": signed, "batch_size": size}])
        talk.flow(0)
    tables = talk.rows()
    assert [row["remaining_in_batch"] for row in tables["acks"]] == [size - 1] * size
    unacked = [row["unacked_after"] for row in tables["permits"]]
    assert unacked == [0, size, *range(size - 1, -1, -1)]
    (row,) = tables["deliveries"]
    assert (row["outcome"], row["messages_acked"]) == ("acked", size)


def test_on_one_connection_a_ledger_needs_no_topic() -> None:
    """Opened before the capture, neither end has a name; on another connection it may be any."""
    talk = Talk()
    talk.send(0)
    talk.receipt(0, entry=5)
    talk.message(5)
    talk.message(5, connection=1)
    talk.send(1, producer=1)
    talk.receipt(1, entry=0, producer=1, ledger_id=0)
    talk.message(0, ledger_id=0)
    took = [row["publish_to_delivery_ns"] for row in deliveries(talk)]
    assert took == [2 * STEP_NS, None, None]


def test_a_broker_that_holds_more_permits_than_were_counted_is_believed() -> None:
    """It charged less than the frames say; less than counted may be messages still on their way."""
    talk = ready()
    granted = talk.rows()["permits"][-1]["available_after"]
    talk.message(0, message_count=5, is_batch=1)
    for reported in (granted - 3, granted - 100):
        talk.client(commands.CONSUMER_STATS, request_id=50 + reported, consumer_id=0)
        talk.broker(
            commands.CONSUMER_STATS_RESPONSE, request_id=50 + reported, available_permits=reported
        )
        talk.message(reported)
    balances = [row["available_after"] for row in talk.rows()["permits"]]
    assert balances == [granted, granted - 5, granted - 4, granted - 5]


def test_a_receipt_that_comes_late_is_also_that_of_a_delivery_before_the_last() -> None:
    talk = ready()
    talk.produce()
    talk.send(0)
    talk.message(0)
    talk.message(0)
    talk.receipt(0)
    took = [row["publish_to_delivery_ns"] for row in deliveries(talk)]
    assert took == [STEP_NS, 2 * STEP_NS]
