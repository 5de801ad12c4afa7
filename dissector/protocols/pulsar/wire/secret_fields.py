"""Secrets in the bytes of a Pulsar frame, hidden at equal length: a good frame stays a good one.

What is hidden is the content of fields, never a tag nor a length, so that the frame reads as before
but for these texts. A checksum that covers hidden bytes moves by what hiding them changes: right
stays right and wrong stays wrong.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from dissector.codecs.compression import NONE, OPENED, Decompressor
from dissector.codecs.crc32c import crc32c
from dissector.codecs.redaction import Span, is_secret, masked, secrets
from dissector.limits import MAX_ENTRY_BYTES, MAX_NESTING
from dissector.protobuf.descriptors import Field, descriptors
from dissector.protocols.pulsar.wire.contents import SECRET, content_of
from dissector.protocols.pulsar.wire.details import parse, text_of
from dissector.protocols.pulsar.wire.headers import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM

_SHOWN_HEAD_BYTES: Final = 10  # two lengths and the command's type
_FIXED: Final = {1: 8, 5: 4}  # bytes of the wire types without a length of their own


def hide_in_frame(frame: bytes) -> bytes:
    """The frame, or what there is of it, with its secrets as `*`."""
    size = int.from_bytes(frame[4:8], "big")
    end = 8 + size
    if end > len(frame):
        return masked(frame, [(min(_SHOWN_HEAD_BYTES, len(frame)), len(frame))])
    spans = list(_of_message("BaseCommand", frame, 8, end))
    at = end
    if _number(frame, at, 2) == MAGIC_BROKER_ENTRY:
        at += 6 + _number(frame, at + 2, 4)
    stored_at = -1
    if _number(frame, at, 2) == MAGIC_CHECKSUM:
        stored_at, at = at + 2, at + 6
    covered = at
    if at < len(frame):
        spans += _of_entry(frame, at)
    hidden = masked(frame, spans)
    if stored_at >= 0 and hidden[covered:] != frame[covered:]:
        moved = _checksum(frame[covered:]) ^ _checksum(hidden[covered:])
        stored = _number(frame, stored_at, 4) ^ moved
        hidden = hidden[:stored_at] + stored.to_bytes(4, "big") + hidden[covered:]
    return hidden


def _checksum(data: bytes) -> int:
    return int(crc32c(np.frombuffer(bytearray(data), np.uint8), 0, len(data)))


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _shifted(data: bytes, start: int, end: int) -> Iterator[Span]:
    """Secrets by their form in a part of the data."""
    for low, high in secrets(data[start:end]):
        yield start + low, start + high


def _of_entry(frame: bytes, at: int) -> Iterator[Span]:
    """Secrets of metadata and payload; at: where the metadata's size stands."""
    start = at + 4
    end = start + _number(frame, at, 4)
    if end > len(frame):
        yield start, len(frame)
        return
    yield from _of_message("MessageMetadata", frame, start, end)
    metadata: Any = parse("MessageMetadata", frame[start:end])
    if metadata is None or metadata.encryption_keys:
        return
    if metadata.compression != NONE:
        yield from _of_packed(frame, end, metadata.compression, metadata.uncompressed_size)
    elif metadata.HasField("num_messages_in_batch"):
        yield from _of_batch(frame, end)
    else:
        yield from _shifted(frame, end, len(frame))


def _of_packed(frame: bytes, at: int, codec: int, size: int) -> Iterator[Span]:
    """A compressed payload goes as a whole if there is a secret inside: it cannot keep its length
    otherwise. One that cannot be opened, part of a chunked message, is searched as it is."""
    packed = np.frombuffer(bytearray(frame[at:]), np.uint8)
    if 0 < size <= MAX_ENTRY_BYTES:
        opened = Decompressor().open(codec, packed, size)
        if opened.problem == OPENED:
            if secrets(opened.data[: opened.size].tobytes()):
                yield at, len(frame)
            return
    yield from _shifted(frame, at, len(frame))


def _of_batch(frame: bytes, at: int) -> Iterator[Span]:
    """Messages of a batch one by one, so that none is taken for the end of another one."""
    while at + 4 <= len(frame):
        start = at + 4
        end = start + _number(frame, at, 4)
        item: Any = parse("SingleMessageMetadata", frame[start:end]) if end <= len(frame) else None
        if item is None:
            yield from _shifted(frame, at, len(frame))
            return
        yield from _of_message("SingleMessageMetadata", frame, start, end)
        at = min(end + max(item.payload_size, 0), len(frame))
        yield from _shifted(frame, end, at)


def _of_message(name: str, data: bytes, at: int, end: int, depth: int = 0) -> Iterator[Span]:
    """Secrets of a protobuf message's fields."""
    fields = descriptors().messages.get(name, {})
    key = ""
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 0:
            at = _varint(data, at, end)[1]
            continue
        if kind != 2:
            at += _FIXED.get(kind, end - at)
            continue
        size, at = _varint(data, at, end)
        stop = min(at + size, end)
        field = fields.get(tag >> 3)
        value = data[at:stop]
        is_key_value = name == "KeyValue" and field is not None
        if is_key_value and tag >> 3 == 1:
            key = text_of(value)
        if field is not None and field.type_name == "message" and depth < MAX_NESTING:
            yield from _of_message(field.of, data, at, stop, depth + 1)
        elif _is_whole_secret(name, field, is_key_value and tag >> 3 == 2 and is_secret(key)):
            yield at, stop
        else:
            yield from _shifted(data, at, stop)
        at = stop


def _is_whole_secret(name: str, field: Field | None, is_of_secret_key: bool) -> bool:
    """Whether a field is a secret whatever it holds."""
    if field is None:
        return False
    return is_of_secret_key or content_of(name, field.name) == SECRET


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and the offset behind it; the end where it is none."""
    value = 0
    for index in range(10):
        if at + index >= end:
            break
        value |= (data[at + index] & 0x7F) << 7 * index
        if data[at + index] < 0x80:
            return value, at + index + 1
    return value, end
