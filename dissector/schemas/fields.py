"""Every column of the schema as one flat list, which `dissector fields` prints."""

from collections.abc import Iterator
from typing import NamedTuple

from dissector.schemas.tables import TABLES


class Field(NamedTuple):
    """One line of `dissector fields`."""

    table: str
    column: str
    type: str
    unit: str
    meaning: str
    null: str


def fields() -> Iterator[Field]:
    """Every column of every table, in the order of the files."""
    for table in TABLES.values():
        for column in table.columns:
            yield Field(
                table.name, column.name, column.type, column.unit, column.meaning, column.null
            )
