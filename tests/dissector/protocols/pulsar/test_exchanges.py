"""Exchanges: which answer belongs to which request, every outcome, attempts, bounds."""

from itertools import pairwise
from typing import Any

import pytest

from dissector.limits import MAX_ANSWERED_PER_PRODUCER
from dissector.protocols.columns import COMPLETE, CUT_BY_END, TO_BROKER, TO_CLIENT
from dissector.protocols.pairing.state import PairingBounds
from dissector.protocols.pulsar.wire import commands
from tests.wire.frames import STEP_NS
from tests.wire.talk import TOPIC, Talk, chosen


def publishes(talk: Talk, **bounds: Any) -> list[dict[str, Any]]:
    rows = talk.rows(**bounds)["exchanges"]
    return sorted(
        (row for row in rows if row["kind"] == "publish"),
        key=lambda row: (row["request_frame_no"] is None, row["request_frame_no"]),
    )


def outcomes(talk: Talk, **bounds: Any) -> list[str]:
    return [row["outcome"] for row in publishes(talk, **bounds)]


def open_talk() -> Talk:
    talk = Talk()
    talk.connect()
    talk.produce()
    return talk


# -- outcomes


def test_receipts_find_their_sends_by_sequence_id_in_any_order() -> None:
    talk = open_talk()
    sent = [talk.send(number) for number in (5, 6, 7)]
    talk.receipt(7, entry=2)
    talk.receipt(5, entry=1)
    rows = publishes(talk)
    assert chosen(rows, "request_frame_no", "outcome", "entry_id", "latency_ns") == [
        (sent[0], "ok", 1, 4 * STEP_NS),
        (sent[1], "unanswered_at_end", None, None),
        (sent[2], "ok", 2, STEP_NS),
    ]
    assert [row["outstanding_before"] for row in rows] == [0, 1, 2]


def test_a_refused_send_and_one_that_the_broker_had() -> None:
    talk = open_talk()
    talk.send(1)
    talk.broker(
        commands.SEND_ERROR, producer_id=0, sequence_id=1, error_code=6, error_text="no room"
    )
    talk.send(2)
    talk.receipt(2, entry=-1, ledger_id=-1)
    rows = publishes(talk)
    names = ("outcome", "error_code", "error_text", "ledger_id", "entry_id")
    assert chosen(rows, *names) == [
        ("error", 6, "no room", None, None),
        ("dup_or_dropped", None, None, None, None),
    ]


def test_a_topic_that_is_not_persistent_answers_zero_and_zero_stays() -> None:
    talk = open_talk()
    talk.send(1)
    talk.receipt(1, entry=0, ledger_id=0)
    assert chosen(publishes(talk), "outcome", "ledger_id", "entry_id") == [("ok", 0, 0)]


def test_what_waits_when_a_connection_ends_is_lost_with_it() -> None:
    talk = open_talk()
    talk.send(1)
    talk.hang_up()
    assert outcomes(talk) == ["conn_closed"]


def test_sends_of_a_producer_that_the_broker_closed_were_dropped() -> None:
    talk = open_talk()
    talk.send(1)
    talk.broker(commands.CLOSE_PRODUCER, producer_id=0, request_id=-1)
    talk.send(2)
    talk.hang_up()
    assert outcomes(talk) == ["dropped_after_close"] * 2


def test_a_producer_that_is_open_again_ends_what_waits_from_before() -> None:
    talk = open_talk()
    talk.send(1)
    talk.broker(commands.CLOSE_PRODUCER, producer_id=0, request_id=-1)
    talk.produce()
    talk.send(1)
    talk.receipt(1)
    rows = publishes(talk)
    assert [(row["outcome"], row["incarnation"]) for row in rows] == [
        ("dropped_after_close", 0), ("ok", 1),
    ]  # fmt: skip
    assert rows[0]["topic"] == rows[1]["topic"] is not None
    assert rows[0]["producer_name"] == rows[1]["producer_name"] is not None


