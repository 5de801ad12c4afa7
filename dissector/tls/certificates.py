"""Read the subject and the validity of a certificate from its DER."""

import calendar
from typing import Final, NamedTuple

from dissector import limits

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT: Final = 0x06
_UTC_TIME: Final = 0x17
_GENERAL_TIME: Final = 0x18
_VERSION: Final = 0xA0
_WIDE: Final = 0x1E  # BMPString, two bytes a character
_NAMES: Final = {
    b"\x55\x04\x03": "CN", b"\x55\x04\x06": "C", b"\x55\x04\x07": "L", b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O", b"\x55\x04\x0b": "OU", b"\x55\x04\x05": "serialNumber",
}  # fmt: skip


class CertificateFacts(NamedTuple):
    """subject: its name as CN=…,O=…, in the order of the certificate; not_before_ns, not_after_ns:
    since 1970, None if the time is malformed."""

    subject: str
    not_before_ns: int | None
    not_after_ns: int | None


class _Value(NamedTuple):
    """A DER value: its tag, start and end."""

    tag: int
    start: int
    end: int


def _value(data: bytes, at: int, end: int) -> _Value | None:
    """The value at a position, if it ends before `end`."""
    if at + 2 > end:
        return None
    size, start = data[at + 1], at + 2
    if size & 0x80:
        digits = size & 0x7F
        if not 1 <= digits <= 4 or start + digits > end:
            return None
        size = int.from_bytes(data[start : start + digits], "big")
        start += digits
    return _Value(data[at], start, start + size) if start + size <= end else None


def _values(data: bytes, around: _Value | None) -> list[_Value]:
    """The values inside another one, up to the first malformed one."""
    values: list[_Value] = []
    at = 0 if around is None else around.start
    while around is not None and len(values) < limits.MAX_CERTIFICATE_PARTS:
        value = _value(data, at, around.end)
        if value is None:
            break
        values.append(value)
        at = value.end
    return values


def _text(data: bytes, value: _Value) -> str:
    held = data[value.start : value.end]
    text = held.decode("utf-16-be" if value.tag == _WIDE else "utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _name(data: bytes, name: _Value) -> str:
    parts: list[str] = []
    for relative in _values(data, name):
        for attribute in _values(data, relative):
            pair = _values(data, attribute)
            if len(pair) == 2 and pair[0].tag == _OBJECT:
                known = _NAMES.get(data[pair[0].start : pair[0].end])
                if known is not None:
                    parts.append(f"{known}={_text(data, pair[1])}")
    return ",".join(parts)[: limits.MAX_CERTIFICATE_SUBJECT]


def _time_ns(data: bytes, value: _Value) -> int | None:
    digits = data[value.start : value.end].removesuffix(b"Z")
    if value.tag == _UTC_TIME and len(digits) == 12:
        digits = (b"19" if digits[:2] >= b"50" else b"20") + digits
    if value.tag not in (_UTC_TIME, _GENERAL_TIME) or len(digits) != 14 or not digits.isdigit():
        return None
    year, *rest = int(digits[:4]), *(int(digits[at : at + 2]) for at in range(4, 14, 2))
    month, day, hour, minute, second = rest
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    if not 1823 < year < 2116:
        return None  # beyond 64-bit nanoseconds
    return calendar.timegm((year, month, day, hour, minute, second)) * 1_000_000_000


def certificate_facts(data: bytes) -> CertificateFacts | None:
    """The facts of a certificate; None if it is malformed."""
    outer = _value(data, 0, len(data))
    signed = _values(data, outer)[:1]
    fields = _values(data, signed[0]) if signed and signed[0].tag == _SEQUENCE else []
    if fields and fields[0].tag == _VERSION:
        fields = fields[1:]
    if len(fields) < 5:
        return None
    validity = _values(data, fields[3])
    if len(validity) != 2:
        return None
    first, last = (_time_ns(data, value) for value in validity)
    return CertificateFacts(_name(data, fields[4]), first, last)
