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
FEW_ROWS: Final = 30_000  # with fewer rows, planning a query costs more than running it
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
    """DuckDB's limits: memory (a size in its notation), threads (None: one per CPU), and a folder
    to spill to (None: it does not spill)."""

    memory: str = "1GB"
    threads: int | None = 1
    folder: Path | None = None


class CaptureFiles(NamedTuple):
    """The files of some captures, by table; old_files, of schema version 1, name their capture by
    their folder. only: captures whose rows are wanted, if the files have rows of others, too.
    is_mixed: whether files may lack columns. rows: in all files.

    stored: set for a lake in a store: file names are relative to the lake, and `here` fetches them;
    for a lake on this machine files are paths.
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
        """Keep fetched files on this machine while the body runs: for tasks, which have no lake
        open."""
        if self.stored is None:
            yield
        else:
            with copies.held(mirror.folder_of(self.stored.address)):
                yield

    def here(self, tables: Iterable[str]) -> "CaptureFiles":
        """Fetch the files of some tables; returns the same captures with paths on this machine.

        Raises:
            InputError: a file cannot be fetched. OutputError: it cannot be stored here.
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
        """The query of a table's rows; `place` is a row's number in its file, which orders rows of
        one frame.

        Rotations of a tap continue each other, so all rotations of one run are one capture here.
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
    """The capture names in the rows of a lake's capture: the ids of the captures that were
    compacted into it; of a tap's rotation the name of the run."""
    return frozenset(tap_run_of(inside.capture_id) for inside in capture.captures())


def digests(captures: Iterable[Manifest]) -> dict[str, str]:
    """A digest of each capture's rows, by its name: equal digests, equal rows.

    The name is part of it: captures that an older version compacted share a manifest, but no row.
    Otherwise compacting changes no digest: it is of the manifest that the capture was landed with.
    """
    manifest_digests: dict[str, list[str]] = {}
    for capture in captures:
        digest = capture.digest()
        for inside in capture.captures():
            name = tap_run_of(inside.capture_id)
            manifest_digests.setdefault(name, []).append(inside.landed or digest)
    return {name: digest_of([name, *sorted(texts)]) for name, texts in manifest_digests.items()}


def digest_of(value: object) -> str:
    """The SHA-256 digest of a JSON value."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def files_of(lake: Lake, captures: frozenset[str]) -> CaptureFiles:
    """The files of some captures of a lake, by the names in their rows. Files of a lake in a store
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
    """Open a new database in memory. is_small: there are so few rows that optimizing a query, and
    starting threads, cost more than running it without.

    Raises:
        DependencyError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise DependencyError("duckdb is missing: pip install duckdb") from error
    options: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": settings.memory,
        "temp_directory": "" if settings.folder is None else str(settings.folder),
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }
    threads = 1 if is_small else settings.threads
    if threads is not None:
        options["threads"] = threads
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
    """Create a view of each table of a source. is_read_once: create tables, so that rows are read
    once and not by each query."""
    kind = "TABLE" if is_read_once else "VIEW"
    tables = tuple(tables)
    source = source.here(tables)
    for table in tables:
        db.execute(f"CREATE {kind} {prefix}{table} AS {source.query(table)}")


def write(db: "duckdb.DuckDBPyConnection", query: str, schema: pa.Schema, path: Path) -> int:
    """Write the result of a query to a Parquet file; returns its number of rows."""
    count = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in db.sql(query).to_arrow_reader(BATCH_ROWS):
            writer.write_table(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
            count += batch.num_rows
    return count


def text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Texts as SQL literals, separated by commas."""
    return ", ".join(map(text, values))


def plain(path: str | Path) -> str:
    """A path with DuckDB's glob characters escaped."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))


def _list(paths: Sequence[str]) -> str:
    return f"[{', '.join(text(plain(path)) for path in paths)}]"
