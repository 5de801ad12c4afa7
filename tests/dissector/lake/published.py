"""Reading published tables with the libraries that others read them with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.lake import partitions
from dissector.lake import publish as publishing
from dissector.lake.file_rows import read_rows
from dissector.lake.publish import Format, Published, held_lake, publish
from dissector.lake.reader import open_lake
from dissector.schemas import SINCE, TABLES
from tests.choosing import covering
from tests.dissector.lake.landed import TABLES_MADE

pytest.importorskip("pyiceberg", reason="the extra publish is not installed")
pytest.importorskip("deltalake", reason="the extra publish is not installed")

import polars as pl
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from dissector.lake.publish_delta import Delta
from dissector.lake.publish_iceberg import Iceberg

Rows = list[tuple[str, ...]]

# What tables of a made lake show: all kinds of columns, and no rows. A few of them show all of it;
# to publish all twelve takes three times as long, and each is published by itself.
_WITH_ROWS = (*TABLES_MADE, "capture_files")
_SHOWN = {name: {column.type for column in TABLES[name].columns} for name in _WITH_ROWS}
_SHOWN |= {name: {"no rows"} for name in SINCE}
FEW = [name for name in TABLES if name in covering(_SHOWN)]


class Reader(NamedTuple):
    """A format, and how its tables are read.

    rows: of a table of a lake. files: how many a condition on columns opens, as SQL says it; all
    without one. commits: how many a table has seen.
    """

    to: Callable[[Path], Format]
    arrow: Callable[[Path, str], pa.Table]
    files: Callable[[Path, str, str | None], int]
    commits: Callable[[Path, str], int]
    columns: Callable[[Path, str], list[str]]


def address(lake: Path) -> str:
    """The catalog of a lake, beside it."""
    return f"sqlite:///{lake.absolute()}.db"


def catalog(lake: Path) -> Catalog:
    return load_catalog(uri=address(lake))


def iceberg_table(lake: Path, table: str) -> Any:
    return catalog(lake).load_table(("dissector", table))


def delta_table(lake: Path, table: str) -> DeltaTable:
    return DeltaTable(str(lake / table))


def _iceberg_files(lake: Path, table: str, condition: str | None) -> int:
    scan = iceberg_table(lake, table).scan(**({"row_filter": condition} if condition else {}))
    return len(list(scan.plan_files()))


READERS = {
    "iceberg": Reader(
        lambda lake: Iceberg(address(lake), "dissector"),
        lambda lake, table: iceberg_table(lake, table).scan().to_arrow(),
        _iceberg_files,
        lambda lake, table: len(iceberg_table(lake, table).metadata.snapshots),
        lambda lake, table: iceberg_table(lake, table).schema().column_names,
    ),
    "delta": Reader(
        lambda lake: Delta(),
        lambda lake, table: delta_table(lake, table).to_pyarrow_table(),
        lambda lake, table, condition: len(
            delta_table(lake, table).file_uris(file_pruning_predicate=condition)
        ),
        lambda lake, table: delta_table(lake, table).version() + 1,
        lambda lake, table: [field.name for field in delta_table(lake, table).schema().fields],
    ),
}


def of_polars(lake: Path, table: str) -> pa.Table:
    """A Delta table as Polars reads it."""
    return pl.scan_delta(str(lake / table)).collect().to_arrow()


def published(lake: Path, reader: Reader) -> dict[str, Published]:
    """Publish a lake; what became of each table."""
    with held_lake(lake) as held:
        return {each.table: each for each in publish(held, reader.to(lake))}


def rows(found: pa.Table, table: str) -> Rows:
    """The rows of a table in one order, as texts; without the columns that a format adds."""
    names = [column.name for column in TABLES[table].columns]
    columns = [[_plain(value) for value in found.column(name).to_pylist()] for name in names]
    days = [str(value) for value in found.column("day").to_pylist()]
    return sorted(zip(*columns, days, strict=True))


def _plain(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):  # a map of Polars
        value = [tuple(entry.values()) for entry in value]
    return str(value)


def rows_of_lake(lake: Path, table: str) -> Rows:
    """The same of its files, as the lake's own reader gives them."""
    found: Rows = []
    with open_lake(lake) as opened:
        opened.fetch(table)
        for capture in opened.captures:
            day = partitions.day_of(capture.first_ts_ns)
            for part in capture.files:
                if part.table == table:
                    file = pq.ParquetFile(partitions.part_path(lake, capture, part))
                    of_file = read_rows(file, capture, table)
                    days = pa.array(
                        [None if day == partitions.NO_DAY else day] * part.rows, pa.string()
                    )
                    found += rows(of_file.append_column("day", days), table)
    return sorted(found)


@pytest.fixture
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few tables are published, not all of them."""
    monkeypatch.setattr(publishing, "TABLES", {name: TABLES[name] for name in FEW})


@pytest.fixture
def all_tables(few_tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, where the others of a module publish a few."""
    monkeypatch.setattr(publishing, "TABLES", TABLES)


def assert_equal(lake: Path, reader: Reader, tables: Sequence[str] | None = None) -> None:
    """Tables hold what the lake does: some, or all that are published."""
    for table in publishing.TABLES if tables is None else tables:
        assert rows(reader.arrow(lake, table), table) == rows_of_lake(lake, table), table


@contextmanager
def once_before(
    patch: pytest.MonkeyPatch, where: Any, name: str, what: Callable[[], object]
) -> Iterator[None]:
    """Do something when a function is called for the first time, before it."""
    real, waiting = getattr(where, name), [what]

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if waiting:
            waiting.pop()()
        return real(*arguments, **named)

    with patch.context() as patched:
        patched.setattr(where, name, wrapped)
        yield
    assert not waiting, f"{name} was not called"
