"""Output rows of the core: blocks of columns of one table, before their conversion to Arrow.

A block owns its arrays; its receiver may keep them. A column of the table that a block lacks is
null in all its rows.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.limits import NULL

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

# Name of a block for no table: the clients of the next frames' connections (`want_clients`).
CLIENTS: Final = "clients"


class Coded(NamedTuple):
    """A text column with few values.

    codes: int64[rows], index into names; null where negative (-1, or limits.NULL).
    names: the texts (bytes from the wire, or our enums). May grow after the block was built.
    """

    codes: Int64Array
    names: Sequence[bytes] | Sequence[str]


def coded(codes: Int64Array, names: Sequence[str]) -> Coded:
    """Build a column of codes from the wire; a number without a name is shown as its digits."""
    is_odd = (codes >= len(names)) | ((codes < 0) & (codes != NULL))
    if not is_odd.any():
        return Coded(codes, names)
    odd, positions = np.unique(codes[is_odd], return_inverse=True)
    codes = codes.copy()
    codes[is_odd] = len(names) + positions
    return Coded(codes, [*names, *map(str, odd.tolist())])


class Spans(NamedTuple):
    """A text or bytes column with many values, as ranges of wire bytes.

    data: uint8[], the bytes.
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
# | Sequence of Python values for rare columns (maps, lists of text, decoded detail).
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
    """Return a column of numbers, int64[rows]; all NULL if the block lacks it."""
    values = block.columns.get(column)
    return np.full(block.rows, NULL, np.int64) if values is None else np.asarray(values)
