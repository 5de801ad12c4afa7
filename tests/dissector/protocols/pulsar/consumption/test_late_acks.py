"""ACKs and MESSAGEs that cross a close, or a request to deliver everything again.

What brokers and clients do there was captured with random clients: a client acknowledges what it
got before its consumer was closed, and a broker writes messages that it had queued before.
"""

from collections.abc import Callable

import pytest

from dissector import limits
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pulsar.consumption.state import LOOKED_AT, SPENT_STEPS
from dissector.protocols.pulsar.wire import commands
from tests.wire.frames import STEP_NS, FrameMaker, in_blocks
from tests.wire.talk import CUMULATIVE, EXCLUSIVE, FAILOVER, SHARED, TOPIC, Passes, Row, Talk

LATE_NS = limits.LATE_ACK_MS * 1_000_000


def begun(*entries: int) -> Talk:
    """A shared subscription with a consumer that got entries."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED)
    talk.flow(100)
    for entry in entries:
        talk.message(entry)
    return talk


def unloaded(talk: Talk) -> None:
    talk.broker(commands.CLOSE_CONSUMER, request_id=-1, consumer_id=0)
    talk.subscribe(0, subscription_type=SHARED)


def hung_up(talk: Talk) -> None:
    talk.hang_up()
    talk.connect(1)
    talk.subscribe(0, connection=1, subscription_type=SHARED)


def asked_again(talk: Talk) -> None:
    talk.redeliver()


ENDS = {"consumer_closed": unloaded, "conn_closed": hung_up, "redelivery_requested": asked_again}
each_end = pytest.mark.parametrize(
    ("outcome", "end"), [pytest.param(*each, id=each[0]) for each in ENDS.items()]
)
Ended = Callable[[Talk], None]


def deliveries(talk: Talk, **bounds: int) -> list[Row]:
    return sorted(talk.rows(**bounds)["deliveries"], key=lambda row: row["frame_no"])


def connection_of(outcome: str) -> int:
    return 1 if outcome == "conn_closed" else 0


@each_end
def test_an_ack_behind_the_end_of_a_delivery_counts(outcome: str, end: Ended) -> None:
    talk = begun(0, 1)
    at = talk.frame_no
    end(talk)
    said = talk.ack(0, connection=connection_of(outcome))
    first, second = deliveries(talk)
    assert (first["outcome"], first["ack_frame_no"]) == ("acked", said)
    assert first["messages_acked"] == 1 and first["ack_latency_ns"] >= (said - at) * STEP_NS
    assert (second["outcome"], second["ack_frame_no"]) == (outcome, None)
    assert second["messages_acked"] == 0


@each_end
def test_it_is_another_consumer_s_just_as_well(outcome: str, end: Ended) -> None:
    talk = begun(0)
    talk.connect(2)
    talk.subscribe(5, connection=2, subscription_type=SHARED)
    end(talk)
    talk.ack(0, consumer=5, connection=2)
    assert deliveries(talk)[0]["outcome"] == "acked"


@each_end
def test_behind_the_next_delivery_it_is_that_one_s(outcome: str, end: Ended) -> None:
    talk = begun(0)
    end(talk)
    connection = connection_of(outcome)
    talk.message(0, connection=connection)
    talk.ack(0, connection=connection)
    before, after = deliveries(talk)
    assert (before["outcome"], after["outcome"]) == (outcome, "acked")


def test_what_was_asked_for_and_acked_comes_again_since_it_was_asked_for() -> None:
    """The broker had read the entry when the ACK came."""
    talk = begun(0)
    talk.redeliver()
    talk.ack(0)
    talk.message(0)
    before, after = deliveries(talk)
    assert (before["outcome"], after["redelivery_cause"]) == ("acked", "explicit")


@each_end
@pytest.mark.parametrize(
    "more",
    [
        {"request_id": 77},
        {"txn_most_bits": 3, "txn_least_bits": 4},
        {"validation_error": 2},
        {"first_ts_ns": 10**15, "last_ts_ns": 10**15},
    ],
    ids=["waits for its answer", "in a transaction", "discards", "too late"],
)
def test_only_a_plain_ack_in_time_counts(outcome: str, end: Ended, more: Row) -> None:
    talk = begun(0)
    end(talk)
    talk.ack(0, connection=connection_of(outcome), **more)
    assert deliveries(talk)[0]["outcome"] == outcome


@each_end
@pytest.mark.parametrize("direction", [TO_CLIENT, TO_BROKER], ids=["to client", "to broker"])
def test_a_gap_may_hide_that_the_entry_came_again(outcome: str, end: Ended, direction: int) -> None:
    talk = begun(0)
    end(talk)
    talk.gap(direction, connection=connection_of(outcome))
    talk.ack(0, connection=connection_of(outcome))
    (row,) = deliveries(talk)
    told = ("unknown_gap", None) if direction == TO_CLIENT else ("acked", 1)
    assert (row["outcome"], row["messages_acked"]) == told


@each_end
def test_parts_of_a_batch_add_up(outcome: str, end: Ended) -> None:
    talk = begun()
    talk.message(0, message_count=3, is_batch=1)
    talk.message(1, message_count=3, is_batch=1)
    talk.ack(ids=[{"ledger_id": 7, "entry_id": 0, "ack_set": [0b110]}])
    end(talk)
    connection = connection_of(outcome)
    for entry in (0, 1):
        part = {"ledger_id": 7, "entry_id": entry, "ack_set": [0b101]}
        talk.ack(ids=[part], connection=connection)
    talk.ack(ids=[{"ledger_id": 7, "entry_id": 0, "ack_set": [0b011]}], connection=connection)
    rows = [(row["outcome"], row["messages_acked"]) for row in deliveries(talk)]
    assert rows == [("acked", 3), (outcome, 1)]


def test_a_balance_does_not_hold_what_was_released() -> None:
    talk = begun(0, 1)
    talk.redeliver()
    talk.ack(0)
    talk.message(2)
    assert [row["unacked_after"] for row in talk.rows()["permits"]] == [0, 1, 2, 1]


def test_rows_of_released_deliveries_are_not_kept_for_ever() -> None:
    """A tap runs for weeks: what nothing can change any more is written."""
    talk = begun(0)
    talk.redeliver()
    late = 2 * LATE_NS
    talk.message(1, first_ts_ns=late, last_ts_ns=late)
    talk.ack(0, first_ts_ns=late, last_ts_ns=late)
    rows = talk.rows()["deliveries"]
    assert [(row["entry_id"], row["outcome"]) for row in rows] == [
        (0, "redelivery_requested"), (1, "unacked_at_end"),
    ]  # fmt: skip


@pytest.mark.parametrize("most", [4, 64])
def test_released_deliveries_give_way_to_open_ones(most: int) -> None:
    """Nothing is given up for them, and their outcome is the one that they had."""
    talk = begun(*range(4))
    talk.redeliver()
    for entry in range(10, 14):
        talk.message(entry)
    talk.ack(0, 13)
    rows = {row["entry_id"]: row["outcome"] for row in deliveries(talk, deliveries=most)}
    assert [rows[entry] for entry in (1, 2, 3)] == 3 * ["redelivery_requested"]
    assert rows[0] == ("acked" if most > 4 else "redelivery_requested")
    assert [rows[entry] for entry in range(10, 14)] == [*3 * ["unacked_at_end"], "acked"]


def test_a_message_behind_a_close_is_of_the_closed_consumer() -> None:
    """It opens nothing, so that its consumer has left for all that it got."""
    talk = begun(0)
    talk.close_consumer()
    talk.message(1)
    talk.flow(10)
    talk.subscribe(0, subscription_type=SHARED)
    talk.message(0)
    talk.message(1)
    rows = talk.rows()
    found = sorted(rows["deliveries"], key=lambda row: row["frame_no"])
    assert [row["outcome"] for row in found] == [*2 * ["consumer_closed"], *2 * ["unacked_at_end"]]
    assert [row["redelivery_cause"] for row in found] == [None, None, "reconnect", "reconnect"]
    balances = [row["available_after"] for row in rows["permits"]]
    assert balances == [100, 99, None, None, 0, -1, -2]
    assert not [each for each in rows["notices"] if each["code"] == "flow_before_subscribe"]


def test_a_gap_behind_the_close_may_hide_that_it_was_opened_again() -> None:
    talk = begun(0)
    talk.close_consumer()
    talk.gap(TO_BROKER)
    talk.message(1)
    talk.ack(1)
    assert [row["outcome"] for row in deliveries(talk)] == ["consumer_closed", "acked"]


@pytest.mark.parametrize(("asks", "cause"), [(True, "explicit"), (False, "unknown")])
def test_no_delivery_is_older_than_the_send_of_its_entry(asks: bool, cause: str) -> None:
    """The broker counts what it had queued for a consumer, and had not yet written."""
    talk = begun()
    talk.connect(1)
    talk.produce(connection=1)
    talk.send(0, connection=1)
    talk.receipt(0, entry=5, connection=1)
    if asks:
        talk.redeliver()
    talk.message(5, redelivery_count=1)
    talk.message(6, redelivery_count=1)
    assert [row["redelivery_cause"] for row in deliveries(talk)] == [cause, "pre_capture"]


def test_what_was_asked_for_comes_to_any_consumer() -> None:
    talk = begun()
    talk.connect(1)
    talk.subscribe(5, connection=1, subscription_type=SHARED)
    talk.redeliver()
    talk.message(0)
    talk.message(0, consumer=5, connection=1)
    assert deliveries(talk)[1]["redelivery_cause"] == "explicit"


def owned(talk: Talk, kind: int, connection: int = 0) -> None:
    """A consumer of a subscription with one active consumer."""
    talk.subscribe(0, connection=connection, subscription_type=kind)


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
@pytest.mark.parametrize("end", ["unload", "connection", "request"])
def test_a_cumulative_ack_reaches_what_ended_before_it(kind: int, end: str) -> None:
    """Up to its id; of its own entry only if it names all of it."""
    talk = Talk()
    talk.connect()
    owned(talk, kind)
    for entry in range(4):
        talk.message(entry, message_count=2, is_batch=1)
    connection = 0
    if end == "unload":
        talk.broker(commands.CLOSE_CONSUMER, request_id=-1, consumer_id=0)
        owned(talk, kind)
    elif end == "connection":
        connection = 1
        talk.hang_up()
        talk.connect(1)
        owned(talk, kind, 1)
    else:
        talk.redeliver()
    part = {"ledger_id": 7, "entry_id": 2, "ack_set": [0b10]}
    first = talk.ack(ids=[part], ack_type=CUMULATIVE, connection=connection)
    second = talk.ack(2, ack_type=CUMULATIVE, connection=connection)
    rows = [(row["outcome"], row["ack_frame_no"]) for row in deliveries(talk)]
    assert rows[:3] == [("acked", first), ("acked", first), ("acked", second)]
    assert rows[3][0] != "acked"


def test_a_cumulative_ack_finds_all_whatever_the_order_of_their_ids() -> None:
    talk = Talk()
    talk.connect()
    owned(talk, EXCLUSIVE)
    for entry in (5, 9, 1, 7, 2):
        talk.message(entry)
    talk.redeliver()
    talk.ack(6, ack_type=CUMULATIVE)
    rows = {row["entry_id"]: row["outcome"] for row in deliveries(talk)}
    assert {entry for entry, outcome in rows.items() if outcome == "acked"} == {5, 1, 2}


def test_many_released_deliveries_behind_a_cumulative_ack_cost_nothing() -> None:
    """A client that acknowledges one after the other does not walk over all of them each time."""
    talk = Talk()
    talk.connect()
    owned(talk, EXCLUSIVE)
    for entry in range(2000):
        talk.message(entry)
    talk.redeliver()
    for entry in range(1000):
        talk.ack(entry, ack_type=CUMULATIVE)
    passes = Passes({})
    for block in in_blocks(FrameMaker(), talk.script, ()):
        passes.advance(block)
    counters = passes.consumption.memory().counters
    assert counters[SPENT_STEPS] + counters[LOOKED_AT] < 10_000


def test_groups_with_released_deliveries_are_not_reused() -> None:
    """Their rows lead to them; new subscriptions come in masses."""
    talk = Talk()
    for number in range(40):
        talk.connect(number)
        names = {"topic": f"{TOPIC}{number}", "subscription_type": EXCLUSIVE}
        talk.subscribe(0, connection=number, **names)
        talk.message(number, connection=number)
        talk.hang_up(number)
    talk.connect(99)
    talk.subscribe(0, connection=99, topic=f"{TOPIC}39", subscription_type=EXCLUSIVE)
    talk.ack(39, connection=99, ack_type=CUMULATIVE)
    rows = {row["entry_id"]: row["outcome"] for row in deliveries(talk, consumers=48)}
    assert rows[39] == "acked" and {rows[number] for number in range(39)} == {"conn_closed"}
