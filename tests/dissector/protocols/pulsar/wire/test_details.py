"""Decoded detail: complete, bounded, tolerant, and without secrets."""

import gc
import json
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.names import NameTable
from dissector.limits import MAX_DETAIL_ITEMS, MAX_DETAIL_TEXT
from dissector.protocols.columns import CUT_BY_SNAPLEN
from dissector.protocols.pulsar.wire.details import (
    clean_details,
    commands_of,
    details_of,
    full,
    parse,
    rare_details,
)
from dissector.protocols.pulsar.wire.fields import FieldDecoder
from tests.wire import pulsar
from tests.wire.blocks import block_of, cut
from tests.wire.pcaps import pulsar_frames

CAPTURES = Path(__file__).resolve().parents[5] / "captures" / "pulsar-apache"


def details(frames: list[bytes], redact: bool = True) -> list[tuple[Any, Any]]:
    """detail and full of every frame, as Python values."""
    columns, sources = block_of(frames)
    FieldDecoder(NameTable(1000, 100_000), 0).decode(columns, len(frames), sources)
    rows = np.arange(len(frames))
    rare = rare_details(columns, rows, sources, redact) or [None] * len(frames)
    whole = [full(columns, row, sources, redact) for row in rows.tolist()]
    return [
        tuple(None if text is None else json.loads(text) for text in texts)
        for texts in zip(rare, whole, strict=True)
    ]


def detail_of(name: str, redact: bool = True, **fields: Any) -> Any:
    return details([pulsar.simple(pulsar.command(name, **fields))], redact)[0][0]


def test_detail_says_what_no_column_says() -> None:
    detail = detail_of(
        "SUBSCRIBE", topic="t", subscription="s", subType="Key_Shared", consumer_id=1, request_id=2,
        durable=True, read_compacted=True, metadata=[{"key": "app", "value": "shop"}],
        keySharedMeta={"keySharedMode": "STICKY", "hashRanges": [{"start": 0, "end": 99}]},
        schema={"name": "x", "schema_data": b'{"type":"string"}', "type": "Json"},
    )  # fmt: skip
    assert detail == {
        "subType": "Key_Shared",
        "durable": True,
        "read_compacted": True,
        "metadata": {"app": "shop"},
        "keySharedMeta": {"keySharedMode": "STICKY", "hashRanges": [{"start": 0, "end": 99}]},
        "schema": {"name": "x", "schema_data": '{"type":"string"}', "type": "Json"},
    }


