"""Recognise what is not a broker protocol by its first bytes: TLS, HTTP, and a PROXY header."""

import ipaddress
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import kernel

# Verdicts on the head of a direction.
NOT_KNOWN: Final = 0
MORE_NEEDED: Final = 1
IS_TLS: Final = 2
IS_HTTP: Final = 3
IS_PROXY_HEADER: Final = 4

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

_TLS_FIRST: Final = 20  # kinds of records
_TLS_LAST: Final = 23
_FIRST: Final = {start[0] for start in (*_HTTP_STARTS, _PROXY_V1, _PROXY_V2)}
# uint8[256]: whether bytes that begin so may be TLS, HTTP or a PROXY header, see `look`.
MAY_BE_OTHER: Final = np.array(
    [_TLS_FIRST <= byte <= _TLS_LAST or byte in _FIRST for byte in range(256)], np.uint8
)

# Cells of what is known of TLS records.
NEXT: Final = 0  # stream offset where the next one begins, -1 not known
IN_A_ROW: Final = 1  # how many end there


class Head(NamedTuple):
    """A verdict on a head.

    header_bytes: of a PROXY header, or of the first TLS record; client_ip: that PROXY names.
    """

    verdict: int
    header_bytes: int = 0
    client_ip: str | None = None


def look(head: bytes, at_start: bool) -> Head:
    """Judge the first bytes of a direction.

    Args:
        head: what is there of them.
        at_start: they are the first bytes of the connection; else only TLS records are looked for.
    """
    if at_start:
        proxy = _proxy_header(head)
        if proxy is not None:
            return proxy
        if _starts_one(head, _HTTP_STARTS):
            return Head(IS_HTTP)
        if any(start.startswith(head) for start in _HTTP_STARTS) or _may_be_tls(head):
            return Head(MORE_NEEDED)
    if _is_tls(head, at_start):
        return Head(IS_TLS, 5 + int.from_bytes(head[3:5], "big") if at_start else 0)
    return Head(NOT_KNOWN)


def _starts_one(head: bytes, starts: tuple[bytes, ...]) -> bool:
    return any(head.startswith(start) for start in starts)


def _may_be_tls(head: bytes) -> bool:
    """The first bytes of a first record, not yet its length."""
    return len(head) < 5 and _is_tls(head.ljust(3, b"\3").ljust(5, b"\1"), True)


def _is_tls(head: bytes, at_start: bool) -> bool:
    """TLS records: type, version 3.x, a length that TLS allows; mid-stream two of them in a row."""
    data = np.frombuffer(head, np.uint8)
    position = 0
    for _ in range(1 if at_start else 2):
        length = _record_length(data, position, len(data), at_start)
        if not length:
            return False
        position += 5 + length
    return True


class RecordsFound(NamedTuple):
    """next: stream offset where the next TLS record begins, -1 not known; in_a_row: how many end
    there; is_tls: there are two."""

    next: int
    in_a_row: int
    is_tls: bool


def new_records() -> Int64Array:
    """The cells of a direction whose beginning was not seen: no TLS record so far."""
    return np.array([-1, 0])


@kernel
def follow_records(
    records: Int64Array, data: ByteArray, start: int, length: int, offset: int, starts_packet: bool
) -> RecordsFound:
    """Look for TLS records in the next bytes of a stream: one header where the last record ended.

    Headers are looked for where packets start.

    Args:
        start, length: of the bytes in data; offset: of the first in the stream.
    """
    at, in_a_row = records[NEXT] - offset, records[IN_A_ROW]
    if records[NEXT] < 0 or at < 0:
        if not starts_packet:
            return RecordsFound(-1, 0, False)
        at, in_a_row = 0, 0
    while at < length:
        size = _record_length(data, start + at, start + length, False)
        if size == 0:
            return RecordsFound(-1, 0, False)
        in_a_row += 1
        at += 5 + size
    return RecordsFound(offset + at, in_a_row, in_a_row > 1)


@kernel
def _record_length(data: ByteArray, at: int, end: int, is_handshake: bool) -> int:
    """The bytes behind the header of a TLS record, 0 if it is none."""
    if end - at < 5 or data[at + 1] != 3 or data[at + 2] > 4:
        return 0
    kind = data[at]
    if kind != _TLS_HANDSHAKE and (is_handshake or not _TLS_FIRST <= kind <= _TLS_LAST):
        return 0
    length = np.int64(data[at + 3]) << 8 | data[at + 4]
    return length if length <= _TLS_RECORD_LIMIT else 0


def _proxy_header(head: bytes) -> Head | None:
    if head.startswith(_PROXY_V2):
        if len(head) < _PROXY_V2_HEAD:
            return Head(MORE_NEEDED)
        length = _PROXY_V2_HEAD + int.from_bytes(head[14:16], "big")
        if len(head) < length:
            return Head(MORE_NEEDED)
        return Head(IS_PROXY_HEADER, length, _proxy_v2_client(head[:length]))
    if head.startswith(_PROXY_V1):
        end = head.find(b"\r\n", 0, _PROXY_V1_LONGEST)
        if end < 0:
            return Head(MORE_NEEDED) if len(head) < _PROXY_V1_LONGEST else None
        words = head[:end].split(b" ")
        return Head(IS_PROXY_HEADER, end + 2, _address(words[2]) if len(words) > 2 else None)
    if head and (_PROXY_V1.startswith(head) or _PROXY_V2.startswith(head)):
        return Head(MORE_NEEDED)
    return None


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


def server_name(head: bytes) -> str | None:
    """The server name (SNI) that a TLS ClientHello asks for, if the bytes hold it."""
    if len(head) < 43 or head[0] != _TLS_HANDSHAKE or head[5] != 1:
        return None
    position = 43  # record 5, handshake 4, version 2, random 32
    for size_bytes in (1, 2, 1):  # session id, cipher suites, compression methods
        size = int.from_bytes(head[position : position + size_bytes], "big")
        position += size_bytes + size
    end = min(len(head), position + 2 + int.from_bytes(head[position : position + 2], "big"))
    position += 2
    while position + 4 <= end:
        kind = int.from_bytes(head[position : position + 2], "big")
        size = int.from_bytes(head[position + 2 : position + 4], "big")
        position += 4
        if kind == 0 and size > 5 and position + size <= end:
            name = head[position + 5 : position + size]
            return name.decode("ascii", "backslashreplace")
        position += size
    return None
