"""The fast path of most ranges: consecutive application data records, each decrypted at once."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from dissector.stream import columns
from dissector.tls import records
from dissector.tls.direction import Direction
from dissector.tls.records import PlainSink, StreamRange

_APPLICATION_DATA: Final = bytes([records.APPLICATION_DATA])
_HEADER: Final = struct.Struct(">HxH").unpack_from
_DATA_KIND: Final = records.APPLICATION_DATA << 8 | records.MAJOR  # with the version's first byte


def read_quickly(
    side: Direction, is_13: bool, view: memoryview, piece: StreamRange, sink: PlainSink
) -> int:
    """Decrypt the application data records at a range's front, and buffer the start of the next;
    returns how many bytes were handled.

    Args:
        view: the bytes of the range `piece`.
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
        if not _put(side, is_13, record, stream.start, stream.pieces, sink):
            del stream.data[-missing:], stream.pieces[-1]
            return 0
        stream.data = bytearray()
        at = missing
    rest = bytes(view[at:])
    end = _put(side, is_13, rest, piece.start + at, [piece], sink)
    at += end
    return size if keep_begun(side, rest[end:], piece.start + at, [piece]) else at


def opened(side: Direction, is_13: bool, data: bytes) -> tuple[list[Any], list[int]]:
    """Decrypt the whole application data records at the front of some bytes, up to the first that
    fails; returns their contents and their ends, and advances the direction's counters."""
    opener = side.opener
    assert opener is not None, "it opens records"
    ends: list[int] = []
    at, size = 0, len(data)
    while at < size - records.HEADER_BYTES:
        kind, body = _HEADER(data, at)
        at += records.HEADER_BYTES + body
        if kind != _DATA_KIND or at > size:
            break
        ends.append(at)
    starts = [0, *ends][:-1]
    fronts = [start + records.HEADER_BYTES for start in starts]
    headers = [data[start:front] for start, front in zip(starts, fronts, strict=True)]
    bodies = [data[front:end] for front, end in zip(fronts, ends, strict=True)]
    contents = opener.open_row(side.sequence, headers, bodies)
    if is_13:
        kept = [content[:-1] for content in contents if content[-1:] == _APPLICATION_DATA]
        if len(kept) < len(contents):  # keep only the records before the first of another type
            is_kept = [content[-1:] == _APPLICATION_DATA for content in contents]
            kept = kept[: is_kept.index(False)]
        contents = kept
    count = len(contents)
    if count:
        side.record_no += count
        side.sequence += count
        if opener.lead:
            side.hint = opener.hint(bodies[count - 1])
        side.overhead += ends[count - 1] - sum(map(len, contents))
    return contents, ends[:count]


def keep_begun(side: Direction, data: bytes, start: int, pieces: Sequence[StreamRange]) -> bool:
    """Buffer bytes at a range's end if an application data record begins there; returns whether.

    Args:
        start: the stream offset of the bytes. pieces: the ranges that brought them.
    """
    if len(data) <= records.HEADER_BYTES:
        return False
    kind, body = _HEADER(data, 0)
    if kind != _DATA_KIND or body > records.MAX_BODY_BYTES:
        return False
    if len(data) >= records.HEADER_BYTES + body:
        return False  # a whole record: it was not decrypted
    stream = side.stream
    stream.data = bytearray(data)
    stream.start, stream.pieces = start, list(pieces)
    stream.needed = records.HEADER_BYTES + body
    return True


def _put(
    side: Direction,
    is_13: bool,
    data: bytes,
    start: int,
    pieces: list[StreamRange],
    sink: PlainSink,
) -> int:
    """Emit the contents of the records at the front; returns how many bytes they take.

    Args:
        start: the stream offset of the bytes. pieces: the ranges that brought them; several only
            for a single record.
    """
    contents, ends = opened(side, is_13, data)
    if not contents:
        return 0
    # Plain bytes of one packet are one range, also of several records.
    joined = contents[0] if len(contents) == 1 else b"".join(contents)
    plain, at = len(joined), ends[-1]
    if plain:
        sink.data(side.index, side.plain, joined, _spans(side, pieces, start, start + at, plain))
        side.plain += plain
    return at


def _spans(side: Direction, pieces: list[StreamRange], start: int, end: int, plain: int) -> Any:
    """The share of each piece in the plain bytes of the records between two stream offsets."""
    if len(pieces) > 1:
        assert side.opener is not None, "it opens records"
        return records.shares(pieces, start, end, records.HEADER_BYTES + side.opener.lead, plain)
    first, last, packet, ts_ns, flags = pieces[0]
    if first != start:
        flags &= ~columns.STARTS_PACKET
    if last != end:
        flags &= ~columns.ENDS_PACKET
    return ((plain, packet, ts_ns, flags),)
