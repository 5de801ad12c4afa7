"""Queries see the tables of a lake and nothing else, and docs/sql.md says what is true."""

import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dissector.cli.main import run
from dissector.errors import UsageError
from dissector.lake.reader import Lake, open_lake
from dissector.queries import duckdb_engine, sandbox
from dissector.queries.sandbox import Sandbox, TableFiles, ready_views, sandbox_over
from dissector.queries.selection import Selection
from dissector.report.sections.permit_utilization import permit_utilization
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from tests.dissector.cli.conftest import truth
from tests.dissector.lake.older_versions import as_version_1, as_version_2, as_version_3
from tests.dissector.queries.conftest import NAMES, SAMPLES
from tests.numbers import Numbers

DOCS = Path(__file__).resolve().parents[3] / "docs" / "sql.md"
EMPTY = {table: arrow_schema(table).empty_table() for table in TABLES}


@pytest.fixture(scope="module")
def engine(lake):
    with open_lake(lake) as opened, sandbox_over(opened) as found:
        yield found


def rows(engine, text):
    return [row for answer in engine.answers(text) for one in answer.batches()
            for row in one.to_pylist()]  # fmt: skip


QUESTIONS = re.findall(r"^(\S[^\n]*\?)\n\n```sql\n(.*?)```", DOCS.read_text("utf-8"), re.M | re.S)


def test_the_page_answers_at_least_25_questions():
    assert len(QUESTIONS) >= 25


@pytest.mark.parametrize("query", [q for _, q in QUESTIONS], ids=[t for t, _ in QUESTIONS])
def test_each_question_of_the_page_has_an_answer(engine, query):
    assert rows(engine, query)


def test_the_page_lists_the_views_that_there_are():
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", DOCS.read_text("utf-8"), re.M)
    assert listed == [(view.name, view.row) for view in ready_views()]


def test_sends_and_deliveries_are_those_that_the_manifest_counts(engine):
    for name in NAMES:
        counted = truth(SAMPLES / name)["frames"]
        stem = name.split(".")[0]
        for view, command in (("sends", "SEND"), ("delivered", "MESSAGE")):
            wanted = sum(n for key, n in counted.items() if key.split()[1] == command)
            (row,) = rows(
                engine, f"SELECT count(*) AS n FROM {view} WHERE capture LIKE 'c-{stem}-%'"
            )
            assert row["n"] == wanted, (name, view)


FORBIDDEN = (
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/etc/*')",
    "COPY (SELECT 1) TO '{file}'",
    "COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
    "/**/ EXPLAIN /**/ ANALYZE COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
    "PREPARE p AS COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false); EXECUTE p",
    "SELECT 1; COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)",
    "EXPORT DATABASE '{file}'",
    "ATTACH '{file}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET allowed_paths = ['/etc/passwd']",
    "SET GLOBAL lock_configuration = false",
    "CREATE SECRET s (TYPE s3)",
)


@pytest.mark.parametrize("query", FORBIDDEN)
def test_a_query_reads_and_writes_no_other_file(engine, lake, tmp_path, query):
    (part,) = (lake / "frames").glob("*/*c-java-j12*/*.parquet")
    before = part.read_bytes()
    with pytest.raises(UsageError):
        rows(engine, query.format(file=tmp_path / "x", part=part))
    assert part.read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_a_lake_without_captures_has_empty_tables():
    with Sandbox(TableFiles(), EMPTY) as engine:
        assert rows(engine, "SELECT count(*) AS n FROM delivered") == [{"n": 0}]
        assert rows(engine, "SELECT * FROM stalls") == []


def test_a_wrong_name_is_told_with_the_nearest_right_one(engine):
    with pytest.raises(UsageError, match='Did you mean "frames"'):
        rows(engine, "SELECT * FROM fraems")


@pytest.mark.parametrize(
    "query",
    ["SELECT sum(i) FROM range(100000000000) t(i)", "SELECT i FROM range(100000000000) t(i)"],
    ids=["before the first row", "between rows"],
)
def test_an_interrupt_ends_a_long_query_and_the_engine_goes_on(engine, query):
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            for answer in engine.answers(query):
                for _ in answer.batches():
                    pass
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert rows(engine, "SELECT 1 AS n") == [{"n": 1}]


