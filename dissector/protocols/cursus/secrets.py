"""Credentials in Cursus' frames and messages."""

import binascii
import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from dissector.codecs.redaction import merged, secrets
from dissector.codecs.secret_forms import credentials
from dissector.codecs.secret_keys import Span
from dissector.protocols.cursus import batches
from dissector.protocols.cursus.batches import BatchLayout
from dissector.protocols.cursus.bodies import is_marker
from dissector.protocols.cursus.lines import split_body

APPENDED: Final = re.compile(rb"(?i)(?:\A|\s)(?:auth_|internal_)?token=\S")
BATCH_MAGIC: Final = b"\xba\x7c"
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{16,}+={0,2}")
_LENGTH: Final = 4
_SHOWN_HEAD_BYTES: Final = 10
_VERB: Final = re.compile(rb"[A-Z_a-z]{1,32}+(?=\s)")
_LONGEST_HEAD: Final = 29  # of a batch behind the topic, up to the records
_BEFORE_METADATA: Final = 14  # two versions and a length, behind a record's kind of event
_RECORD_NUMBERS: Final = 16
PACKED_HEADS: Final = (b"\x1f\x8b", b"\x04\x22\x4d\x18", b"\xff\x06\0\0sNaPpY", b"\x82SNAPPY")


def holds_token(payload: bytes) -> bool:
    """Whether a message's payload carries credentials that a client appended to it."""
    return b"token=" in payload and APPENDED.search(payload) is not None


def secret_spans(frame: bytes, is_packed: bool = False) -> list[Span]:
    """Where the secrets of a frame are, or of its beginning, which is then hidden behind its first
    word: what is cut does not tell what it was.

    Args:
        is_packed: it is compressed; it goes as a whole then, as it cannot keep its length.
    """
    body = frame[_LENGTH:]
    head = min(_SHOWN_HEAD_BYTES, len(frame))
    if is_packed or any(mark in body[:20] for mark in PACKED_HEADS):
        return merged([(head, len(frame))])
    if int.from_bytes(frame[:_LENGTH], "big") > len(body):
        verb = _VERB.match(body, split_body(body)[1])
        return merged([(head if verb is None else _LENGTH + verb.end(), len(frame))])
    spans = secrets(body)
    if body.startswith(BATCH_MAGIC):
        for start, end, _ in text_spans(body):
            spans += [(start + low, start + high) for low, high in secrets(body[start:end])]
    else:
        spans += _of_text(body)
    return merged((_LENGTH + low, _LENGTH + high) for low, high in spans)


def _of_text(body: bytes) -> Iterator[Span]:
    start = split_body(body)[1]
    for low, high in credentials(body[start:]):
        yield start + low, start + high
    for match in _BASE64.finditer(body):
        # Payloads between brokers: records that may contain tokens.
        try:
            inside = binascii.a2b_base64(match[0])
        except binascii.Error:
            continue
        if secret_spans(len(inside).to_bytes(_LENGTH, "big") + inside):
            yield match.span()


def text_spans(body: bytes) -> Iterator[tuple[int, int, bool]]:
    """Start and end of names (True) and payloads (False) of a batch, in the layout that fits; what
    cannot be read is payload."""
    data = np.frombuffer(bytearray(body), np.uint8)
    end = len(body)
    layout = batches.choose_layout(data, 0, end, -1)
    layout = (layout if layout >= 0 else BatchLayout.CURRENT) % batches.LAYOUTS
    head = batches.read_head(data, 0, end, layout)
    if head.records_at < 0:
        # Cut: before the records there are only numbers, and the topic.
        start = len(BATCH_MAGIC) + 2
        topic_end = start + int.from_bytes(body[start - 2 : start], "big")
        yield start, min(topic_end, end), True
        if topic_end + _LONGEST_HEAD < end:
            yield topic_end + _LONGEST_HEAD, end, False
        return
    yield head.topic_at, head.topic_at + head.topic_bytes, True
    at = head.records_at
    for _ in range(min(max(head.records, 0), end)):
        record = batches.read_record(data, at, end, layout)
        if record.next < 0:
            break
        yield record.producer_at, record.producer_at + record.producer_bytes, True
        yield record.key_at, record.key_at + record.key_bytes, True
        if not is_marker(data, record.payload_at, record.payload_bytes):
            yield record.payload_at, record.payload_at + record.payload_bytes, False
        stop = record.event_type_at + record.event_type_bytes
        yield record.event_type_at, stop, True
        yield min(stop + _BEFORE_METADATA, record.next), record.next, False
        at = record.next
    if at + _RECORD_NUMBERS < end:
        yield at + _RECORD_NUMBERS, end, False
