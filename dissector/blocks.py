"""Rows on their way out of the core: blocks of columns of one table, no Arrow yet.

A block owns its arrays: whoever receives it may keep it. A column of the table that a block does
not name is null in all its rows.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.limits import NULL

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

# Of a block that is for no table: whose the connections of the next frames are (`want_clients`).
CLIENTS: Final = "clients"


class Coded(NamedTuple):
    """A text column with few values.

    codes: int64[rows], index into names; null where negative (-1, or limits.NULL).
    names: the texts (bytes from the wire, or our own words). It may grow after the block was made.
    """

    codes: Int64Array
    names: Sequence[bytes] | Sequence[str]


def coded(codes: Int64Array, names: Sequence[str]) -> Coded:
    """Codes from the wire, where a sender may put any number: one without a name is its digits."""
    is_odd = (codes >= len(names)) | ((codes < 0) & (codes != NULL))
    if not is_odd.any():
        return Coded(codes, names)
    odd, places = np.unique(codes[is_odd], return_inverse=True)
    codes = codes.copy()
    codes[is_odd] = len(names) + places
    return Coded(codes, [*names, *map(str, odd.tolist())])


class Spans(NamedTuple):
    """A text or bytes column with many values, still as it was on the wire.

    data: uint8[], holds the bytes.
    starts, lengths: int64[rows], a negative length is null.
    is_hex: show the bytes as lower-case hex digits instead of text.
    """

    data: ByteArray
    starts: Int64Array
    lengths: Int64Array
    is_hex: bool = False


class Lists(NamedTuple):
    """A column of integer lists.

    values: int64[].
    starts, counts: int64[rows]; a negative count is null.
    """

    values: Int64Array
    starts: Int64Array
    counts: Int64Array


# int64[rows] with limits.NULL (integers, flags as 0 and 1, ts in ns) | Coded | Spans | Lists
# | Sequence of Python values for what is rare (maps, lists of text, decoded detail).
Column = Int64Array | Coded | Spans | Lists | Sequence[Any]


class TableBlock(NamedTuple):
    """Rows of one table in the order in which they closed.

    table: name of the contract.
    rows: their number.
    columns: by name, each with `rows` values.
    """

    table: str
    rows: int
    columns: dict[str, Column]


def numbers_of(block: TableBlock, column: str) -> Int64Array:
    """A column of numbers, int64[rows], null throughout where the block leaves it out."""
    values = block.columns.get(column)
    return np.full(block.rows, NULL, np.int64) if values is None else np.asarray(values)
