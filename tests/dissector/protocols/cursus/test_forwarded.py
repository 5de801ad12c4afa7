"""What brokers send each other: read, told apart from clients, and never a way out for tokens."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.limits import MAX_FORWARDED_JSON_BYTES
from dissector.protocols.cursus.answers import shown_value
from dissector.protocols.cursus.forwarded import NOTHING, batch_within, is_passed_on, read_forwarded
from dissector.protocols.cursus.lines import read_line
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.wire import cursus

TOKEN = "internal_token=FAKE-inside"
BODY = cursus.batch_body(cursus.records(3, key=b"k"), partition=2)
COPY = {
    "topic": "t1",
    "partition": 2,
    "messages": [
        {"Offset": 4 + at, "ProducerID": "p1", "SeqNum": 5 + at, "Payload": "hi", "Epoch": 7}
        for at in range(2)
    ],
    "acks": "-1",
    "leader_id": "b1",
    "leader_epoch": 3,
    "commit_hwm": 4,
}
CHANGE = {"type": "COMMIT", "group": "g", "topic": "t1", "member": "m", "partition": 0, "offset": 4}


def passed_on(body: bytes) -> bytes:
    return f"INTERNAL_BATCH {TOKEN} payload=".encode() + base64.b64encode(body)


def one(name: str, line: str | bytes, answer: str | bytes):
    """The rows of one connection that asks once."""
    dialogue = Dialogue(19000)
    dialogue.open()
    dialogue.ask(0, cursus.bare(line) if name == "bare" else cursus.enveloped(line), answer)
    dialogue.close(0)
    tables = dialogue.rows()
    assert "FAKE" not in json.dumps(tables, default=str)
    return tables


@pytest.mark.parametrize("form", ["bare", "enveloped"])
def test_a_batch_on_its_way_to_the_leader_is_decoded(form):
    tables = one(form, passed_on(BODY), cursus.ack(2, 1, 3))
    frame = tables["frames"][0]
    assert (frame["command"], frame["topic"], frame["partition"]) == ("INTERNAL_BATCH", "t1", 2)
    assert (frame["producer_name"], frame["producer_epoch"]) == ("p1", 7)
    assert (frame["sequence_id"], frame["highest_sequence_id"]) == (1, 3)
    assert (frame["message_count"], frame["is_batch"]) == (3, True)
    assert json.loads(frame["detail"])["batch"]["layout"] == "cur"
    rows = tables["messages"]
    assert [(row["sequence_id"], row["partition_key"]) for row in rows] == [
        *((1, "k"), (2, "k"), (3, "k"))
    ]
    (pair,) = tables["exchanges"]
    assert (pair["kind"], pair["outcome"], pair["attempt"]) == ("request", "ok", None)
    assert pair["message_count"] == 3 and tables["producers"] == []


@pytest.mark.parametrize(
    "payload", [b"%%%", base64.b64encode(b"nothing"), base64.b64encode(BODY[:-3]), b""]
)
def test_what_is_no_batch_stays_a_line(payload):
    line = f"INTERNAL_BATCH {TOKEN} payload=".encode() + payload
    tables = one("bare", line, "ERROR: invalid_payload command=INTERNAL_BATCH")
    assert tables["frames"][0]["command"] == "INTERNAL_BATCH" and not tables["messages"]
    assert tables["frames"][0]["status"] == "complete"


def test_copies_for_followers_and_changes_of_state():
    frame = one("bare", f"REPLICATE_MESSAGE {TOKEN} payload={json.dumps(COPY)}", "OK leo=6 hwm=4")
    frame = frame["frames"][0]
    assert (frame["topic"], frame["partition"], frame["entry_id"]) == ("t1", 2, 4)
    assert (frame["sequence_id"], frame["highest_sequence_id"]) == (5, 6)
    assert (frame["message_count"], frame["producer_name"]) == (2, "p1")
    assert json.loads(frame["detail"])["payload"] == {
        "acks": "-1",
        "leader_id": "b1",
        "leader_epoch": 3,
        "commit_hwm": 4,
    }
    line = f"RAFT_APPLY {TOKEN} type=OFFSET_SYNC payload={json.dumps(CHANGE)}"
    frame = one("enveloped", line, "OK")["frames"][0]
    assert (frame["topic"], frame["subscription"], frame["consumer_name"]) == ("t1", "g", "m")
    assert json.loads(frame["detail"])["payload"] == {"type": "COMMIT", "offset": 4}
    snapshot = '{"topic":"es","key":"k","version":3,"partition":1,"payload":"{}"}'
    frame = one("bare", f"REPLICATE_SNAPSHOT {TOKEN} payload={snapshot}", "OK")["frames"][0]
    assert (frame["topic"], frame["partition"]) == ("es", 1)


def test_commands_that_brokers_pass_on_count_where_clients_sent_them():
    tables = one("bare", f"PUBLISH {TOKEN} topic=t1 producerId=p1 seqNum=1 message=hi", "OK")
    assert tables["exchanges"][0]["kind"] == "request" and tables["producers"] == []
    line = f"COMMIT_OFFSET {TOKEN} topic=t1 partition=0 group=g offset=4 generation=1 member=m"
    tables = one("bare", line, "OK")
    assert tables["acks"] == [] and tables["exchanges"][0]["outcome"] == "ok"
    assert not is_passed_on(read_line(b"PUBLISH topic=t1 message=hi internal_token=x"))


def test_long_and_broken_json():
    long = b'{"topic":"t1","partition":7,"messages":[' + b"x" * MAX_FORWARDED_JSON_BYTES
    forwarded = read_forwarded(read_line(b"REPLICATE_MESSAGE payload=" + long))
    assert (forwarded.texts, forwarded.numbers) == ({"topic": b"t1"}, {"partition": 7})
    for text in (b"{", b"[1]", b"[" * 100_000, b"{}" * 9, b"x" * (MAX_FORWARDED_JSON_BYTES + 1)):
        assert read_forwarded(read_line(b"RAFT_APPLY payload=" + text)) == NOTHING
    deep = read_forwarded(read_line(b'RAFT_APPLY payload={"a":' + b"[" * 900 + b"]" * 900 + b"}"))
    assert len(json.dumps(shown_value("payload", deep.rest, True))) < 200
    odd = read_forwarded(
        read_line(b'RAFT_APPLY payload={"a":NaN,"token=FAKE":1e999,"auth_token":12}')
    )
    shown = json.dumps(shown_value("payload", odd.rest, True), allow_nan=False)
    assert "FAKE" not in shown and "12}" not in shown


@given(st.binary(max_size=40))
def test_any_bytes_are_survived(noise):
    for word in (b"REPLICATE_MESSAGE", b"RAFT_APPLY type=x"):
        for start in (b"", b'{"messages":[{"Offset":', b'{"topic":'):
            read_forwarded(read_line(word + b" payload=" + start + noise))
    batch_within(read_line(b"INTERNAL_BATCH payload=" + noise))
