"""A table is asked once for all that is needed of it, and a small report asks little."""

from typing import Any

import duckdb
import pytest

from dissector.queries import duckdb_engine, known_rows
from dissector.queries.catalogue import SharedView
from dissector.queries.known_rows import KnownRows
from dissector.queries.needed_rows import NOTHING, AnyOf, TableRows
from tests import reports
from tests.dissector.observed import CAPTURES


class Engine:
    """Tells what tables have, and notes what it was asked. A table without rows of its own that is
    no view cannot be asked."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self.asked: list[str] = []
        self.made: list[str] = []
        self._db = duckdb.connect()
        for name, rows in tables.items():
            cells = ", ".join(f"({row['k']})" for row in rows) or "(NULL)"
            none = "" if rows else " WHERE FALSE"
            self._db.execute(f"CREATE TABLE {name} AS SELECT k FROM (VALUES {cells}) AS t(k){none}")

    def tell(self, query: str) -> tuple[Any, ...] | None:
        self.asked.append(query)
        try:
            return self._db.execute(query).fetchall()[0]
        except duckdb.Error:
            return None

    def run(self, statement: str) -> None:
        self._db.execute(statement)

    def make(self, view: str) -> bool:
        self.made.append(view)
        return True


def known(engine: Engine, **views: str) -> KnownRows:
    found = KnownRows(engine.tell, engine.make)
    found.views = {name: SharedView(name, "", text) for name, text in views.items()}
    return found


def test_what_several_queries_need_of_a_table_is_asked_at_once() -> None:
    engine = Engine(a=[{"k": 1}], b=[])
    texts = {str(n): f"SELECT k FROM a WHERE k = {n}" for n in range(5)}
    rows = known(engine)
    assert rows.answerable(texts | {"of_b": "SELECT k FROM b"}, {}) == {"1": texts["1"]}
    assert len(engine.asked) == 3  # how many rows each has, and what those of a are
    assert rows.answerable(texts, {}) == {"1": texts["1"]} and len(engine.asked) == 3
    rows.set_count("a", 0)
    rows.forget()
    assert rows.answerable(texts, {}) == {} and len(engine.asked) == 3


def test_a_view_is_counted_again_when_a_table_below_it_is_another() -> None:
    engine = Engine(a=[{"k": 1}])
    engine.run("DELETE FROM a")
    engine.run("CREATE VIEW v AS SELECT k FROM a")
    rows, texts = known(engine), {"of_v": "SELECT k FROM v"}
    assert rows.answerable(texts, {}) == {}
    engine.run("INSERT INTO a VALUES (1)")
    rows.set_count("a", 1)
    rows.forget()
    assert rows.answerable(texts, {}) == texts


def test_a_view_without_what_it_needs_is_not_made() -> None:
    engine = Engine(a=[{"k": 1}], b=[])
    rows = known(engine, of_a="SELECT k FROM a", of_b="SELECT k FROM b")
    texts = {name: f"SELECT k FROM {name}" for name in ("of_a", "of_b")}
    rows.set_count("of_a", 1)
    assert [*rows.answerable(texts, {})] == ["of_a"] and engine.made == ["of_a"]
    assert rows.may_be_there("of_a") and not rows.may_be_there("of_b") and rows.may_be_there("x")


def test_what_cannot_be_asked_spares_no_query_and_spoils_no_other() -> None:
    engine = Engine(a=[{"k": 1}])
    texts = {name: f"SELECT k FROM a WHERE {name} = 2" for name in ("k", "no_such")}
    texts["no_table"] = "SELECT k FROM nobody"
    assert [*known(engine).answerable(texts, {})] == ["no_such", "no_table"]


def test_a_large_table_is_asked_for_what_is_stated_alone() -> None:
    engine = Engine(a=[{"k": 1}])
    rows = known(engine)
    rows.set_count("a", 1_000_000)
    text = "SELECT k FROM a WHERE k = 2"
    need = AnyOf((TableRows("a", "k = 3"), TableRows("a", "k = 4")))
    assert [*rows.answerable({"derived": text, "stated": "SELECT 1"}, {"stated": need})] == [
        "derived"
    ]
    assert engine.asked == ["SELECT bool_or(k = 3), bool_or(k = 4) FROM a"]


def test_a_query_that_begins_in_vain_is_passed_over_if_it_is_one_that_mostly_does() -> None:
    text = "WITH c AS (SELECT k FROM a WHERE k > {}) SELECT " + "c.k + 1, " * 30 + "c.k FROM c"
    texts = {name: text.format(least) for name, least in (("vain", 2), ("there", 0))}
    for needs, expected in (({}, ["vain", "there"]), (dict.fromkeys(texts, NOTHING), ["there"])):
        engine = Engine(a=[{"k": 1}])
        rows = known(engine)
        rows.set_count("a", 1_000_000)  # too many to be asked for conditions
        assert [*rows.answerable(texts, needs)] == expected
        assert len(engine.asked) == len(needs)


def test_of_large_tables_each_query_of_a_with_is_made_before_the_next() -> None:
    engine = Engine(a=[{"k": 1}], b=[])
    rows = known(engine)
    rows.is_large = True
    rows.set_count("a", 1_000_000)
    text = """WITH c AS ( -- Some.
  SELECT k FROM a WHERE k > {}
),
d AS (SELECT k + 1 AS k FROM c),
e AS (SELECT k FROM b)
SELECT c.k FROM c JOIN d ON d.k > c.k LEFT JOIN e ON e.k = d.k JOIN d AS f ON f.k > c.k"""
    texts = {name: text.format(least) for name, least in (("vain", 2), ("there", 0))}
    asked = rows.answerable(texts, dict.fromkeys(texts, NOTHING))
    assert asked == {
        "there": """WITH c AS (SELECT * FROM rows_made_1

),
d AS (SELECT * FROM rows_made_2),
e AS (SELECT * FROM (SELECT k FROM b) AS nothing WHERE FALSE)
SELECT c.k FROM c JOIN d ON d.k > c.k LEFT JOIN e ON e.k = d.k JOIN d AS f ON f.k > c.k"""
    }
    assert engine.tell(asked["there"]) == (1,)
    assert rows.made() == [f"rows_made_{n}" for n in range(3)] and rows.made() == []
    assert rows.answerable({"alone": texts["there"]}, {}) == {"alone": texts["there"]}


def test_a_query_of_a_with_that_fails_stays_as_it_is() -> None:
    engine = Engine(a=[{"k": 1}])
    rows = known(engine)
    rows.is_large = True
    text = "WITH c AS (SELECT no_such FROM a) SELECT c.k FROM c JOIN c AS d ON d.k = c.k"
    assert rows.answerable({"q": text}, {"q": NOTHING}) == {"q": text}


class Counting:
    """A connection that counts the statements which it and its cursors are given."""

    def __init__(self, connection: Any, statements: list[str]) -> None:
        self._connection = connection
        self._statements = statements

    def execute(self, query: str) -> Any:
        self._statements.append(query)
        return self._connection.execute(query)

    def sql(self, query: str) -> Any:
        self._statements.append(query)
        return self._connection.sql(query)

    def cursor(self) -> "Counting":
        return Counting(self._connection.cursor(), self._statements)

    def __enter__(self) -> "Counting":
        self._connection.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Scans(Counting):
    """One that notes how often statements read files of a lake."""

    def execute(self, query: str) -> Any:
        head, is_made, rest = query.partition(" AS ")
        read = rest if is_made and head.startswith("CREATE OR REPLACE TABLE") else query
        if read.startswith(("SELECT", "WITH")):
            ((_, plan),) = self._connection.execute(f"EXPLAIN {read}").fetchall()
            self._statements += ["scan"] * plan.count("READ_PARQUET")
        return self._connection.execute(query)

    def cursor(self) -> "Scans":
        return Scans(self._connection.cursor(), self._statements)


@pytest.mark.parametrize(
    ("sample", "most"), [("cpp-s01_handshake_producer", 45), ("cpp-s08_nack", 105)]
)
def test_a_large_summary_reads_its_files_few_times(
    sample: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a summary costs beside landing grows with that, as does what its plans cost."""
    scans: list[str] = []
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *a, **k: Scans(connect(*a, **k), scans))
    for name in ("FEW_ROWS", "TINY_ROWS"):
        monkeypatch.setattr(duckdb_engine, name, 0)
    monkeypatch.setattr(known_rows, "_FEW_ROWS", 0)
    reports.summary(CAPTURES / "pulsar" / f"{sample}.pcap")
    assert most / 2 < len(scans) <= most


@pytest.mark.parametrize(
    ("sample", "most"),
    [("cpp-s01_handshake_producer", 130), ("cpp-s08_nack", 210), ("cpp-s15_errors", 165)],
)
def test_a_small_summary_takes_few_statements(
    sample: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To plan them is nearly all of what it costs: where this grows, each command and test does."""
    statements: list[str] = []
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *a, **k: Counting(connect(*a, **k), statements))
    reports.summary(CAPTURES / "pulsar" / f"{sample}.pcap")
    assert most / 2 < len(statements) <= most
