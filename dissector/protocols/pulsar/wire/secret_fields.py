"""Secrets in the bytes of a Pulsar frame, hidden at equal length: a good frame stays a good one.

What is hidden is the content of fields, never a tag nor a length, so that the frame reads as before
but for these texts. A checksum that covers hidden bytes moves by what hiding them changes: right
stays right and wrong stays wrong.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from dissector.codecs.compression import Codec, Decompressor, UnpackResult
from dissector.codecs.crc32c import crc32c
from dissector.codecs.redaction import behind_hole, last_word, merged, secrets
from dissector.codecs.secret_keys import Span
from dissector.limits import MAX_ENTRY_BYTES, MAX_NESTING
from dissector.protobuf.descriptors import descriptors
from dissector.protocols.pulsar.wire.contents import spans_of_field
from dissector.protocols.pulsar.wire.details import parse, text_of
from dissector.protocols.pulsar.wire.headers import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM

_SHOWN_HEAD_BYTES: Final = 10  # two lengths and the command's type
_OF_CREDENTIALS: Final = frozenset(
    ("CommandConnect", "CommandAuthChallenge", "CommandAuthResponse", "AuthData")
)
_FIXED: Final = {1: 8, 5: 4}  # bytes of the wire types without a length of their own


def secret_spans(frame: bytes) -> list[Span]:
    """Where the secrets of a frame are, or of its beginning. A command and metadata that are cut go
    as a whole: what is left of them need not tell what it was."""
    end = 8 + int.from_bytes(frame[4:8], "big")
    if end > len(frame):
        return merged([(min(_SHOWN_HEAD_BYTES, len(frame)), len(frame))])
    spans = list(_of_message("BaseCommand", frame, 8, end))
    at, _ = _entry_at(frame, end)
    if at < len(frame):
        spans += _of_entry(frame, at)
    return merged(spans)


def mended(frame: bytes, hidden: bytes) -> bytes:
    """The hidden frame with its checksum moved by what hiding changed of what it covers."""
    at, stored_at = _entry_at(frame, 8 + int.from_bytes(frame[4:8], "big"))
    if stored_at < 0 or hidden[at:] == frame[at:]:
        return hidden
    moved = _checksum(frame[at:]) ^ _checksum(hidden[at:])
    stored = _number(frame, stored_at, 4) ^ moved
    return hidden[:stored_at] + stored.to_bytes(4, "big") + hidden[at:]


def _entry_at(frame: bytes, at: int) -> tuple[int, int]:
    """Where the metadata's size stands behind a command, and the checksum, -1 where is none."""
    if _number(frame, at, 2) == MAGIC_BROKER_ENTRY:
        at += 6 + _number(frame, at + 2, 4)
    if _number(frame, at, 2) == MAGIC_CHECKSUM:
        return at + 6, at + 2
    return at, -1


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
    if metadata is None:
        yield end, len(frame)
        return
    if metadata.encryption_keys:
        return
    if metadata.chunk_id > 0:
        # What began in the chunk before goes on here, and nothing says what that was.
        yield end, end + behind_hole(frame[end:])
    is_cut = 4 + _number(frame, 0, 4) > len(frame)
    if is_cut:
        yield last_word(frame, end), len(frame)
    if metadata.compression != Codec.NONE:
        yield from _of_packed(frame, end, metadata.compression, metadata.uncompressed_size)
    elif metadata.HasField("num_messages_in_batch"):
        yield from _of_batch(frame, end, is_cut)
    else:
        yield from _shifted(frame, end, len(frame))


def _of_packed(frame: bytes, at: int, codec: int, size: int) -> Iterator[Span]:
    """A compressed payload goes as a whole if there is a secret inside: it cannot keep its length
    otherwise. So does one that cannot be opened, since it is cut or part of a chunked message."""
    packed = np.frombuffer(bytearray(frame[at:]), np.uint8)
    if 0 < size <= MAX_ENTRY_BYTES:
        opened = Decompressor().open(codec, packed, size)
        if opened.problem == UnpackResult.OPENED:
            if secrets(opened.data[: opened.size].tobytes()):
                yield at, len(frame)
            return
    yield at, len(frame)


def _of_batch(frame: bytes, at: int, is_cut: bool) -> Iterator[Span]:
    """Messages of a batch one by one, so that none is taken for the end of another one. What does
    not read as messages is searched as it is; metadata that is cut goes."""
    while at + 4 <= len(frame):
        start = at + 4
        end = start + _number(frame, at, 4)
        item: Any = parse("SingleMessageMetadata", frame[start:end]) if end <= len(frame) else None
        if item is None:
            yield from _shifted(frame, at, len(frame))
            if is_cut:
                yield at, len(frame)
            return
        yield from _of_message("SingleMessageMetadata", frame, start, end)
        at = min(end + max(item.payload_size, 0), len(frame))
        yield from _shifted(frame, end, at)


def _of_message(name: str, data: bytes, at: int, end: int, depth: int = 0) -> Iterator[Span]:
    """Secrets of a protobuf message's fields. In what carries credentials a field that is in no
    description can be one."""
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
        if name == "KeyValue" and tag >> 3 == 1:
            key = text_of(value)
        if field is not None and field.type_name == "message" and depth < MAX_NESTING:
            yield from _of_message(field.of, data, at, stop, depth + 1)
        elif field is None and name in _OF_CREDENTIALS:
            yield at, stop
        else:
            spans = spans_of_field(name, field.name if field else "", value, key)
            yield from ((at + low, at + high) for low, high in spans)
        at = stop


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
