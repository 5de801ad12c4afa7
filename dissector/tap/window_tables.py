"""Rows of windows as tables that queries read: one conversion for tallies and rules."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Coded, Column, TableBlock
from dissector.queries.catalogue import SharedView, words
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.tables import NAMED_TWICE, table_views
from dissector.schemas import TABLES
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.rows import arrow_batch
from dissector.schemas.small_tables import NUMBER, TEXT, no_rows, small_table
from dissector.schemas.text import text_array

Rows = dict[str, pa.Table]
Columns = Mapping[str, Sequence[str]]

_FILES: Final = "capture_files"
_SOURCE: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


def columns_of(texts: Iterable[str], views: Iterable[SharedView]) -> dict[str, tuple[str, ...]]:
    """The columns that queries may read, by table: those that a query names which reads the table,
    by itself or through views.

    Args:
        texts: queries, or names of tables.
    """
    between = {view.name: view.query for view in views}
    named: dict[str, set[str]] = {}
    for text in (*texts, *between.values()):
        for table in _tables_of(text, between):
            named.setdefault(table, {"capture", "protocol"}).update(words(text))
    for name, query in table_views():
        table = NAMED_TWICE.get(name, name)
        if table in named:
            named[table] |= words(query)
    return {
        table: tuple(column.name for column in TABLES[table].columns if column.name in named[table])
        for table in TABLES
        if table in named
    }


def _tables_of(text: str, between: Mapping[str, str]) -> set[str]:
    """The tables that a query reads, or has the name of. between: queries of views, by name."""
    waiting, seen = [text, *_SOURCE.findall(text)], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _SOURCE.findall(between.get(name, ""))
    names = (name.removeprefix("lake_") for name in seen)
    return {NAMED_TWICE.get(name, name) for name in names} & {*TABLES}


def name_tables(
    db: DuckdbEngine, run: str, last_ns: int, rows: Rows, columns: Columns, *, is_lent: bool = False
) -> None:
    """Name tables of a window, and what queries of captures read beside them.

    Args:
        last_ns: when the window ends. is_lent: tables are read where they lie, views not kept.
    """
    give = db.lend if is_lent else db.register
    end = small_table([(last_ns, run)], last_ts_ns=NUMBER, capture=TEXT)
    give("wanted", small_table([(run,)], capture=TEXT))
    give("units", small_table([(run, run)], capture=TEXT, unit=TEXT))
    give("steps", small_table([(run, 1)], capture=TEXT, step_ns=NUMBER))
    for table, names in columns.items():
        table_rows = end if table == _FILES else rows.get(table)
        give(f"lake_{table}", _nothing(table, names) if table_rows is None else table_rows)


def name_views(db: DuckdbEngine, columns: Columns) -> None:
    """Name the views of tables over what `name_tables` named."""
    for name, query in table_views(has_others=False):
        if NAMED_TWICE.get(name, name) in columns or name == "moved":
            db.view(name, query)


def _nothing(table: str, names: Sequence[str]) -> pa.Table:
    schema = in_memory_schema(table)
    return no_rows(pa.schema([schema.field(name) for name in names]))


def own(cells: Column) -> Column:
    """A column by itself: most are views of a matrix, all of which would be kept with it."""
    if isinstance(cells, Coded):
        return Coded(cells.codes.copy(), cells.names) if cells.codes.base is not None else cells
    return cells.copy() if isinstance(cells, np.ndarray) and cells.base is not None else cells


def as_tables(blocks: Iterable[TableBlock], run: str, columns: Columns) -> Rows:
    """Blocks as tables of some columns, under one capture."""
    parts: dict[str, list[pa.RecordBatch]] = {}
    for block in blocks:
        if block.rows and block.table in columns:
            # The columns that nobody reads go at once: they are most of a batch.
            names = [name for name in columns[block.table] if name != "capture"]
            parts.setdefault(block.table, []).append(arrow_batch(block).select(names))
    tables = {}
    for table, batches in parts.items():
        rows = pa.Table.from_batches(batches)
        rows = rows.append_column("capture", _all_of(run, len(rows)))
        tables[table] = rows.select(columns[table])
    return tables


def _all_of(text: str, rows: int) -> pa.DictionaryArray:
    """A column of one text; not from an array of numpy, for which pyarrow imports pandas first."""
    codes = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.zeros(rows, np.int32))])
    return pa.DictionaryArray.from_arrays(codes, text_array([text]))


def joined(several: Sequence[Rows]) -> Rows:
    """The rows of all."""
    return {
        name: pa.concat_tables([each[name] for each in several if name in each])
        for name in dict.fromkeys(name for each in several for name in each)
    }
