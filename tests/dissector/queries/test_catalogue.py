"""The files of queries say how their rows are put together, and are read that way."""

import random
from typing import Any, Final

import pyarrow as pa
import pytest

from dissector.queries.catalogue import catalogue
from dissector.schemas import TABLES
from tests.dissector.queries.query_engine import QueryEngine
from tests.dissector.report.made import RandomCapture

EXTREMES: Final = (-(1 << 63), -(1 << 63) + 999, -(1 << 62) - 9, 1 << 62, (1 << 63) - 1)


@pytest.fixture(scope="module")
def db() -> QueryEngine:
    return QueryEngine().put({})


@pytest.mark.parametrize("name", list(catalogue()))
def test_a_query_gives_the_columns_that_its_header_names(db: QueryEngine, name: str) -> None:
    query = catalogue()[name]
    columns = db.table(query.per_capture()).schema.names
    assert columns[0] == "capture"
    if query.is_list:
        assert {column for column, _ in query.order} | set(query.of) <= set(columns)
    else:
        assert tuple(columns) == query.columns


def extreme(rows: list[dict[str, Any]], table: str, seed: int) -> list[dict[str, Any]]:
    """Rows some times and numbers of messages of which are what 64 bits just hold."""
    chosen = random.Random(seed)
    names = {c.name for c in TABLES[table].columns if c.unit.startswith(("ns", "messages"))}
    return [
        row | {
            name: chosen.choice(EXTREMES) // (1000 if name == "ts" else 1)
            for name, value in row.items()
            if (name in names or name == "ts") and value is not None and chosen.random() < 0.1
        }
        for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_no_time_makes_a_query_fail(seed: int) -> None:
    tables = RandomCapture(seed).tables
    db = QueryEngine().put({"c": {name: extreme(tables[name], name, seed) for name in tables}})
    rows = {name: db.table(query.per_capture()).num_rows for name, query in catalogue().items()}
    assert min(rows[name] for name in ("sends", "send_points", "consumers", "balances")) > 0


def test_a_tally_keeps_the_first_of_merged_rows(db: QueryEngine) -> None:
    query = catalogue()["refused_texts"]._replace(first=2)
    rows = pa.table({
        "capture": ["a", "b", "a", "a"], "error_code": ["x"] * 4,
        "error_text": ["s", "s", "t", "u"], "answers": [1, 1, 1, 1],
        "first_ns": [9, 8, 2, 3], "first_frame_no": [1, 1, 1, 1],
    })  # fmt: skip
    db.register("kept", rows)
    found = db.table(query.merged("kept")).to_pylist()
    assert [(row["error_text"], row["answers"]) for row in found] == [("s", 2), ("t", 1)]
