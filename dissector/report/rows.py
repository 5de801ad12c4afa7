"""Rows of the lake's tables on their way into the summary: typed access to a record batch."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dissector.blocks import Int64Array
from dissector.limits import NULL

US: Final = pa.timestamp("us", "UTC")
Mask = npt.NDArray[np.bool_]


class Rows:
    """Some rows of one table of one capture. capture: the key under which they are counted."""

    def __init__(self, batch: pa.RecordBatch, capture: str) -> None:
        self.batch = batch
        self.capture = capture

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def captures(self) -> pa.Array:
        """The capture of every row."""
        return pa.repeat(pa.scalar(self.capture), len(self))

    def column(self, name: str) -> pa.Array:
        """A column as it is; text may be dictionary-encoded."""
        return self.batch.column(name)

    def columns(self, *names: str) -> dict[str, pa.Array]:
        """Some columns as they are, and `capture`."""
        found = {name: self.column(name) for name in names}
        found["capture"] = self.captures()
        return found

    def numbers(self, name: str) -> Int64Array:
        """An integer column or a time (as µs) as int64[rows], limits.NULL where it is null."""
        column = self.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(US).cast(pa.int64())
        filled: Int64Array = pc.fill_null(column, NULL).to_numpy(zero_copy_only=False)
        return filled

    def equals(self, name: str, *values: str) -> Mask:
        """Where a text column has one of these values (never where it is null)."""
        column = self.column(name)
        if pa.types.is_dictionary(column.type):
            wanted = pc.is_in(column.dictionary, pa.array(values, pa.string()))
            places: Int64Array = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)
            table = np.append(wanted.to_numpy(zero_copy_only=False), False)
            found: Mask = table.astype(np.bool_)[places]
            return found
        matches = pc.fill_null(pc.is_in(column, pa.array(values, pa.string())), False)
        plain: Mask = matches.to_numpy(zero_copy_only=False)
        return plain

    def starts_with(self, name: str, prefix: str) -> Mask:
        """Where a text column begins with this (never where it is null)."""
        column = self.column(name)
        is_coded = pa.types.is_dictionary(column.type)
        texts = column.dictionary if is_coded else column
        found: Mask = pc.fill_null(pc.starts_with(texts, prefix), False).to_numpy(
            zero_copy_only=False
        )
        if not is_coded:
            return found
        places: Int64Array = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False)
        return np.append(found, False).astype(np.bool_)[places]

    def known(self, name: str) -> Mask:
        """Where a column has a value."""
        return np.asarray(pc.is_valid(self.column(name)).to_numpy(zero_copy_only=False))

    def flags(self, name: str) -> Mask:
        """A flag column; null counts as false."""
        filled: Mask = pc.fill_null(self.column(name), False).to_numpy(zero_copy_only=False)
        return filled

    def where(self, mask: Mask) -> "Rows":
        """The rows that a mask names."""
        if mask.all():
            return self
        return Rows(self.batch.filter(pa.array(mask)), self.capture)

    def take(self, places: npt.NDArray[np.int64]) -> "Rows":
        """Some rows, in the order of places."""
        return Rows(self.batch.take(pa.array(places)), self.capture)

    def kept(self, schema: pa.Schema, **made: pa.Array) -> pa.Table:
        """A copy of the rows as a table of a schema; made: columns that the batch does not have."""
        arrays = []
        for field in schema:
            if field.name == "capture":
                column = self.captures()
            elif field.name in made:
                column = made[field.name]
            else:
                column = self.column(field.name)
            arrays.append(column.cast(field.type))
        return pa.table(arrays, schema=schema)


def nullable(values: Int64Array) -> pa.Array:
    """int64[rows] with limits.NULL as an Arrow column."""
    return pa.array(values, mask=values == NULL)


def codes(*columns: pa.Array) -> tuple[Int64Array, Int64Array]:
    """Number the distinct combinations of some columns, in the order in which they come.

    Returns:
        int64[rows], the number of each row's combination; int64[combinations], the first row that
        has it.
    """
    combined = np.zeros(len(columns[0]), np.int64)
    found = min(1, len(combined))
    for column in columns:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        size = len(coded.dictionary)
        place: Int64Array = pc.fill_null(coded.indices, size).to_numpy(zero_copy_only=False)
        if not len(place) or (place == place[0]).all():
            continue
        again = pa.array(combined * (size + 1) + place).dictionary_encode()
        combined, found = again.indices.to_numpy().astype(np.int64), len(again.dictionary)
    first = np.zeros(found, np.int64)
    first[combined[::-1]] = np.arange(len(combined), dtype=np.int64)[::-1]
    return combined, first
