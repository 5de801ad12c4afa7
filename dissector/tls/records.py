"""Records of one direction: their boundaries, and the packets that brought them.

A direction's bytes arrive in pieces, in order, with holes between them. `RecordStream` buffers the
bytes of an incomplete record; behind a hole whose end is no known boundary it finds the offsets at
which a record may begin.
"""

from typing import Any, Final, NamedTuple, Protocol

from dissector import limits
from dissector.stream import columns

HEADER_BYTES: Final = 5
MAX_BODY_BYTES: Final = (1 << 14) + 2048
CHANGE_CIPHER_SPEC: Final = 20
ALERT: Final = 21
HANDSHAKE: Final = 22
APPLICATION_DATA: Final = 23
_HEARTBEAT: Final = 24
MAJOR: Final = 3
_VERSION: Final = b"\x03\x03"  # of all encrypted records that are read


class StreamRange(NamedTuple):
    """Bytes start to end of a stream, with packet, time and flags of their range."""

    start: int
    end: int
    packet: int
    ts_ns: int
    flags: int


class PlainSpan(NamedTuple):
    """Plain bytes of a record that one piece carried: their number, packet, time and flags."""

    size: int
    packet: int
    ts_ns: int
    flags: int


class PlainSink(Protocol):
    """Receives the output of a connection. may_wait: a missing key may still arrive."""

    @property
    def may_wait(self) -> bool: ...

    def data(self, endpoint_index: int, offset: int, content: Any, spans: Any) -> None:
        """Emit the plain bytes of one record. spans: PlainSpan tuples."""

    def gap(
        self, endpoint_index: int, kind: int, offset: int, size: int, piece: StreamRange
    ) -> None:
        """Emit missing plain bytes."""

    def note(self, code: str, endpoint_index: int, piece: StreamRange, **numbers: int) -> None:
        """Emit a notice."""


def body_bytes(header: memoryview) -> int:
    """The body length in a record's header, -1 if it is no header."""
    if not CHANGE_CIPHER_SPEC <= header[0] <= _HEARTBEAT or header[1] != MAJOR or header[2] > 4:
        return -1
    size = header[3] << 8 | header[4]
    return size if size <= MAX_BODY_BYTES else -1


def shares(
    pieces: list[StreamRange], start: int, end: int, lead: int, size: int
) -> list[PlainSpan]:
    """The share of each piece in a record's plain bytes.

    These ciphers keep byte positions, so shares are exact; but the piece with the record's header
    has at least the first byte, and the piece with its end the last one: a record names all of its
    packets.

    Args:
        pieces: with bytes of the record, in order. start, end: stream offsets of the record.
        lead: its bytes before the first plain one. size: plain bytes, at least 1.
    """
    count = min(len(pieces), size)
    if count < len(pieces):
        pieces = [pieces[0], *pieces[len(pieces) - count + 1 :]] if count > 1 else pieces[-1:]
    spans: list[PlainSpan] = []
    done = 0
    for number, piece in enumerate(pieces):
        left = count - number - 1
        cut = size if not left else min(max(piece.end - start - lead, done + 1), size - left)
        flags = piece.flags
        if piece.start != start:
            flags &= ~columns.STARTS_PACKET if number == 0 or piece.start < start else flags
        if piece.end != end:
            flags &= ~columns.ENDS_PACKET if piece.end > end else flags
        spans.append(PlainSpan(cut - done, piece.packet, piece.ts_ns, flags))
        done = cut
    return spans


class RecordStream:
    """The bytes of a direction that are in no whole record yet.

    data: from stream offset start on; pieces: the ranges that brought them.
    needed: the length of data at which the next record is whole.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0
        self.pieces: list[StreamRange] = []
        self.needed = HEADER_BYTES
        self._searched = 0
        self._candidates: list[int] = []

    @property
    def end(self) -> int:
        """The stream offset behind the last byte."""
        return self.start + len(self.data)

    def add(self, piece: StreamRange, view: memoryview) -> None:
        """Append a piece that follows the last one."""
        if not self.data:
            self.start = piece.start
            self.pieces = []
        self.data += view
        self.pieces.append(piece)

    def keep(self, data: memoryview, start: int, pieces: list[StreamRange]) -> None:
        """Replace the buffer by these bytes, which begin at a stream offset."""
        self.data = bytearray(data)
        self.start = start
        self.pieces = [piece for piece in pieces if piece.end > start] if data else []

    def begin_search(self, offset: int) -> None:
        """Drop the buffer; search for record boundaries from a stream offset on."""
        self.data, self.pieces = bytearray(), []
        self.start = self._searched = offset
        self._candidates = []
        self.needed = HEADER_BYTES

    def candidates(self, least: int) -> list[int]:
        """Offsets in data at which a whole record may begin, without those returned before.

        Args:
            least: the shortest body of a record.
        """
        data, start = self.data, self.start
        at = data.find(_VERSION, max(self._searched - start, 1))
        while at >= 0 and at + 4 <= len(data):
            size = data[at + 2] << 8 | data[at + 3]
            kind = data[at - 1]
            if CHANGE_CIPHER_SPEC < kind <= _HEARTBEAT and least <= size <= MAX_BODY_BYTES:
                self._candidates.append(start + at - 1)
            at = data.find(_VERSION, at + 1)
        # An incomplete header is searched again.
        self._searched = max(self._searched, self.end - HEADER_BYTES + 2)
        self._candidates = self._candidates[-limits.MAX_TLS_PLACES :]
        whole: list[int] = []
        rest: list[int] = []
        for offset in self._candidates:
            place = offset - start
            size = data[place + 3] << 8 | data[place + 4]
            (whole if place + HEADER_BYTES + size <= len(data) else rest).append(offset)
        self._candidates = rest
        return [offset - start for offset in whole]

    def forget_searched(self) -> None:
        """Drop the bytes before the first candidate that is not whole yet."""
        keep_from = min([*self._candidates, self._searched - 1, self.end])
        if keep_from > self.start:
            del self.data[: keep_from - self.start]
            self.start = keep_from
            self.pieces = [piece for piece in self.pieces if piece.end > keep_from]
