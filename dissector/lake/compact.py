"""Compact the many small captures of a day into one group, so that readers open few files.

Rows do not change; they are ordered by the captures' time and name their capture as before. The
group's manifest keeps the digests of each capture's input, so that landing it again is detected and
cached rows of it stay valid. A group never spans days, as retention removes whole days. Captures of
older schema versions are rewritten even if they are not grouped.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import OutputError, UsageError
from dissector.lake import install as lake_install
from dissector.lake import mirror, partitions
from dissector.lake.copies import copies_of
from dissector.lake.digest import Marks
from dissector.lake.file_rows import read_rows, with_previous_connections
from dissector.lake.install import Stage
from dissector.lake.locks import shared_lock
from dissector.lake.manifest import GROUP_PREFIX, ID_DIGITS, Contained, Manifest, PartFile
from dissector.lake.manifests import Manifests, is_named
from dissector.lake.parquet import TableFiles
from dissector.lake.reader import Lake, must_be_a_lake
from dissector.lake.settings import SETTINGS, writer_versions
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.builders import column_values_of
from dissector.schemas.small_tables import no_rows

ALL: Final = ("*",)  # the patterns of all captures
_SAME_ROWS_SINCE: Final = 2  # schema version 1 did not have deliveries.previous_connection_id


class Compacted(NamedTuple):
    """Result of a compaction.

    groups: manifests of the new groups, at most one per day; `replaces` lists their captures.
    migrated: ids of captures of older schema versions that were rewritten without a group.
    """

    groups: tuple[Manifest, ...]
    migrated: tuple[str, ...]


class Choice(NamedTuple):
    """Which captures to compact.

    patterns: ids, or globs over ids.
    most_bytes: upper limit of a capture's Parquet files together.
    days: only these, as `partitions.day_of` returns them; None for all.
    least: minimum number of captures for a group, at least two.
    is_tiered: skip captures that have more rows than all smaller ones of their day together, so
        that each row is rewritten a few times only, however often captures are added.
    """

    patterns: Sequence[str] = ALL
    most_bytes: int | None = None
    days: Collection[str] | None = None
    least: int = 2
    is_tiered: bool = False


def compact(
    folder: Path, patterns: Sequence[str] = ALL, most_bytes: int | None = None
) -> Compacted:
    """Compact captures into one group per day, see Choice.

    Raises:
        UsageError: of the captures that patterns name no two are of one day, and none is of an
            older schema version. A whole lake may have nothing to compact: jobs ask every night.
        InputError: a newer program wrote one of the manifests.
    """
    made = compact_chosen(folder, Choice(patterns, most_bytes))
    if made == Compacted((), ()) and patterns != ALL:
        raise UsageError("no two of the captures named are of one day: nothing to compact")
    return made


def compact_chosen(folder: Path, choice: Choice, *, may_wait: bool = True) -> Compacted:
    """Compact the chosen captures; if none match, return an empty result.

    Args:
        may_wait: wait for readers and writers; else do nothing while another process holds a lock.

    Raises:
        InputError: a newer program wrote one of the manifests.
    """
    lake_install.refuse_links(folder, OutputError)
    must_be_a_lake(folder)
    manifests = Manifests(folder)
    installed: list[_StagedGroup] = []
    is_complete = False
    with lake_install.writing_to(folder):
        mirror.refresh(folder)
        lake_install.finish_interrupted(folder)
        while not is_complete:
            # The files are written while other processes read and add. If a source is removed or
            # replaced before we hold the exclusive lock, choose and write again.
            with ExitStack() as stack:
                with shared_lock(folder):
                    groups = _chosen(manifests.to_change()[0], choice)
                    staged = [stack.enter_context(_staged(folder, group)) for group in groups]
                with mirror.changing(folder, may_wait=may_wait) as is_ours:
                    if not is_ours:
                        return Compacted((), ())
                    install = partial(_install_all, folder, manifests, staged)
                    is_complete = mirror.retry_overtaken(folder, install)
                installed += [group for group in staged if group.is_installed]
    return Compacted(
        tuple(group.manifest for group in installed if len(group.sources) > 1),
        tuple(group.sources[0].capture_id for group in installed if len(group.sources) == 1),
    )


def _chosen(captures: Sequence[Manifest], choice: Choice) -> list[list[Manifest]]:
    """Return the groups to write, each under one id: one per day, and a group of one for each
    capture of an older schema version that is in no other group."""
    of_days: dict[str, list[Manifest]] = {}
    for capture in captures:
        day = partitions.day_of(capture.first_ts_ns)
        is_chosen_day = choice.days is None or day in choice.days
        if is_chosen_day and is_named(capture.capture_id, choice.patterns):
            of_days.setdefault(day, []).append(capture)
    groups: list[list[Manifest]] = []
    for _, of_day in sorted(of_days.items()):
        group = _group_of_day(of_day, choice)
        groups += [[c] for c in of_day if c.schema_version < SCHEMA_VERSION and c not in group]
        groups += [group] if group else []
    return groups


def _group_of_day(captures: Sequence[Manifest], choice: Choice) -> list[Manifest]:
    """Return the captures of a day to compact into a group, in order of time; none or several.

    A group over several days, which older programs wrote, is not compacted further; it is removed
    when its last capture expires.
    """
    chosen: list[Manifest] = []
    chosen_rows = 0
    for capture in sorted(captures, key=_rows_of):
        days = {partitions.day_of(inside.first_ts_ns) for inside in capture.captures()}
        is_large = choice.most_bytes is not None and _bytes_of(capture) > choice.most_bytes
        if is_large or len(days) > 1:
            continue
        rows = _rows_of(capture)
        if choice.is_tiered and len(chosen) > 1 and rows > chosen_rows:
            break
        chosen.append(capture)
        chosen_rows += rows
    chosen.sort(key=lambda capture: (capture.first_ts_ns or 0, capture.capture_id))
    return chosen if len(chosen) >= choice.least else []


def _bytes_of(capture: Manifest) -> int:
    return sum(part.bytes for part in capture.files)


def _rows_of(capture: Manifest) -> int:
    return sum(part.rows for part in capture.files)


@dataclass
class _StagedGroup:
    """The files written under one id, in a stage until they are installed."""

    sources: Sequence[Manifest]
    stage: Stage
    manifest: Manifest
    is_installed: bool = False


@contextmanager
def _staged(folder: Path, chosen: Sequence[Manifest]) -> Iterator[_StagedGroup]:
    """Write captures to a stage in this schema version, under one id and one manifest."""
    mirror.fetch(folder, (copy for capture in chosen for copy in copies_of(capture)))
    described = _migrated(chosen[0])
    if len(chosen) > 1:
        contained = [
            inside._replace(landed=inside.landed or capture.digest())
            for capture in chosen
            for inside in capture.captures()
        ]
        described = _group(chosen, contained)
    stage = Stage(folder, described.capture_id)
    try:
        is_group = bool(described.replaces)
        files = [
            part for table in TABLES for part in _write(folder, stage, table, chosen, is_group)
        ]
        manifest = described._replace(files=tuple(files))
        stage.prepare(manifest)
        yield _StagedGroup(chosen, stage, manifest)
    finally:
        stage.discard()


def _install_all(folder: Path, manifests: Manifests, groups: Sequence[_StagedGroup]) -> bool:
    """Swap the compacted files in under the exclusive lock; return False if a source changed."""
    lake_install.recover(folder, is_alone=True)
    current = {capture.capture_id: capture for capture in manifests.to_change()[0]}
    left = [group for group in groups if not group.is_installed]
    if any(current.get(each.capture_id) != each for group in left for each in group.sources):
        return False
    for group in left:
        group.stage.install(map(partitions.partition_of, group.sources))
        group.is_installed = True
    return True


def _migrated(capture: Manifest) -> Manifest:
    versions = {**writer_versions(), **capture.versions}  # keep those of the decoding program
    has_all_rows = capture.schema_version >= _SAME_ROWS_SINCE and not capture.replaces
    return capture._replace(
        schema_version=SCHEMA_VERSION,
        versions=versions,
        settings=SETTINGS.as_json(),
        landed=capture.digest() if has_all_rows else None,
        replaces=tuple(
            inside._replace(landed=inside.landed or capture.digest()) for inside in capture.replaces
        ),
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
    """Write one table of all captures into new row groups."""
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
    """Write rows to the current row group.

    Args:
        text_bytes: size of the text in the row group so far.

    Returns:
        That size after these rows; 0 if they ended the row group.
    """
    if rows.num_rows == 0:
        return text_bytes
    columns = rows.combine_chunks().columns
    text_bytes += sum(each.nbytes for each in columns if not pa.types.is_primitive(each.type))
    is_full = files.write(rows.num_rows, [column_values_of(each.chunk(0)) for each in columns])
    if not is_full and text_bytes >= SETTINGS.row_group_text_bytes:
        files.end_group()
        is_full = True
    return 0 if is_full else text_bytes


def _rows(
    folder: Path, table: str, chosen: Sequence[Manifest], is_group: bool
) -> Iterator[pa.Table]:
    """Yield the row groups of all captures; sets `origin_capture` if they form a group."""
    schema = arrow_schema(table)
    yield no_rows(schema)
    column = schema.get_field_index("origin_capture")
    for capture in chosen:
        has_previous = table != "deliveries" or capture.schema_version != 1
        deliveries = None if has_previous else _deliveries(folder, capture)
        for part in capture.files:
            if part.table != table:
                continue
            file = pq.ParquetFile(partitions.part_path(folder, capture, part))
            for number in range(file.num_row_groups):
                rows = read_rows(file, capture, table, group=number)
                if deliveries is not None:
                    rows = with_previous_connections(rows, deliveries)
                if is_group:
                    rows = rows.set_column(column, schema.field(column), rows.column("capture"))
                yield rows


def _deliveries(folder: Path, capture: Manifest) -> pa.Table:
    """Read the columns capture, frame_no and connection_id of a capture's deliveries."""
    columns = ("capture", "frame_no", "connection_id")
    return Lake(folder, (capture,)).table("deliveries", columns)
