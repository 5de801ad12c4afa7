"""Recognise by first bytes what is no broker protocol: TLS, HTTP, and a PROXY header."""

import enum
import ipaddress
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel


class HeadVerdict(enum.IntEnum):
    """Verdicts on the head of a direction."""

    NOT_KNOWN = 0
    MORE_NEEDED = 1
    IS_TLS = 2
    IS_HTTP = 3
    IS_PROXY_HEADER = 4


_HTTP_STARTS: Final = (
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * HTTP/2",
    b"HTTP/1.",
    b"HTTP/2",
)
_PROXY_V1: Final = b"PROXY "
_PROXY_V1_LONGEST: Final = 107
_PROXY_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_PROXY_V2_HEAD: Final = 16
_TLS_RECORD_LIMIT: Final = (1 << 14) + 2048
_TLS_HANDSHAKE: Final = 22
_TLS_RECORD_HEAD: Final = 5
_BEFORE_NAME: Final = 5  # in its extension: length of the list, type of the name, its length

_TLS_FIRST: Final = 20  # kinds of records
_TLS_LAST: Final = 23
_FIRST: Final = {start[0] for start in (*_HTTP_STARTS, _PROXY_V1, _PROXY_V2)}
# uint8[256], by first byte: whether TLS, HTTP or a PROXY header may begin with it, see `look`.
MAY_BE_OTHER: Final = np.array(
    [_TLS_FIRST <= byte <= _TLS_LAST or byte in _FIRST for byte in range(256)], np.uint8
)

_CR: Final = 13
_LF: Final = 10


class FirstBytesVerdict(NamedTuple):
    """A verdict on the first bytes of a direction.

    header_bytes: of a PROXY header, or of the first TLS record.
    """

    verdict: HeadVerdict
    header_bytes: int = 0


_LONGEST_START: Final = 16
_STARTS: Final = np.array(
    [list(start.ljust(_LONGEST_START, b"\0")) for start in (*_HTTP_STARTS, _PROXY_V1, _PROXY_V2)],
    np.uint8,
)
_START_SIZES: Final = np.array([len(start) for start in (*_HTTP_STARTS, _PROXY_V1, _PROXY_V2)])
_HTTP: Final = len(_HTTP_STARTS)  # starts before it are HTTP's
_V1: Final = _HTTP
_V2: Final = _HTTP + 1


@inlined
def _matching(data: ByteArray, at: int, size: int, start: int) -> int:
    """1 if the bytes begin with a start, 0 if they are too few to tell, -1 if they do not."""
    for index in range(min(size, _START_SIZES[start])):
        if data[at + index] != _STARTS[start, index]:
            return -1
    return int(size >= _START_SIZES[start])


def look(head: bytes, at_start: bool) -> FirstBytesVerdict:
    """Judge the first bytes of a direction, see `judge_head`."""
    data = np.frombuffer(head or b"\0", np.uint8)
    verdict, header_bytes = judge_head(data, 0, len(head), at_start)
    return FirstBytesVerdict(HeadVerdict(verdict), int(header_bytes))


@kernel
def judge_head(data: ByteArray, at: int, size: int, at_start: bool) -> FirstBytesVerdict:
    """Judge the first bytes of a direction.

    Args:
        at, size: their position in data, and how many there are so far.
        at_start: they are the first bytes of the connection; else only TLS records are recognised.
    """
    if size == 0:
        return FirstBytesVerdict(HeadVerdict.MORE_NEEDED if at_start else HeadVerdict.NOT_KNOWN, 0)
    if MAY_BE_OTHER[data[at]] == 0:
        return FirstBytesVerdict(HeadVerdict.NOT_KNOWN, 0)
    if at_start:
        proxy_header = _judge_proxy_header(data, at, size)
        if proxy_header.verdict != HeadVerdict.NOT_KNOWN:
            return proxy_header
        needs_more = size < 5 and _may_be_tls(data, at, size)
        for start in range(_HTTP):
            matching = _matching(data, at, size, start)
            if matching > 0:
                return FirstBytesVerdict(HeadVerdict.IS_HTTP, 0)
            needs_more |= matching == 0
        if needs_more:
            return FirstBytesVerdict(HeadVerdict.MORE_NEEDED, 0)
    first = _record_length(data, at, at + size, at_start)
    if first == 0:
        return FirstBytesVerdict(HeadVerdict.NOT_KNOWN, 0)
    if at_start:
        return FirstBytesVerdict(HeadVerdict.IS_TLS, 5 + first)
    second = _record_length(data, at + 5 + first, at + size, False)
    return FirstBytesVerdict(HeadVerdict.IS_TLS if second > 0 else HeadVerdict.NOT_KNOWN, 0)


@inlined
def _may_be_tls(data: ByteArray, at: int, size: int) -> bool:
    """Whether fewer than five bytes may begin a TLS handshake record."""
    if data[at] != _TLS_HANDSHAKE or (size > 1 and data[at + 1] != 3):
        return False
    is_long = size > 3 and np.int64(data[at + 3]) << 8 >= _TLS_RECORD_LIMIT
    return not ((size > 2 and data[at + 2] > 4) or is_long)