def test_a_hole_behind_a_send_may_hold_its_receipt() -> None:
    talk = open_talk()
    talk.send(1)
    talk.gap(TO_CLIENT, offset=500)
    talk.send(2)
    talk.receipt(2, stream_offset=600, frame_bytes=30)
    talk.hang_up()
    rows = publishes(talk)
    assert [(row["outcome"], row["tainted"]) for row in rows] == [("lost_in_gap", 1), ("ok", 0)]


def test_behind_a_hole_the_outstanding_sends_are_unknown_until_all_are_answered() -> None:
    """A producer's sends are answered in order: with the newest one, all."""
    for direction in (TO_CLIENT, TO_BROKER):
        talk = open_talk()
        talk.send(1)
        talk.send(2)
        talk.gap(direction, offset=500)
        talk.send(3, stream_offset=600, frame_bytes=30)
        talk.receipt(2, stream_offset=600, frame_bytes=30)
        talk.send(4)
        talk.receipt(4)
        talk.send(5)
        talk.send(6)
        rows = {row["sequence_id"]: row["outstanding_before"] for row in publishes(talk)}
        assert rows == {1: 0, 2: 1, 3: None, 4: None, 5: 0, 6: 1}


def test_a_hole_before_a_send_cannot_hold_its_receipt() -> None:
    talk = open_talk()
    talk.gap(TO_CLIENT, offset=500)
    talk.broker(commands.PING, stream_offset=600, frame_bytes=9)
    talk.send(1)
    talk.hang_up()
    assert outcomes(talk) == ["conn_closed"]


def test_where_the_broker_was_not_captured_nothing_is_said_of_answers() -> None:
    talk = Talk()
    talk.send(1)
    talk.send(2)
    talk.hang_up()
    said = [(row["outcome"], row["outstanding_before"]) for row in publishes(talk)]
    assert said == [("other_side_not_captured", None)] * 2


@pytest.mark.parametrize(("status", "is_known"), [(COMPLETE, True), (CUT_BY_END, False)])
def test_a_send_that_the_end_cut_took_nobody_knows_how_long(status: int, is_known: bool) -> None:
    talk = open_talk()
    talk.send(1, status=status)
    (row,) = publishes(talk)
    assert (row["transmit_ns"] is not None) == is_known


def test_an_answer_captured_before_its_request_pairs_without_a_latency() -> None:
    talk = open_talk()
    talk.receipt(1)
    sent = talk.send(1)
    (row,) = publishes(talk)
    assert (row["request_frame_no"], row["outcome"]) == (sent, "ok")
    assert row["latency_ns"] is None and row["tainted"] == 1


def test_an_answer_never_waits_for_a_send_of_the_next_incarnation() -> None:
    talk = open_talk()
    talk.broker(commands.CLOSE_PRODUCER, producer_id=0, request_id=-1)
    before = talk.receipt(1, entry=3)
    talk.produce()
    sent = talk.send(1)
    after = talk.receipt(1, entry=9)
    rows = chosen(publishes(talk), "request_frame_no", "response_frame_no", "outcome", "entry_id")
    assert rows == [(sent, after, "ok", 9), (None, before, "orphan_response", 3)]


def test_an_answer_whose_request_never_comes_is_an_orphan_after_the_window() -> None:
    talk = open_talk()
    answer = talk.receipt(1, entry=9)
    for number in range(300):
        talk.send(100 + number)
    (row,) = [row for row in publishes(talk) if row["outcome"] == "orphan_response"]
    assert (row["request_frame_no"], row["response_frame_no"]) == (None, answer)
    assert (row["sequence_id"], row["entry_id"], row["kind"]) == (1, 9, "publish")


def test_a_cut_answer_is_named_as_such() -> None:
    talk = open_talk()
    talk.send(1)
    talk.receipt(1, status=2)
    assert outcomes(talk) == ["response_cut"]


def test_a_retransmitted_send_is_tainted() -> None:
    talk = open_talk()
    talk.send(1, retransmitted=1)
    talk.receipt(1)
    talk.send(2)
    talk.receipt(2)
    assert [row["tainted"] for row in publishes(talk)] == [1, 0]


# -- other requests


