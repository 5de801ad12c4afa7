"""Records of one direction: where they begin and end, and which packets brought them.

A direction's bytes come in pieces, in order, with holes between them. `RecordStream` holds those
that no whole record lies in yet; behind a hole whose end is no boundary that is known it finds
places where a record may begin.
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
    """Bytes start to end of a stream, as a range brought them; flags: of the range."""

    start: int
    end: int
    packet: int
    ts_ns: int
    flags: int


class PlainSpan(NamedTuple):
    """Plain bytes of a record that one piece carried: how many, and what their range says."""

    size: int
    packet: int
    ts_ns: int
    flags: int


class PlainSink(Protocol):
    """Who takes what comes out. may_wait: a key that is not there may still come."""

    @property
    def may_wait(self) -> bool: ...

    def data(self, endpoint_index: int, offset: int, content: Any, spans: Any) -> None:
        """Plain bytes of one record. spans: as PlainSpan has them."""

    def gap(
        self, endpoint_index: int, kind: int, offset: int, size: int, piece: StreamRange
    ) -> None:
        """Plain bytes that are not there."""

    def note(self, code: str, endpoint_index: int, piece: StreamRange, **numbers: int) -> None:
        """A notice."""


def body_bytes(header: memoryview) -> int:
    """The length that a record's header says, -1 if it is none."""
    if not CHANGE_CIPHER_SPEC <= header[0] <= _HEARTBEAT or header[1] != MAJOR or header[2] > 4:
        return -1
    size = header[3] << 8 | header[4]
    return size if size <= MAX_BODY_BYTES else -1


def shares(
    pieces: list[StreamRange], start: int, end: int, lead: int, size: int
) -> list[PlainSpan]:
    """Which piece carried which of a record's plain bytes.

    Byte for byte, as these ciphers keep places; but the first byte counts with the record's header,
    the last one with its end, so that a record leads to all of its packets.

    Args:
        pieces: that have bytes of the record, in order. start, end: of the record in the stream.
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
    """What of a direction's bytes is in no whole record yet.

    data: from stream offset start on; pieces: that brought them.
    needed: so many of them must be there before the next record is whole.
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
        """Take a piece that follows the last one."""
        if not self.data:
            self.start = piece.start
            self.pieces = []
        self.data += view
        self.pieces.append(piece)

    def keep(self, data: memoryview, start: int, pieces: list[StreamRange]) -> None:
        """Hold these bytes alone, which begin at a stream offset."""
        self.data = bytearray(data)
        self.start = start
        self.pieces = [piece for piece in pieces if piece.end > start] if data else []

    def begin_search(self, offset: int) -> None:
        """Nothing is known of boundaries from a stream offset on; what was held is dropped."""
        self.data, self.pieces = bytearray(), []
        self.start = self._searched = offset
        self._candidates = []
        self.needed = HEADER_BYTES

    def candidates(self, least: int) -> list[int]:
        """Places not given before where a whole record may lie, as offsets in data.

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
        # A header that is not all there is looked for once more.
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
        """Let go of the bytes before all places that are still open."""
        keep_from = min([*self._candidates, self._searched - 1, self.end])
        if keep_from > self.start:
            del self.data[: keep_from - self.start]
            self.start = keep_from
            self.pieces = [piece for piece in self.pieces if piece.end > keep_from]
