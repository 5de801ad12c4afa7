"""Spark SQL finds what DuckDB finds, by the texts of rules as they are."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.lake.reader import open_lake
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import pipeline
from dissector.spark.engine import SparkEngine
from tests.dissector.findings.test_findings import RULES, lake  # noqa: F401


def test_both_engines_find_the_same(
    lake: Path, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    """All captures at once: no task has rows of its own."""
    monkeypatch.setattr(SparkEngine, "task_rows", 0)
    engines: dict[str, Any] = {"duckdb": DuckdbEngine, "spark": partial(SparkEngine, spark)}
    found = {}
    for name, engine in engines.items():
        (tmp_path / name).mkdir()
        with open_lake(lake) as opened:
            found[name] = pipeline.find(opened, tmp_path / name, engine, has_memory=False)
    assert found["spark"][1] == found["duckdb"][1] == []
    for one, other in zip(found["spark"][0], found["duckdb"][0], strict=True):
        assert one._asdict() == other._asdict()
    assert {one.code for one in found["duckdb"][0]} >= {rule.code for rule in RULES if rule.fires}
