"""Permits of consumers that never were: Spark says of them what DuckDB says."""

import random
from pathlib import Path
from typing import Any

from dissector.spark.engine import SparkEngine
from tests.dissector.queries.query_engine import QueryEngine
from tests.dissector.queries.test_permits import CONFIRM_US, SECOND, rows_of, tables_of

QUERIES = ("consumers", "stalls", "balances")


def test_spark_walks_permits_as_duckdb_does(spark: Any, tmp_path: Path) -> None:
    pick = random.Random(7)
    consumers = []
    for number in range(200):
        changes = [
            (pick.choice(("grant", "grant", "delivery", "delivery", "reset")),
             pick.choice((None, 0, 1, 2, 4)),
             pick.choice((0, 1000, CONFIRM_US, SECOND, 3 * SECOND, -SECOND // 2)),
             pick.random() < 0.8, pick.choice((None, None, None, -2, 0, 3)))
            for _ in range(pick.randrange(40))
        ]  # fmt: skip
        consumers.append(rows_of(number, changes))
    ends_us = [rows[-1]["ts"] + 2 * SECOND if rows and n % 3 else None
               for n, rows in enumerate(consumers)]  # fmt: skip
    tables = tables_of(consumers, ends_us)
    here = QueryEngine(tables)
    with SparkEngine(spark, tmp_path) as engine:
        there = QueryEngine(tables, engine)
        for query in QUERIES:
            mine, others = (sorted(map(repr, db.per_capture(query))) for db in (here, there))
            assert mine == others and mine