def test_an_interrupt_while_the_thread_starts_ends_its_query(engine, monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows(engine, "SELECT sum(i) FROM range(100000000000) t(i)")
    assert rows(engine, "SELECT 1 AS n") == [{"n": 1}]


def test_stalls_are_those_of_the_report(engine, lake):
    numbers = Numbers()
    with open_lake(lake) as opened:
        for capture in opened.captures:
            alone = opened._replace(captures=(capture,))
            for table in TABLES:
                for path in alone.part_paths(table):
                    numbers.add(table, pq.ParquetFile(path).read(), capture.capture_id)
    total = permit_utilization(numbers.parts())
    (row,) = rows(
        engine,
        "SELECT count(*) FILTER (confirmed) AS confirmed, "
        "count(*) FILTER (NOT confirmed) AS unconfirmed, count(*) - count(confirmed) AS open, "
        "sum(lasted_ms) FILTER (confirmed IS NOT NULL) AS total_ms "
        "FROM stalls WHERE lasted_ms >= 1000",
    )
    stalls = total["total"]["stalls"]
    assert row["confirmed"] == stalls["confirmed"]["count"] > 0
    assert (row["unconfirmed"], row["open"]) == (
        stalls["unconfirmed"]["count"], stalls["open_at_end"]["count"]
    )  # fmt: skip
    assert row["total_ms"] == pytest.approx(stalls["total_ms"])
    listed = rows(
        engine,
        "SELECT capture, connection_id, consumer_id, incarnation, topic, subscription, confirmed, "
        "lasted_ms AS stall_ms, began_frame_no AS start_frame_no, ended_frame_no AS end_frame_no "
        "FROM stalls WHERE lasted_ms >= 1000 ORDER BY lasted_ms DESC, began",
    )
    assert listed == [{name: row[name] for name in listed[0]} for row in total["longest_stalls"]]


@pytest.mark.parametrize(
    "query", ["UPDATE EXTENSIONS", "/**/ update extensions (httpfs)", "EXPLAIN UPDATE EXTENSIONS"]
)
def test_a_statement_that_has_no_name_is_refused_in_one_line(engine, query):
    with pytest.raises(UsageError, match="a statement of this kind is not for queries") as told:
        rows(engine, query)
    assert "\n" not in str(told.value)


LARGE = (
    "SELECT count(*) AS n FROM (SELECT i FROM range(9000000) t(i) ORDER BY hash(i) LIMIT 8000000)"
)


def test_what_does_not_fit_into_memory_goes_where_it_is_told_to_and_nowhere_else(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for folder in (None, tmp_path / "spill"):
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "connect", lambda: small(duckdb_engine.connect()))
            with Sandbox(TableFiles(), EMPTY, folder=folder) as engine:
                if folder is None:
                    with pytest.raises(UsageError, match="Out of Memory"):
                        rows(engine, LARGE)
                else:
                    assert rows(engine, LARGE) == [{"n": 8_000_000}]
        assert {path.name for path in tmp_path.iterdir()} <= {"spill"}


def small(connection):
    connection.execute("SET memory_limit = '60MB'; SET threads = 1")
    return connection


@pytest.mark.parametrize(
    "query",
    ["SELECT sum(i) FROM range(100000000000) t(i)", "SELECT i FROM range(100000000000) t(i)"],
    ids=["before the first row", "between rows"],
)
def test_a_statement_has_so_much_time_and_the_next_one_has_it_again(query):
    with Sandbox(TableFiles(), EMPTY, most_seconds=1) as engine:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(UsageError, match="stopped after 1 s, as --timeout says"):
                for answer in engine.answers(query):
                    for _ in answer.batches():
                        pass  # as Python values, rows of a second take ten
            assert time.monotonic() - began < 10
        assert rows(engine, "SELECT 1 AS n") == [{"n": 1}]


def test_what_hears_no_interrupt_is_left(monkeypatch):
    """One call over one huge value: nothing in it asks whether somebody waits."""
    monkeypatch.setattr(sandbox, "_PATIENCE_SECONDS", 0.5)
    deaf = threading.Event()
    try:
        engine = Sandbox(TableFiles(), EMPTY, most_seconds=1)
        with engine, pytest.raises(UsageError, match="stopped after 1 s"):
            monkeypatch.setattr(engine, "_reader", lambda statement: deaf.wait())
            rows(engine, "SELECT 1")
    finally:
        deaf.set()


def by_tables(queries):
    """Those together that read the same tables, which alone decide what an engine opens."""
    together = {}
    for query in queries:
        together.setdefault(frozenset(sandbox.tables_of(query)), []).append(query)
    return together.values()


def in_order(found):
    return sorted(map(repr, found))


def test_an_engine_for_one_query_opens_what_that_reads(lake, engine):
    """It gives what an engine over all tables gives, for whatever names a table."""
    views = [f"SELECT * FROM {view.name}" for view in ready_views()]
    odd = [
        "SELECT '--' AS text, count(*) AS n FROM FRAMES",
        "SELECT '/*', count(*) AS n FROM \"Frames\" -- */",
        "FROM query_table('fra' || 'mes') SELECT count(*) AS n",
        "FROM query('SELECT count(*) AS n FROM fra' || 'mes')",
        "CREATE MACRO m() AS TABLE SELECT count(*) AS n FROM acks; FROM m()",
    ]
    with open_lake(lake) as opened:
        # Of rows that are as good as others, which come within a limit is nobody's promise.
        whole = [re.sub(r"\s+LIMIT \d+;?\s*$", "", query) for _, query in QUESTIONS]
        for queries in (*by_tables([*views, *whole]), *([query] for query in odd)):
            with sandbox_over(opened, query=queries[0]) as own:
                for query in queries:
                    assert in_order(rows(own, query)) == in_order(rows(engine, query))
            engine.answers("DROP MACRO IF EXISTS m")
    assert sandbox.tables_of("select count(*) from frames") == {"frames"}
    assert "exchanges" in sandbox.tables_of("select * from sends")
    assert sandbox.tables_of("select 1") == set()


def test_an_engine_for_one_query_opens_what_that_reads_of_a_time(lake):
    with open_lake(lake) as opened:
        ends = sorted(one.last_ts_ns for one in opened.captures)
        selection = Selection(ends[2], ends[-1])
        with sandbox_over(opened, selection=selection) as whole:
            names = (*(view.name for view in ready_views()), *TABLES)
            for queries in by_tables([f"SELECT * FROM {name}" for name in names]):
                with sandbox_over(opened, query=queries[0], selection=selection) as own:
                    assert own.has_rows()
                    for query in queries:
                        assert in_order(rows(own, query)) == in_order(rows(whole, query))


@pytest.mark.parametrize("kind", ["captures", "rotations"])
def test_captures_that_ended_before_the_time_are_not_opened(lake, tmp_path, monkeypatch, kind):
    """Rotations have rows of before their first packet: exchanges that closed in them."""
    if kind == "rotations":
        capture = SAMPLES / NAMES[0]
        lake = tmp_path / "lake"
        assert run(["tap", "--replay", str(capture), "--lake", str(lake), "--rotate", "10kB"]) == 0

    def rows(since_ns: int, until_ns: int | None) -> tuple[dict[str, object], int]:
        with (
            open_lake(lake) as opened,
            sandbox_over(opened, selection=Selection(since_ns, until_ns)) as engine,
        ):
            found = {
                table: [
                    batch.to_pylist()
                    for (answer,) in [[*engine.answers(f"select * from {table} order by all")]]
                    for batch in answer.batches()
                ]
                for table in TABLES
            }
            return found, len(paths)

    part_paths, paths = Lake.part_paths, set()

    def noted(self: Lake, table: str, ranges: None) -> list[str]:
        paths.update(found := part_paths(self, table, ranges))
        return found

    monkeypatch.setattr(Lake, "part_paths", noted)
    with open_lake(lake) as opened:
        ends = sorted(one.last_ts_ns for one in opened.captures)
    for since_ns, until_ns in ((ends[0], None), (ends[1] + 1, None), (ends[0] + 1, ends[1])):
        paths.clear()
        found, opened_files = rows(since_ns, until_ns)
        with monkeypatch.context() as patch:
            patch.setattr(Selection, "may_have_rows", lambda *_: True)
            whole, all_files = rows(since_ns, until_ns)
        assert found == whole
        assert (opened_files < all_files) == (since_ns > ends[0])


@pytest.mark.parametrize("old", [as_version_1, as_version_2, as_version_3])
def test_files_that_lie_in_no_folder_of_a_day_have_one(lake, tmp_path, old):
    copied = tmp_path / "lake"
    shutil.copytree(lake, copied)
    query = (
        "SELECT capture, day, count(*) AS n FROM frames WHERE day IN ('2026-11-21', '2026-11-20') "
        "GROUP BY ALL ORDER BY ALL"
    )
    with open_lake(copied) as opened, sandbox_over(opened) as engine:
        truth = rows(engine, query)
        name = opened.captures[0].capture_id
    assert len(truth) >= len(NAMES) and {str(row["day"]) for row in truth} == {"2026-11-21"}
    old(copied, name)
    with open_lake(copied) as opened, sandbox_over(opened) as engine:
        assert rows(engine, query) == truth
        assert {*opened.days().values()} == {"2026-11-21"}
