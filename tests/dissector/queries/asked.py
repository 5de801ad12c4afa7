"""Queries of the catalogue over rows made by hand."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dissector.queries.catalogue import catalogue
from dissector.queries.desk import Desk
from dissector.queries.tables import table_views
from dissector.report.shares import Engine
from dissector.report.tallied import settled
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from tests.dissector.report import made

Row = dict[str, Any]
CAPTURE = "c"


class Asked:
    """An engine over rows of one capture or several, read together; `capture` is "c" if not said.

    tables: the first rows; an engine that binds names when a view is made sees no others.
    """

    def __init__(
        self, tables: Mapping[str, Iterable[Row]] | None = None, engine: Engine | None = None
    ) -> None:
        self._desk = Desk(threads=1) if engine is None else engine
        self.give(tables or {})
        for name, query in table_views(has_others=False):
            self._desk.view(name, query)
        self._desk.prelude()

    def give(self, tables: Mapping[str, Iterable[Row]], step_ns: int = 1_000_000_000) -> None:
        """Rows of a lake's tables in the place of what was there; `ts` in µs."""
        names = {CAPTURE}
        for table in TABLES:
            rows = [{"capture": CAPTURE, **row} for row in tables.get(table, ())]
            names |= {row["capture"] for row in rows}
            batch = made.batch(table, rows, is_coded=False)
            self._desk.register(
                f"lake_{table}", pa.Table.from_batches([batch], arrow_schema(table))
            )
        known = pa.array(sorted(names), pa.string())
        units = pa.array(["u"] * len(known), pa.string())
        steps = pa.array([step_ns] * len(known), pa.int64())
        self._desk.register("wanted", pa.table({"capture": known}))
        self._desk.register("units", pa.table({"capture": known, "unit": units}))
        self._desk.register("steps", pa.table({"capture": known, "step_ns": steps}))

    def rows(self, query: str) -> list[Row]:
        """What a query of the catalogue gives per capture."""
        found: list[Row] = self._desk.table(catalogue()[query].per_capture()).to_pylist()
        return found

    def gives(self, query: str) -> pa.Schema:
        """The columns that the text of a query gives, before its header chooses."""
        return settled(self._desk.table(catalogue()[query].text)).schema

    def tables(self) -> dict[str, pa.Table]:
        """What all queries of the catalogue give, as sections take it."""
        found = {}
        for name, query in catalogue().items():
            self._desk.register("kept", self._desk.table(query.per_capture()))
            found[name] = settled(self._desk.table(query.merged("kept")))
        return found
