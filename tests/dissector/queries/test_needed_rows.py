"""What queries need is read from their texts, and one that is passed over has no rows.

DuckDB is asked all the same, and tells."""

from itertools import product

import pyarrow as pa
import pytest

from dissector.findings.querying import rule_queries
from dissector.queries.catalogue import catalogue, shared_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.needed_rows import (
    NOTHING,
    ROW_FUNCTIONS,
    AllOf,
    AnyOf,
    QueryRows,
    TableRows,
    needed,
    needed_with_probes,
    needed_within,
    tables_in,
    with_queries,
)
from tests.choosing import examples
from tests.dissector.findings.test_querying import likely_rows, odd_rows

A, B = TableRows("a", ""), TableRows("b", "")
# Over tables a and b, which have rows (k = 1, w = 'x') or none, or one that no condition fits.
SHAPES = {
    "SELECT * FROM a": A,
    "SELECT x.k FROM a AS x JOIN b AS y ON y.k = x.k": AllOf((A, B)),
    "SELECT x.k FROM a AS x LEFT JOIN b AS y ON y.k = x.k": A,
    "SELECT x.k FROM a AS x ANTI JOIN b AS y ON y.k = x.k": A,
    "SELECT x.k FROM a AS x SEMI JOIN b AS y ON y.k = x.k": AllOf((A, B)),
    "SELECT x.k FROM a AS x FULL JOIN b AS y ON y.k = x.k": NOTHING,
    "SELECT y.k FROM a AS x RIGHT JOIN b AS y ON y.k = x.k": NOTHING,
    "SELECT x.k FROM a AS x CROSS JOIN b AS y": AllOf((A, B)),
    "SELECT x.k FROM a AS x, b AS y WHERE x.k = y.k": AllOf((A, B)),
    "SELECT k FROM a UNION ALL SELECT k FROM b": AnyOf((A, B)),
    "SELECT k FROM a EXCEPT SELECT k FROM b": NOTHING,
    "WITH c AS (SELECT k FROM a), d AS (SELECT k FROM b) SELECT c.k FROM c JOIN d ON c.k = d.k":
        AllOf((A, B)),
    "WITH b AS (SELECT 1 AS k) SELECT b.k FROM b": NOTHING,
    "SELECT k FROM (SELECT k FROM a) AS c WHERE k = 7": A,
    "SELECT max(k) AS k FROM a": NOTHING,
    "SELECT coalesce(max(k), 1) AS k FROM a": NOTHING,
    "SELECT count(*) AS k FROM a HAVING count(*) = 0": NOTHING,
    "SELECT count(*) AS k FROM a GROUP BY ROLLUP (k)": NOTHING,
    "SELECT count(*) AS k FROM a GROUP BY ()": NOTHING,
    "SELECT k, count(*) AS n FROM a GROUP BY ALL": A,
    "SELECT row_number() OVER (ORDER BY k) AS k FROM a": A,
    "SELECT sum(k) OVER (PARTITION BY w) AS k FROM a": A,
    "SELECT (SELECT max(k) FROM b) AS k FROM a": A,
    "SELECT k IS DISTINCT FROM 1 AS k FROM a": A,
    "SELECT 1 AS k": NOTHING,
    "select k from a union all select k from b": NOTHING,
    "SELECT k FROM a union all SELECT k FROM b": NOTHING,
    "SELECT x.k FROM a AS x full join b AS y ON y.k = x.k": NOTHING,
    "SELECT k FROM a /* JOIN b */": NOTHING,
    "SELECT k -- FROM b\nFROM a": A,
    "SELECT k FROM a WHERE w = 'x'": TableRows("a", "(w = 'x')"),
    "SELECT k FROM a WHERE w = 'x' AND k BETWEEN 1 AND 2":
        TableRows("a", "(k BETWEEN 1 AND 2) AND (w = 'x')"),
    "SELECT k FROM a WHERE s.i = 1": TableRows("a", "(s . i = 1)"),
    "SELECT x.k FROM a AS x WHERE x.s.i = 1 AND s.i = 2":
        TableRows("a", "(s . i = 1) AND (s . i = 2)"),
    "SELECT k FROM a WHERE w = 'y' OR k = 1": TableRows("a", "(w = 'y' OR k = 1)"),
    "SELECT k FROM a WHERE k = (SELECT max(k) FROM b)": A,
    "SELECT x.k FROM a AS x JOIN b AS y ON y.k = x.k AND y.w = 'x' WHERE x.w = 'y'":
        AllOf((TableRows("a", "(w = 'y')"), TableRows("b", "(w = 'x')"))),
    "SELECT x.k FROM a AS x LEFT JOIN b AS y ON y.k = x.k AND y.w = 'y' WHERE y.k IS NULL": A,
    "SELECT x.k FROM a AS x JOIN b AS y ON y.k = x.k WHERE x.w = y.w": AllOf((A, B)),
    "SELECT c.k FROM (SELECT max(k) AS k FROM a GROUP BY w) AS c WHERE c.k = 1": A,
}  # fmt: skip


@pytest.fixture(scope="module")
def db():
    with DuckdbEngine(threads=1) as engine:
        yield engine


