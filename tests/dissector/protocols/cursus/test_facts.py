"""Whole conversations: frames, messages, exchanges, deliveries, acks and members of groups."""

import gzip
from itertools import pairwise

import cramjam
import pytest

from dissector.protocols import PROTOCOLS
from dissector.protocols.cursus.commands import NAMES
from dissector.protocols.cursus.exchanges import CursusExchanges
from dissector.protocols.cursus.facts import CursusDecoder
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.hard.tape import capture, dissected
from tests.wire import cursus
from tests.wire.recut import filtered

JOINED = "OK generation=1 member=m-1 assignments=[0]"


def pairs(tables):
    """Commands and outcome of every exchange."""
    return [
        (row["request_command"], row["response_command"], row["outcome"])
        for row in tables["exchanges"]
    ]


def deliver(first: int, count: int, **options) -> bytes:
    return cursus.batch(cursus.records(count, first=first + 1, offset=first), **options)


def test_a_produce_and_its_answer():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "CREATE topic=t1 partitions=1", "OK topic=t1 partitions=1")
    dialogue.ask(0, cursus.batch(cursus.records(3), acks=b"-1"), cursus.ack(2, 1, 3))
    dialogue.ask(0, cursus.batch(cursus.records(2, first=4), acks=b"0"), "OK")
    dialogue.close(0)
    tables = dialogue.rows()
    assert pairs(tables) == [
        ("CREATE", "RESPONSE_OK", "ok"),
        ("BATCH", "RESPONSE_JSON", "ok"),
        ("BATCH", "RESPONSE_OK", "ok"),
    ]
    _, publish, quick = tables["exchanges"]
    assert publish["kind"] == "publish" and publish["topic"] == "t1"
    assert (publish["sequence_id"], publish["highest_sequence_id"]) == (1, 3)
    assert (publish["message_count"], publish["attempt"], publish["entry_id"]) == (3, 1, 2)
    assert publish["producer_name"] == "p1" and quick["entry_id"] is None
    assert publish["latency_ns"] > 0 and publish["latency_bucket"] is not None
    frame = tables["frames"][2]
    assert frame["command"] == "BATCH" and frame["producer_epoch"] == 7
    assert frame["checksum"] is None and frame["compression"] == "NONE" and frame["is_batch"]
    answer = tables["frames"][3]
    assert answer["topic"] == "t1" and answer["entry_id"] == 2
    rows = tables["messages"]
    assert [row["sequence_id"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["batch_index"] for row in rows] == [0, 1, 2, 0, 1]
    assert {row["entry_id"] for row in rows} == {None}, "clients write no offsets"
    (producer,) = tables["producers"]
    assert (producer["name"], producer["epoch"], producer["closed_by"]) == ("p1", 7, "connection")


def test_the_document_s_examples_byte_for_byte():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, cursus.vector("CREATE"), "OK topic=t1")
    dialogue.ask(0, cursus.vector("METADATA"), "OK topic=t1 partitions=1 leaders=h:1 epochs=0")
    dialogue.ask(0, cursus.vector("batch"), cursus.vector("ack"))
    dialogue.ask(0, "CONSUME topic=t1 partition=0 offset=0 member=m", cursus.vector("empty answer"))
    dialogue.client(0, "STREAM topic=t1 partition=0 group=g member=m")
    dialogue.broker(0, cursus.vector("keepalive"))
    dialogue.broker(0, cursus.vector("close"))
    dialogue.close(0)
    tables = dialogue.rows()
    assert [row["command"] for row in tables["frames"]] == [
        *("CREATE", "RESPONSE_OK", "METADATA", "RESPONSE_OK", "BATCH", "RESPONSE_JSON"),
        *("CONSUME", "BATCH", "STREAM", "KEEPALIVE", "STREAM_CONTROL"),
    ]
    assert pairs(tables)[2:] == [
        ("BATCH", "RESPONSE_JSON", "ok"),
        ("CONSUME", "BATCH", "ok"),
        ("STREAM", None, "conn_closed"),
    ]
    (row,) = tables["messages"]
    assert (row["partition_key"], row["payload_bytes"], row["producer_name"]) == ("k", 2, "p1")
    (delivery,) = tables["deliveries"]
    assert (delivery["message_count"], delivery["entry_id"], delivery["outcome"]) == (0, None, None)


