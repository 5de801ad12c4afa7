"""Messages of whole Pulsar frames, the slow and plain way: protobuf objects, slices and dicts."""

import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import cramjam
import crc32c
import lz4.block
import zstandard
from google.protobuf.message import DecodeError

from tests.naive import key_hashes
from tests.naive.pulsar_fields import as_bytes, decimal, parse, signed

SEND, MESSAGE = 6, 9


def unpacked(codec: int, data: bytes, size: int) -> bytes | None:
    """The bytes of an entry; None if they are not what is announced."""
    try:
        if codec == 0:
            return data
        if codec == 1:
            plain = lz4.block.decompress(data, uncompressed_size=size)
        elif codec == 2:
            plain = zlib.decompressobj().decompress(data)
        elif codec == 3:
            plain = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        else:
            plain = bytes(cramjam.snappy.decompress_raw(data))
    except (lz4.block.LZ4BlockError, zlib.error, zstandard.ZstdError, cramjam.DecompressionError):
        return None
    return plain if len(plain) == size else None


class Parts:
    """The parts of a SEND or MESSAGE frame."""

    def __init__(self, frame: bytes) -> None:
        (size,) = struct.unpack_from(">I", frame, 4)
        self.base: Any = parse("BaseCommand", frame[8 : 8 + size])
        at = 8 + size
        if frame[at : at + 2] == b"\x0e\x02":
            at += 6 + struct.unpack_from(">I", frame, at + 2)[0]
        self.is_damaged = False
        if frame[at : at + 2] == b"\x0e\x01":
            (stored,) = struct.unpack_from(">I", frame, at + 2)
            at += 6
            self.is_damaged = stored != crc32c.crc32c(frame[at:])
        (size,) = struct.unpack_from(">I", frame, at)
        self.metadata: Any = parse("MessageMetadata", frame[at + 4 : at + 4 + size])
        self.payload = frame[at + 4 + size :]


def text(value: str | bytes) -> str:
    return as_bytes(value).decode("utf-8", "backslashreplace")


def shared(parts: Parts) -> dict[str, Any]:
    """What all messages of an entry have in common."""
    row: dict[str, Any] = {
        "producer_name": text(parts.metadata.producer_name),
        "publish_time_ms": signed(parts.metadata.publish_time),
    }
    if parts.metadata.HasField("schema_version"):
        row["schema_version_hex"] = parts.metadata.schema_version.hex()
    if parts.base.type == MESSAGE:
        message = parts.base.message
        row |= {
            "ledger_id": signed(message.message_id.ledgerId),
            "entry_id": signed(message.message_id.entryId),
            "redelivery_count": message.redelivery_count,
        }
        if message.message_id.partition != -1:
            row["partition"] = message.message_id.partition
    return row


def own(metadata: Any, payload: bytes | None, size: int | None) -> dict[str, Any]:
    """What a message says about itself, in a batch or alone."""
    row: dict[str, Any] = {"is_null_value": bool(metadata.null_value)}
    present = {field.name: value for field, value in metadata.ListFields()}
    if "partition_key" in present:
        row["partition_key"] = text(present["partition_key"])
        row["is_key_base64"] = bool(present.get("partition_key_b64_encoded", False))
        hashed = key_hashes.key_hash_of_base64 if row["is_key_base64"] else key_hashes.key_hash
        row["key_hash"] = hashed(as_bytes(present["partition_key"]))
        if row["key_hash"] is None:
            del row["key_hash"]
    if "ordering_key" in present:
        row["ordering_key"] = present["ordering_key"].hex()
        row["key_hash"] = key_hashes.key_hash(present["ordering_key"])
    if present.get("event_time"):
        row["event_time_ms"] = signed(present["event_time"])
    if "sequence_id" in present:
        row["sequence_id"] = signed(present["sequence_id"])
    properties = {}
    for pair in present.get("properties", ()):
        properties[pair.key] = pair.value
        if pair.key == "RECONSUMETIMES" and decimal(pair.value) is not None:
            row["reconsume_times"] = decimal(pair.value)
        elif pair.key == "REAL_TOPIC":
            row["real_topic"] = pair.value
    row["properties"] = properties
    if size is not None:
        row["payload_bytes"] = size
    if payload is not None:
        row["payload_sha256"] = hashlib.sha256(payload).hexdigest()
    return row


def batch_rows(parts: Parts) -> list[dict[str, Any]]:
    """The messages of a batch; none unless all of them are there."""
    metadata = parts.metadata
    data = unpacked(metadata.compression, parts.payload, metadata.uncompressed_size)
    count = metadata.num_messages_in_batch
    kept = list(metadata.compacted_batch_indexes)
    rows: list[dict[str, Any]] = []
    at = 0
    while data is not None and len(rows) < count and (at < len(data) or not kept):
        if len(data) - at < 4:
            return []
        (size,) = struct.unpack_from(">I", data, at)
        if size > len(data) - at - 4:
            return []
        try:
            item: Any = parse("SingleMessageMetadata", data[at + 4 : at + 4 + size])
        except DecodeError:
            return []
        at += 4 + size
        if not item.HasField("payload_size") or not 0 <= item.payload_size <= len(data) - at:
            return []
        payload = data[at : at + item.payload_size]
        at += len(payload)
        rows.append(
            shared(parts)
            | own(item, payload, len(payload))
            | {"batch_size": count, "is_compacted_out": item.compacted_out}
        )
    indexes = kept if kept and len(kept) == len(rows) != count else range(count)
    if len(indexes) != len(rows):
        return []
    return [{**row, "batch_index": index} for row, index in zip(rows, indexes, strict=True)]


def single_row(parts: Parts, payload: bytes) -> dict[str, Any]:
    """The one message of an entry, or of several if it came in chunks."""
    metadata = parts.metadata
    codec, size = metadata.compression, metadata.uncompressed_size
    if metadata.encryption_keys:
        row = own(metadata, None, None)
    else:
        row = own(metadata, unpacked(codec, payload, size), size if codec else len(payload))
    if parts.base.type == SEND:
        row["sequence_id"] = signed(parts.base.send.sequence_id)
    return shared(parts) | row


def messages_of(frames: Iterable[bytes]) -> list[dict[str, Any]]:
    """Rows of messages of the frames of one direction of one connection; numbers from 1.

    Chunks must come in order, one message of a uuid at a time.
    """
    rows: list[dict[str, Any]] = []
    chunks: dict[tuple[int, str], list[bytes]] = {}
    for number, frame in enumerate(frames, 1):
        (size,) = struct.unpack_from(">I", frame, 4)
        base: Any = parse("BaseCommand", frame[8 : 8 + size])
        if base.type not in (SEND, MESSAGE):
            continue
        parts = Parts(frame)
        metadata = parts.metadata
        if parts.is_damaged or metadata.HasField("marker_type"):
            continue
        message_rows = []
        if metadata.num_chunks_from_msg > 1:
            pieces = chunks.setdefault((base.message.consumer_id, metadata.uuid), [])
            pieces.append(parts.payload)
            if len(pieces) == metadata.num_chunks_from_msg:
                message_rows = [single_row(parts, b"".join(pieces))]
                pieces.clear()
        elif not metadata.HasField("num_messages_in_batch"):
            message_rows = [single_row(parts, parts.payload)]
        elif not metadata.encryption_keys:
            message_rows = batch_rows(parts)
        rows += [{"frame_no": number, **row} for row in message_rows]
    return rows
