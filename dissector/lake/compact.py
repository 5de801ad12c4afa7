"""Making one group of many small captures, so that readers open few files.

Rows stay as they are, in the order of the captures' time; they name the capture that they came from
as before. The manifest keeps what tells the captures' inputs apart, so that landing one of them
again is noticed. Captures of schema version 1 are written anew, also those that stay alone.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import OutputError, UsageError
from dissector.lake import install as lake_install
from dissector.lake.digest import Marks
from dissector.lake.file_rows import read_rows, with_previous_connections
from dissector.lake.install import Stage
from dissector.lake.locks import exclusive_lock, shared_lock
from dissector.lake.manifest import GROUP_PREFIX, ID_DIGITS, Contained, Manifest, PartFile
from dissector.lake.manifests import Manifests, is_named
from dissector.lake.parquet import TableFiles
from dissector.lake.reader import Lake, must_be_a_lake
from dissector.lake.settings import SETTINGS, writer_versions
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.builders import gathered_of
from dissector.schemas.small_tables import no_rows


class Compacted(NamedTuple):
    """What became of a lake.

    group: the manifest of the new group, None if fewer than two captures fit; its `replaces` are
        the captures that it stands for.
    migrated: ids of captures of schema version 1 that were written anew by themselves.
    """

    group: Manifest | None
    migrated: tuple[str, ...]


def compact(
    folder: Path,
    patterns: Sequence[str] = ("*",),
    most_bytes: int | None = None,
) -> Compacted:
    """Put captures together into one group.

    Args:
        patterns: ids, or globs over ids.
        most_bytes: only captures whose Parquet files are at most this large together.

    Raises:
        UsageError: fewer than two captures fit, and none is of schema version 1.
        InputError: a newer program wrote some of the lake.
    """
    lake_install.refuse_links(folder, OutputError)
    must_be_a_lake(folder)
    manifests = Manifests(folder)
    with lake_install.writing_to(folder):
        lake_install.finish_interrupted(folder)
        made = None
        while made is None:
            # All is written while others read and add. What somebody removed or replaced by the
            # time that we are alone is not put together: then it is chosen, and written, again.
            with ExitStack() as stack:
                with shared_lock(folder):
                    works = _chosen(manifests.to_change()[0], patterns, most_bytes)
                    written = [stack.enter_context(_written(folder, work)) for work in works]
                made = _install_all(folder, manifests, works, written)
    group = made[-1] if len(works[-1]) > 1 else None
    return Compacted(group, tuple(work[0].capture_id for work in works if len(work) == 1))


def _chosen(
    captures: Sequence[Manifest], patterns: Sequence[str], most_bytes: int | None
) -> list[list[Manifest]]:
    """What is written under one id each: captures of schema version 1 that stay alone, a group.

    Raises:
        UsageError: there is nothing to do.
    """
    named = [each for each in captures if is_named(each.capture_id, patterns)]
    chosen = [
        capture
        for capture in named
        if most_bytes is None or sum(part.bytes for part in capture.files) <= most_bytes
    ]
    if len(chosen) < 2:
        chosen = []
    old = [[c] for c in named if c.schema_version < SCHEMA_VERSION and c not in chosen]
    if not chosen and not old:
        raise UsageError("fewer than two captures of the lake fit: nothing to compact")
    chosen.sort(key=lambda capture: (capture.first_ts_ns or 0, capture.capture_id))
    return [*old, chosen] if chosen else old


@contextmanager
def _written(folder: Path, chosen: Sequence[Manifest]) -> Iterator[tuple[Stage, Manifest]]:
    """A stage with captures in files of this schema version, under one id and one manifest."""
    described = _migrated(chosen[0])
    if len(chosen) > 1:
        contained = [inside for capture in chosen for inside in capture.captures()]
        described = _group(chosen, contained)
    stage = Stage(folder, described.capture_id)
    try:
        is_group = bool(described.replaces)
        files = [
            part for table in TABLES for part in _write(folder, stage, table, chosen, is_group)
        ]
        manifest = described._replace(files=tuple(files))
        stage.prepare(manifest)
        yield stage, manifest
    finally:
        stage.discard()


def _install_all(
    folder: Path,
    manifests: Manifests,
    works: Sequence[Sequence[Manifest]],
    written: Sequence[tuple[Stage, Manifest]],
) -> list[Manifest] | None:
    """Swap the compacted files in; None if the sources changed meanwhile."""
    with exclusive_lock(folder):
        lake_install.recover(folder, is_alone=True)
        there = {capture.capture_id: capture for capture in manifests.to_change()[0]}
        if any(there.get(each.capture_id) != each for work in works for each in work):
            return None
        for work, (stage, _) in zip(works, written, strict=True):
            lake_install.install(folder, stage.make_ready(capture.capture_id for capture in work))
    return [manifest for _, manifest in written]


def _migrated(capture: Manifest) -> Manifest:
    versions = {**writer_versions(), **capture.versions}  # of who decoded it, as before
    return capture._replace(
        schema_version=SCHEMA_VERSION, versions=versions, settings=SETTINGS.as_json()
    )


def _compact_id(contained: Sequence[Contained]) -> str:
    ids = "\n".join(sorted(capture.capture_id for capture in contained))
    return GROUP_PREFIX + hashlib.sha256(ids.encode()).hexdigest()[:ID_DIGITS]


def _group(chosen: Sequence[Manifest], contained: Sequence[Contained]) -> Manifest:
    firsts = [c.first_ts_ns for c in chosen if c.first_ts_ns is not None]
    lasts = [c.last_ts_ns for c in chosen if c.last_ts_ns is not None]
    return Manifest(
        capture_id=_compact_id(contained),
        base_name="compact",
        schema_version=SCHEMA_VERSION,
        bytes=sum(capture.bytes for capture in contained),
        sha256=None,
        marks=Marks(1),
        sources=(),
        first_ts_ns=min(firsts, default=None),
        last_ts_ns=max(lasts, default=None),
        files=(),
        versions=writer_versions(),
        options={capture.capture_id: dict(capture.options) for capture in chosen},
        settings=SETTINGS.as_json(),
        replaces=tuple(contained),
    )


def _write(
    folder: Path, stage: Stage, table: str, chosen: Sequence[Manifest], is_group: bool
) -> list[PartFile]:
    """Write one table of all captures, cut into row groups anew."""
    files = TableFiles(stage.folder, table, is_one_capture=False)
    try:
        waiting: list[pa.Table] = []
        text_bytes = 0
        for rows in _rows(folder, table, chosen, is_group):
            waiting.append(rows)
            while sum(each.num_rows for each in waiting) >= SETTINGS.page_rows:
                joined = pa.concat_tables(waiting)
                text_bytes = _write_page(files, joined.slice(0, SETTINGS.page_rows), text_bytes)
                waiting = [joined.slice(SETTINGS.page_rows)]
        _write_page(files, pa.concat_tables(waiting), text_bytes)
        return files.close()
    finally:
        files.abandon()


def _write_page(files: TableFiles, rows: pa.Table, text_bytes: int) -> int:
    """Write some rows.

    Args:
        text_bytes: text of the row group so far.

    Returns:
        The same behind these rows.
    """
    if rows.num_rows == 0:
        return text_bytes
    columns = rows.combine_chunks().columns
    text_bytes += sum(each.nbytes for each in columns if not pa.types.is_primitive(each.type))
    is_full = files.write(rows.num_rows, [gathered_of(each.chunk(0)) for each in columns])
    if not is_full and text_bytes >= SETTINGS.row_group_text_bytes:
        files.end_group()
        is_full = True
    return 0 if is_full else text_bytes


def _rows(
    folder: Path, table: str, chosen: Sequence[Manifest], is_group: bool
) -> Iterator[pa.Table]:
    """The row groups of all captures, with origin_capture set in a group."""
    schema = arrow_schema(table)
    yield no_rows(schema)
    column = schema.get_field_index("origin_capture")
    for capture in chosen:
        has_previous = table != "deliveries" or capture.schema_version != 1
        deliveries = None if has_previous else _deliveries(folder, capture)
        for part in capture.files:
            if part.table != table:
                continue
            file = pq.ParquetFile(lake_install.part_path(folder, capture, part))
            for number in range(file.num_row_groups):
                rows = read_rows(file, capture, table, group=number)
                if deliveries is not None:
                    rows = with_previous_connections(rows, deliveries)
                if is_group:
                    rows = rows.set_column(column, schema.field(column), rows.column("capture"))
                yield rows


def _deliveries(folder: Path, capture: Manifest) -> pa.Table:
    """Where the deliveries of a capture are: capture, frame_no, connection_id."""
    columns = ("capture", "frame_no", "connection_id")
    return Lake(folder, (capture,)).table("deliveries", columns)