def test_answers_come_in_the_order_of_requests():
    dialogue = Dialogue()
    dialogue.open()
    for number in range(5):
        dialogue.client(0, cursus.batch(cursus.records(1, first=number + 1)))
    dialogue.client(0, "LIST_OFFSETS topic=t1")
    for number in range(5):
        dialogue.broker(0, cursus.ack(number, number + 1, number + 1))
    dialogue.broker(0, "OK topic=t1 partitions=1 offsets=P0:earliest=0:latest=5:leo=5:hwm=5")
    tables = dialogue.rows()
    rows = tables["exchanges"]
    assert [row["entry_id"] for row in rows[:5]] == list(range(5))
    assert [row["outstanding_before"] for row in rows[:5]] == list(range(5))
    assert rows[5]["request_command"] == "LIST_OFFSETS"


def test_a_batch_sent_again_is_another_attempt_and_a_duplicate_where_it_may_be_stored_once():
    dialogue = Dialogue()
    dialogue.open()
    for idempotent in (0, 1):
        made = cursus.batch(cursus.records(3, first=10 * idempotent + 1), idempotent=idempotent)
        for _ in range(2):
            start = 10 * idempotent + 1
            dialogue.ask(0, made, cursus.ack(5, start, start + 2))
    rows = dialogue.rows()["exchanges"]
    assert [(row["attempt"], row["outcome"]) for row in rows] == [
        (1, "ok"),
        (2, "ok"),
        (1, "ok"),
        (2, "dup_or_dropped"),
    ]


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda body: bytes(cramjam.snappy.compress_raw(body))]
)
def test_compressed_bodies_are_opened(pack):
    dialogue = Dialogue()
    dialogue.open()
    body = cursus.batch_body(cursus.records(50, payload=b"x" * 40))
    dialogue.ask(0, cursus.frame(pack(b"\0\0CREATE topic=t1")), "OK topic=t1")
    dialogue.ask(0, cursus.frame(pack(body)), cursus.ack(49, 1, 50))
    tables = dialogue.rows()
    assert len(tables["messages"]) == 50
    frame = tables["frames"][2]
    assert frame["command"] == "BATCH" and frame["compression"] in ("GZIP", "SNAPPY")
    assert frame["uncompressed_bytes"] == len(body) > frame["payload_bytes"]
    assert tables["frames"][0]["command"] == "CREATE"


def test_a_stream_is_one_exchange_and_every_push_a_delivery():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.client(0, "STREAM topic=t1 partition=0 group=g member=m-1")
    dialogue.broker(0, cursus.vector("keepalive"))
    for first in (0, 5, 10):
        dialogue.broker(0, deliver(first, 5))
    dialogue.client(0, "LIST")
    dialogue.broker(0, "STREAM_CONTROL type=CLOSE reason=replaced offset=15")
    dialogue.close(0)
    tables = dialogue.rows()
    assert pairs(tables) == [("STREAM", "BATCH", "ok"), ("LIST", None, "not_awaited")]
    assert tables["exchanges"][0]["kind"] == "consume"
    rows = tables["deliveries"]
    assert [(row["entry_id"], row["message_count"]) for row in rows] == [(0, 5), (5, 5), (10, 5)]
    assert {(row["subscription"], row["consumer_name"]) for row in rows} == {("g", "m-1")}
    assert {row["outcome"] for row in rows} == {"conn_closed"}
    pushes = [row for row in tables["frames"] if row["command"] == "BATCH"]
    assert {row["subscription"] for row in pushes} == {"g"}
    assert [row["entry_id"] for row in tables["messages"]] == list(range(15))


