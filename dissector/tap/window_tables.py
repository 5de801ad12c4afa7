"""Converts rows of windows to Arrow tables, once for aggregations and rules."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from dissector.blocks import TableBlock
from dissector.lake.writer import block_bytes
from dissector.queries.catalogue import SharedView, words
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.tables import (
    NAMED_TWICE,
    repeated_legs,
    table_views,
    without_repeated_legs,
)
from dissector.schemas import TABLES
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.rows import TableBuilder
from dissector.schemas.small_tables import NUMBER, TEXT, no_rows, small_table
from dissector.schemas.text import text_array

Rows = dict[str, pa.Table]
Columns = Mapping[str, Sequence[str]]

_FILES: Final = "capture_files"
_ROWS: Final = 8192  # rows that are gathered in one buffer
_SOURCE: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_PASSES_ON: Final = re.compile(r"\.\*|SELECT\s+\*")  # the view has all columns of its source


def columns_of(texts: Iterable[str], views: Iterable[SharedView]) -> dict[str, tuple[str, ...]]:
    """The columns that queries may read, by table: all that are named by a query which reads the
    table, directly or through views that pass all columns on.

    Args:
        texts: queries, or names of tables.
    """
    between = {view.name: view.query for view in views}
    named: dict[str, set[str]] = {}
    for text in (*texts, *between.values()):
        for table in _tables_of(text, between):
            named.setdefault(table, {"capture", "protocol"}).update(words(text))
    all_rows = dict(table_views())
    for name, query in (*without_repeated_legs(all_rows), ("legs", repeated_legs(all_rows))):
        table = NAMED_TWICE.get(name, name)
        if table in named:
            named[table] |= words(query)
    return {
        table: tuple(column.name for column in TABLES[table].columns if column.name in named[table])
        for table in TABLES
        if table in named
    }


def _tables_of(text: str, between: Mapping[str, str]) -> set[str]:
    """The tables whose columns a text may name, or that it is the name of. between: view
    queries."""
    waiting, seen = [text, *_SOURCE.findall(text)], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            query = between.get(name, "")
            waiting += _SOURCE.findall(query) if _PASSES_ON.search(query) else ()
    names = (name.removeprefix("lake_") for name in seen)
    return {NAMED_TWICE.get(name, name) for name in names} & {*TABLES}


def name_tables(db: DuckdbEngine, run: str, last_ns: int, rows: Rows, columns: Columns) -> None:
    """Register the tables of a window without copies, and the other tables that queries of captures
    read. last_ns: the end of the window."""
    end = small_table([(last_ns, run)], last_ts_ns=NUMBER, capture=TEXT)
    db.lend("wanted", small_table([(run,)], capture=TEXT))
    db.lend("units", small_table([(run, run)], capture=TEXT, unit=TEXT))
    db.lend("steps", small_table([(run, 1)], capture=TEXT, step_ns=NUMBER))
    for table, names in columns.items():
        table_rows = end if table == _FILES else rows.get(table)
        db.lend(f"lake_{table}", _nothing(table, names) if table_rows is None else table_rows)


def name_views(db: DuckdbEngine, columns: Columns, *, has_all_rows: bool = True) -> None:
    """Create the views over the tables of `name_tables`, which may be of later windows.

    has_all_rows: else the views are of this window alone, without rows of repeated connections.
    """
    views = dict(table_views(has_others=False))
    if not has_all_rows and "connections" in columns:
        legs = db.table(repeated_legs(views))
        if legs.num_rows:
            db.lend("repeated_legs", legs)
            views = dict(without_repeated_legs(views))
    for name, query in views.items():
        if NAMED_TWICE.get(name, name) in columns or name == "moved":
            db.view(name, query)


def _nothing(table: str, names: Sequence[str]) -> pa.Table:
    schema = in_memory_schema(table)
    return no_rows(pa.schema([schema.field(name) for name in names]))


class TableCollector:
    """Gathers rows into tables of some columns, under one capture.

    size: bytes of these columns in the blocks. is_empty: whether there are no rows.
    """

    def __init__(self, columns: Columns) -> None:
        self.size = 0
        self._columns = columns
        self._builders: dict[str, list[TableBuilder]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return not self._builders

    def add(self, block: TableBlock) -> None:
        """Copy the needed columns of a block; a view of a matrix would keep all of it in memory."""
        names = self._columns.get(block.table)
        if names is None or not block.rows:
            return
        columns = {name: cells for name, cells in block.columns.items() if name in names}
        mine = TableBlock(block.table, block.rows, columns)
        builders = self._builders.setdefault(block.table, [])
        start = 0
        while start < block.rows:
            if not builders or not builders[-1].free_rows:
                wanted = [name for name in names if name != "capture"]
                builders.append(TableBuilder(block.table, _ROWS, wanted))
            stop = min(block.rows, start + builders[-1].free_rows)
            builders[-1].append(mine, start, stop)
            start = stop
        self.size += block_bytes(mine)

    def tables(self, run: str) -> Rows:
        """Return the rows so far and clear them."""
        tables = {}
        while self._builders:
            table, builders = self._builders.popitem()
            rows = pa.Table.from_batches([each.finish() for each in builders])
            rows = rows.append_column("capture", _all_of(run, len(rows)))
            tables[table] = rows.select(self._columns[table])
        return tables


def as_tables(blocks: Iterable[TableBlock], run: str, columns: Columns) -> Rows:
    """Convert blocks to tables of some columns, under one capture."""
    collector = TableCollector(columns)
    for block in blocks:
        collector.add(block)
    return collector.tables(run)


def _all_of(text: str, rows: int) -> pa.DictionaryArray:
    """A column with one text in all rows, without numpy, for which pyarrow imports pandas."""
    codes = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.zeros(rows, np.int32))])
    return pa.DictionaryArray.from_arrays(codes, text_array([text]))


def joined(several: Sequence[Rows]) -> Rows:
    """The concatenated tables."""
    return {
        name: pa.concat_tables([each[name] for each in several if name in each])
        for name in dict.fromkeys(name for each in several for name in each)
    }
