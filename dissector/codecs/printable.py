"""Escapes unprintable characters of text from the wire for output."""

import json
import re
from functools import cache
from typing import Any, Final

# What `json.dumps` leaves as it is, though terminals obey it: DEL and the controls behind it, marks
# that turn the direction of a line or end it, and what has no width.
_CONTROLS: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def safe_text(text: str) -> str:
    r"""Text from the wire for a terminal: what is not printable becomes \xNN or \uNNNN.

    Escape sequences, line breaks and direction marks would let a topic name rewrite the screen.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(ord(one)) for one in text)


def _escaped(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is not UTF-8
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@cache
def _encoder(**options: Any) -> json.JSONEncoder:
    """What `json.dumps` makes for every value anew."""
    return json.JSONEncoder(**options)


def json_text(value: Any, **options: Any) -> str:
    """JSON that a terminal can show: no control character is in it but line ends of an indent.

    Args:
        options: as `json.dumps` takes them.
    """
    text = _encoder(**options).encode(value)
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
