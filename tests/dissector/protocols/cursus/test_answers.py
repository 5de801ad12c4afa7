"""Answers: fields of OK lines, codes of errors, acks, stream control, texts of older versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.cursus.answers import Ack, answer_detail, read_answer
from dissector.protocols.cursus.commands import NAMES
from tests.wire import cursus


def test_the_vectors():
    ack = read_answer(cursus.vector("ack")[4:])
    assert NAMES[ack.command] == "RESPONSE_JSON" and ack.ack == Ack(0, 7, b"p1", 1, 1)
    close = read_answer(cursus.vector("close")[4:])
    assert NAMES[close.command] == "STREAM_CONTROL"
    assert close.fields == {"type": b"CLOSE", "reason": b"replaced", "offset": b"3"}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"OK", {}),
        (b"OK offset=12", {"offset": b"12"}),
        (
            b"OK generation=2 member=c-1 assignments=[0 1 2] resumed=true",
            {
                "generation": b"2",
                "member": b"c-1",
                "assignments": b"[0 1 2]",
                "resumed": b"true",
            },
        ),
        (b"OK generation=1 member=m assignments=[0,1]", {"assignments": b"[0,1]"}),
        (b"OK topic=a read_acl= write_acl=", {"read_acl": b"", "write_acl": b""}),
        (b'OK snapshot={"total": 3, "note": "a b"}', {"snapshot": b'{"total": 3, "note": "a b"}'}),
        (b"OK snapshot=null", {"snapshot": b"null"}),
        (b'OK cluster={"raft": "x y"}', {"cluster": b'{"raft": "x y"}'}),
    ],
)
def test_fields_of_ok(body, fields):
    answer = read_answer(body)
    assert NAMES[answer.command] == "RESPONSE_OK" and not answer.is_error
    assert fields.items() <= answer.fields.items()


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"ERROR: topic_not_found topic=nope", "topic_not_found", b"topic=nope"),
        (b"ERROR topic_not_found", "topic_not_found", None),
        (
            b"ERROR: GEN_MISMATCH class=fencing retryable=false current=2 requested=1",
            "GEN_MISMATCH",
            b"class=fencing retryable=false current=2 requested=1",
        ),
        (b"ERROR: NOT_LEADER LEADER_IS h:9000", "NOT_LEADER", b"LEADER_IS h:9000"),
        (
            b'ERROR: broker_error reason="x: ERROR: topic_not_found topic=b"',
            "broker_error",
            b'reason="x: ERROR: topic_not_found topic=b"',
        ),
        (b"ERROR: no offset found", None, b"no offset found"),
        (b"ERROR: topic 'x' does not exist", None, b"topic 'x' does not exist"),
    ],
)
def test_errors(body, code, text):
    answer = read_answer(body)
    assert NAMES[answer.command] == "RESPONSE_ERROR" and answer.is_error
    assert (answer.error_code, answer.error_text) == (code, text)


def test_errors_in_json():
    answer = read_answer(b'{"error":"event_sourcing_not_enabled topic=t1","status":"ERROR"}')
    assert answer.is_error and answer.error_code == "event_sourcing_not_enabled"
    assert answer.error_text == b"topic=t1"
    answer = read_answer(b'{"success":false,"leader":"h:1","error":"not the leader"}')
    assert answer.is_error and answer.error_code is None
    assert answer.error_text == b"not the leader"
    answer = read_answer(
        b'{"status":"ERROR","last_offset":0,"producer_epoch":0,"producer_id":"p","seq_start":1,'
        b'"seq_end":2,"leader":"","error":"disk_full now"}'
    )
    assert answer.is_error and answer.error_code == "disk_full" and answer.ack.seq_end == 2


def test_acks_in_any_order_of_keys():
    quick = read_answer(cursus.ack(41, 1, 9)[4:])
    slow = read_answer(
        b'{ "seq_end": 9, "seq_start": 1, "producer_id": "p1", "producer_epoch": 7,'
        b' "last_offset": 41, "status": "OK", "leader": "h:9001", "error": "" }'
    )
    assert quick.ack == slow.ack == Ack(41, 7, b"p1", 1, 9)
    assert not slow.is_error and answer_detail(slow, True) == {"leader": "h:9001", "error": ""}
    leader = read_answer(
        b'{"status":"OK","last_offset":0,"producer_epoch":0,"producer_id":"p","seq_start":0,'
        b'"seq_end":0,"leader":"10.88.0.1:9001"}'
    )
    assert leader.ack is not None and leader.fields == {"leader": b"10.88.0.1:9001"}


@pytest.mark.parametrize("text", ["✅ Topic 'x' created", "0", "a, b", "NOT_AUTHORIZED t:1"])
def test_free_text_of_old_brokers_is_an_answer(text):
    answer = read_answer(text.encode())
    assert NAMES[answer.command] == "RESPONSE_OK" and answer.is_legacy and not answer.is_error
    assert answer_detail(answer, True) == {"grammar": "legacy_text", "text": text}


def test_secrets_in_answers_are_hidden():
    for body in (
        b'ERROR: unknown_command command="LIST token=SECRET"',
        b'{"status":"OK","auth_token":"SECRET","members":[{"token":"SECRET"}]}',
        b"OK token=SECRET",
    ):
        answer = read_answer(body)
        assert "SECRET" not in repr(answer_detail(answer, True, True))


@given(st.binary(max_size=80))
def test_any_bytes_are_an_answer(body):
    answer_detail(read_answer(body), True, True)
    answer_detail(read_answer(b"{" + body), True, True)
    answer_detail(read_answer(b"OK " + body), True, True)
