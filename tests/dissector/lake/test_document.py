"""docs/lake.md against the schema."""

import re
from pathlib import Path

import pytest

from dissector.lake.document import athena_table, lake_page, main, trino_table
from dissector.schemas import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "lake.md"


def test_the_page_in_the_docs_is_current() -> None:
    assert PAGE.read_text("utf-8") == lake_page(), (
        "run: python -m dissector.lake.document docs/lake.md"
    )


def test_the_generator_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert capsys.readouterr().out == lake_page()
    main([str(tmp_path / "x.md")])
    assert (tmp_path / "x.md").read_text("utf-8") == lake_page()


# What each engine calls the types of files; its partitions are of dates and text, too.
ATHENA = {
    *("bigint", "boolean", "string", "timestamp", "date"),
    *("array<bigint>", "array<string>", "map<string,bigint>", "map<string,string>"),
}
TRINO = {
    *("bigint", "boolean", "varchar", "timestamp(6)", "date", "array(bigint)", "array(varchar)"),
    *("map(varchar, bigint)", "map(varchar, varchar)"),
}


@pytest.mark.parametrize("table", TABLES)
def test_statements_name_every_column_with_a_type_of_the_engine(table: str) -> None:
    for statement, known in (
        (athena_table(table, "s3://b/lake"), ATHENA),
        (trino_table(table, "s3://b/lake"), TRINO),
    ):
        head, _, rest = statement.partition("(\n")
        assert head.endswith(f"table {table} ")
        columns = re.split(r",\s+(?=\w+ )(?!varchar\)|bigint\))", rest.partition(")\n")[0].strip())
        named = [column.split(" ", 1) for column in columns]
        wanted = [column.name for column in TABLES[table].columns]
        assert [name for name, _ in named][: len(wanted)] == wanted
        assert {type for _, type in named} <= known
        assert max(map(len, statement.splitlines())) <= 100
