"""Queries asked over tables made by hand, with DuckDB."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dissector.queries.catalogue import catalogue
from dissector.queries.desk import Desk
from dissector.queries.tables import table_views
from dissector.report.parts import Parts
from dissector.schemas import TABLES
from tests.dissector.report import made

Row = dict[str, Any]
Captures = Mapping[str, Mapping[str, list[Row]]]
STEP_NS = 1_000_000_000


class Asking:
    """Queries over captures: their tables by name, rows as `made.batch` takes them."""

    def __init__(self) -> None:
        self._desk = Desk(threads=1)
        self._is_open = False

    def put(self, captures: Captures, units: Mapping[str, str] | None = None) -> "Asking":
        """Take other captures. units: those that are read together, by their names."""
        for table in TABLES:
            rows = [
                {"capture": name, **row}
                for name, tables in captures.items()
                for row in tables.get(table, ())
            ]
            batch = made.batch(table, rows, is_coded=False)
            self._desk.register(f"lake_{table}", pa.Table.from_batches([batch]))
        names = sorted(captures)
        of = units or {}
        self._desk.register("wanted", pa.table({"capture": pa.array(names, pa.string())}))
        found = pa.table({"capture": names, "unit": [of.get(name, name) for name in names]})
        self._desk.register("units", found)
        steps = pa.table({"capture": names, "step_ns": [STEP_NS] * len(names)})
        self._desk.register("steps", steps)
        if not self._is_open:
            for name, query in table_views():
                self._desk.view(name, query)
            self._is_open = True
        self._desk.prelude()
        return self

    def register(self, name: str, rows: pa.Table) -> None:
        """A table of the caller's."""
        self._desk.register(name, rows)

    def table(self, query: str) -> pa.Table:
        """The rows of any query; sums are numbers of 128 bits to DuckDB."""
        found = self._desk.table(query)
        fields = [
            field.with_type(pa.int64()) if pa.types.is_decimal(field.type) else field
            for field in found.schema
        ]
        return found.cast(pa.schema(fields))

    def merged(self, name: str) -> pa.Table:
        """The merged rows of a query of the catalogue."""
        query = catalogue()[name]
        self._desk.register(f"kept_{name}", self.table(query.per_capture()))
        return self.table(query.merged(f"kept_{name}"))

    def parts(self, names: Iterable[str]) -> Parts:
        """Parts of a report that have only these queries."""
        return Parts({name: self.merged(name) for name in names}, STEP_NS)

    def rows(self, name: str) -> list[Row]:
        """What a section gets of a query."""
        return self.parts([name]).rows(name)
