"""Exact percentiles against sorted values."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from dissector.queries.catalogue import catalogue
from dissector.report.numbers import PERCENTILES
from dissector.report.sections.send_latency import VALUES, exact
from tests.dissector.queries.query_engine import QueryEngine
from tests.dissector.report.sections.test_publishing import SENDS, UNITS, by_capture, sends_of

SENT = catalogue("exact")[VALUES].per_capture()


@pytest.fixture(scope="module")
def db() -> QueryEngine:
    return QueryEngine()


@settings(deadline=None, max_examples=10)
@given(SENDS)
def test_exact_percentiles_are_values_of_their_rank(db: QueryEngine, drawn: list[Any]) -> None:
    rows = sends_of(drawn)
    found = exact(db.put(by_capture(rows), UNITS).table, SENT).to_pylist()
    assert {row["grouping"] for row in found} <= {
        "total", "by_topic", "by_producer", "by_client", "by_broker",
    }  # fmt: skip
    for grouping, keys in (("total", ()), ("by_producer", ("topic", "producer_name"))):
        groups: dict[Any, list[int]] = defaultdict(list)
        for row in rows:
            if row["outcome"] == "ok":
                groups[tuple(row[key] for key in keys)].append(row["latency_ns"])
        mine = {
            tuple(row[key] for key in keys): row
            for row in found
            if row["grouping"] == grouping and row["measure"] == "latency"
        }
        assert mine.keys() == groups.keys()
        for key, values in groups.items():
            values.sort()
            for name, permille in PERCENTILES:
                rank = max(1, -(-len(values) * permille // 1000))
                assert mine[key][name] == values[rank - 1]


def test_exact_is_asked_of_any_engine(db: QueryEngine) -> None:
    texts = []

    def table(query: str) -> pa.Table:
        texts.append(query)
        return db.put({"c": {}}).table(query)

    assert exact(table, SENT).num_rows == 0 and len(texts) == 1
