"""The short way of most ranges: records of application data in a row, each opened at once."""

import struct
from typing import Any, Final

from dissector.stream import columns
from dissector.tls import records
from dissector.tls.direction import Direction
from dissector.tls.records import PlainSink, StreamRange

_HEADER: Final = struct.Struct(">BBxH").unpack_from


def read_quickly(
    side: Direction, is_13: bool, view: memoryview, piece: StreamRange, sink: PlainSink
) -> int:
    """Take what nearly all ranges are: records of application data that open at once, and
    the beginning of the next one; gives how many bytes it took, from the front.

    Args:
        view: the range; piece: it.
    """
    stream = side.stream
    if side.opener is None or not side.is_proved or side.is_special:
        return 0
    at, size = 0, len(view)
    if stream.data:
        missing = stream.needed - len(stream.data)
        if stream.data[0] != records.APPLICATION_DATA or stream.needed == records.HEADER_BYTES:
            return 0
        if size < missing:
            stream.data += view
            stream.pieces.append(piece)
            return size
        stream.data += view[:missing]
        record = bytes(stream.data)
        stream.pieces.append(piece)
        if not _opened(side, is_13, record, stream.start, stream.pieces, sink):
            del stream.data[-missing:], stream.pieces[-1]
            return 0
        stream.data = bytearray()
        at = missing
    rest = bytes(view[at:])
    end = _opened(side, is_13, rest, piece.start + at, [piece], sink)
    if len(rest) - end > records.HEADER_BYTES:
        kind, major, body = _HEADER(rest, end)
        needed = records.HEADER_BYTES + body
        if (
            kind == records.APPLICATION_DATA
            and major == records.MAJOR
            and len(rest) - end < needed <= records.HEADER_BYTES + records.MAX_BODY_BYTES
        ):
            stream.data = bytearray(rest[end:])
            stream.start, stream.pieces, stream.needed = piece.start + at + end, [piece], needed
            return size
    return at + end


def _opened(
    side: Direction,
    is_13: bool,
    data: bytes,
    start: int,
    pieces: list[StreamRange],
    sink: PlainSink,
) -> int:
    """Put out what the records of application data hold that stand in a row, whole, at the front
    of some bytes, up to one that does not open at once; gives where that one begins.

    Args:
        start: of the bytes in the stream. pieces: that brought them; several: of one record.
    """
    opener, sequence = side.opener, side.sequence
    assert opener is not None, "it opens records"
    contents: list[Any] = []
    at = last = 0
    size = len(data) - records.HEADER_BYTES
    while at < size:
        kind, major, body = _HEADER(data, at)
        front = at + records.HEADER_BYTES
        end = front + body
        if kind != records.APPLICATION_DATA or major != records.MAJOR or end > len(data):
            break
        content = opener.open(sequence, data[at:front], data[front:end])
        if not content:
            break
        if is_13:
            if content[-1] != records.APPLICATION_DATA:
                break
            content = content[:-1]
        contents.append(content)
        sequence += 1
        last, at = front, end
    if not contents:
        return 0
    side.record_no += sequence - side.sequence
    side.sequence = sequence
    if opener.lead:
        side.hint = opener.hint(data[last:at])
    # Plain bytes of one packet are one range, whatever records they came in.
    joined = contents[0] if len(contents) == 1 else b"".join(contents)
    plain = len(joined)
    side.overhead += at - plain
    if plain:
        sink.data(side.index, side.plain, joined, _spans(side, pieces, start, start + at, plain))
        side.plain += plain
    return at


def _spans(
    side: Direction, pieces: list[StreamRange], start: int, end: int, plain: int
) -> Any:
    """Which piece carried which plain bytes of the records between two places of the stream."""
    if len(pieces) > 1:
        assert side.opener is not None, "it opens records"
        return records.shares(pieces, start, end, records.HEADER_BYTES + side.opener.lead, plain)
    first, last, packet, ts_ns, flags = pieces[0]
    if first != start:
        flags &= ~columns.STARTS_PACKET
    if last != end:
        flags &= ~columns.ENDS_PACKET
    return ((plain, packet, ts_ns, flags),)
