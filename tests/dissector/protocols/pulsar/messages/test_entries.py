"""The table messages: every codec, chunks, encryption, real traffic against its clients' logs."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.compression import UnpackResult
from dissector.dissection import Options
from dissector.jit import compiled
from dissector.limits import MAX_BATCH_MESSAGES, MAX_ENTRY_BYTES
from dissector.notices import NOTICES
from dissector.protocols.pulsar.messages import entries
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.codecs.test_compression import unfinished_zlib
from tests.naive.messages import messages_of
from tests.plain import rows_of_block
from tests.wire import pulsar
from tests.wire.messages import Opened
from tests.wire.pcaps import pulsar_frames

CAPTURES = Path(__file__).resolve().parents[5] / "captures"
EXAMPLES = 60 if compiled() else 10


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "NONE": bytes,
    "LZ4": lambda plain: lz4.block.compress(plain, store_size=False),
    "ZLIB": unfinished_zlib,
    "ZSTD": zstandard.ZstdCompressor().compress,
    "SNAPPY": lambda plain: bytes(cramjam.snappy.compress_raw(plain)),
}
ITEMS: list[tuple[dict[str, Any], bytes]] = [
    ({"partition_key": "k", "properties": [{"key": "a", "value": "1"}]}, b"one " * 30),
    ({"sequence_id": 9, "properties": [{"key": "token", "value": "\xe9"}]}, b""),
    ({}, b"three"),
]


def packed(codec: str, plain: bytes, **metadata: Any) -> bytes:
    """A SEND whose payload is compressed."""
    fields = {"compression": codec, "uncompressed_size": len(plain), **metadata}
    return pulsar.send(CODECS[codec](plain), metadata_fields=fields)


def all_of(frames: list[bytes]) -> Opened:
    return Opened(properties=True, payload_sha256=True).add(frames)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_opened(codec: str) -> None:
    batch = pulsar.batch(ITEMS)
    frames = [
        packed(codec, batch, num_messages_in_batch=3),
        packed(codec, b"one message alone " * 9, partition_key="x"),
        packed(codec, pulsar.batch(ITEMS[:1]), num_messages_in_batch=1),
        packed(codec, b""),
    ]
    opened = all_of(frames)
    assert opened.rows == messages_of(frames) and len(opened.rows) == 6
    assert not opened.notices()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(CODECS)),
            st.lists(st.binary(max_size=60), min_size=1, max_size=4),
            st.sampled_from(["batch", "single", "chunks"]),
        ),
        max_size=6,
    ),
    st.sampled_from([0, 100, 1 << 20]),
)
@settings(max_examples=EXAMPLES)
def test_mixed_entries_with_all_that_can_be_asked_for(
    given_entries: list[Any], at_once: int
) -> None:
    """However many compressed batches are opened before the kernel goes on."""
    frames = []
    for number, (codec, payloads, kind) in enumerate(given_entries):
        if kind == "batch":
            batch = pulsar.batch([({}, payload) for payload in payloads])
            frames.append(packed(codec, batch, num_messages_in_batch=len(payloads)))
        elif kind == "single":
            frames.append(packed(codec, payloads[0]))
        else:
            plain = b"".join(payloads)
            data = CODECS[codec](plain)
            fields = {
                "compression": codec, "uncompressed_size": len(plain), "uuid": str(number),
                "num_chunks_from_msg": 2, "total_chunk_msg_size": len(data),
            }  # fmt: skip
            for chunk_id, piece in enumerate((data[:7], data[7:])):
                fields["chunk_id"] = chunk_id
                frames.append(pulsar.send(piece, metadata_fields=fields))
    with patch.object(entries, "_AT_ONCE_BYTES", at_once):
        found = all_of(frames).finish()
    assert found.rows == messages_of(frames)
    assert not found.notices()


def test_what_was_not_asked_for_is_not_there() -> None:
    rows = Opened().add([packed("LZ4", pulsar.batch(ITEMS), num_messages_in_batch=3)]).rows
    assert len(rows) == 3
    assert not any({"properties", "payload_sha256"} & row.keys() for row in rows)


def test_properties_that_sound_like_secrets_are_hidden_unless_told_otherwise() -> None:
    frames = [
        packed("NONE", pulsar.batch(ITEMS), num_messages_in_batch=3),
        pulsar.send(metadata_fields={"properties": [{"key": "db.password", "value": "hunter2"}]}),
    ]
    hidden = Opened(properties=True, redact=True).add(frames).rows
    assert [row["properties"] for row in hidden] == [
        {"a": "1"},
        {"token": "<redacted: 2 bytes>"},
        {},
        {"db.password": "<redacted: 7 bytes>"},
    ]
    shown = Opened(properties=True).add(frames).rows
    assert shown[3]["properties"] == {"db.password": "hunter2"}


DAMAGED = {
    "too large": (
        packed("ZSTD", pulsar.batch(ITEMS), num_messages_in_batch=3,
               uncompressed_size=MAX_ENTRY_BYTES + 1),
        UnpackResult.TOO_LARGE,
    ),
    "larger than announced": (
        packed("ZLIB", pulsar.batch(ITEMS), num_messages_in_batch=3, uncompressed_size=20),
        UnpackResult.WRONG_SIZE,
    ),
    "smaller than announced": (
        packed("ZSTD", pulsar.batch(ITEMS), num_messages_in_batch=3, uncompressed_size=4000),
        UnpackResult.WRONG_SIZE,
    ),
    "corrupt": (
        pulsar.send(b"\xff" * 40, metadata_fields={"compression": "ZSTD", "uncompressed_size": 9,
                                                   "num_messages_in_batch": 3}),
        UnpackResult.CORRUPT,
    ),
    "too many": (
        pulsar.send(b"x", metadata_fields={"num_messages_in_batch": MAX_BATCH_MESSAGES + 1}),
        UnpackResult.TOO_LARGE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_batch_that_cannot_be_opened_is_one_notice_and_no_rows(damage: str) -> None:
    frame, reason = DAMAGED[damage]
    opened = all_of([pulsar.send(), frame, packed("LZ4", b"next")])
    assert [row["frame_no"] for row in opened.rows] == [1, 3]
    (notice,) = opened.drained()
    assert NOTICES[notice.kind].code == "entry_not_opened"
    assert (notice.frame_no, notice.value) == (2, reason)


@pytest.mark.parametrize("at_once", [0, 1 << 20], ids=["one by one", "all at once"])
def test_batches_that_cannot_be_opened_leave_their_neighbours_alone(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_AT_ONCE_BYTES", at_once)
    batch = packed("LZ4", pulsar.batch(ITEMS), num_messages_in_batch=3)
    bad = [
        frame
        for frame, reason in DAMAGED.values()
        if reason in (UnpackResult.CORRUPT, UnpackResult.WRONG_SIZE)
    ]
    opened = all_of([each for frame in bad for each in (batch, frame)] + [batch])
    frame_numbers = [2 * number + 1 for number in range(len(bad) + 1)]
    assert [row["frame_no"] for row in opened.rows] == [
        number for number in frame_numbers for _ in ITEMS
    ]
    assert opened.notices() == [("entry_not_opened", number + 1) for number in frame_numbers[:-1]]


def test_what_is_announced_takes_no_memory() -> None:
    """Sizes up to 2^32 are announced by whoever likes to."""
    lies = [
        pulsar.send(b"x", metadata_fields={
            "compression": "LZ4", "uncompressed_size": size, "num_messages_in_batch": 1,
        })
        for size in ((1 << 32) - 1, MAX_ENTRY_BYTES + 1, MAX_ENTRY_BYTES)
    ]  # fmt: skip
    opened = all_of(lies * 20)
    assert [notice.value for notice in opened.drained()] == [
        UnpackResult.TOO_LARGE,
        UnpackResult.TOO_LARGE,
        UnpackResult.CORRUPT,
    ] * 20
    assert len(opened.entries._decompressor.buffer) <= MAX_ENTRY_BYTES + 100


def test_a_codec_of_the_future_is_a_notice() -> None:
    """The library drops numbers that it has no name for, so the tag is written by hand."""
    metadata = pulsar.metadata(num_messages_in_batch=1) + b"\x40\x63"
    frame = pulsar.entry(pulsar.command("SEND", producer_id=1, sequence_id=0), metadata, b"x")
    opened = Opened().add([frame])
    (notice,) = opened.drained()
    assert not opened.rows and notice.value == UnpackResult.UNKNOWN_CODEC


def test_what_is_encrypted_is_named_and_not_opened() -> None:
    keys = [{"key": "k1", "value": b"wrapped"}]
    frames = [
        pulsar.send(b"secret", metadata_fields={"encryption_keys": keys, "partition_key": "p"}),
        pulsar.send(
            b"x" * 7, metadata_fields={"encryption_keys": keys, "num_messages_in_batch": 7}
        ),
    ]
    opened = all_of(frames)
    assert opened.rows == messages_of(frames)
    assert [(row["partition_key"], row.get("payload_bytes")) for row in opened.rows] == [
        ("p", None)
    ]
    (notice,) = opened.drained()
    assert (NOTICES[notice.kind].code, notice.frame_no, notice.value) == ("encrypted_batch", 2, 7)


def test_a_message_that_lacks_a_chunk_has_no_row() -> None:
    fields = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 6}
    frames = [
        pulsar.send(b"ab", metadata_fields={**fields, "chunk_id": number}) for number in (0, 2)
    ]
    found = Opened().add(frames).finish()
    assert not found.rows and found.notices() == [("chunk_missing", 2)]
    found = Opened().add(frames[:1]).finish()
    assert not found.rows and found.notices() == [("chunk_missing", 1)]


def test_broker_entry_metadata_is_stepped_over() -> None:
    frames = [pulsar.vector("MESSAGE")]
    assert all_of(frames).rows == messages_of(frames)


def test_more_messages_than_fit_at_once() -> None:
    batch = pulsar.batch([({"partition_key": f"key {k}"}, b"%d" % k) for k in range(20_000)])
    frames = [
        packed("LZ4", batch, num_messages_in_batch=20_000),
        pulsar.send(batch, metadata_fields={"num_messages_in_batch": 20_000}),
        pulsar.send(),
    ]
    assert Opened().add(frames).rows == [
        {name: value for name, value in row.items() if name not in ("properties", "payload_sha256")}
        for row in messages_of(frames)
    ]


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), (2, 3, 5, 6)], ids=str)
def test_however_the_frames_are_cut_into_blocks(cuts: tuple[int, ...]) -> None:
    fields = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 4}
    frames = [
        packed("LZ4", pulsar.batch(ITEMS), num_messages_in_batch=3),
        *(pulsar.send(b"ab", metadata_fields={**fields, "chunk_id": k}) for k in (0, 1)),
        packed("ZSTD", pulsar.batch(ITEMS), num_messages_in_batch=3),
        packed("SNAPPY", b"alone"),
        pulsar.send(),
        packed("ZLIB", pulsar.batch(ITEMS[1:]), num_messages_in_batch=2),
    ]
    found = Opened(properties=True, payload_sha256=True)
    for start, stop in pairwise([0, *cuts, len(frames)]):
        found.add(frames[start:stop])
    assert found.rows == messages_of(frames)


FILES = (
    "pulsar/cpp-s03_batch_zstd.pcap",
    "pulsar/cpp-s04_single_compressed.pcap",
    "pulsar-apache/go-g02_batch_zstd-bem.pcap",
    "pulsar-apache/java-j03_batch_lz4.pcap",
    "pulsar-apache/java-j03_batch_zlib.pcap",
    "pulsar-apache/java-j05_chunk64k_zstd.pcap.gz",
    "pulsar-apache/java-j07_keys.pcap",
    "pulsar-apache/java-j28_compaction.pcap",
    "pulsar-apache/java-j32_encryption.pcap",
    "pulsar-apache/java-j74_corrupt.pcap",
)


@pytest.mark.parametrize("name", FILES)
def test_real_entries_read_as_protobuf_objects(name: str) -> None:
    total = 0
    for frames in pulsar_frames(CAPTURES / name):
        opened = all_of(frames)
        assert opened.rows == messages_of(frames)
        total += len(opened.rows)
    assert total


@cache
def tables_of(name: str) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {}
    (chain,) = chains([str(CAPTURES / "pulsar-apache" / name)]).chains
    for block in dissect(chain, Options()):
        tables.setdefault(block.table, []).extend(rows_of_block(block))
    return tables


def log_of(name: str) -> list[dict[str, Any]]:
    path = CAPTURES / "pulsar-apache" / f"{name}.events.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def position_of(message_id: str) -> tuple[int, ...]:
    """Ledger, entry and index in the batch (-1: none) of an id as clients write it."""
    parts = [int(part) for part in message_id.split(";")[-1].split(":")]
    return parts[0], parts[1], parts[3] if len(parts) == 4 else -1


LOGGED = {
    "go-g02_batch_zstd-bem": "go-g02_batch_zstd-bem.pcap",
    "java-j03_batch_lz4": "java-j03_batch_lz4.pcap",
    "java-j03_batch_zlib": "java-j03_batch_zlib.pcap",
    "java-j05_chunk64k_zstd": "java-j05_chunk64k_zstd.pcap.gz",
    "java-j07_keys": "java-j07_keys.pcap",
    "java-j12_nack": "java-j12_nack.pcap",
    "cpp-s30_latency_mix-wireloss": "cpp-s30_latency_mix-wireloss.pcap.gz",
}


@pytest.mark.parametrize("name", LOGGED)
def test_messages_are_those_that_the_clients_saw(name: str) -> None:
    """Number, topic, producer, sequence id, key and size of every message sent and received."""
    rows = tables_of(LOGGED[name])["messages"]
    sends = [each for each in log_of(name) if each["ev"] == "send" and not each.get("err")]
    sent = [row for row in rows if row["direction"] == "to_broker"]
    shown = ("topic", "producer_name", "sequence_id", "partition_key", "payload_bytes")
    logged = ("topic", "producer", "seq", "key", "len")
    known = [
        (here, there)
        for here, there in zip(shown, logged, strict=True)
        if any(there in each for each in sends)
    ]
    assert Counter(tuple(row[here] for here, _ in known) for row in sent) == Counter(
        tuple(each.get(there) for _, there in known) for each in sends
    )
    received = [each for each in log_of(name) if each["ev"] == "recv"]
    delivered: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["direction"] == "to_client":
            index = row["batch_index"] if row["batch_index"] is not None else -1
            delivered.setdefault((row["ledger_id"], row["entry_id"], index), []).append(row)
    assert len(received) == sum(map(len, delivered.values()))
    for event in received:
        found = [
            row
            for row in delivered[position_of(event["mid"])]
            if row["redelivery_count"] == event["redelivery_count"]
        ]
        assert found
        for row in found:
            assert row["topic"] == event["topic"]
            assert row["partition_key"] == event.get("key")
            assert row["payload_bytes"] == event["len"]
            assert row["producer_name"] == event["producer"]


def test_a_damaged_entry_has_no_messages() -> None:
    tables = tables_of("java-j74_corrupt.pcap")
    damaged = {row["frame_no"] for row in tables["frames"] if row["checksum"] == "mismatch"}
    assert damaged and not damaged & {row["frame_no"] for row in tables["messages"]}


def test_compaction_leaves_the_last_message_of_each_key() -> None:
    received = [each for each in log_of("java-j28_compaction") if each["ev"] == "recv"]
    rows = tables_of("java-j28_compaction.pcap")["messages"]
    delivered = {
        (row["ledger_id"], row["entry_id"], row["batch_index"]): row
        for row in rows
        if row["direction"] == "to_client" and not row["is_compacted_out"]
    }
    for event in received:
        ledger, entry, index = position_of(event["mid"])
        row = delivered[ledger, entry, None if index < 0 else index]
        assert (row["partition_key"], row["payload_bytes"]) == (event["key"], event["len"])


def test_encrypted_traffic_is_named_message_by_message_but_for_batches() -> None:
    tables = tables_of("java-j32_encryption.pcap")
    rows = [row for row in tables["messages"] if row["direction"] == "to_broker"]
    batches = {
        row["frame_no"]
        for row in tables["frames"]
        if row["command"] == "SEND" and row["is_batch"] and row["is_encrypted"]
    }
    noticed = [row for row in tables["notices"] if row["code"] == "encrypted_batch"]
    assert batches == {row["frame_no"] for row in noticed if row["direction"] == "to_broker"}
    announced = sum(row["message_count"] for row in tables["frames"] if row["frame_no"] in batches)
    sends = [each for each in log_of("java-j32_encryption") if each["ev"] == "send"]
    assert batches and len(sends) == len(rows) + announced
    keys = Counter(each.get("key") for each in sends)
    assert Counter(row["partition_key"] for row in rows) <= keys
    assert {row["payload_bytes"] for row in rows} == {None}
