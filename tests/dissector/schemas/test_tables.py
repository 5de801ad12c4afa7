"""The declared schema against the list of tables and columns that users rely on."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.schemas import SCHEMA_VERSION, TABLES, TYPES

GOLDEN = Path(__file__).parents[2] / "golden" / "lake-schema.csv"


def golden_columns() -> dict[str, list[tuple[str, str]]]:
    tables: dict[str, list[tuple[str, str]]] = {}
    with GOLDEN.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            tables.setdefault(row["table"], []).append((row["column"], row["type"]))
    return tables


def test_tables_are_those_of_the_list_in_its_order() -> None:
    assert list(TABLES) == list(golden_columns())
    assert all(name == table.name for name, table in TABLES.items())
    assert SCHEMA_VERSION == 4


@pytest.mark.parametrize("table", list(TABLES))
def test_columns_begin_with_those_of_the_list_and_end_with_origin_capture(table: str) -> None:
    wanted = golden_columns()[table]
    found = [(column.name, column.type) for column in TABLES[table].columns]
    assert found[-1] == wanted[-1] == ("origin_capture", "string")
    assert found[-2] == ("capture", "string")
    assert found[: len(wanted) - 1] == wanted[:-1]


@pytest.mark.parametrize("table", list(TABLES))
def test_every_column_says_what_it_means(table: str) -> None:
    columns = TABLES[table].columns
    assert len({column.name for column in columns}) == len(columns)
    for column in columns:
        assert column.type in TYPES
        assert column.meaning[0].isupper() or column.meaning.split()[0].strip(",").islower()
        assert column.meaning.endswith(".") and len(column.meaning) < 200, column.name
        assert column.null and "|" not in column.meaning + column.null
        if column.name.endswith("_ns"):
            assert column.unit in ("ns", "ns since 1970"), column.name
        if column.name.endswith("_ms"):
            assert column.unit == "ms since 1970", column.name
        if "bytes" in column.name.split("_") and column.type == "bigint":
            assert column.unit == "bytes", column.name


def test_the_declarations_load_without_numpy_pyarrow_or_numba() -> None:
    code = "import sys, dissector.schemas; print([m for m in sys.modules if m in BAD])"
    code = code.replace("BAD", "('numpy', 'pyarrow', 'numba', 'pyspark')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
