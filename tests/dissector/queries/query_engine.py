"""Queries of the catalogue over rows made by hand."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dissector.queries.catalogue import catalogue, shared_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.tables import table_views
from dissector.report.aggregation_cache import with_plain_types
from dissector.report.merged_tables import MergedTables
from dissector.report.partitions import Engine
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from tests.dissector.report import made

Row = dict[str, Any]
Rows = Mapping[str, Iterable[Row]]
CAPTURE = "c"
STEP_NS = 1_000_000_000


class QueryEngine:
    """An engine over the rows of captures; by default DuckDB.

    rows: the first ones of capture CAPTURE; an engine that binds names when a view is made sees no
    others.
    """

    def __init__(self, rows: Rows | None = None, engine: Engine | None = None) -> None:
        self._engine = DuckdbEngine(threads=1) if engine is None else engine
        self._is_open = False
        self._filled = {*TABLES}  # those that may have rows
        self.give(rows or {})
        for name, query in table_views(has_others=False):
            self._engine.view(name, query)
        self._engine.shared_views()
        self._is_open = True

    def give(self, rows: Rows, step_ns: int = STEP_NS) -> None:
        """Rows of a lake's tables in the place of what was there, as `made.batch` takes them; those
        that name no capture are of CAPTURE. All captures are read together."""
        captures: dict[str, dict[str, list[Row]]] = {CAPTURE: {}}
        for table, some in rows.items():
            for row in some:
                mine = captures.setdefault(row.get("capture", CAPTURE), {})
                mine.setdefault(table, []).append(row)
        self.put(captures, dict.fromkeys(captures, "u"), step_ns)

    def put(
        self,
        captures: Mapping[str, Rows],
        units: Mapping[str, str] | None = None,
        step_ns: int = STEP_NS,
    ) -> "QueryEngine":
        """Rows of captures in the place of what was there.

        Args:
            units: of captures that are read together, by their names.
        """
        for table in TABLES:
            rows = [
                {"capture": name, **row}
                for name, tables in captures.items()
                for row in tables.get(table, ())
            ]
            if not rows and table not in self._filled:
                continue
            self._filled = self._filled | {table} if rows else self._filled - {table}
            batch = made.batch(table, rows, is_coded=False)
            self.register(f"lake_{table}", pa.Table.from_batches([batch], arrow_schema(table)))
        names = pa.array(sorted(captures), pa.string())
        of = pa.array([(units or {}).get(name, name) for name in sorted(captures)], pa.string())
        steps = pa.array([step_ns] * len(names), pa.int64())
        self.register("wanted", pa.table({"capture": names}))
        self.register("units", pa.table({"capture": names, "unit": of}))
        self.register("steps", pa.table({"capture": names, "step_ns": steps}))
        if self._is_open and isinstance(self._engine, DuckdbEngine):
            self._engine.renew(shared_views())
        elif self._is_open:
            self._engine.shared_views()
        return self

    def register(self, name: str, rows: pa.Table) -> None:
        """A table of the caller's."""
        self._engine.register(name, rows)

    def table(self, query: str) -> pa.Table:
        """The rows of any query, with the types that all engines share."""
        return with_plain_types(self._engine.table(query))

    def per_capture(self, name: str) -> list[Row]:
        """What a query of the catalogue gives per capture."""
        rows: list[Row] = self._engine.table(catalogue()[name].per_capture()).to_pylist()
        return rows

    def gives(self, name: str) -> pa.Schema:
        """The columns that the text of a query gives, before its header chooses."""
        return self.table(catalogue()[name].text).schema

    def merged(self, name: str) -> pa.Table:
        """The merged rows of a query of the catalogue."""
        query = catalogue()[name]
        self.register(f"kept_{name}", self.table(query.per_capture()))
        return self.table(query.merged(f"kept_{name}"))

    def tables(self) -> dict[str, pa.Table]:
        """What all queries of the catalogue give, as sections take it."""
        return {name: self.merged(name) for name in catalogue()}

    def parts(self, names: Iterable[str]) -> MergedTables:
        """Parts of a report that have only these queries."""
        return MergedTables({name: self.merged(name) for name in names}, STEP_NS)

    def rows(self, name: str) -> list[Row]:
        """What a section gets of a query."""
        return self.parts([name]).rows(name)