def test_a_stream_that_is_refused_leaves_the_connection_as_it_was():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "STREAM topic=nope partition=0 group=g", 'ERROR: command_failed reason="no"')
    dialogue.ask(0, "LIST", "OK count=0 topics=")
    tables = dialogue.rows()
    assert pairs(tables) == [
        ("STREAM", "RESPONSE_ERROR", "error"),
        ("LIST", "RESPONSE_OK", "ok"),
    ]
    assert tables["exchanges"][0]["error_code"] == "command_failed"


def test_a_read_of_a_stream_is_answered_by_two_frames_or_by_one_error():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.client(0, "READ_STREAM topic=t1 key=k")
    dialogue.broker(0, '{"status":"OK","topic":"t1","key":"k","partition":0,"count":2}')
    dialogue.broker(0, deliver(0, 2))
    dialogue.client(0, "READ_STREAM topic=t1 key=none")
    dialogue.broker(0, '{"status":"OK","topic":"t1","key":"none","partition":0,"count":0}')
    dialogue.broker(0, cursus.vector("keepalive"))
    dialogue.ask(0, "READ_STREAM topic=t2 key=k", '{"error":"not_allowed here","status":"ERROR"}')
    dialogue.ask(0, "LIST", "OK count=0 topics=")
    tables = dialogue.rows()
    assert pairs(tables) == [
        ("READ_STREAM", "BATCH", "ok"),
        ("READ_STREAM", "KEEPALIVE", "ok"),
        ("READ_STREAM", "RESPONSE_JSON", "error"),
        ("LIST", "RESPONSE_OK", "ok"),
    ]
    assert [row["response_frame_no"] for row in tables["exchanges"]] == [3, 6, 8, 10]


def test_what_nobody_answers_or_reads():
    dialogue = Dialogue()
    for _ in range(3):
        dialogue.open()
    dialogue.ask(0, "LIST", "OK count=0 topics=")
    dialogue.client(0, "LEAVE_GROUP topic=t1 group=g member=m generation=1")
    dialogue.close(0)
    dialogue.ask(1, cursus.batch(cursus.records(1, first=9)), cursus.ack(0, 9, 9))
    dialogue.client(1, cursus.batch(cursus.records(1, first=3), idempotent=1))
    dialogue.close(1)
    dialogue.ask(2, "LIST", "OK count=0 topics=")
    dialogue.client(2, "METADATA topic=t1")
    tables = dialogue.rows()
    found = {(row["request_command"], row["outcome"]) for row in tables["exchanges"]}
    assert ("LEAVE_GROUP", "not_awaited") in found
    assert ("BATCH", "conn_closed") in found
    assert ("METADATA", "unanswered_at_end") in found


def committed(dialogue: Dialogue, number: int, following: int) -> None:
    dialogue.ask(
        number,
        f"COMMIT_OFFSET topic=t1 partition=0 group=g offset={following} generation=1 member=m-1",
        "OK",
    )


def test_a_commit_closes_deliveries_on_any_connection():
    dialogue = Dialogue()
    for _ in range(2):
        dialogue.open()
    dialogue.ask(0, "JOIN_GROUP topic=t1 group=g member=m", JOINED)
    for first in (0, 10):
        dialogue.ask(
            1, "CONSUME topic=t1 partition=0 offset=0 group=g member=m-1", deliver(first, 10)
        )
    dialogue.close(1)
    committed(dialogue, 0, 10)
    committed(dialogue, 0, 15)
    dialogue.ask(
        0, "BATCH_COMMIT topic=t1 group=g member=m-1 generation=1 P0:0,P1:3", "OK batched=1"
    )
    tables = dialogue.rows()
    first, second = tables["deliveries"]
    assert (first["outcome"], first["messages_acked"]) == ("acked", 10)
    assert first["ack_frame_no"] == 7 and first["ack_latency_ns"] > 0
    assert (second["outcome"], second["messages_acked"]) == ("conn_closed", 5)
    assert [(row["partition"], row["entry_id"]) for row in tables["acks"]] == [
        (0, 9),
        (0, 14),
        (0, None),
        (1, 2),
    ]
    assert {row["ack_type"] for row in tables["acks"]} == {"Cumulative"}
    (member,) = tables["consumers"]
    assert (member["name"], member["subscription"], member["closed_by"]) == (
        "m-1",
        "g",
        "capture_end",
    )
    assert [row["kind"] for row in tables["exchanges"]][-3:] == ["ack"] * 3


