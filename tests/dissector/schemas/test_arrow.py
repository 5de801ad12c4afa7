"""Arrow schemas against the declarations."""

import pyarrow as pa
import pytest

from dissector.schemas import TABLES, TYPES
from dissector.schemas.arrow import ARROW_TYPES, arrow_schema, in_memory_schema


def test_every_type_has_an_arrow_type() -> None:
    assert set(ARROW_TYPES) == set(TYPES)


@pytest.mark.parametrize("table", list(TABLES))
def test_batches_differ_from_files_only_in_how_text_is_coded(table: str) -> None:
    for logical, ours, column in zip(
        arrow_schema(table), in_memory_schema(table), TABLES[table].columns, strict=True
    ):
        assert logical.name == ours.name == column.name
        assert logical.nullable and ours.nullable
        if pa.types.is_dictionary(ours.type):
            assert logical.type == pa.string() == ours.type.value_type
        else:
            assert logical.type == ours.type == ARROW_TYPES[column.type]
