"""Columns as Python values are what Arrow makes of them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from dissector.queries.plain_values import plain_rows, plain_values
from dissector.schemas.small_tables import no_rows


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, -(1 << 63), (1 << 63) - 1]),
        pa.array([(1 << 64) - 1, None], pa.uint64()),
        pa.array([True, None, False]),
        pa.array(["", None, "\u00e9"]),
        pa.array([b"\xff", None]),
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.array([None, None], pa.dictionary(pa.int32(), pa.string())),
        pa.array([datetime(1969, 1, 2, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        pa.array([[1, None], None, []]),
        pa.array([1.5, None]),
        pa.array([], pa.int64()),
        pa.array([3, 4, None, 5])[1:3],
    ],
    ids=lambda column: str(column.type),
)
def test_each_type_with_and_without_nulls(column: pa.Array) -> None:
    values = plain_values(column)
    assert values == column.to_pylist()
    assert [*map(type, values)] == [*map(type, column.to_pylist())]


def test_rows_of_a_table_are_those_of_all_its_pieces() -> None:
    table = pa.concat_tables(
        [pa.table({"a": [1, None], "b": ["x", None]}), pa.table({"a": [3], "b": ["y"]})]
    )
    for rows in (table, table.slice(1, 2), table.slice(0, 0)):
        assert plain_rows(rows) == rows.to_pylist()
    assert plain_rows(no_rows(table.schema)) == []