def test_an_interim_success_does_not_close_its_request() -> None:
    talk = Talk()
    talk.connect()
    talk.client(commands.PRODUCER, request_id=1, producer_id=0, topic=TOPIC)
    talk.broker(commands.PRODUCER_SUCCESS, request_id=1, is_ready=0)
    ready = talk.broker(commands.PRODUCER_SUCCESS, request_id=1, is_ready=1, producer_name="p")
    (row,) = [row for row in talk.rows()["exchanges"] if row["request_command"] == 5]
    assert (row["outcome"], row["response_frame_no"], row["producer_name"]) == ("ok", ready, "p")


def test_an_interim_success_whose_request_was_lost_is_no_answer() -> None:
    """The one that follows it is, so that one request has one answer."""
    talk = Talk()
    talk.connect()
    talk.gap(TO_BROKER)
    talk.broker(commands.PRODUCER_SUCCESS, request_id=1, is_ready=0)
    ready = talk.broker(commands.PRODUCER_SUCCESS, request_id=1, is_ready=1, producer_name="p")
    rows = [row for row in talk.rows()["exchanges"] if row["outcome"] == "orphan_response"]
    assert [row["response_frame_no"] for row in rows] == [ready]


def test_kinds_of_exchanges() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.client(commands.PING)
    talk.broker(commands.PONG)
    talk.broker(commands.AUTH_CHALLENGE)
    talk.client(commands.AUTH_RESPONSE)
    talk.ack(1, request_id=9)
    talk.broker(commands.ACK_RESPONSE, request_id=9, consumer_id=0)
    talk.ack(2)
    talk.flow(5)
    talk.redeliver(1)
    rows = talk.rows()["exchanges"]
    assert [(row["kind"], row["outcome"]) for row in rows] == [
        ("request", "ok"), ("request", "ok"), ("ping", "ok"), ("auth", "ok"), ("ack", "ok"),
    ]  # fmt: skip


def test_generic_answers_are_told_apart_by_who_asked() -> None:
    """Look-ups and other requests may count their ids apart, so that one id waits twice."""
    talk = Talk()
    talk.connect()
    looked = talk.client(commands.LOOKUP, request_id=1, topic=TOPIC)
    subscribed = talk.client(
        commands.SUBSCRIBE, request_id=1, consumer_id=0, topic=TOPIC, subscription="s"
    )
    success = talk.broker(commands.SUCCESS, request_id=1)
    found = talk.broker(commands.LOOKUP_RESPONSE, request_id=1, response=1)
    rows = talk.rows()["exchanges"][1:]
    assert chosen(rows, "request_frame_no", "response_frame_no") == [
        (subscribed, success), (looked, found),
    ]  # fmt: skip


def test_a_refused_handshake() -> None:
    talk = Talk()
    talk.client(commands.CONNECT)
    talk.broker(commands.ERROR, request_id=-1, error_code=3)
    assert chosen(talk.rows()["exchanges"], "request_command", "outcome", "error_code") == [
        (commands.CONNECT, "error", 3)
    ]


# -- attempts


def test_sends_of_one_message_are_counted_over_connections() -> None:
    talk = Talk()
    for connection in range(3):
        talk.connect(connection)
        talk.produce(connection, connection, name="p")
        talk.send(8, connection, connection)
        talk.hang_up(connection)
    assert [row["attempt"] for row in publishes(talk)] == [1, 2, 3]


def test_another_checksum_chunk_or_producer_is_another_message() -> None:
    talk = open_talk()
    talk.produce(1, name="other")
    talk.send(1, crc32c_stored=1)
    talk.send(1, crc32c_stored=2)
    talk.send(1, crc32c_stored=1, chunk_id=1, chunk_count=3)
    talk.send(1, producer=1, crc32c_stored=1)
    talk.send(1, crc32c_stored=1)
    assert [row["attempt"] for row in publishes(talk)] == [1, 1, 1, 1, 2]


def test_an_answered_send_is_remembered_for_a_while_only() -> None:
    talk = open_talk()
    talk.send(0)
    talk.receipt(0)
    talk.send(0)
    talk.receipt(0)
    for number in range(1, MAX_ANSWERED_PER_PRODUCER + 2):
        talk.send(number)
        talk.receipt(number)
    talk.send(0)
    rows = [row for row in publishes(talk) if row["sequence_id"] == 0]
    assert [row["attempt"] for row in rows] == [1, 2, 1]