def test_what_has_a_column_is_not_repeated() -> None:
    assert detail_of("LOOKUP", topic="t", request_id=5) is None
    assert detail_of("ERROR", request_id=5, error="UnknownError", message="no") is None
    ids = [{"ledgerId": 1, "entryId": 2}]
    assert detail_of("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=ids) is None


@pytest.mark.parametrize("name", pulsar.VECTORS)
def test_frequent_commands_have_full_detail_only(name: str) -> None:
    shown, everything = details([pulsar.vector(name)])[0]
    assert shown is None
    assert everything["command"]["type"] == name


def test_full_shows_all_parts_of_a_frame_and_signed_ids() -> None:
    (_, message), (_, receipt) = details([pulsar.vector("MESSAGE"), pulsar.vector("SEND_RECEIPT")])
    assert message == {
        "command": {
            "type": "MESSAGE",
            "message": {"consumer_id": 1, "message_id": {"ledgerId": 5, "entryId": 7}},
        },
        "broker_entry": {"broker_timestamp": 1000, "index": 42},
        "metadata": {"producer_name": "p", "sequence_id": 0, "publish_time": 1},
    }
    assert receipt["command"]["send_receipt"]["message_id"] == {"ledgerId": -1, "entryId": -1}


SECRET = "s3cr3t-Zq9"
SECRET_FRAMES = [
    ("CONNECT", {"client_version": "x", "auth_method_name": "token", "auth_data": SECRET.encode(),
                 "original_auth_data": SECRET, "original_principal": SECRET}),
    ("AUTH_RESPONSE", {"response": {"auth_method_name": "token", "auth_data": SECRET.encode()}}),
    ("AUTH_CHALLENGE", {"challenge": {"auth_method_name": "token", "auth_data": SECRET.encode()}}),
    ("LOOKUP", {"topic": "t", "request_id": 1, "original_auth_data": SECRET}),
    ("PARTITIONED_METADATA", {"topic": "t", "request_id": 1, "original_auth_data": SECRET}),
    ("PRODUCER", {"topic": "t", "metadata": [{"key": "db-password", "value": SECRET}]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields"), SECRET_FRAMES, ids=[name for name, _ in SECRET_FRAMES])
def test_secrets_are_replaced_by_their_length(name: str, fields: dict[str, Any]) -> None:
    frame = pulsar.simple(pulsar.command(name, **fields))
    hidden = json.dumps(details([frame]))
    assert SECRET not in hidden and SECRET.encode().hex() not in hidden
    assert f"<redacted: {len(SECRET)} bytes>" in hidden
    shown = json.dumps(details([frame], redact=False))
    assert SECRET in shown or SECRET.encode().hex() in shown


def test_secrets_are_hidden_and_shown_by_turns_and_never_remembered() -> None:
    """What is remembered of frames whose secrets are hidden is not taken where they are shown."""
    frames = [pulsar.simple(pulsar.command(name, **fields)) for name, fields in SECRET_FRAMES]
    hidden, shown = details(frames), details(frames, redact=False)
    assert (details(frames), details(frames, redact=False)) == (hidden, shown)
    kept = clean_details.kept()
    texts = json.dumps([text for text in kept.values() if text is not None])
    for secret in (SECRET, SECRET.encode().hex()):
        assert secret in json.dumps(shown) and secret not in json.dumps(hidden)
        assert secret not in texts
    assert not any(SECRET.encode() in key for key in kept)


def test_the_method_of_authentication_stays() -> None:
    detail = detail_of("CONNECT", client_version="v", auth_method_name="token", auth_data=b"abc")
    assert detail["auth_method_name"] == "token" and detail["auth_data"] == "<redacted: 3 bytes>"


def test_encryption_keys_are_secret_too() -> None:
    fields = {"encryption_keys": [{"key": "k1", "value": SECRET.encode()}]}
    _, full = details([pulsar.send(metadata_fields=fields)])[0]
    assert full["metadata"]["encryption_keys"] == [{"key": "k1", "value": "<redacted: 10 bytes>"}]


def test_long_lists_and_texts_are_cut_in_the_column_and_whole_on_demand() -> None:
    count = MAX_DETAIL_ITEMS + 5
    frame = pulsar.simple(
        pulsar.command(
            "GET_TOPICS_OF_NAMESPACE_RESPONSE", request_id=1,
            topics=[f"t{k}" for k in range(count)],
            topics_hash="h" * (MAX_DETAIL_TEXT + 3),
        )
    )  # fmt: skip
    shown, everything = details([frame])[0]
    assert len(shown["topics"]) == MAX_DETAIL_ITEMS + 1 and shown["topics"][-1] == "<5 more>"
    assert shown["topics_hash"].endswith("h<3 more>")
    whole = everything["command"]["getTopicsOfNamespaceResponse"]
    assert len(whole["topics"]) == count and len(whole["topics_hash"]) == MAX_DETAIL_TEXT + 3


def test_text_that_is_no_utf8_and_missing_required_fields_are_fine() -> None:
    body = b"\x1a\x03a\xffb"
    command = bytes([8, 14, 0x72, len(body)]) + body
    _, full = details([pulsar.simple(command)])[0]
    assert full["command"]["error"] == {"message": "a\\xffb"}


def test_what_is_not_a_number_is_text_in_json() -> None:
    detail = detail_of("CONSUMER_STATS_RESPONSE", request_id=1, msgRateOut=float("nan"))
    assert detail == {"msgRateOut": "nan"}


def test_a_cut_frame_tells_its_whole_parts() -> None:
    frame = pulsar.send()
    columns, sources = block_of([frame])
    cut(columns, 0, 20, CUT_BY_SNAPLEN)
    FieldDecoder(NameTable(10, 100), 0).decode(columns, 1, sources)
    found = json.loads(full(columns, 0, sources) or "{}")
    assert found == {"command": {"type": "SEND", "send": {"producer_id": 1, "sequence_id": 0}}}


@pytest.mark.parametrize("name", ["java-j24_unload.pcap", "cpp-c41_unload.pcap"])
def test_what_is_remembered_is_what_would_be_said_anew(name: str) -> None:
    frames = [f for each in pulsar_frames(CAPTURES / name) for f in each]
    columns, sources = block_of(frames)
    commands = [command for _, command in commands_of(columns, np.arange(len(frames)), sources)]
    anew = [details_of([command], redact=True)[0] for command in commands]
    for _ in range(2):
        assert clean_details.all_of(commands) == anew


def test_long_texts_are_not_remembered() -> None:
    frame = pulsar.command("CONNECT", client_version="v" * 600)
    assert "v" * 600 in str(clean_details(frame))
    assert not any(text and len(text) > 512 for text in clean_details.kept().values())


def test_details_stay_with_their_rows_where_frames_between_are_cut() -> None:
    names = ("a", "b", "c")
    frames = [pulsar.simple(pulsar.command("CONNECT", client_version=name)) for name in names]
    columns, sources = block_of(frames)
    FieldDecoder(NameTable(10, 100), 0).decode(columns, 3, sources)
    cut(columns, 1, 6, CUT_BY_SNAPLEN)
    assert rare_details(columns, np.array([2, 1, 0]), sources, True) == [
        '{"client_version":"c"}', None, '{"client_version":"a"}'
    ]  # fmt: skip


def test_real_traffic_has_detail_for_rare_commands_only() -> None:
    frames = [f for each in pulsar_frames(CAPTURES / "java-j24_unload.pcap") for f in each]
    start = time.process_time()
    found = details(frames)
    assert (time.process_time() - start) / len(frames) < 0.002
    assert all(everything is not None for _, everything in found)
    kinds = {everything["command"]["type"] for rare, everything in found if rare is not None}
    assert {"CONNECT", "CONNECTED", "PRODUCER", "SUBSCRIBE"}.issubset(kinds)
    assert not kinds & {"SEND", "SEND_RECEIPT", "MESSAGE", "ACK", "FLOW", "PING", "PONG"}


@given(st.binary(min_size=1, max_size=80), st.sampled_from([2, 4, 5, 9, 33, 36]))
@settings(max_examples=200)
def test_noise_never_raises(noise: bytes, number: int) -> None:
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])
    command = bytes([8, number]) + head + bytes([len(noise)]) + noise
    details([pulsar.simple(command), pulsar.simple(command + noise)])


def test_classes_of_inner_messages_live_as_long_as_the_process() -> None:
    """Classes that come and go under threads that read messages have crashed a process."""
    message: Any = parse("BaseCommand", b"")
    first = weakref.ref(type(message.connect.feature_flags))
    del message
    gc.collect()
    assert first() is not None
