"""Builds Pulsar frames byte by byte; the protobuf parts are written by the protobuf library."""

import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

DESCRIPTORS = Path(__file__).resolve().parents[2] / "dissector" / "data" / "PulsarApi.binpb"


@cache
def classes() -> dict[str, type[Message]]:
    """Message classes by name."""
    pool = descriptor_pool.DescriptorPool()
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"pulsar.proto.{message.name}")
        )
        for message in file.message_type
    }


def fill(message: Message, fields: dict[str, Any]) -> Message:
    """Set fields from plain values: dicts for messages, lists for what repeats, names for enums."""
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.message_type is None:
            if isinstance(value, list):
                getattr(message, name).extend(value)
            else:
                if field.enum_type is not None and isinstance(value, str):
                    value = field.enum_type.values_by_name[value].number
                if isinstance(value, int) and value < 0 and field.type == field.TYPE_UINT64:
                    value += 1 << 64
                setattr(message, name, value)
        elif isinstance(value, list):
            for part in value:
                fill(getattr(message, name).add(), part)
        else:
            getattr(message, name).SetInParent()
            fill(getattr(message, name), value)
    return message


def body(name: str, **fields: Any) -> bytes:
    """The bytes of one message; required fields may be missing."""
    return fill(classes()[name](), fields).SerializePartialToString()


def command(name: str, **fields: Any) -> bytes:
    """The BaseCommand of a type, with the fields of its body."""
    base = classes()["BaseCommand"]()
    kind = base.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_name[name].number
    base.type = kind
    inner = base.DESCRIPTOR.fields_by_number[kind].name
    fill(base, {inner: fields})
    return base.SerializePartialToString()


def simple(command_bytes: bytes) -> bytes:
    """A frame without a second half."""
    return struct.pack(">II", 4 + len(command_bytes), len(command_bytes)) + command_bytes


def checked_half(metadata: bytes, payload: bytes) -> bytes:
    """The bytes that the checksum covers: metadata with its size, and payload."""
    return struct.pack(">I", len(metadata)) + metadata + payload


def entry(
    command_bytes: bytes,
    metadata: bytes,
    payload: bytes,
    checksum: int | bool = True,
    broker_entry: bytes | None = None,
) -> bytes:
    """A SEND or MESSAGE frame.

    Args:
        checksum: True for the right one, False for none, a number to store as it is.
    """
    half = checked_half(metadata, payload)
    if checksum is not False:
        stored = crc32c.crc32c(half) if checksum is True else checksum
        half = struct.pack(">HI", 0x0E01, stored) + half
    if broker_entry is not None:
        half = struct.pack(">HI", 0x0E02, len(broker_entry)) + broker_entry + half
    size = len(command_bytes)
    return struct.pack(">II", 4 + size + len(half), size) + command_bytes + half


def metadata(producer_name: str = "p", sequence_id: int = 0, publish_time: int = 1, **more: Any):
    """MessageMetadata with its three required fields."""
    return body(
        "MessageMetadata",
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        **more,
    )


def batch(messages: Sequence[tuple[dict[str, Any], bytes]]) -> bytes:
    """The payload of a batch: each message's own metadata, its size in front, and its payload."""
    out = bytearray()
    for fields, payload in messages:
        own = body("SingleMessageMetadata", **{"payload_size": len(payload), **fields})
        out += struct.pack(">I", len(own)) + own + payload
    return bytes(out)


def send(payload: bytes = b"hi", *, metadata_fields: dict[str, Any] | None = None, **fields: Any):
    """A SEND frame of one plain message."""
    given = {"producer_id": 1, "sequence_id": 0, **fields}
    return entry(command("SEND", **given), metadata(**(metadata_fields or {})), payload)


# Frames worked out by hand, bytes in hex. The metadata is producer_name "p", sequence id 0, publish
# time 1; the payload "hi".
VECTORS = {
    "PING": "00000009 00000005 0812920100",
    "PONG": "00000009 00000005 08139a0100",
    "FLOW": "0000000d 00000009 080b5a05080110e807",
    "SEND": "0000001f 00000008 0806320408011000 0e01 7ed8df46 00000007 0a017010001801 6869",
    "MESSAGE": "0000002e 0000000c 08094a080801120408051007 0e02 00000005 08e807102a"
    " 0e01 7ed8df46 00000007 0a017010001801 6869",
    "SEND_RECEIPT": "00000026 00000022 08073a1e08011000 1a16"
    " 08ffffffffffffffffff01 10ffffffffffffffffff01 2000",
}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def vector(name: str) -> bytes:
    """The bytes of one of VECTORS."""
    return bytes.fromhex(VECTORS[name])
