"""The numbers of a report from the tables of a lake: queries per capture, merged, in one place.

An engine runs the queries of the catalogue over rows of captures; what comes out is small and is
merged here, by DuckDB, whatever engine made it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from dissector.lake.manifest import ROTATION, tap_run_of
from dissector.lake.reader import Lake
from dissector.queries.catalogue import catalogue
from dissector.queries.desk import Desk
from dissector.queries.tables import table_views
from dissector.report.numbers import high, low, step_ns
from dissector.report.parts import Parts
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema

TEXT: Final = pa.string()


def settled(rows: pa.Table) -> pa.Table:
    """Rows of an engine with the types that all engines share: int64, bool, text, lists of them."""
    fields = [pa.field(field.name, _plain(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pa.int64()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    return kind


def captures_table(names: Iterable[str]) -> pa.Table:
    """Names of captures as a table of one column."""
    return pa.table({"capture": pa.array(sorted(names), TEXT)})


def open_lake_tables(desk: Desk, lake: Lake, wanted: Iterable[str]) -> None:
    """The tables of a lake on a desk, of the captures that are wanted (by the names of rows)."""
    rotations = {
        inside.capture_id: tap_run_of(inside.capture_id)
        for capture in lake.captures
        for inside in capture.captures()
        if ROTATION.fullmatch(inside.capture_id)
    }
    new = lake._replace(captures=tuple(c for c in lake.captures if c.schema_version != 1))
    old = lake._replace(captures=tuple(c for c in lake.captures if c.schema_version == 1))
    for table in TABLES:
        empty = arrow_schema(table).empty_table()
        desk.lake_table(table, new.part_paths(table), old.part_paths(table), empty)
    desk.register("wanted", captures_table(wanted))
    if rotations:
        desk.register(
            "rotations",
            pa.table({"rotation": list(rotations), "run": list(rotations.values())}),
        )
    for name, query in table_views(has_rotations=bool(rotations)):
        desk.view(name, query)


def open_captures(desk: Desk, files: pa.Table, units: Mapping[str, str]) -> None:
    """The small tables about captures that queries read: `units` and `steps`."""
    steps = capture_steps(files)
    names = sorted(units)
    desk.register("units", pa.table({"capture": names, "unit": [units[name] for name in names]}))
    widths = pa.array([steps.get(name, 1_000_000) for name in names], pa.int64())
    desk.register("steps", pa.table({"capture": names, "step_ns": widths}))


def numbers(lake: Lake, folder: Path) -> Parts:
    """The parts of a report over a lake."""
    with Desk(folder) as desk:
        names = {tap_run_of(i.capture_id) for c in lake.captures for i in c.captures()}
        open_lake_tables(desk, lake, names)
        files = settled(desk.table("SELECT * FROM capture_files"))
        open_captures(desk, files, {name: name for name in names})
        desk.prelude()
        tables = {"files": files}
        for name, query in catalogue().items():
            desk.register(f"kept_{name}", desk.table(query.per_capture()))
            tables[name] = settled(desk.table(query.merged(f"kept_{name}")))
    return Parts(tables, span_step_ns(files), capture_steps(files))


def span_step_ns(files: pa.Table) -> int:
    """The step of series over time, from the span of all files (rows of capture_files)."""
    first = low(files.column("first_ts_ns").to_pylist())
    last = high(files.column("last_ts_ns").to_pylist())
    return step_ns(first, last) if first is not None and last is not None else step_ns(0, 0)


def capture_steps(files: pa.Table) -> dict[str | None, int]:
    """The step of series of each capture, from the span of its own files."""
    spans: dict[str | None, list[int]] = {}
    for row in files.select(["capture", "first_ts_ns", "last_ts_ns"]).to_pylist():
        mine = spans.setdefault(row["capture"], [])
        mine += [each for each in (row["first_ts_ns"], row["last_ts_ns"]) if each is not None]
    return {name: step_ns(min(mine, default=0), max(mine, default=0)) for name, mine in spans.items()}
