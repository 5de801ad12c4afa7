"""Making one group of many small captures, so that readers open few files.

Rows stay as they are, in the order of the captures' time; they name the capture that they came from
as before. The manifest keeps what tells the captures' inputs apart, so that landing one of them
again is noticed. Captures of schema version 1 are written anew, also those that stay alone.
"""

import fnmatch
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import OutputError, UsageError
from dissector.lake.digest import Marks
from dissector.lake.install import Stage, install, part_path, recover, refuse_links, writing_to
from dissector.lake.locks import exclusive_lock
from dissector.lake.manifest import Contained, Manifest, PartFile, read_manifests
from dissector.lake.parquet import TableFiles
from dissector.lake.parts import read_rows, with_previous_connections
from dissector.lake.reader import Lake, must_be_a_lake
from dissector.limits import ROW_GROUP_ROWS, ROW_GROUP_TEXT_BYTES
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import arrow_schema, in_memory_schema

_PREFIX: Final = "compact-"
_ID_DIGITS: Final = 12


class Compacted(NamedTuple):
    """What became of a lake.

    group: the manifest of the new group, None if fewer than two captures fit; its `replaces` are
    the captures that it stands for. migrated: ids of captures of schema version 1 that were written
    anew by themselves.
    """

    group: Manifest | None
    migrated: tuple[str, ...]


def compact(
    folder: Path,
    patterns: Sequence[str] = ("*",),
    most_bytes: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> Compacted:
    """Put captures together into one group.

    Args:
        patterns: ids, or globs over ids.
        most_bytes: only captures whose Parquet files are at most this large together.
        versions: of the program.

    Raises:
        UsageError: fewer than two captures fit, and none is of schema version 1.
        InputError: a newer program wrote some of the lake.
    """
    refuse_links(folder, OutputError)
    must_be_a_lake(folder)
    with writing_to(folder), exclusive_lock(folder):
        recover(folder)
        named = [
            capture
            for capture in read_manifests(folder)[0]
            if any(fnmatch.fnmatchcase(capture.capture_id, p) for p in patterns)
        ]
        chosen = [
            capture
            for capture in named
            if most_bytes is None or sum(part.bytes for part in capture.files) <= most_bytes
        ]
        if len(chosen) < 2:
            chosen = []
        old = [c for c in named if c.schema_version < SCHEMA_VERSION and c not in chosen]
        if not chosen and not old:
            raise UsageError("fewer than two captures of the lake fit: nothing to compact")
        for capture in old:
            _write_anew(folder, capture.capture_id, [capture], _migrated(capture))
        group = None
        if chosen:
            chosen.sort(key=lambda capture: (capture.first_ts_ns or 0, capture.capture_id))
            contained = [inside for capture in chosen for inside in capture.captures()]
            described = _manifest(chosen, contained, versions or {})
            group = _write_anew(folder, described.capture_id, chosen, described)
    return Compacted(group, tuple(capture.capture_id for capture in old))


def _write_anew(
    folder: Path, capture_id: str, chosen: Sequence[Manifest], described: Manifest
) -> Manifest:
    """Write captures into files of this schema version, under one id and one manifest."""
    stage = Stage(folder, capture_id)
    try:
        files = [
            part
            for table in TABLES
            for part in _write(folder, stage, table, chosen, bool(described.replaces))
        ]
        manifest = described._replace(files=tuple(files))
        install(folder, stage.make_ready(manifest, (capture.capture_id for capture in chosen)))
    finally:
        stage.discard()
    return manifest


def _migrated(capture: Manifest) -> Manifest:
    versions = {**capture.versions, "pyarrow": pa.__version__}
    return capture._replace(schema_version=SCHEMA_VERSION, versions=versions)


def _compact_id(contained: Sequence[Contained]) -> str:
    ids = "\n".join(sorted(capture.capture_id for capture in contained))
    return _PREFIX + hashlib.sha256(ids.encode()).hexdigest()[:_ID_DIGITS]


def _manifest(
    chosen: Sequence[Manifest],
    contained: Sequence[Contained],
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
        files=(),
        versions={**versions, "pyarrow": pa.__version__},
        options={capture.capture_id: dict(capture.options) for capture in chosen},
        replaces=tuple(contained),
    )


def _write(
    folder: Path, stage: Stage, table: str, chosen: Sequence[Manifest], is_group: bool
) -> list[PartFile]:
    """Write one table of all captures, cut into row groups anew."""
    files = TableFiles(stage.folder, table)
    try:
        waiting: list[pa.Table] = []
        for rows in _rows(folder, table, chosen, is_group):
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


def _rows(
    folder: Path, table: str, chosen: Sequence[Manifest], is_group: bool
) -> Iterator[pa.Table]:
    """The row groups of all captures, with origin_capture set in a group."""
    schema = arrow_schema(table)
    place = schema.get_field_index("origin_capture")
    for capture in chosen:
        has_previous = table != "deliveries" or capture.schema_version != 1
        places = None if has_previous else _places(folder, capture)
        for part in capture.files:
            if part.table != table:
                continue
            file = pq.ParquetFile(part_path(folder, capture, part))
            for number in range(file.num_row_groups):
                rows = read_rows(file, capture, table, group=number)
                if places is not None:
                    rows = with_previous_connections(rows, places)
                if is_group:
                    rows = rows.set_column(place, schema.field(place), rows.column("capture"))
                yield rows


def _places(folder: Path, capture: Manifest) -> pa.Table:
    """Where the deliveries of a capture are: capture, frame_no, connection_id."""
    columns = ("capture", "frame_no", "connection_id")
    return Lake(folder, (capture,)).table("deliveries", columns)


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
