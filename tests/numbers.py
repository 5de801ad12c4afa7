"""The numbers of a report over rows that a test has in memory, by the queries that users get."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dissector.blocks import TableBlock
from dissector.findings.loading import RANK
from dissector.findings.querying import incidents, rule_queries
from dissector.queries.catalogue import MAY_FAIL, catalogue
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.tables import table_views
from dissector.report.aggregation_cache import with_plain_types
from dissector.report.by_capture import verdict_rows, verdict_section
from dissector.report.merged_tables import MergedTables, empty_tables, tables_by_capture
from dissector.report.numbers import Row, step_ns
from dissector.report.result import build
from dissector.report.sections.findings import judge_reports
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.rows import arrow_batch

Made = tuple[MergedTables, Mapping[str, pa.Table | list[Row]]]


class Numbers:
    """Rows of tables as they come; one capture or more, none of which goes on in another."""

    def __init__(self, asks_rules: bool = False) -> None:
        self._asks_rules = asks_rules
        self._rows: dict[str, list[tuple[str, pa.RecordBatch | pa.Table]]] = defaultdict(list)
        self._incidents: dict[str, list[dict[str, Any]]] = {}
        self._found: Made | None = None

    def add_incident(self, number: str, capture: str = "c", variant: str = "") -> None:
        """Let a rule, by its number, have found something in a capture."""
        name = f"{MAY_FAIL}{number.lower()}"
        row = {"capture": capture, "variant": variant, "first_ns": 1, "last_ns": 2, RANK: 1,
               rule_queries()[name].rule.worst: 1, "frame_first": 1, "packet_first": 1}  # fmt: skip
        self._incidents.setdefault(name, []).append(row)
        self._found = None

    def add_block(self, block: TableBlock, capture: str = "c") -> None:
        """Take in a block of rows of the core."""
        self.add(block.table, arrow_batch(block), capture)

    def add(self, table: str, rows: pa.RecordBatch | pa.Table, capture: str = "c") -> None:
        """Take in rows of one table; columns that they lack are null."""
        self._rows[table].append((capture, rows))
        self._found = None

    def parts(self) -> MergedTables:
        """What the sections take."""
        return self._made()[0]

    def tallies(self) -> Mapping[str, pa.Table | list[Row]]:
        """The rows of each query per capture, and `files`."""
        return self._made()[1]

    def asked_of(self, query: str, rows: pa.Table) -> pa.Table:
        """What a query says about rows, which it calls kept_rows."""
        with DuckdbEngine(threads=1) as db:
            db.register("kept_rows", rows)
            return with_plain_types(db.table(query))

    def result(self) -> dict[str, Any]:
        """The report's JSON."""
        merged_tables, tallies = self._made()
        rows = verdict_rows(tallies, engine()).to_pylist()
        found = build(merged_tables, verdicts=verdict_section(rows))
        judge_reports(engine(), [(merged_tables, found)])
        return found

    def results(self) -> dict[str, dict[str, Any]]:
        """The report's JSON of each capture that has files, alone.

        The queries run once for all, as for a lake: to plan them costs more than to run them.
        """
        tallies = self._made()[1]
        judged = {row["capture"]: row for row in verdict_rows(tallies, engine()).to_pylist()}
        found = {
            name: (merged_tables, build(
                merged_tables._replace(only_totals=False), verdicts=verdict_section([judged[name]])
            ))
            for name, merged_tables in tables_by_capture(tallies)
        }  # fmt: skip
        judge_reports(engine(), [*found.values()])
        return {str(name): report for name, (_, report) in found.items()}

    def _made(self) -> Made:
        if self._found is None:
            self._found = self._make() if self._rows else _nothing()
        return self._found

    def tables(self) -> dict[str, pa.Table]:
        """All rows, by table."""
        return {
            name: pa.concat_tables([
                arrow_schema(name).empty_table(),
                *(_whole(name, [*given]) for _, given in groupby(self._rows[name], _schema)),
            ])
            for name in TABLES
        }  # fmt: skip

    def opened(self) -> DuckdbEngine:
        """The engine of all tests with these rows; the next that asks for it replaces them."""
        tables, db = self.tables(), engine()
        db.expect(sum(rows.num_rows for rows in tables.values()))
        names = {name for rows in tables.values() for name in rows.column("capture").to_pylist()}
        _open(db, tables, dict.fromkeys(sorted(names), 1))
        return db

    def _make(self) -> Made:
        tables = self.tables()
        captures = sorted(
            {n for rows in tables.values() for n in rows.column("capture").unique().to_pylist()}
        )
        files = tables["capture_files"]
        spans = dict.fromkeys(captures, (0, 0)) | _spans(files)
        db = engine()
        db.expect(sum(rows.num_rows for rows in tables.values()))
        _open(db, tables, {name: step_ns(*span) for name, span in spans.items()})
        queries = catalogue()
        tallies = {
            name: with_plain_types(db.table(query.per_capture())) for name, query in queries.items()
        }
        asked = {name: query.text for name, query in rule_queries().items() if self._asks_rules}
        found = incidents(db, asked) | self._incidents
        tallies = {**empty_tables().tables, **found, **tallies, "files": files}
        merged = dict(tallies)
        for name, query in queries.items() if len(captures) > 1 else ():
            db.register("kept_rows", tallies[name])
            merged[name] = with_plain_types(db.table(query.merged("kept_rows")))
        known = [span for span in spans.values() if span != (0, 0)]
        whole = (min(a for a, _ in known), max(b for _, b in known)) if known else (0, 0)
        steps = {name: step_ns(*span) for name, span in spans.items()}
        return MergedTables(merged, step_ns(*whole), steps), tallies


