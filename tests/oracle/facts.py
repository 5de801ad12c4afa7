"""Exchanges, deliveries and permits of Pulsar once more, by SQL over the frames: the oracle.

The passes of the program pair, count and remember frame by frame; here the same rows come of joins
and windows over the tables `frames`, `acks`, `connections`, `events`, `producers` and `consumers`.
Nothing is bounded and nothing is forgotten, so captures that reach a bound are none of its.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa

from dissector.joining.stitching import STEPS, statements

INPUTS: Final = (
    "capture_files",
    "connections",
    "frames",
    "acks",
    "events",
    "producers",
    "consumers",
)
# By table: what tells its rows of one connection apart.
KEYS: Final = {
    "exchanges": ("request_frame_no", "response_frame_no"),
    "deliveries": ("frame_no",),
    "permits": ("consumer_id", "frame_no", "event"),
}
# In the place of a column: rows that one side alone has.
PROGRAM_ONLY: Final = "rows of the program alone"
ORACLE_ONLY: Final = "rows of the oracle alone"


class Difference(NamedTuple):
    """Rows of a table of one capture that the oracle has otherwise. capture: the file's name."""

    capture: str
    table: str
    column: str
    rows: int


class Oracle:
    """Facts as the program and as the oracle have them."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        """tables: those of INPUTS and KEYS."""
        self._duckdb = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
        for name in (*INPUTS, *KEYS):
            self._duckdb.register(name, tables[name])
        for step in ("before", *STEPS):
            for statement in statements(step):
                self._run(statement)

    def _run(self, statement: str) -> list[tuple[object, ...]]:
        return self._duckdb.execute(statement).fetchall()

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table; of one that the oracle made, `new_` is before its name."""
        return [str(row[0]) for row in self._run(f"DESCRIBE SELECT * FROM {table}")]

    def rows(self, table: str) -> int:
        """How many rows the oracle made of a table."""
        ((count,),) = self._run(f"SELECT count(*) FROM new_{table}")
        return int(str(count))

    def differences(self) -> list[Difference]:
        """All differences, by capture and table."""
        return sorted(each for table in KEYS for each in self._of_table(table))

    def _of_table(self, table: str) -> list[Difference]:
        keys = ("capture", "connection_id", *KEYS[table])
        same = " AND ".join(f"o.{key} IS NOT DISTINCT FROM p.{key}" for key in keys)
        columns = [name for name in self.columns(f"new_{table}") if name not in keys]
        counts = "".join(
            f", count(*) FILTER (o.{name} IS DISTINCT FROM p.{name} AND o.is_made AND p.is_written)"
            for name in columns
        )
        rows = self._run(f"""
            SELECT string_agg(DISTINCT f.file_name, '+'),
              count(*) FILTER (o.is_made IS NULL), count(*) FILTER (p.is_written IS NULL) {counts}
            FROM (SELECT *, true AS is_made FROM new_{table}) AS o
            FULL JOIN (
              SELECT *, true AS is_written FROM {table}
              SEMI JOIN numbered_connections USING (capture, connection_id)
            ) AS p ON {same}
            JOIN capture_files AS f ON f.capture = coalesce(o.capture, p.capture)
            GROUP BY f.capture
        """)
        names = (PROGRAM_ONLY, ORACLE_ONLY, *columns)
        return [
            Difference(str(capture), table, name, int(str(count)))
            for capture, *counted in rows
            for name, count in zip(names, counted, strict=True)
            if count
        ]
