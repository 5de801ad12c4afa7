"""Making one capture of many small ones, so that readers open few files.

Rows stay as they are, in the order of the captures' time, and get the id of their capture as
origin_capture. The manifest keeps what tells the captures' inputs apart, so that landing one of
them again is noticed.
"""

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import UsageError
from dissector.lake.digest import Marks
from dissector.lake.install import Stage, install, recover, table_folder, writing_to
from dissector.lake.locks import exclusive_lock
from dissector.lake.manifest import Contained, Manifest, PartFile, read_manifests
from dissector.lake.parquet import TableFiles
from dissector.lake.reader import must_be_a_lake
from dissector.limits import ROW_GROUP_ROWS, ROW_GROUP_TEXT_BYTES
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import arrow_schema, in_memory_schema

_PREFIX: Final = "compact-"
_ID_DIGITS: Final = 12


def compact(
    folder: Path,
    patterns: Sequence[str] = ("*",),
    most_bytes: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> Manifest:
    """Put captures together into one.

    Args:
        patterns: ids, or globs over ids.
        most_bytes: only captures whose Parquet files are at most this large together.
        versions: of the program.

    Returns:
        The manifest of the new capture; its `replaces` are the captures that it stands for.

    Raises:
        UsageError: fewer than two captures fit.
    """
    must_be_a_lake(folder)
    with writing_to(folder), exclusive_lock(folder):
        recover(folder)
        chosen = [
            capture
            for capture in read_manifests(folder)
            if any(fnmatch.fnmatchcase(capture.capture_id, p) for p in patterns)
            and (most_bytes is None or sum(part.bytes for part in capture.files) <= most_bytes)
        ]
        if len(chosen) < 2:
            raise UsageError("fewer than two captures of the lake fit: nothing to compact")
        chosen.sort(key=lambda capture: (capture.first_ts_ns or 0, capture.capture_id))
        contained = [inside for capture in chosen for inside in capture.captures()]
        stage = Stage(folder, _compact_id(contained))
        try:
            files = [part for table in TABLES for part in _write(folder, stage, table, chosen)]
            manifest = _manifest(chosen, contained, files, versions or {})
            replaced = [capture.capture_id for capture in chosen]
            install(folder, stage.make_ready(manifest, replaced))
        finally:
            stage.discard()
    return manifest


def _compact_id(contained: Sequence[Contained]) -> str:
    ids = "\n".join(sorted(capture.capture_id for capture in contained))
    return _PREFIX + hashlib.sha256(ids.encode()).hexdigest()[:_ID_DIGITS]


def _manifest(
    chosen: Sequence[Manifest],
    contained: Sequence[Contained],
    files: Sequence[PartFile],
    versions: Mapping[str, str],
) -> Manifest:
    firsts = [c.first_ts_ns for c in chosen if c.first_ts_ns is not None]
    lasts = [c.last_ts_ns for c in chosen if c.last_ts_ns is not None]
    return Manifest(
        capture_id=_compact_id(contained),
        base_name="compact",
        schema_version=SCHEMA_VERSION,
        bytes=sum(capture.bytes for capture in contained),
        sha256=None,
        marks=Marks(1, ()),
        sources=(),
        first_ts_ns=min(firsts, default=None),
        last_ts_ns=max(lasts, default=None),
        files=tuple(files),
        versions={**versions, "pyarrow": pa.__version__},
        options={capture.capture_id: dict(capture.options) for capture in chosen},
        replaces=tuple(contained),
    )


def _write(folder: Path, stage: Stage, table: str, chosen: Sequence[Manifest]) -> list[PartFile]:
    """Write one table of all captures, cut into row groups anew."""
    files = TableFiles(stage.folder, table)
    try:
        waiting: list[pa.Table] = []
        for rows in _rows(folder, table, chosen):
            waiting.append(rows)
            while _is_full(waiting):
                joined = pa.concat_tables(waiting)
                files.write(_coded(table, joined.slice(0, ROW_GROUP_ROWS)))
                rest = joined.slice(ROW_GROUP_ROWS)
                waiting = [rest] if rest.num_rows else []
        if waiting:
            files.write(_coded(table, pa.concat_tables(waiting)))
        files.close()
    finally:
        files.abandon()
    return files.parts


def _rows(folder: Path, table: str, chosen: Sequence[Manifest]) -> Iterator[pa.Table]:
    """The row groups of all captures, with origin_capture set."""
    schema = arrow_schema(table)
    place = schema.get_field_index("origin_capture")
    for capture in chosen:
        for part in capture.files:
            if part.table != table:
                continue
            file = pq.ParquetFile(table_folder(folder, table, capture.capture_id) / part.name)
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number)
                if not capture.replaces:
                    origin = pa.repeat(pa.scalar(capture.capture_id), rows.num_rows)
                    rows = rows.set_column(place, schema.field(place), origin)
                yield rows


def _is_full(waiting: Sequence[pa.Table]) -> bool:
    rows = sum(table.num_rows for table in waiting)
    size = sum(table.nbytes for table in waiting)
    return rows >= ROW_GROUP_ROWS or (bool(rows) and size >= 4 * ROW_GROUP_TEXT_BYTES)


def _coded(table: str, rows: pa.Table) -> pa.RecordBatch:
    """Rows as one batch of the types that the writer takes."""
    arrays = []
    for column, field in zip(rows.combine_chunks().columns, in_memory_schema(table), strict=True):
        array = column.chunk(0) if column.num_chunks else pa.nulls(0, field.type)
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=in_memory_schema(table))
