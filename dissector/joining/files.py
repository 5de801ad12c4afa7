"""The Parquet files of some captures as tables for DuckDB: each row with its capture."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import DependencyError
from dissector.lake import copies, mirror
from dissector.lake.manifest import ROTATION, Manifest, tap_run_of
from dissector.lake.reader import Lake
from dissector.schemas import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    import duckdb

BATCH_ROWS: Final = 1 << 16
FEW_ROWS: Final = 30_000  # below it, to plan a query costs more than to run it
_SQL_TYPES: Final = {
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "timestamp[us, UTC]": "TIMESTAMPTZ",
    "array<bigint>": "BIGINT[]",
    "array<string>": "VARCHAR[]",
    "map<string,bigint>": "MAP(VARCHAR, BIGINT)",
    "map<string,string>": "MAP(VARCHAR, VARCHAR)",
}


class JoinSettings(NamedTuple):
    """What DuckDB may use: memory as it writes sizes, threads, and a folder where it puts what does
    not fit into memory (None: nowhere)."""

    memory: str = "1GB"
    threads: int = 1
    folder: Path | None = None


class CaptureFiles(NamedTuple):
    """The files of some captures, by table; those of schema version 1 name their capture by their
    folder. only: captures whose rows are wanted, if the files hold others, too. is_mixed:
    whether some may lack columns. rows: in all files.

    stored: of a lake in a store, whose files are named from the lake on, for any machine to fetch
    them (`here`); of a lake of this machine files are paths.
    """

    files: dict[str, tuple[str, ...]]
    old_files: dict[str, tuple[str, ...]]
    only: tuple[str, ...] | None
    has_rotations: bool
    is_mixed: bool
    rows: int
    stored: mirror.StoredFiles | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is fetched stays on this machine while the body runs: for tasks, which have no lake
        open."""
        if self.stored is None:
            yield
        else:
            with copies.held(mirror.folder_of(self.stored.address)):
                yield

    def here(self, tables: Iterable[str]) -> "CaptureFiles":
        """The same, of some tables, by paths of this machine, where they are then.

        Raises:
            InputError: they cannot be had. OutputError: they cannot be kept.
        """
        if self.stored is None:
            return self
        lake, parts = mirror.folder_of(self.stored.address), self.stored.parts
        new, old = (
            {table: files[table] for table in tables} for files in (self.files, self.old_files)
        )
        names = (name for files in (new, old) for some in files.values() for name in some)
        mirror.fetch(lake, ((name, parts[name]) for name in names))
        new, old = (
            {table: tuple(str(lake / name) for name in some) for table, some in files.items()}
            for files in (new, old)
        )
        return self._replace(files=new, old_files=old, stored=None)

    def query(self, table: str) -> str:
        """SQL that gives the rows of a table; `place` tells those of one file and frame apart, in
        their order.

        Rotations of a tap continue each other, so that all of one run are one capture here.
        """
        columns = [column.name for column in TABLES[table].columns]
        empty = ", ".join(
            f"NULL::{_SQL_TYPES[column.type]} AS {column.name}" for column in TABLES[table].columns
        )
        parts = [f"SELECT {empty}, NULL::BIGINT AS place WHERE false"]
        if self.files.get(table):
            parts.append(
                "SELECT *, file_row_number AS place FROM "
                f"read_parquet({_list(self.files[table])}, hive_partitioning = false, "
                f"union_by_name = {'true' if self.is_mixed else 'false'}, file_row_number = true)"
            )
        if self.old_files.get(table):
            parts.append(
                "SELECT * REPLACE (coalesce(origin_capture, capture) AS capture), "
                f"file_row_number AS place FROM read_parquet({_list(self.old_files[table])}, "
                "hive_partitioning = true, hive_types_autocast = false, union_by_name = true, "
                "file_row_number = true)"
            )
        rows = " UNION ALL BY NAME ".join(parts)
        if self.has_rotations:
            pattern = f"^{ROTATION.pattern}$"
            rows = (
                f"SELECT * REPLACE (regexp_replace(capture, {text(pattern)}, '\\1') AS capture) "
                f"FROM ({rows})"
            )
        chosen = f"SELECT {', '.join(columns)}, place FROM ({rows})"
        if self.only is None:
            return chosen
        return f"{chosen} WHERE capture IN ({', '.join(map(text, self.only))})"