def test_a_commit_that_is_refused_closes_nothing():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "CONSUME topic=t1 partition=0 offset=0 group=g member=m-1", deliver(0, 10))
    dialogue.ask(
        0,
        "COMMIT_OFFSET topic=t1 partition=0 group=g offset=10 generation=1 member=m-1",
        "ERROR: GEN_MISMATCH current=2 requested=1",
    )
    tables = dialogue.rows()
    (row,) = tables["deliveries"]
    assert (row["outcome"], row["messages_acked"]) == ("unacked_at_end", 0)


CONSUME = "CONSUME topic=t1 partition=0 offset=0 group=g member=m-1"


def test_offsets_that_come_again_are_redeliveries_with_a_cause():
    dialogue = Dialogue()
    for _ in range(6):
        dialogue.open()
    dialogue.ask(0, "JOIN_GROUP topic=t1 group=g member=m", JOINED)
    dialogue.ask(1, CONSUME, deliver(0, 10))
    dialogue.ask(2, CONSUME, deliver(0, 10))  # polled again, nothing was committed
    dialogue.client(3, "STREAM topic=t1 partition=0 group=g member=m-1")
    dialogue.broker(3, deliver(0, 10))  # a stream instead: another connection
    dialogue.broker(3, deliver(10, 10))
    dialogue.ask(
        0, "JOIN_GROUP topic=t1 group=g member=n", "OK generation=2 member=n-2 assignments=[0]"
    )
    dialogue.client(4, "STREAM topic=t1 partition=0 group=g member=n-2")
    dialogue.broker(4, deliver(5, 10))
    dialogue.broker(4, deliver(15, 5))
    dialogue.ask(0, "BATCH_COMMIT topic=t1 group=g member=n-2 generation=2 P0:20", "OK batched=1")
    dialogue.ask(5, CONSUME, deliver(12, 8))
    tables = dialogue.rows()
    rows = sorted(tables["deliveries"], key=lambda row: row["frame_no"])
    assert [row["redelivery_cause"] for row in rows] == [
        *(None, "no_commit", "reconnect", None, "rebalance", "rebalance", "reset")
    ]
    assert [row["is_redelivered"] for row in rows] == [
        *(False, True, True, False, True, True, True)
    ]
    assert rows[1]["previous_frame_no"] == rows[0]["frame_no"]
    # On another connection, which is said.
    assert rows[2]["connection_id"] != rows[1]["connection_id"]
    for before, row in pairwise(rows[:3]):
        assert row["previous_connection_id"] == before["connection_id"]
    assert rows[0]["previous_connection_id"] is rows[3]["previous_connection_id"] is None
    assert rows[0]["outcome"] == "redelivery_requested"
    assert rows[5]["outcome"] == "acked"


@pytest.mark.parametrize("is_two_way", [True, False])
def test_only_a_client_that_was_captured_is_known_not_to_have_committed(is_two_way: bool):
    """Behind a STREAM it sends no frame: its acknowledgements of TCP show that it was captured."""
    dialogue = Dialogue()
    dialogue.open()
    for first in (0, 5, 0):
        dialogue.broker(0, deliver(first, 5))
    later = capture(dialogue.records()[3:])
    tables = dissected(filtered(later, lambda source, _: is_two_way or source[1] == 9000))
    rows = sorted(tables["deliveries"], key=lambda row: row["frame_no"])
    found = [(row["outcome"], row["messages_acked"], row["redelivery_cause"]) for row in rows]
    if is_two_way:
        assert found == [
            ("redelivery_requested", 0, None), ("unacked_at_end", 0, None),
            ("unacked_at_end", 0, "no_commit"),
        ]  # fmt: skip
    else:
        # Of which group these are is not known: of each batch it may be another one.
        assert found == [("unknown_gap", None, None)] * 3
        assert not any(row["is_redelivered"] for row in rows)


