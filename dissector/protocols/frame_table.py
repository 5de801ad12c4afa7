"""Rows of the table `frames`: the columns that are the same for every protocol."""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Coded, Column, Int64Array, Spans
from dissector.bundles import Bundle
from dissector.jit import kernel
from dissector.limits import NULL
from dissector.protocols import columns as protocols_columns
from dissector.protocols.interface import FrameBlock, Sources
from dissector.schemas import TABLES

# Frame columns that are unchanged in the table.
PLAIN: Final = tuple(
    column.name
    for column in TABLES["frames"].columns
    if column.type in ("bigint", "boolean") and column.name in protocols_columns.COLUMN_NUMBER
)
# Frame columns with indexes into fixed lists of words.
WORDS: Final = {
    "direction": protocols_columns.DIRECTION_NAMES,
    "status": protocols_columns.STATUS_NAMES,
    "checksum": protocols_columns.CHECKSUM_NAMES,
    "name_source": protocols_columns.NAME_SOURCE_NAMES,
}


@kernel
def _find_live(matrix: Int64Array, columns: Int64Array, rows: Int64Array, live: Int64Array) -> int:
    """Write to `live` the indexes in `columns` of columns with any value; return how many."""
    count = 0
    for index in range(len(columns)):
        cells = matrix[columns[index]]
        row = 0
        while row < len(rows) and cells[rows[row]] == NULL:
            row += 1
        if row < len(rows):
            live[count] = index
            count += 1
    return count


@kernel
def _pick(matrix: Int64Array, columns: Int64Array, rows: Int64Array, out: Int64Array) -> None:
    """Copy chosen cells: out[c, r] = matrix[columns[c], rows[r]]."""
    first = rows[0]
    is_run = rows[len(rows) - 1] - first == len(rows) - 1
    for index in range(len(columns)):
        cells = matrix[columns[index]]
        if is_run:
            for row in range(len(rows)):
                out[index, row] = cells[first + row]
        else:
            for row in range(len(rows)):
                out[index, row] = cells[rows[row]]


@kernel
def _find_filled(matrix: Int64Array, count: int, filled: Int64Array) -> None:
    """filled[column] = 1 if a column has a value in its first `count` rows, else 0."""
    for column in range(len(matrix)):
        row = 0
        while row < count and matrix[column, row] == NULL:
            row += 1
        filled[column] = 1 if row < count else 0


def filled_columns(bundle: Bundle, count: int) -> dict[str, Int64Array]:
    """Copies of the first `count` rows of a bundle's columns, without columns that are all null."""
    filled = np.zeros(len(bundle.matrix), np.int64)
    _find_filled(bundle.matrix, count, filled)
    columns = zip(type(bundle)._fields, filled.tolist(), bundle.matrix[:, :count], strict=True)
    return {name: values.copy() for name, is_filled, values in columns if is_filled}


def picked(block: FrameBlock, numbers: Int64Array, rows: Int64Array) -> dict[int, Int64Array]:
    """Copies of a block's columns by index in `numbers`, without columns that are all null.

    Args:
        numbers: int64[], column numbers. rows: int64[], rising.
    """
    live = np.empty(len(numbers), np.int64)
    live = live[: _find_live(block.matrix, numbers, rows, live)]
    cells = np.empty((len(live), len(rows)), np.int64)
    if len(live):
        _pick(block.matrix, numbers[live], rows, cells)
    return dict(zip(live.tolist(), cells, strict=True))


_COPIED: Final = (*PLAIN, *WORDS)
_NUMBERS: Final = np.array([protocols_columns.COLUMN_NUMBER[name] for name in _COPIED], np.int64)


def common_columns(block: FrameBlock, rows: Int64Array) -> dict[str, Column]:
    """The columns of `frames` that every protocol shares, for chosen rows of a block.

    Args:
        rows: int64[], rows of the block that are frames, rising.
    """
    columns: dict[str, Column] = {}
    for index, values in picked(block, _NUMBERS, rows).items():
        name = _COPIED[index]
        columns[name] = Coded(values, WORDS[name]) if name in WORDS else values
    if "last_ts_ns" in columns:
        columns["ts"] = columns["last_ts_ns"]
    return columns


@kernel
def _copy_spans(
    sources: Sources,
    chosen: Int64Array,
    starts: Int64Array,
    lengths: Int64Array,
    out: ByteArray,
    out_starts: Int64Array,
) -> None:
    position = 0
    for row in range(len(starts)):
        out_starts[row] = position
        data = sources[chosen[row]]
        for index in range(max(lengths[row], 0)):
            out[position + index] = data[starts[row] + index]
        position += max(lengths[row], 0)


def copied_spans(
    block: FrameBlock, rows: Int64Array, at: str, size: str, is_hex: bool = False
) -> Spans | None:
    """Texts of chosen rows, copied out of the buffers; None if no row has any.

    Args:
        at, size: names of the frame columns with the spans.
    """
    columns = picked(
        block,
        np.array(
            [protocols_columns.COLUMN_NUMBER[size], protocols_columns.COLUMN_NUMBER[at]], np.int64
        ),
        rows,
    )
    if len(columns) < 2:
        return None
    lengths, starts = columns[0], columns[1]
    data = np.empty(int(np.maximum(lengths, 0).sum()), np.uint8)
    out_starts = np.empty(len(rows), np.int64)
    _copy_spans(block.sources, block.frames.source[rows], starts, lengths, data, out_starts)
    return Spans(data, out_starts, lengths, is_hex)


# The client's first frame begins before it, also behind a PROXY header.
_FIRST_BYTES: Final = 256


def first_of_clients(block: FrameBlock) -> Int64Array:
    """The connections of which first frames of the client are in a block."""
    frames, rows = block.frames, block.rows
    is_first = (frames.frame_no[:rows] != NULL) & (frames.stream_offset[:rows] < _FIRST_BYTES)
    is_first &= frames.direction[:rows] == protocols_columns.TO_BROKER
    # The counts are unused: without them numpy imports its masked arrays, at each start.
    connections, _ = np.unique(frames.connection_id[:rows][is_first], return_counts=True)
    return connections


def with_copies(block: FrameBlock, rows: Int64Array, source: int) -> FrameBlock:
    """A block in which the bytes of some frames are copies; it must not have been read yet.

    Args:
        rows: rows of the block; events among them are ignored.
        source: number of the source that the copies replace; no other row may be in it.
    """
    frames, sources = block.frames, list(block.sources)
    rows = rows[frames.frame_no[rows] != NULL]
    if not len(rows):
        return block
    lengths, starts = frames.data_bytes[rows], np.empty(len(rows), np.int64)
    copies = np.empty(int(np.maximum(lengths, 0).sum()), np.uint8)
    chosen, offsets = frames.source[rows], frames.data_offset[rows]
    _copy_spans(block.sources, chosen, offsets, lengths, copies, starts)
    frames.data_offset[rows], frames.source[rows] = starts, source
    sources[source] = copies
    block_data, heap, side, arena = sources
    return block._replace(sources=(block_data, heap, side, arena))