@inlined
def _judge_proxy_header(data: ByteArray, at: int, size: int) -> FirstBytesVerdict:
    if _matching(data, at, size, _V2) > 0:
        if size < _PROXY_V2_HEAD:
            return FirstBytesVerdict(HeadVerdict.MORE_NEEDED, 0)
        length = _PROXY_V2_HEAD + (np.int64(data[at + 14]) << 8 | data[at + 15])
        return (
            FirstBytesVerdict(HeadVerdict.MORE_NEEDED, 0)
            if size < length
            else FirstBytesVerdict(HeadVerdict.IS_PROXY_HEADER, length)
        )
    if _matching(data, at, size, _V1) > 0:
        for end in range(min(size, _PROXY_V1_LONGEST) - 1):
            if data[at + end] == _CR and data[at + end + 1] == _LF:
                return FirstBytesVerdict(HeadVerdict.IS_PROXY_HEADER, end + 2)
        return FirstBytesVerdict(
            HeadVerdict.MORE_NEEDED if size < _PROXY_V1_LONGEST else HeadVerdict.NOT_KNOWN, 0
        )
    is_begun = _matching(data, at, size, _V1) == 0 or _matching(data, at, size, _V2) == 0
    return FirstBytesVerdict(HeadVerdict.MORE_NEEDED if is_begun else HeadVerdict.NOT_KNOWN, 0)


class TlsRecords(NamedTuple):
    """next: stream offset of the next TLS record, -1 not known; in_a_row: adjacent records that
    end there; is_tls: there are at least two."""

    next: int
    in_a_row: int
    is_tls: bool


NO_RECORDS: Final = TlsRecords(-1, 0, False)  # of a direction whose beginning was not seen


@kernel
def follow_records(
    before: TlsRecords, data: ByteArray, start: int, length: int, offset: int, starts_packet: bool
) -> TlsRecords:
    """Follow TLS records in the next bytes of a stream: a header must stand where one ended.

    The first header is searched only where a packet starts.

    Args:
        start, length: of the bytes in data; offset: of the first in the stream.
    """
    at, in_a_row = before.next - offset, before.in_a_row
    if before.next < 0 or at < 0:
        if not starts_packet:
            return TlsRecords(-1, 0, False)
        at, in_a_row = 0, 0
    while at < length:
        size = _record_length(data, start + at, start + length, False)
        if size == 0:
            return TlsRecords(-1, 0, False)
        in_a_row += 1
        at += 5 + size
    return TlsRecords(offset + at, in_a_row, in_a_row > 1)


@kernel
def _record_length(data: ByteArray, at: int, end: int, is_handshake: bool) -> int:
    """The length in the header of a TLS record, bytes; 0 if the bytes are no such header."""
    if end - at < 5 or data[at + 1] != 3 or data[at + 2] > 4:
        return 0
    kind = data[at]
    if kind != _TLS_HANDSHAKE and (is_handshake or not _TLS_FIRST <= kind <= _TLS_LAST):
        return 0
    length = np.int64(data[at + 3]) << 8 | data[at + 4]
    return length if length <= _TLS_RECORD_LIMIT else 0


def proxied_client(header: bytes) -> str | None:
    """The client address in a PROXY header; None if it has none."""
    if header.startswith(_PROXY_V2):
        return _proxy_v2_client(header)
    words = header.split(b"\r\n")[0].split(b" ")
    return _address(words[2]) if len(words) > 2 else None


def _address(text: bytes) -> str | None:
    try:
        return str(ipaddress.ip_address(text.decode("ascii")))
    except ValueError:
        return None


def _proxy_v2_client(header: bytes) -> str | None:
    family = header[13] >> 4
    size = {1: 4, 2: 16}.get(family, 0)
    packed = header[_PROXY_V2_HEAD : _PROXY_V2_HEAD + size]
    if not size or len(packed) < size:
        return None
    return str(ipaddress.ip_address(packed))


class HelloLayout(NamedTuple):
    """Byte ranges of a TLS ClientHello (RFC 8446, section 4.1.2): its structure, and names in it.

    form: (start, end) of its type, its lengths and the types of extensions; end is exclusive.
    names: (start, end) of server names (SNI).
    """

    form: list[tuple[int, int]]
    names: list[tuple[int, int]]


def hello_layout(hello: bytes) -> HelloLayout:
    """The layout of a ClientHello, which may be cut, from its first byte on."""
    layout = HelloLayout([(0, 6)], [])
    at = 38  # handshake 4, version 2, random 32
    for size_bytes in (1, 2, 1):  # session id, cipher suites, compression methods
        layout.form.append((at, at + size_bytes))
        at += size_bytes + int.from_bytes(hello[at : at + size_bytes], "big")
    layout.form.append((at, at + 2))
    at += 2
    while at + 4 <= len(hello):
        kind, size = (int.from_bytes(hello[start : start + 2], "big") for start in (at, at + 2))
        layout.form.append((at, at + 4))
        at += 4 + size
        if kind == 0 and size > _BEFORE_NAME:
            layout.form.append((at - size, at - size + _BEFORE_NAME))
            layout.names.append((at - size + _BEFORE_NAME, at))
    return layout


def server_name(head: bytes) -> str | None:
    """The server name (SNI) in a TLS ClientHello; None if it has none or it is cut."""
    hello = head[_TLS_RECORD_HEAD:]
    if len(hello) < 38 or head[0] != _TLS_HANDSHAKE or hello[0] != 1:
        return None
    layout = hello_layout(hello)
    start, end = layout.form[4]
    end += int.from_bytes(hello[start:end], "big")  # behind the extensions
    for first, last in layout.names:
        if last <= min(end, len(hello)):
            return hello[first:last].decode("ascii", "backslashreplace")
    return None