def test_a_delivery_knows_when_its_first_record_was_published():
    dialogue = Dialogue()
    for _ in range(2):
        dialogue.open()
    dialogue.ask(0, cursus.batch(cursus.records(4)), cursus.ack(3, 1, 4))
    dialogue.client(1, "STREAM topic=t1 partition=0 group=g member=m-1")
    dialogue.broker(1, cursus.batch(cursus.records(2, first=3, offset=2)))
    tables = dialogue.rows()
    frames = {row["frame_no"]: row for row in tables["frames"]}
    (row,) = tables["deliveries"]
    sent = next(each for each in frames.values() if each["command"] == "BATCH")
    got = frames[row["frame_no"]]
    assert row["publish_to_delivery_ns"] == got["last_ts_ns"] - sent["last_ts_ns"]


def test_offsets_in_a_transaction_count_when_it_is_committed():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, CONSUME, deliver(0, 10))
    who = "transactional_id=x producerId=p epoch=1"
    for result, state in (("abort", "aborted"), ("commit", "committed")):
        dialogue.ask(0, f"BEGIN_TXN {who}", "OK transactional_id=x state=open producerId=p epoch=1")
        dialogue.ask(
            0,
            "TXN_PUBLISH transactional_id=x topic=t1 partition=-1 producerId=p seqNum=1 epoch=1"
            " key=k message=hello you",
            "OK transactional_id=x staged_messages=1 topic=t1 partition=0",
        )
        if result == "commit":
            dialogue.ask(
                0,
                f"SEND_OFFSETS_TO_TXN {who} topic=t1 group=g member=m-1 generation=1 P0:10",
                "OK transactional_id=x staged_offsets=1",
            )
        dialogue.ask(0, f"END_TXN {who} result={result}", f"OK transactional_id=x state={state}")
    tables = dialogue.rows()
    (ack,) = tables["acks"]
    assert (ack["subscription"], ack["topic"], ack["entry_id"]) == ("g", "t1", 9)
    assert tables["deliveries"][0]["outcome"] == "acked"
    texts = [row for row in tables["messages"] if row["batch_size"] is None]
    assert [(row["partition_key"], row["payload_bytes"]) for row in texts] == [("k", 9)] * 2
    assert {row["sequence_id"] for row in texts} == {1}


def test_no_secret_is_in_any_row():
    dialogue = Dialogue()
    dialogue.open()
    for line, answer in (
        ("AUTH principal=a token=SECRET-1", "OK principal=a authenticated=true"),
        ("LIST token=SECRET-2", 'ERROR: unknown_command command="LIST token=SECRET-2"'),
        ("FROB internal_token=SECRET-3", "ERROR: x_y auth_token=SECRET-3"),
        (
            "TXN_PUBLISH transactional_id=x topic=t partition=0 producerId=p seqNum=1 epoch=1"
            " message=hi principal=a auth_token=SECRET-4",
            "OK transactional_id=x staged_messages=1 topic=t partition=0",
        ),
        ('AUTH SECRET-5 JOIN_CLUSTER {"id":1}', '{"success":true}'),
    ):
        dialogue.ask(0, line, answer)
    for detail in ("rare", "all"):
        assert "SECRET" not in repr(dialogue.rows(want_detail=detail, properties=True))
    assert "SECRET-1" in repr(dialogue.rows(redact=False))


def test_free_text_of_old_brokers_answers_like_any_other():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "CREATE topic=t1", "✅ Topic 't1' created")
    dialogue.ask(0, "FETCH_OFFSET topic=t1 partition=0 group=g", "0")
    tables = dialogue.rows()
    assert pairs(tables) == [
        ("CREATE", "RESPONSE_OK", "ok"),
        ("FETCH_OFFSET", "RESPONSE_OK", "ok"),
    ]
    assert "legacy_text" in tables["frames"][1]["detail"]