def test_without_a_name_nothing_is_counted() -> None:
    talk = Talk()
    talk.send(1)
    talk.receipt(1)
    assert [row["attempt"] for row in publishes(talk)] == [None]


def test_chunks_count_as_one_message_on_the_last() -> None:
    talk = open_talk()
    for chunk in range(3):
        talk.send(1, chunk_id=chunk, chunk_count=3)
    assert [row["message_count"] for row in publishes(talk)] == [0, 0, 1]


# -- bounds


def test_the_oldest_request_makes_room_and_is_called_evicted() -> None:
    talk = open_talk()
    for number in range(6):
        talk.send(number)
    tables = talk.rows(exchanges=PairingBounds(sends=4))
    rows = [row for row in tables["exchanges"] if row["kind"] == "publish"]
    assert [row["outcome"] for row in rows] == ["evicted"] * 2 + ["unanswered_at_end"] * 4
    assert {"pending_limit"} == {row["code"] for row in tables["notices"]}


# -- order


def test_rows_come_as_they_close() -> None:
    talk = open_talk()
    talk.connect(1)
    talk.produce(0, 1, name="other")
    talk.send(1)
    talk.send(1, connection=1)
    talk.receipt(1, connection=1)
    talk.receipt(1)
    rows = talk.rows()["exchanges"]
    assert [row["connection_id"] for row in rows if row["kind"] == "publish"] == [1, 0]
    closing = [row["response_frame_no"] for row in rows]
    assert all(one < other for one, other in pairwise(closing))


@pytest.mark.parametrize("direction_index", [TO_BROKER, TO_CLIENT])
def test_a_gap_inside_a_frame_that_is_known_hides_no_answer(direction_index: int) -> None:
    talk = open_talk()
    talk.send(1, stream_offset=100, frame_bytes=200)
    talk.gap(
        direction_index, size=50, offset=150 if direction_index == TO_BROKER else 400, missing=0
    )
    if direction_index == TO_CLIENT:
        talk.broker(commands.MESSAGE, consumer_id=4, stream_offset=350, frame_bytes=200, status=1)
    talk.hang_up()
    assert outcomes(talk) == ["conn_closed"]


# -- replication


def replicated(talk: Talk, sequence: int, ledger: int, entry: int) -> int:
    return talk.send(sequence, repl_source_ledger_id=ledger, repl_source_entry_id=entry)


def test_receipts_of_replicated_entries_name_their_position_in_the_source() -> None:
    talk = open_talk()
    sent = [replicated(talk, 0, 90, 0), replicated(talk, 0, 90, 1), replicated(talk, 1, 90, 2)]
    for entry in (1, 0, 2):
        talk.receipt(90, entry=70 + entry, highest_sequence_id=entry)
    rows = publishes(talk)
    assert chosen(rows, "request_frame_no", "outcome", "entry_id") == [
        (sent[0], "ok", 70), (sent[1], "ok", 71), (sent[2], "ok", 72),
    ]  # fmt: skip


def test_such_a_receipt_may_be_captured_before_its_send() -> None:
    talk = open_talk()
    replicated(talk, 8, 90, 3)
    for entry in (5, 0, 3):
        talk.receipt(90, entry=70 + entry, highest_sequence_id=entry)
    late = [replicated(talk, 0, 90, 0), replicated(talk, 1, 90, 5)]
    found = {row["request_frame_no"]: (row["entry_id"], row["latency_ns"] is None)
             for row in publishes(talk)}  # fmt: skip
    assert found.pop(late[0]) == (70, True) and found.pop(late[1]) == (75, True)
    assert list(found.values()) == [(73, False)]


# -- what batches, chunks and repetitions do to the pairing


