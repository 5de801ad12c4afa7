"""The flat list of columns."""

from dissector.schemas import TABLES
from dissector.schemas.fields import fields


def test_fields_lists_every_column_of_every_table_once() -> None:
    found = list(fields())
    assert [(f.table, f.column) for f in found] == [
        (table.name, column.name) for table in TABLES.values() for column in table.columns
    ]
    frame_bytes = next(f for f in found if f.table == "frames" and f.column == "frame_bytes")
    assert frame_bytes.type == "bigint" and frame_bytes.unit == "bytes"
    assert frame_bytes.null == "never" and "length field" in frame_bytes.meaning
