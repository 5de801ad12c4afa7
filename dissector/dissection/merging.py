"""Merge rows of several protocols in the order of the frame or event that closed them.

Each protocol returns its rows in order of closing. If a capture has several protocols, their rows
of one table are merged here, so that the order does not depend on how the capture was cut into
blocks.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, Lists, Spans, TableBlock
from dissector.limits import NULL

CLOSING_ROW: Final = "closing_row"  # a column that protocols may add: the sort key of rows
# Columns that refer to a row's frame: the first that a table has breaks ties.
_FRAME_COLUMNS: Final = ("request_frame_no", "opened_frame_no", "frame_no")
_LAST: Final = (1 << 63) - 1


def merged(parts: Sequence[Sequence[TableBlock]]) -> list[TableBlock]:
    """The blocks of several protocols; blocks of one table become one if they have several
    protocols.

    Args:
        parts: by protocol, its blocks; CLOSING_ROW is removed from them.
    """
    merged_blocks: list[TableBlock] = []
    tables = list(dict.fromkeys(block.table for blocks in parts for block in blocks))
    for table in tables:
        by_protocol = [[block for block in blocks if block.table == table] for blocks in parts]
        by_protocol = [blocks for blocks in by_protocol if blocks]
        if len(by_protocol) == 1:
            merged_blocks += by_protocol[0]
            for block in by_protocol[0]:
                block.columns.pop(CLOSING_ROW, None)
        else:
            merged_blocks.append(interleaved(by_protocol))
    return merged_blocks


def interleaved(parts: Sequence[Sequence[TableBlock]]) -> TableBlock:
    """Merge blocks of one table into one, in the order of the rows' closing rows.

    Rows of one protocol stay in their order.
    """
    closings = [
        _rising([_key(block, (CLOSING_ROW, "frame_no")) for block in part]) for part in parts
    ]
    frames = [_rising([_key(block, _FRAME_COLUMNS) for block in part]) for part in parts]
    order = np.lexsort((np.concatenate(frames), np.concatenate(closings)))
    blocks = [block for part in parts for block in part]
    rows = [block.rows for block in blocks]
    names = dict.fromkeys(name for block in blocks for name in block.columns)
    names.pop(CLOSING_ROW, None)
    columns = {
        name: joined([block.columns.get(name) for block in blocks], rows, order) for name in names
    }
    return TableBlock(blocks[0].table, sum(rows), columns)


def _key(block: TableBlock, names: Sequence[str]) -> Int64Array:
    for name in names:
        values = block.columns.get(name)
        if isinstance(values, np.ndarray):
            return np.where(values == NULL, _LAST, values)
    return np.full(block.rows, _LAST, np.int64)


def _rising(keys: Sequence[Int64Array]) -> Int64Array:
    return np.maximum.accumulate(np.concatenate(keys))


def joined(parts: Sequence[Column | None], rows: Sequence[int], order: Int64Array) -> Column:
    """Join a column of several blocks.

    Args:
        parts: the column of each block, None if it is null; rows: of each block; order:
            int64[all rows], indexes into the concatenated rows.
    """
    kinds = {type(part) for part in parts if part is not None}
    if kinds == {np.ndarray}:
        columns = [_or_nulls(part, count) for part, count in zip(parts, rows, strict=True)]
        return np.concatenate(columns)[order]
    if kinds == {Coded}:
        return _joined_codes(parts, rows, order)
    if kinds == {Spans}:
        return _joined_spans(parts, rows, order)
    if kinds == {Lists}:
        return _joined_lists(parts, rows, order)
    values = [
        value for part, count in zip(parts, rows, strict=True) for value in _plain(part, count)
    ]
    return [values[index] for index in order.tolist()]


def _or_nulls(part: Any, count: int) -> Int64Array:
    return np.full(count, NULL, np.int64) if part is None else part


def _joined_codes(parts: Sequence[Any], rows: Sequence[int], order: Int64Array) -> Coded:
    """Codes of one new list, which has only the names in use."""
    names: dict[bytes, int] = {}
    code_columns = []
    for part, count in zip(parts, rows, strict=True):
        codes = np.full(count, NULL, np.int64)
        if part is not None:
            used, inverse = np.unique(part.codes, return_inverse=True)
            fresh = [
                NULL if code < 0 else names.setdefault(_as_bytes(part.names[code]), len(names))
                for code in used.tolist()
            ]
            codes = np.array(fresh, np.int64)[inverse]
        code_columns.append(codes)
    return Coded(np.concatenate(code_columns)[order], list(names))


def _as_bytes(name: bytes | str) -> bytes:
    return name.encode() if isinstance(name, str) else name


def _joined_spans(parts: Sequence[Any], rows: Sequence[int], order: Int64Array) -> Spans:
    data, starts, lengths = [], [], []
    is_hex = False
    used = 0
    for part, count in zip(parts, rows, strict=True):
        if part is None:
            starts.append(np.zeros(count, np.int64))
            lengths.append(np.full(count, -1, np.int64))
            continue
        is_hex = part.is_hex
        data.append(part.data)
        starts.append(part.starts + used)
        lengths.append(part.lengths)
        used += len(part.data)
    return Spans(
        np.concatenate(data), np.concatenate(starts)[order], np.concatenate(lengths)[order], is_hex
    )


def _joined_lists(parts: Sequence[Any], rows: Sequence[int], order: Int64Array) -> Lists:
    values, starts, counts = [], [], []
    used = 0
    for part, count in zip(parts, rows, strict=True):
        if part is None:
            starts.append(np.zeros(count, np.int64))
            counts.append(np.full(count, -1, np.int64))
            continue
        values.append(part.values)
        starts.append(part.starts + used)
        counts.append(part.counts)
        used += len(part.values)
    return Lists(
        np.concatenate(values), np.concatenate(starts)[order], np.concatenate(counts)[order]
    )


def _plain(part: Any, count: int) -> list[Any]:
    """The values of a text column of any class."""
    if part is None:
        return [None] * count
    if isinstance(part, Coded):
        return [None if code < 0 else part.names[code] for code in part.codes.tolist()]
    if isinstance(part, Spans):
        spans = zip(part.starts.tolist(), part.lengths.tolist(), strict=True)
        texts = [None if size < 0 else part.data[at : at + size].tobytes() for at, size in spans]
        return [text.hex() if part.is_hex and text is not None else text for text in texts]
    assert not isinstance(part, np.ndarray | Lists), "a column has one meaning in all protocols"
    return list(part)
