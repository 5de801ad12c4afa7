"""The short way of most ranges: records of application data in a row, each opened at once."""

from typing import Any

from dissector.stream import columns
from dissector.tls import records
from dissector.tls.direction import Direction
from dissector.tls.records import PlainSink, StreamRange


def read_quickly(
    side: Direction, is_13: bool, view: memoryview, piece: StreamRange, sink: PlainSink
) -> int:
    """Take what nearly all ranges are: records of application data that open at once, and
    the beginning of the next one; gives how many bytes it took, from the front.

    Args:
        view: the range; piece: it.
    """
    opener, stream = side.opener, side.stream
    if opener is None or not side.is_proved or side.is_special:
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
        record = memoryview(bytes(stream.data) + view[:missing])
        pieces = [*stream.pieces, piece]
        if not _put_quickly(side, is_13, record, stream.start, pieces, sink):
            return 0
        stream.data = bytearray()
        at = missing
    start, own = piece.start, [piece]
    while size - at > records.HEADER_BYTES and view[at] == records.APPLICATION_DATA:
        body = view[at + 3] << 8 | view[at + 4]
        end = at + records.HEADER_BYTES + body
        if view[at + 1] != 3 or body > records.MAX_BODY_BYTES:
            break
        if end > size:
            stream.data = bytearray(view[at:])
            stream.start, stream.pieces, stream.needed = start + at, own, end - at
            return size
        if not _put_quickly(side, is_13, view[at:end], start + at, own, sink):
            break
        at = end
    return at


def _put_quickly(
    side: Direction,
    is_13: bool,
    record: memoryview,
    start: int,
    pieces: list[StreamRange],
    sink: PlainSink,
) -> bool:
    """Put out what a record of application data holds; False: it is none that opens at once."""
    opener = side.opener
    assert opener is not None, "it opens records"
    body = record[records.HEADER_BYTES :]
    content = opener.open(side.sequence, bytes(record[: records.HEADER_BYTES]), body)
    if not content:
        return False
    plain = len(content)
    if is_13:
        plain -= 1
        if content[plain] != records.APPLICATION_DATA:
            return False
    side.sequence += 1
    side.record_no += 1
    if opener.lead:
        side.hint = opener.hint(body)
    side.overhead += len(record) - plain
    if not plain:
        return True
    end = start + len(record)
    if len(pieces) == 1:
        _, last, packet, ts_ns, flags = pieces[0]
        if pieces[0].start != start:
            flags &= ~columns.STARTS_PACKET
        if last != end:
            flags &= ~columns.ENDS_PACKET
        spans: Any = ((plain, packet, ts_ns, flags),)
    else:
        lead = records.HEADER_BYTES + opener.lead
        spans = records.shares(pieces, start, end, lead, plain)
    sink.data(side.index, side.plain, content, spans)
    side.plain += plain
    return True