def _schema(given: tuple[str, pa.RecordBatch | pa.Table]) -> pa.Schema:
    return given[1].schema


def _whole(table: str, given: list[tuple[str, pa.RecordBatch | pa.Table]]) -> pa.Table:
    """Rows of captures, of equal columns, with all columns of their table."""
    rows = pa.concat_tables(
        [each if isinstance(each, pa.Table) else pa.table(each) for _, each in given]
    )
    captures = np.repeat(np.arange(len(given)), [each.num_rows for _, each in given])
    names = pa.array([capture for capture, _ in given], pa.string())
    schema = arrow_schema(table)
    columns = [
        names.take(pa.array(captures))
        if field.name == "capture" else rows.column(field.name)
        if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.table(columns, names=schema.names).cast(schema)


@cache
def engine() -> DuckdbEngine:
    """One for all tests of a process: to open it costs as much as some queries."""
    return DuckdbEngine(threads=1)


def _open(db: DuckdbEngine, tables: Mapping[str, pa.Table], steps: Mapping[str, int]) -> None:
    names = pa.array(list(steps), pa.string())
    for name, rows in tables.items():
        db.register(f"lake_{name}", rows)
    db.register("units", pa.table({"capture": names, "unit": names}))
    widths = pa.array(list(steps.values()), pa.int64())
    db.register("steps", pa.table({"capture": names, "step_ns": widths}))
    for name, query in table_views(has_others=False):
        db.view(name, query)
    db.shared_views()


def _spans(files: pa.Table) -> dict[str, tuple[int, int]]:
    """When the packets of each capture were captured, of which that is known."""
    times: dict[str, list[int]] = {}
    for row in files.select(["capture", "first_ts_ns", "last_ts_ns"]).to_pylist():
        ends = times.setdefault(row.pop("capture"), [])
        ends += [time for time in row.values() if time is not None]
    return {name: (min(ends), max(ends)) for name, ends in times.items() if ends}


@cache
def _nothing() -> Made:
    return Numbers()._make()


@cache
def empty_report() -> dict[str, Any]:
    """The report of nothing."""
    return Numbers().result()