def names_in(capture: Manifest) -> frozenset[str]:
    """What the rows of a capture of a lake call theirs: the ids of those that were compacted into
    it, and of rotations of a tap that of the run."""
    return frozenset(tap_run_of(inside.capture_id) for inside in capture.captures())


def digests(captures: Iterable[Manifest]) -> dict[str, str]:
    """What tells whether the rows of a capture are still those that were read, by its name.

    The name is part of it: captures that a program before days compacted share a manifest, but no
    row. Else compacting changes nothing: each is known by the manifest that it was landed with.
    """
    manifest_digests: dict[str, list[str]] = {}
    for capture in captures:
        digest = capture.digest()
        for inside in capture.captures():
            name = tap_run_of(inside.capture_id)
            manifest_digests.setdefault(name, []).append(inside.landed or digest)
    return {name: digest_of([name, *sorted(texts)]) for name, texts in manifest_digests.items()}


def digest_of(value: object) -> str:
    """A digest of something that can be written as JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def files_of(lake: Lake, captures: frozenset[str]) -> CaptureFiles:
    """The files of some captures of a lake, by the names that rows have. Of a lake in a store they
    are fetched when they are read.

    Raises:
        InputError: one is a link or no file.
    """
    chosen = [capture for capture in lake.captures if names_in(capture) & captures]
    new = lake._replace(captures=tuple(c for c in chosen if c.schema_version != 1))
    old = lake._replace(captures=tuple(c for c in chosen if c.schema_version == 1))
    held = frozenset[str]().union(*map(names_in, chosen))
    stored = mirror.stored_files(lake.folder, chosen)

    def files(some: Lake, table: str) -> tuple[str, ...]:
        if stored is None:
            return tuple(some.part_paths(table))
        return tuple(name for name, _ in some.copies(table))

    return CaptureFiles(
        {table: files(new, table) for table in TABLES},
        {table: files(old, table) for table in TABLES},
        tuple(sorted(captures)) if held - captures else None,
        any(ROTATION.fullmatch(each.capture_id) for c in chosen for each in c.captures()),
        any(c.schema_version < SCHEMA_VERSION for c in chosen),
        sum(part.rows for capture in chosen for part in capture.files),
        stored,
    )


@contextmanager
def database(
    settings: JoinSettings, *, is_small: bool = False
) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A database of its own in memory. is_small: for so few rows that to look for the best plan of
    a query costs more than any plan.

    Raises:
        DependencyError: DuckDB is not there.
    """
    try:
        import duckdb
    except ImportError as error:
        raise DependencyError("duckdb is missing: pip install duckdb") from error
    options: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": settings.memory,
        "threads": settings.threads,
        "temp_directory": "" if settings.folder is None else str(settings.folder),
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }
    with duckdb.connect(config=options) as connection:
        if is_small:
            connection.execute("PRAGMA disable_optimizer")
        yield connection


def make_views(
    db: "duckdb.DuckDBPyConnection",
    source: CaptureFiles,
    tables: Iterable[str],
    prefix: str = "",
    *,
    is_read_once: bool = False,
) -> None:
    """Tables of a source as views of their names. is_read_once: their rows are read here, and not
    by each query."""
    kind = "TABLE" if is_read_once else "VIEW"
    tables = tuple(tables)
    source = source.here(tables)
    for table in tables:
        db.execute(f"CREATE {kind} {prefix}{table} AS {source.query(table)}")


def write(db: "duckdb.DuckDBPyConnection", query: str, schema: pa.Schema, path: Path) -> int:
    """Write what a query gives as a Parquet file; returns its rows."""
    count = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in db.sql(query).to_arrow_reader(BATCH_ROWS):
            writer.write_table(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
            count += batch.num_rows
    return count


def text(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Texts as a list in SQL."""
    return ", ".join(map(text, values))


def plain(path: str | Path) -> str:
    """A path as DuckDB takes it: what looks like a pattern in it is none."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))


def _list(paths: Sequence[str]) -> str:
    return f"[{', '.join(text(plain(path)) for path in paths)}]"
