"""Arrow tables of a few values: made from buffers, as `schemas.text` tells why."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.schemas.text import text_array

TEXT: Final = pa.string()
NUMBER: Final = pa.int64()


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.Table.from_batches([], schema)


def small_table(rows: Iterable[Sequence[Any]], **kinds: pa.DataType) -> pa.Table:
    """A table of rows of values, None where there is none. kinds: TEXT or NUMBER by column."""
    columns = [*zip(*rows, strict=True)] or [()] * len(kinds)
    arrays = [_array(*each) for each in zip(columns, kinds.values(), strict=True)]
    return pa.Table.from_arrays(arrays, list(kinds))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == TEXT:
        return text_array(values)
    assert kind == NUMBER, f"{kind}: no other type has been needed"
    there = np.array([value is not None for value in values], np.bool_)
    numbers = np.array([0 if value is None else value for value in values], np.int64)
    bits = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(numbers)])
