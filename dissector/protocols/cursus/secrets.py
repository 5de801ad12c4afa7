"""Credentials in Cursus' frames and messages."""

import binascii
import re
from typing import Final

from dissector.codecs.redaction import Span, masked, secrets

APPENDED: Final = re.compile(rb"(?i)(?:\A|\s)(?:auth_|internal_)?token=\S")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{16,}+={0,2}")
_SHOWN_HEAD_BYTES: Final = 10
PACKED_HEADS: Final = (b"\x1f\x8b", b"\x04\x22\x4d\x18", b"\xff\x06\0\0sNaPpY", b"\x82SNAPPY")


def holds_token(payload: bytes) -> bool:
    """Whether a message's payload carries credentials that a client appended to it."""
    return b"token=" in payload and APPENDED.search(payload) is not None


def hide_in_frame(frame: bytes, is_packed: bool = False) -> bytes:
    """A frame, or what there is of it, with its secrets as `*`.

    Args:
        is_packed: its text is compressed; it goes as a whole then, as it cannot keep its length.
    """
    if is_packed or any(head in frame[4:24] for head in PACKED_HEADS):
        return masked(frame, [(min(_SHOWN_HEAD_BYTES, len(frame)), len(frame))])
    spans: list[Span] = [(4 + low, 4 + high) for low, high in secrets(frame[4:])]
    for found in _BASE64.finditer(frame):
        # What brokers pass on to each other, records that may hold tokens.
        try:
            inside = binascii.a2b_base64(found[0])
        except binascii.Error:
            continue
        if secrets(inside):
            spans.append(found.span())
    return masked(frame, spans)
