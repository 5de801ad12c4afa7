"""Secrets in the bytes of a Pulsar frame, hidden at equal length: a valid frame stays valid.

Only the content of fields is hidden, never a tag or a length, so the frame parses as before. A
checksum that covers hidden bytes is changed by the difference that hiding makes: a right checksum
stays right and a wrong one stays wrong.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Decompressor, UnpackResult
from dissector.codecs.crc32c import crc32c
from dissector.codecs.redaction import behind_hole, last_word, merged, secrets
from dissector.codecs.secret_keys import Span
from dissector.codecs.suspicious_texts import suspicious
from dissector.limits import MAX_ENTRY_BYTES
from dissector.protocols.pulsar.wire.contents import is_secret_field, spans_of_field
from dissector.protocols.pulsar.wire.details import text_of
from dissector.protocols.pulsar.wire.frame_fields import (
    CODEC,
    END,
    FIELD,
    KIND,
    START,
    WITHIN,
    FrameFields,
    Kind,
    field_named,
)

_SHOWN_HEAD_BYTES: Final = 10  # two lengths and the command's type
_OF_CREDENTIALS: Final = frozenset(
    ("CommandConnect", "CommandAuthChallenge", "CommandAuthResponse", "AuthData")
)
_OF_ENTRIES: Final = (Kind.PAYLOAD, Kind.ITEM, Kind.PACKED, Kind.REST)


@cache
def _fields() -> FrameFields:
    return FrameFields()


def _rows(frame: bytes) -> list[list[int]]:
    data = np.frombuffer(bytearray(frame), np.uint8)
    size = 4 + int.from_bytes(frame[:4], "big")
    bounds = np.array([[0], [size], [len(frame)]], np.int64)
    return [row for rows in _fields().of_frames(data, bounds) for row in rows.tolist()]


def secret_spans(frame: bytes) -> list[Span]:
    """The byte ranges of secrets in a frame, which may be cut. A cut command and cut metadata are
    hidden as a whole: the remaining bytes need not show what they are."""
    if 8 + int.from_bytes(frame[4:8], "big") > len(frame):
        return merged([(min(_SHOWN_HEAD_BYTES, len(frame)), len(frame))])
    spans: list[Span] = []
    rows = _rows(frame)
    is_cut = 4 + int.from_bytes(frame[:4], "big") > len(frame)
    is_broken = False
    key, key_within = "", 0
    for kind, start, end, field, within, _, codec, size in rows:
        value = frame[start:end]
        if kind == Kind.BROKEN:
            is_broken = True
            spans.append((start, end))
        elif field >= 0:
            message, name = field_named(field)
            if kind == Kind.KEY:
                key, key_within = text_of(value), within
            if not name and message in _OF_CREDENTIALS:
                spans.append((start, end))
            field_spans = spans_of_field(message, name, value, key if key_within == within else "")
            spans += [(start + low, start + high) for low, high in field_spans]
        elif kind == Kind.PACKED:
            spans += _of_packed(value, start, codec, size)
        elif kind in _OF_ENTRIES:
            spans += [(start + low, start + high) for low, high in secrets(value)]
            if kind == Kind.PAYLOAD and codec:
                # A secret may begin in the previous chunk, whose content is not known here.
                spans.append((start, start + behind_hole(value)))
            elif kind == Kind.REST and (within or is_cut):
                spans.append((within or start, end))
    first = next((row[1] for row in rows if row[0] in _OF_ENTRIES), len(frame))
    if is_broken:
        spans.append((first, len(frame)))
    elif is_cut:
        spans.append((last_word(frame, first), len(frame)))
    return merged(spans)


def suspicious_frames(data: ByteArray, bounds: Int64Array) -> np.ndarray:
    """bool[frames]: which of many whole frames may contain a secret: all that do, and hardly any
    other. Frames are parsed, and their texts searched, all at once; see `ProtocolSpec`."""
    starts, sizes, _ = bounds
    # Frames with contradicting lengths or a cut command are checked one by one.
    lengths = (_numbers(data, starts), _numbers(data, starts + 4))
    is_wanted: np.ndarray = (sizes < 8) | (4 + lengths[0] != sizes) | (8 + lengths[1] > sizes)
    for rows in _fields().of_frames(data, bounds):
        kinds, fields = rows[:, KIND], rows[:, FIELD]
        frames = np.searchsorted(starts, rows[:, START], "right") - 1
        needs_check = np.isin(kinds, (Kind.BROKEN, Kind.PACKED))
        needs_check |= (kinds == Kind.PAYLOAD) & (rows[:, CODEC] != 0)
        needs_check |= (kinds == Kind.REST) & (rows[:, WITHIN] != 0)
        needs_check |= np.isin(fields, [each for each in np.unique(fields) if _is_secret(each)])
        is_text = ~needs_check & ((fields >= 0) | np.isin(kinds, _OF_ENTRIES))
        spans = rows[is_text][:, [START, END]].tolist()
        texts = [data[start:end].tobytes() for start, end in spans]
        is_wanted[frames[is_text][suspicious(texts)]] = True
        is_key = (kinds[is_text] == Kind.KEY).nonzero()[0].tolist()
        keys = [row for row in is_key if is_secret_field("KeyValue", "value", text_of(texts[row]))]
        is_wanted[frames[is_text][keys]] = True
        is_wanted[frames[needs_check]] = True
    return is_wanted


def _numbers(data: ByteArray, starts: Int64Array) -> Int64Array:
    """Big-endian numbers of four bytes at offsets."""
    spans = np.minimum(starts[:, None] + np.arange(4), len(data) - 1)
    numbers: Int64Array = data[spans] @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return numbers


def _is_secret(field: int) -> bool:
    """Whether a row's field is secret whatever its value."""
    if field < 0:
        return False
    message, name = field_named(field)
    return is_secret_field(message, name) or (not name and message in _OF_CREDENTIALS)


def mended(frame: bytes, hidden: bytes) -> bytes:
    """The hidden frame, its checksum changed by the difference that hiding made in its bytes."""
    for kind, at, _, _, covered, *_ in _rows(frame)[-1:]:
        if kind == Kind.CHECKSUM and hidden[covered:] != frame[covered:]:
            change = _checksum(frame[covered:]) ^ _checksum(hidden[covered:])
            stored = int.from_bytes(frame[at : at + 4], "big") ^ change
            return hidden[:at] + stored.to_bytes(4, "big") + hidden[at + 4 :]
    return hidden


def _checksum(data: bytes) -> int:
    return int(crc32c(np.frombuffer(bytearray(data), np.uint8), 0, len(data)))


def _of_packed(data: bytes, at: int, codec: int, size: int) -> Iterator[Span]:
    """The whole payload if it is compressed and contains a secret, or cannot be decompressed (cut,
    or part of a chunked message): partly hidden, it would not keep its length."""
    if 0 < size <= MAX_ENTRY_BYTES:
        opened = Decompressor().open(codec, np.frombuffer(bytearray(data), np.uint8), size)
        is_open = opened.problem == UnpackResult.OPENED
        if is_open and not secrets(opened.data[: opened.size].tobytes()):
            return
    yield at, at + len(data)
