"""Many ranges of one direction at once: records are opened in a row, then placed by arrays."""

from typing import Any, Final, Protocol

import numpy as np

from dissector.blocks import Int64Array
from dissector.stream import columns
from dissector.tls import quick, records
from dissector.tls.direction import Direction
from dissector.tls.records import StreamRange

LEAST_RANGES: Final = 8  # fewer are taken one by one: arrays cost more than they save


class RunSink(Protocol):
    """Who takes what comes out."""

    def rows(self, endpoint_index: int, offset: int, content: bytes, rows: Int64Array) -> None:
        """Plain bytes, from an offset of the plain stream on, and the ranges of them.

        Args:
            rows: int64[6, ranges]: place in the block, beginning and size in content, packet, time,
                flags.
        """


def read_run(
    side: Direction, is_13: bool, run: Int64Array, views: list[memoryview], sink: RunSink
) -> int:
    """Take records of application data from the front of ranges that follow each other, and the
    beginning of the next one; gives the stream offset up to which it took them.

    Args:
        run: int64[6, ranges]: what StreamRange has, and their places in the block.
        views: what the ranges hold.
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
        held = np.zeros((len(run), len(stream.pieces)), np.int64)  # no record ends in these
        held[:-1] = np.array(stream.pieces, np.int64).T
        run = np.concatenate((held, run), axis=1)
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
    """Ranges of the plain bytes of records: what one packet carried, as `records.shares` has it,
    of records that end in the same one.

    Args:
        start: of the first record in the stream. sizes: their plain bytes. lead: bytes of a record
            before them.
    """
    starts, ends, packets, times, flags, places = run
    record_starts = np.concatenate(([start], record_ends[:-1]))
    plain_ends = np.cumsum(sizes)
    plain_starts = plain_ends - sizes
    first = np.searchsorted(ends, record_starts, "right")
    last = np.searchsorted(ends, record_ends - 1, "right")
    # Where each range ends but the last one, in plain bytes.
    number = np.arange(last[-1])
    border = ends[number]
    record = np.searchsorted(record_ends, border)
    size = sizes[record]
    behind, before = last[record] - number, number - first[record] + 1
    inside = np.maximum(border - record_starts[record] - lead, before)
    inside = np.minimum(np.minimum(inside, np.maximum(size - behind, 1)), np.maximum(size - 1, 0))
    cuts = plain_starts[record] + np.where(border == record_ends[record], size, inside)
    bounds: Any = np.unique(np.concatenate((cuts, plain_starts[first < last], [0, plain_ends[-1]])))
    low, high = bounds[:-1], bounds[1:]
    piece = np.searchsorted(cuts, low, "right")
    front, back = np.searchsorted(plain_ends, low, "right"), np.searchsorted(plain_ends, high)
    lost = np.where(starts[piece] < record_starts[front], columns.STARTS_PACKET, 0)
    lost |= np.where(ends[piece] > record_ends[back], columns.ENDS_PACKET, 0)
    return np.array(
        [places[last[back]], low, high - low, packets[piece], times[piece], flags[piece] & ~lost]
    )
