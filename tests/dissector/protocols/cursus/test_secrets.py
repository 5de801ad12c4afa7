"""Tokens of Cursus never come out: whatever carries them, however it is cut, lost or refused."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dissector.codecs.redaction import cleaned as without_secrets
from dissector.codecs.redaction import hidden
from dissector.protocols.cursus.secrets import holds_token
from tests.dissector.protocols.cursus.dialogue import Dialogue
from tests.dissector.protocols.cursus.test_forwarded import passed_on
from tests.hard.tape import capture, dissected
from tests.wire import cursus

SECRET = "S3cr3tW0rd"

TEXTS = (
    f"AUTH principal=a token={SECRET}",
    f"AUTH alice {SECRET}",
    f"auth {SECRET}",
    f"NEGOTIATE version=1 auth_token={SECRET} features=x",
    f"METADATA internal_token={SECRET} topic=t1",
    f"LIST_OFFSETS topic=t1 principal=a auth_token={SECRET}",
    f"TXN_PUBLISH topic=t1 producerId=p1 seqNum=1 message=hello principal=a auth_token={SECRET}",
    f"PUBLISH topic=t1 producerId=p1 message=token={SECRET}",
    f'APPEND_STREAM topic=t1 key=k version=1 metadata={{"token":"{SECRET}"}} message=m',
    f'AUTH {SECRET} HEARTBEAT_CLUSTER {{"id":"b1"}}',
    f'JOIN_CLUSTER {{"id":"b1","auth_token":"{SECRET},{SECRET}"}}',
    f'RAFT_APPLY internal_token={SECRET} type=x payload={{"token":"{SECRET}","a":1}}',
    f"FROB token={SECRET} x=1",
    f"token={SECRET}",
    f'LIST token="{SECRET} {SECRET}"',
    f"LIST token={SECRET},{SECRET}'{SECRET}}}{SECRET}",
)
ANSWERS = (
    "OK",
    f'ERROR: unknown_command command="LIST token={SECRET}"',
    f'ERROR: unknown_command command="AUTH {SECRET} LIST_CLUSTER"',
    f"ERROR: no such thing: auth_token={SECRET},{SECRET}",
    f'{{"status":"ERROR","error":"bad internal_token={SECRET}","token":"{SECRET}"}}',
    f'OK snapshot={{"payload":"{{\\"token\\":\\"{SECRET}\\"}}"}}',
    f"OK principal=a token={SECRET}",
    f"STREAM_CONTROL type=CLOSE reason=token={SECRET} offset=3",
    f"free text of old versions token={SECRET}",
)


def records_with_token(count: int) -> list[cursus.Record]:
    return cursus.records(count, payload=f"x principal=a auth_token={SECRET}".encode())


def dialogue_with(frame: bytes, answer: str) -> Dialogue:
    dialogue = Dialogue()
    dialogue.open()
    dialogue.ask(0, "METADATA topic=t1", "OK topic=t1 partitions=1")
    dialogue.ask(0, frame, answer)
    dialogue.ask(0, "LIST", "OK count=0 topics=")
    dialogue.close(0)
    return dialogue


def assert_hidden(tables) -> None:
    text = json.dumps(tables, default=str)
    assert SECRET not in text and SECRET[:5] not in text and SECRET[-5:] not in text


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("is_bare", [True, False])
def test_no_form_of_a_command_shows_its_token(text, is_bare):
    frame = cursus.bare(text) if is_bare else cursus.enveloped(text)
    assert_hidden(dialogue_with(frame, ANSWERS[len(text) % len(ANSWERS)]).rows())


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(ANSWERS),
    st.integers(0, 200),
    st.sampled_from(["cut", "lost", "late", "damaged", "whole"]),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_no_damage_brings_a_token_out(text, answer, at, what):
    dialogue = dialogue_with(cursus.enveloped(text), answer)
    records = dialogue.records()
    at %= len(records)
    if what == "cut":
        records = [each._replace(data=each.data[: 54 + at]) for each in records]
    elif what == "lost":
        records = records[:at] + records[at + 1 :]
    elif what == "late":
        records = records[at:]
    elif what == "damaged":
        data = bytearray(records[at].data)
        data[len(data) // 2] ^= 0x20
        records[at] = records[at]._replace(data=bytes(data))
    assert_hidden(dissected(capture(records)))


def test_tokens_in_records_and_in_what_brokers_pass_on():
    body = cursus.batch_body(records_with_token(2))
    for frame in (cursus.frame(body), cursus.bare(passed_on(body))):
        tables = dialogue_with(frame, cursus.ack(1, 1, 2)).rows()
        assert_hidden(tables)
        assert len(tables["messages"]) == 2


@given(st.text("ab\\\"'{}=,. tokenAUTH_", max_size=40))
def test_hiding_ends_and_changes_nothing_else(text):
    shown = without_secrets(text.encode())
    if "token" not in text.lower() and "auth" not in text.lower():
        assert shown == text.encode()
    assert without_secrets(b"topic=a " + text.encode()).startswith(b"topic=a ")


def test_what_stands_for_a_secret_tells_its_size():
    assert without_secrets(b"token=abc x=1") == b"token=" + hidden(3) + b" x=1"
    assert re.search(rb"x=1$", without_secrets(b'auth_token="a b" x=1'))
    assert holds_token(b"m auth_token=x") and not holds_token(b"mytoken=x")
