"""Which engine counts, and what is said about it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dissector.cli import engines
from dissector.errors import DependencyError, UsageError
from dissector.queries.duckdb_engine import DuckdbEngine
from tests.dissector.spark import hide_spark

MANY = engines.LARGE_ROWS + 1
COMMON: Any = SimpleNamespace(jobs=1)


@pytest.mark.parametrize(
    ("name", "master", "rows", "expected", "why"),
    [
        ("auto", None, 10, "duckdb", "10 rows"),
        ("auto", None, MANY, "spark", f"{MANY:,} rows"),
        ("auto", "local[1]", 10, "spark", "--master"),
        ("duckdb", None, MANY, "duckdb", "engine: duckdb"),
        ("spark", None, 10, "spark", "engine: spark"),
    ],
)
def test_the_engine_is_told_or_follows_the_rows(
    name: engines.Name, master: str | None, rows: int, expected: str, why: str
) -> None:
    found, sentence = engines.chosen(name, master, rows)
    assert found == expected and why in sentence


def test_a_program_that_spark_started_counts_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert engines.chosen("auto", None, 10)[0] == "spark"


def test_duckdb_has_no_master() -> None:
    with pytest.raises(UsageError, match="--master"):
        engines.chosen("duckdb", "local[1]", 10)


def test_duckdb_needs_nothing_else(tmp_path: Path) -> None:
    with engines.opened("duckdb", None, COMMON) as engine_in, engine_in(tmp_path) as engine:
        assert isinstance(engine, DuckdbEngine)


def test_without_spark_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_spark(monkeypatch)
    with (
        pytest.raises(DependencyError, match=r"^pyspark[.a-z]* is missing.*--engine duckdb"),
        engines.opened("spark", None, COMMON),
    ):
        pass
