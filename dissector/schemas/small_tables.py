"""Arrow tables of a few values: made from buffers, as `schemas.text` tells why."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from dissector.schemas.arrow import ARROW_TYPES
from dissector.schemas.builders import number_array, numbers
from dissector.schemas.text import text_array

TEXT: Final = ARROW_TYPES["string"]
NUMBER: Final = ARROW_TYPES["bigint"]


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.Table.from_batches([], schema)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the types of a schema, whose columns they have. Where there is nothing to do, Arrow
    is not asked: to load its functions takes longer than a small report's queries."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)


def small_table(rows: Iterable[Sequence[Any]], **kinds: pa.DataType) -> pa.Table:
    """A table of rows of values, None where there is none. kinds: TEXT or NUMBER by column."""
    columns = [*zip(*rows, strict=True)] or [()] * len(kinds)
    arrays = [_array(*each) for each in zip(columns, kinds.values(), strict=True)]
    return pa.Table.from_arrays(arrays, list(kinds))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == TEXT:
        return text_array(values)
    assert kind == NUMBER, f"{kind}: no other type has been needed"
    return number_array(numbers(values, 0, len(values)))