def test_a_capture_that_starts_in_a_stream_takes_what_comes_for_pushes():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.open()
    dialogue.client(0, "STREAM topic=t1 partition=0 group=g member=m-1")
    for first in (0, 3, 6):
        dialogue.broker(0, deliver(first, 3))
    dialogue.ask(1, "BATCH_COMMIT topic=t1 group=g member=m-1 generation=1 P0:9", "OK batched=1")
    dialogue.tapes[0].packets = dialogue.tapes[0].packets[6:]
    tables = dialogue.rows()
    rows = tables["deliveries"]
    assert [row["outcome"] for row in rows] == ["acked"] * len(rows) and len(rows) >= 2
    assert {row["subscription"] for row in rows} == {"g"}
    assert {row["role_source"] for row in tables["connections"]} == {"command", "syn"}


def test_the_words_of_the_tables():
    assert PROTOCOLS[1].name == "cursus" and PROTOCOLS[1].new_facts is CursusDecoder
    assert len(set(NAMES)) == len(NAMES) and CursusExchanges is not None


def codes(tables):
    return [row["code"] for row in tables["notices"]]


def test_lag_is_what_is_left_to_the_end_of_the_log_as_last_seen():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, CONSUME, deliver(0, 10))
    committed(dialogue, 0, 4)
    dialogue.ask(
        0,
        "LIST_OFFSETS topic=t1",
        "OK topic=t1 partitions=2 offsets=P0:earliest=0:latest=50:leo=52:hwm=50,P1:earliest=0:"
        "latest=7:leo=7:hwm=7",
    )
    committed(dialogue, 0, 10)
    dialogue.ask(0, CONSUME, deliver(10, 10))
    made = cursus.batch(cursus.records(3))
    dialogue.ask(0, made, cursus.ack(52, 1, 3))
    committed(dialogue, 0, 20)
    dialogue.ask(0, "BATCH_COMMIT topic=t1 group=g member=m-1 generation=1 P1:9", "OK batched=1")
    tables = dialogue.rows()
    assert [row["lag"] for row in tables["acks"]] == [6, 40, 33, 0]
    rows = sorted(tables["deliveries"], key=lambda row: row["frame_no"])
    assert [row["lag"] for row in rows] == [None, 30]


def test_what_a_connection_negotiated():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(
        0,
        "NEGOTIATE version=1 features=structured_errors_v1,x",
        "OK protocol_version=1 enabled=structured_errors_v1 unsupported=x",
    )
    dialogue.close(0)
    (row,) = dialogue.rows()["connections"]
    assert (row["protocol_version"], row["feature_flags"]) == (1, ["structured_errors_v1"])


def test_findings_about_producers():
    dialogue = Dialogue()
    dialogue.open()
    for first, epoch in ((1, 7), (4, 7), (9, 7), (1, 6), (1, 8)):
        made = cursus.batch(cursus.records(3, first=first, epoch=epoch), idempotent=1)
        dialogue.ask(0, made, cursus.ack(first, first, first + 2, epoch=epoch))
    tables = dialogue.rows()
    assert codes(tables) == ["sequence_gap", "producer_epoch_back"]
    assert "6 to 9" in tables["notices"][0]["text"]


def test_findings_about_credentials():
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, cursus.batch(cursus.records(3)), cursus.ack(2, 1, 3))
    dialogue.ask(0, "LIST", "ERROR: authentication_required command=LIST")
    dialogue.ask(0, "AUTH principal=p token=T", "OK principal=p authenticated=true")
    dialogue.ask(0, cursus.batch(cursus.records(3, first=4)), cursus.ack(5, 4, 6))
    dialogue.ask(
        0,
        "TXN_PUBLISH transactional_id=x topic=t partition=0 producerId=p seqNum=1 epoch=1"
        " message=hi principal=a auth_token=T",
        "OK transactional_id=x staged_messages=1 topic=t partition=0",
    )
    assert codes(dialogue.rows()) == ["stored_without_auth", "credentials_in_payload", "redacted"]