def test_an_error_of_a_batch_names_its_last_message_and_overtakes_receipts() -> None:
    talk = open_talk()
    first = talk.send(0, highest_sequence_id=9, message_count=10)
    second = talk.send(10, highest_sequence_id=19, message_count=10)
    third = talk.send(19, crc32c_stored=1)
    refused = talk.broker(commands.SEND_ERROR, producer_id=0, sequence_id=19, error_code=9)
    talk.receipt(0, highest_sequence_id=9)
    talk.receipt(19, entry=1)
    rows = publishes(talk)
    assert chosen(rows, "request_frame_no", "outcome") == [
        (first, "ok"), (second, "error"), (third, "ok"),
    ]  # fmt: skip
    assert rows[1]["response_frame_no"] == refused and rows[1]["highest_sequence_id"] == 19


def test_chunks_share_an_id_and_are_answered_in_their_order() -> None:
    talk = open_talk()
    for chunk in range(3):
        talk.send(4, chunk_id=chunk, chunk_count=3, crc32c_stored=chunk)
    for entry in range(3):
        talk.receipt(4, entry=entry)
    rows = publishes(talk)
    assert chosen(rows, "chunk_id", "entry_id", "latency_ns", "message_count") == [
        (0, 0, 3 * STEP_NS, 0), (1, 1, 3 * STEP_NS, 0), (2, 2, 3 * STEP_NS, 1),
    ]  # fmt: skip


def test_a_queue_that_is_sent_again_on_the_same_connection_is_answered_twice() -> None:
    """After a refusal a client sends all that waits once more; the broker stores it twice."""
    talk = open_talk()
    for number in (3, 4, 5):
        talk.send(number)
    talk.broker(commands.SEND_ERROR, producer_id=0, sequence_id=3, error_code=9)
    for number in (3, 4, 5):
        talk.send(number)
    for entry, number in enumerate((4, 5, 3, 4, 5)):
        talk.receipt(number, entry=entry)
    rows = publishes(talk)
    assert chosen(rows, "sequence_id", "attempt", "outcome", "entry_id") == [
        (3, 1, "error", None), (4, 1, "ok", 0), (5, 1, "ok", 1),
        (3, 2, "ok", 2), (4, 2, "ok", 3), (5, 2, "ok", 4),
    ]  # fmt: skip


def test_attempts_are_counted_from_when_a_receipt_told_the_topic() -> None:
    """Where the PRODUCER was lost, a ledger that is known tells it."""
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.message(0)
    for number in (1, 2):
        talk.send(number, wire_producer_name="p")
        talk.receipt(number, entry=number)
    assert chosen(publishes(talk), "topic", "attempt") == [(TOPIC, None), (TOPIC, 1)]


def test_an_early_receipt_is_not_that_of_a_later_chunk_if_a_hole_hides_its_own() -> None:
    talk = open_talk()
    talk.gap(TO_BROKER)  # the first chunk
    talk.receipt(1, entry=0)
    sent = []
    for number in (1, 2):
        sent.append(talk.send(1, chunk_id=number, chunk_count=3))
        talk.receipt(1, entry=number)
    assert chosen(publishes(talk), "request_frame_no", "entry_id", "outcome") == [
        (sent[0], 1, "ok"),
        (sent[1], 2, "ok"),
        (None, 0, "orphan_response"),
    ]


def test_an_early_pong_is_not_that_of_a_later_ping_if_a_hole_hides_its_own() -> None:
    talk = Talk()
    talk.connect()
    talk.gap(TO_BROKER)
    talk.broker(commands.PONG)
    talk.client(commands.PING)
    rows = [row for row in talk.rows()["exchanges"] if row["kind"] == "ping"]
    assert [row["outcome"] for row in rows] == ["unanswered_at_end", "orphan_response"]


def test_a_receipt_whose_send_was_lost_tells_the_topic_of_those_that_wait() -> None:
    talk = Talk()
    talk.connect()
    talk.subscribe()
    talk.message(0)
    talk.send(1, wire_producer_name="p")
    talk.gap(TO_BROKER)
    talk.receipt(2, entry=2)
    (row,) = [row for row in publishes(talk) if row["request_frame_no"] is not None]
    assert (row["topic"], row["outcome"]) == (TOPIC, "unanswered_at_end")
