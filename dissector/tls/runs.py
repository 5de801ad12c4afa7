"""Many ranges of one direction at once: decrypt their records in a row, split them with arrays."""

from typing import Any, Final, Protocol

import numpy as np

from dissector.blocks import Int64Array
from dissector.stream import columns
from dissector.tls import quick, records
from dissector.tls.direction import Direction
from dissector.tls.records import StreamRange

LEAST_RANGES: Final = 8  # fewer are read one by one: arrays cost more than they save


class RunSink(Protocol):
    """Receives the plain ranges of a run."""

    def rows(self, endpoint_index: int, offset: int, content: bytes, rows: Int64Array) -> None:
        """Emit plain bytes, from an offset of the plain stream on, as several ranges.

        Args:
            rows: int64[6, ranges]: row in the block, start and size in content, packet, time,
                flags.
        """


def read_run(
    side: Direction, is_13: bool, run: Int64Array, views: list[memoryview], sink: RunSink
) -> int:
    """Decrypt the application data records at the front of consecutive ranges, and buffer the start
    of the next one; returns the stream offset up to which bytes were handled.

    Args:
        run: int64[6, ranges]: the fields of StreamRange, and the ranges' rows in the block.
        views: the bytes of the ranges.
    """
    stream, begin = side.stream, int(run[0, 0])
    if side.opener is None or not side.is_proved or side.is_special:
        return begin
    data = b"".join([stream.data, *views])
    start = stream.start if stream.data else begin
    contents, ends = quick.opened(side, is_13, data)
    if not contents:
        return begin
    if stream.data:
        buffered = np.zeros((len(run), len(stream.pieces)), np.int64)  # no record ends in these
        buffered[:-1] = np.array(stream.pieces, np.int64).T
        run = np.concatenate((buffered, run), axis=1)
        stream.data = bytearray()
    joined = b"".join(contents)
    if joined:
        sizes = np.array([len(content) for content in contents], np.int64)
        lead = records.HEADER_BYTES + side.opener.lead
        rows = _rows(run, start, start + np.array(ends, np.int64), sizes, lead)
        sink.rows(side.index, side.plain, joined, rows)
        side.plain += len(joined)
    end = start + ends[-1]
    left = run[:-1, np.searchsorted(run[1], end, "right") :]
    pieces = [StreamRange(*row) for row in left.T.tolist()]
    return int(run[1, -1]) if quick.keep_begun(side, data[ends[-1] :], end, pieces) else end


def _rows(
    run: Int64Array, start: int, record_ends: Int64Array, sizes: Int64Array, lead: int
) -> Int64Array:
    """The ranges of the records' plain bytes: one per packet (see `records.shares`), of records
    that end in the same range.

    Args:
        start: the first record's stream offset. sizes: plain bytes of each record. lead: bytes of a
            record before its plain bytes.
    """
    starts, ends, packets, times, flags, places = run
    record_starts = np.concatenate(([start], record_ends[:-1]))
    plain_ends = np.cumsum(sizes)
    plain_starts = plain_ends - sizes
    first = np.searchsorted(ends, record_starts, "right")
    last = np.searchsorted(ends, record_ends - 1, "right")
    # The end of each range except the last one, in plain bytes.
    number = np.arange(last[-1])
    boundary = ends[number]
    record = np.searchsorted(record_ends, boundary)
    size = sizes[record]
    behind, before = last[record] - number, number - first[record] + 1
    inside = np.maximum(boundary - record_starts[record] - lead, before)
    inside = np.minimum(np.minimum(inside, np.maximum(size - behind, 1)), np.maximum(size - 1, 0))
    cuts = plain_starts[record] + np.where(boundary == record_ends[record], size, inside)
    bounds: Any = np.unique(np.concatenate((cuts, plain_starts[first < last], [0, plain_ends[-1]])))
    low, high = bounds[:-1], bounds[1:]
    piece = np.searchsorted(cuts, low, "right")
    front, back = np.searchsorted(plain_ends, low, "right"), np.searchsorted(plain_ends, high)
    lost = np.where(starts[piece] < record_starts[front], columns.STARTS_PACKET, 0)
    lost |= np.where(ends[piece] > record_ends[back], columns.ENDS_PACKET, 0)
    return np.array(
        [places[last[back]], low, high - low, packets[piece], times[piece], flags[piece] & ~lost]
    )