@pytest.mark.parametrize("text", SHAPES)
def test_a_shape_needs_what_the_engine_needs(db, text: str) -> None:
    """The table says what is needed; DuckDB, that nothing is there without it."""
    assert needed(text) == SHAPES[text]
    kinds = pa.schema({"k": pa.int64(), "w": pa.string(), "s": pa.struct({"i": pa.int64()})})
    there = {
        "none": kinds.empty_table(),
        "fits": pa.table({"k": [1], "w": ["x"], "s": [{"i": 1}]}, kinds),
        "other": pa.table({"k": [9], "w": [None], "s": [None]}, kinds),
    }
    for of_a, of_b in product(there, repeat=2):
        db.register("a", there[of_a])
        db.register("b", there[of_b])
        found, alone = db.tables({"q": text})["q"], db.table(text)
        assert found.num_rows == alone.num_rows, (of_a, of_b)


_REST = "c.k + 1 AS n" + ", c.k + 1 AS n" * 30
_C, _D = (
    "WITH c AS (SELECT k FROM a WHERE w = 'x')",
    "d AS (SELECT c . k FROM c JOIN b ON b . k = c . k)",
)
PROBES = {
    f"{_C} SELECT {_REST} FROM c": (f"{_C} SELECT 1 FROM c",),
    f"SELECT * FROM ({_C} SELECT {_REST} FROM c) AS q": (f"{_C} SELECT 1 FROM c",),
    f"{_C} SELECT {_REST} FROM a LEFT JOIN c ON c.k = a.k": (),
    f"{_C}, {_D} SELECT {_REST} FROM d AS c": (f"{_C}, {_D} SELECT 1 FROM d",),
    f"{_C}, d AS (SELECT {_REST} FROM c) SELECT d.k FROM d": (f"{_C} SELECT 1 FROM c",),
    f"{_C} SELECT c.k FROM c": (),  # as long as all of it
    f"{_C} SELECT {_REST} FROM c UNION ALL SELECT k FROM b": (f"{_C} SELECT 1 FROM c",),
}


def _probes_in(need: object) -> tuple[str, ...]:
    if isinstance(need, QueryRows):
        return (need.text,)
    return tuple(text for part in getattr(need, "parts", ()) for text in _probes_in(part))


@pytest.mark.parametrize("text", PROBES)
def test_a_beginning_is_what_all_else_needs_and_no_more_of_the_text_than_a_part(text: str) -> None:
    assert _probes_in(needed_with_probes(text)) == PROBES[text]
    assert _probes_in(needed(text)) == ()


def test_parts_are_the_queries_of_a_with_and_where_they_are() -> None:
    text = f"SELECT * FROM ({_C}, -- WITH e AS ()\n{_D} SELECT d.k FROM d JOIN c ON c.k = d.k) AS q"
    found = with_queries(text)
    assert [(part.name, part.is_read_again) for part in found] == [("c", True), ("d", False)]
    assert [text[part.start : part.end] for part in found] == [part.text for part in found]
    assert found[0].text == "SELECT k FROM a WHERE w = 'x'"
    assert needed_within(found[1].text, {"c": A}) == AllOf((A, B))


NO_QUERIES = (
    "", "(", ")", "SELECT", "SELECT k FROM", "FROM", "WITH a AS", "WITH a AS (", "WITH a",
    "SELECT k FROM a JOIN", "SELECT k FROM a AS", "(" * 9999 + "SELECT 1" + ")" * 9999,
)  # fmt: skip


@pytest.mark.parametrize("text", NO_QUERIES)
def test_what_is_no_query_needs_nothing(text: str) -> None:
    assert not [rows for rows in tables_in(needed(text)) if rows != A]
    assert not _probes_in(needed_with_probes(text)) and with_queries(text) == ()


@pytest.mark.parametrize("seed", range(examples(4, 2)))
@pytest.mark.parametrize("rows", [odd_rows, likely_rows], ids=["odd", "likely"])
def test_a_query_that_is_passed_over_has_no_rows(rows, seed: int) -> None:
    db = rows(seed).opened()
    texts = {name: query.text for name, query in rule_queries().items()}
    if rows is likely_rows:  # sums of tallies are of numbers that are in captures
        texts |= {name: query.per_capture() for name, query in catalogue().items()}
    needs = {name: query.needs for name, query in rule_queries().items()}
    found = db.tables(texts, needs)
    empty = [name for name, rows in found.items() if not rows.num_rows]
    assert [name for name in empty if db.table(texts[name]).num_rows] == []


def test_functions_of_one_row_are_no_aggregates(db) -> None:
    kinds = db.table(
        "SELECT function_name AS name, list(DISTINCT function_type) AS kinds "
        "FROM duckdb_functions() GROUP BY ALL"
    ).to_pylist()
    known = {row["name"]: {*row["kinds"]} for row in kinds}
    known |= {name: {"scalar"} for name in ("coalesce", "unnest")}  # of the parser
    for name in ROW_FUNCTIONS:
        assert known[name] <= {"scalar", "macro"}, name


def test_the_engine_can_ask_what_texts_tell() -> None:
    """A condition that cannot be bound would cost its table's whole question, and tell nothing."""
    db = likely_rows(1).opened()
    for view in shared_views():
        db.table(f"SELECT * FROM {view.name} LIMIT 0")
    needs = [query.needs for query in rule_queries().values()]
    needs += [needed(query.text) for query in rule_queries().values()]
    needs += [needed(query.per_capture()) for query in catalogue().values()]
    needs += [needed(view.query) for view in shared_views()]
    asked = {rows for need in needs for rows in tables_in(need)}
    assert len(asked) > 100
    for table, condition in asked:
        db.table(f"SELECT bool_or({condition or 'TRUE'}) FROM {table}")
