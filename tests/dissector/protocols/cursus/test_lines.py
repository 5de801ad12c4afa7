"""Commands: envelopes, both grammars, payloads to the end of the line, and no secret shown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.redaction import cleaned as without_secrets
from dissector.protocols.cursus.commands import NAMES
from dissector.protocols.cursus.lines import (
    POSITIONAL,
    as_json,
    line_detail,
    read_line,
    whole_number,
)
from dissector.protocols.cursus.secrets import holds_token
from tests.wire import cursus


def read(body: bytes):
    line = read_line(body)
    return NAMES[line.command], line


def test_the_vectors():
    name, line = read(cursus.vector("CREATE")[4:])
    assert name == "CREATE" and line.envelope == b"admin"
    assert line.arguments == {b"topic": b"t1", b"partitions": b"1"}
    name, line = read(cursus.vector("METADATA")[4:])
    assert name == "METADATA" and line.envelope == b"" and line.arguments == {b"topic": b"t1"}


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        (b"LIST", "LIST", {}),
        (b"list\r\n", "LIST", {}),
        (b"\0\0  METADATA topic=a", "METADATA", {b"topic": b"a"}),
        (b"METADATA\ttopic=a\r\n", "METADATA", {b"topic": b"a"}),
        (b"\0\0AUTH principal=a token=b", "AUTH", {b"principal": b"a", b"token": b"b"}),
        (b"\0\0CREATE topic=a topic=b", "CREATE", {b"topic": b"b"}),
        (b"\0\0LIST_GROUPS word topic=a", "LIST_GROUPS", {b"topic": b"a"}),
        (b"\0\0FROB x=1", "UNKNOWN", {b"x": b"1"}),
        (b"\0\0", "UNKNOWN", {}),
        (b"FROB x=1", "UNKNOWN", {b"x": b"1"}),
        (b"\0\0SUBSCRIBE topic=a group=g", "SUBSCRIBE", {b"topic": b"a", b"group": b"g"}),
    ],
)
def test_words_and_arguments(body, name, arguments):
    found, line = read(body)
    assert found == name
    assert line.arguments == arguments


def test_a_message_goes_to_the_end_of_the_line():
    body = b"\0\0PUBLISH topic=a acks=-1 producerId=p key=k1 message=a=b message=c d \r\n"
    name, line = read(body)
    assert name == "PUBLISH" and line.arguments[b"key"] == b"k1"
    at, payload = line.payload
    assert payload == b"a=b message=c d" and body[at : at + len(payload)] == payload


def test_commit_lists():
    _, line = read(b"\0\0BATCH_COMMIT topic=a group=g member=m generation=1 P0:11,P1:21")
    assert line.entries == ((0, 11), (1, 21)) and line.number(b"generation") == 1
    _, line = read(b"BATCH_COMMIT topic=a group=g member=m generation=1 0:5")
    assert line.entries == ((0, 5),)
    _, line = read(b"BATCH_COMMIT topic=a group=g member=m generation=1")
    assert line.entries is None and line.number(b"generation") == 1


# The forms of the published document, as a client that believes it would send them.
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("CREATE t 2", {"topic": "t", "partitions": "2"}),
        ("CONSUME t 0 7", {"topic": "t", "partition": "0", "offset": "7"}),
        ("STREAM t 0 7", {"topic": "t", "partition": "0", "offset": "7"}),
        ("SUBSCRIBE t g", {"topic": "t", "group": "g"}),
        ("JOIN_GROUP t g c1", {"topic": "t", "group": "g", "member": "c1"}),
        ("COMMIT t g 0 5", {"topic": "t", "group": "g", "partition": "0", "offset": "5"}),
        (
            "HEARTBEAT t g c1 c1-0001 1",
            {"topic": "t", "group": "g", "member": "c1-0001", "generation": "1"},
        ),
        ("LEAVE_GROUP t g c1", {"topic": "t", "group": "g", "member": "c1"}),
        ("DELETE t", {"topic": "t"}),
    ],
)
def test_arguments_by_position(text, arguments):
    for body in (text.encode(), b"\0\0" + text.encode()):
        _, line = read(body)
        assert line.grammar == POSITIONAL
        assert (
            arguments.items() <= {k.decode(): v.decode() for k, v in line.arguments.items()}.items()
        )
        assert line_detail(line, True)["grammar"] == "positional"


def test_the_discovery_port_has_its_token_by_position():
    name, line = read(b'\0\7clusterAUTH SECRET HEARTBEAT_CLUSTER {"id":"a b"}')
    assert name == "HEARTBEAT_CLUSTER" and line.envelope == b"cluster"
    shown = as_json(line_detail(line, True))
    assert "SECRET" not in shown and '{\\"id\\":\\"a b\\"}' in shown
    name, _ = read(b"\0\7clusterLIST_CLUSTER")
    assert name == "LIST_CLUSTER"


@pytest.mark.parametrize(
    "text",
    [
        "AUTH principal=a token=SECRET",
        "NEGOTIATE version=1 auth_token=SECRET",
        "INTERNAL_BATCH internal_token=SECRET payload=x",
        "TXN_PUBLISH topic=a message=hello principal=p auth_token=SECRET",
        "FROB token=SECRET",
        "CREATE topic=a TOKEN=SECRET",
        'JOIN_CLUSTER {"token":"SECRET","id":1}',
        "AUTH SECRET JOIN_CLUSTER {}",
    ],
)
def test_secrets_are_never_shown(text):
    for body in (text.encode(), b"\0\0" + text.encode()):
        _, line = read(body)
        for is_full in (False, True):
            assert "SECRET" not in (as_json(line_detail(line, True, is_full)) or "")
    assert b"SECRET" not in without_secrets(text.encode())


def test_credentials_behind_a_message_are_found():
    assert holds_token(b"hello principal=p auth_token=FAKE")
    assert holds_token(b"token=x")
    assert not holds_token(b"hello token= x")
    assert not holds_token(b"broken=x")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_line(body):
    line = read_line(body)
    json.loads(as_json(line_detail(line, True, True)) or "{}")


@given(st.binary(max_size=30))
def test_whole_numbers_fit_in_64_bits(text):
    number = whole_number(text)
    assert number is None or -(1 << 63) < number < 1 << 63


def test_whole_numbers():
    assert whole_number(b"-5") == -5
    for text in (b"", b"-", b"1.5", b"9" * 20, b"\xc2\xb2", None):
        assert whole_number(text) is None
