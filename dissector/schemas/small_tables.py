"""Builds small Arrow tables from buffers, for the reason given in `schemas.text`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.schemas.arrow import ARROW_TYPES
from dissector.schemas.builders import number_array, numbers, validity_bitmap
from dissector.schemas.text import text_array

TEXT: Final = ARROW_TYPES["string"]
NUMBER: Final = ARROW_TYPES["bigint"]
_COUNTS: Final = frozenset((int, bool))


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows."""
    return pa.Table.from_batches([], schema)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to a schema with the same columns. Equal schemas are returned uncast: loading
    Arrow's functions costs more than a small report's queries."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)


def small_table(rows: Iterable[Sequence[Any]], **kinds: pa.DataType) -> pa.Table:
    """Build a table of rows of values; None is null. kinds: TEXT or NUMBER by column."""
    columns = [*zip(*rows, strict=True)] or [()] * len(kinds)
    arrays = [_array(*each) for each in zip(columns, kinds.values(), strict=True)]
    return pa.Table.from_arrays(arrays, list(kinds))


def nested_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None) -> pa.Table:
    """Build a table of rows whose values may be nested lists and mappings; None is null.

    Args:
        schema: of the columns; None: derived from the rows' keys and values. A column without any
            value is text.
    """
    if schema is None:
        return columns_table(by_column(rows))
    return pa.Table.from_arrays(_of_fields(rows, schema), schema=schema)


def by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Transpose rows to columns by name; None for a missing value."""
    kinds = dict.fromkeys(map(tuple, rows))  # most rows have the same names, in one order
    nothing = dict.fromkeys(chain.from_iterable(kinds))
    alike = rows if len(kinds) == 1 else [{**nothing, **row} for row in rows]
    columns = zip(*(row.values() for row in alike), strict=True)
    return dict(zip(nothing, columns, strict=True))


def columns_table(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Build a table of columns by name; types are derived from the values."""
    return pa.Table.from_arrays([nested_array(each) for each in columns.values()], [*columns])


def nested_array(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Convert values to an array.

    Args:
        kind: their type: text, bytes, flags, numbers, lists of such, structs of such by name, maps
            of such as pairs. None: derived from the values, text if there are none. Mappings of
            names to counts then become lists of pairs (name, count) in all rows, as their names
            differ from row to row; an empty mapping becomes null.

    Raises:
        TypeError: values of several kinds, or of another one.
    """
    if kind is None and _types_of(values) == {dict}:
        values = _with_pairs(values)
    types = set() if kind else _types_of(values)
    if pa.types.is_string(kind) if kind else types <= {str}:
        return text_array(values)
    if pa.types.is_int64(kind) if kind else types == {int}:
        return number_array(numbers(values, 0, len(values)))
    validity, nulls = validity_bitmap(np.array([value is not None for value in values], np.bool_))
    data: list[pa.Buffer] = []
    children: list[pa.Array] = []
    if pa.types.is_boolean(kind) if kind else types == {bool}:
        kind = pa.bool_()
        flags = np.packbits([value is True for value in values], bitorder="little")
        data = [pa.py_buffer(flags)]
    elif pa.types.is_float64(kind) if kind else types <= {int, float}:
        kind = pa.float64()
        data = [pa.py_buffer(np.array([value or 0 for value in values], np.float64))]
    elif pa.types.is_struct(kind) if kind else types == {dict}:
        rows = [value or {} for value in values]
        if kind is None:
            columns = by_column(rows)
            children = [*map(nested_array, columns.values())]
            kind = pa.struct([(n, each.type) for n, each in zip(columns, children, strict=True)])
        else:
            children = _of_fields(rows, kind)
    elif kind or types <= {list, tuple}:
        data = [
            pa.py_buffer(np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32))
        ]
        if kind and pa.types.is_binary(kind):
            data.append(pa.py_buffer(b"".join(value or b"" for value in values)))
        else:
            inner = [*chain.from_iterable(value or () for value in values)]
            if kind and pa.types.is_map(kind):
                inner = [{"key": key, "value": value} for key, value in inner]
            children = [nested_array(inner, kind.field(0).type if kind else None)]
            kind = kind or pa.list_(children[0].type)
    else:
        raise TypeError(f"values of one column are {', '.join(sorted(map(str, types)))}")
    return pa.Array.from_buffers(
        kind, len(values), [validity, *data], nulls, children=children or None
    )


def _types_of(values: Iterable[Any]) -> set[type]:
    return {*map(type, values)} - {type(None)}


def _with_pairs(values: Sequence[Any]) -> Sequence[Any]:
    """Replace mappings by lists of pairs if any maps names to counts; empty ones become None."""
    values = [value or None for value in values]
    if not any(value and {*map(type, value.values())} <= _COUNTS for value in values):
        return values
    return [
        value and [{"name": name, "count": count} for name, count in value.items()]
        for value in values
    ]


def _of_fields(rows: Sequence[Mapping[str, Any]], fields: Iterable[pa.Field]) -> list[pa.Array]:
    """Convert the values of rows to arrays by fields of known types."""
    columns, nothing = by_column(rows), (None,) * len(rows)
    return [nested_array(columns.get(each.name, nothing), each.type) for each in fields]


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == TEXT:
        return text_array(values)
    assert kind == NUMBER, f"{kind}: no other type has been needed"
    return number_array(numbers(values, 0, len(values)))
