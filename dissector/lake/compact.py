"""Making one group of the many small captures of a day, so that readers open few files.

Rows stay as they are, in the order of the captures' time; they name the capture that they came from
as before. The manifest keeps what tells the captures' inputs apart, so that landing one of them
again is noticed, and what was kept of their rows is found. Days are never put together: each is
removed as a whole. Captures of older schema versions are written anew, also those that stay alone.
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
from dissector.lake import mirror, places
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
from dissector.schemas.builders import gathered_of
from dissector.schemas.small_tables import no_rows

_SAME_ROWS_SINCE: Final = 2  # schema version 1 did not have deliveries.previous_connection_id


class Compacted(NamedTuple):
    """What became of a lake.

    groups: the manifests of the new groups, one for each day of which two captures fit; their
        `replaces` are the captures that they stand for.
    migrated: ids of captures of older schema versions that were written anew by themselves.
    """

    groups: tuple[Manifest, ...]
    migrated: tuple[str, ...]


class Choice(NamedTuple):
    """Which captures are put together.

    patterns: ids, or globs over ids.
    most_bytes: only captures whose Parquet files are at most this large together.
    days: only captures of these, as `places.day_of` names them; None for all.
    least: captures of a day, at least two, below which it stays as it is.
    is_tiered: leave out those that have more rows than all smaller ones of their day together, so
        that a row is written anew a few times, however often new captures come.
    """

    patterns: Sequence[str] = ("*",)
    most_bytes: int | None = None
    days: Collection[str] | None = None
    least: int = 2
    is_tiered: bool = False


def compact(
    folder: Path, patterns: Sequence[str] = ("*",), most_bytes: int | None = None
) -> Compacted:
    """Put captures together into one group for each day, see Choice.

    Raises:
        UsageError: of no day two captures fit, and none is of an older schema version.
        InputError: a newer program wrote some of the lake.
    """
    made = compact_chosen(folder, Choice(patterns, most_bytes))
    if made == Compacted((), ()):
        raise UsageError("fewer than two captures of a day of the lake fit: nothing to compact")
    return made


def compact_chosen(folder: Path, choice: Choice, *, may_wait: bool = True) -> Compacted:
    """The same, where nothing to do is no error.

    Args:
        may_wait: for who reads or changes the lake; else nothing is done while somebody does.

    Raises:
        InputError: a newer program wrote some of the lake.
    """
    lake_install.refuse_links(folder, OutputError)
    must_be_a_lake(folder)
    manifests = Manifests(folder)
    made: list[_Work] = []
    is_settled = False
    with lake_install.writing_to(folder):
        mirror.refresh(folder)
        lake_install.finish_interrupted(folder)
        while not is_settled:
            # All is written while others read and add. What somebody removed or replaced by the
            # time that we are alone is not put together: then it is chosen, and written, again.
            with ExitStack() as stack:
                with shared_lock(folder):
                    works = _chosen(manifests.to_change()[0], choice)
                    written = [stack.enter_context(_written(folder, work)) for work in works]
                with mirror.changing(folder, may_wait=may_wait) as is_ours:
                    if not is_ours:
                        return Compacted((), ())
                    install = partial(_install_all, folder, manifests, written)
                    is_settled = mirror.settled(folder, install)
                made += [work for work in written if work.is_done]
    return Compacted(
        tuple(work.manifest for work in made if len(work.sources) > 1),
        tuple(work.sources[0].capture_id for work in made if len(work.sources) == 1),
    )


def _chosen(captures: Sequence[Manifest], choice: Choice) -> list[list[Manifest]]:
    """What is written under one id each: captures of older schema versions that stay alone, and the
    group of each day."""
    of_days: dict[str, list[Manifest]] = {}
    for capture in captures:
        day = places.day_of(capture.first_ts_ns)
        is_meant = choice.days is None or day in choice.days
        if is_meant and is_named(capture.capture_id, choice.patterns):
            of_days.setdefault(day, []).append(capture)
    works: list[list[Manifest]] = []
    for _, of_day in sorted(of_days.items()):
        group = _group_of_day(of_day, choice)
        works += [[c] for c in of_day if c.schema_version < SCHEMA_VERSION and c not in group]
        works += [group] if group else []
    return works


def _group_of_day(captures: Sequence[Manifest], choice: Choice) -> list[Manifest]:
    """Those of the captures of a day that are put together, none or several, in order of time.

    A group that a program before days made over several of them stays alone, and goes with its
    last capture.
    """
    chosen: list[Manifest] = []
    held = 0
    for capture in sorted(captures, key=_rows_of):
        days = {places.day_of(inside.first_ts_ns) for inside in capture.captures()}
        is_large = choice.most_bytes is not None and _bytes_of(capture) > choice.most_bytes
        if is_large or len(days) > 1:
            continue
        rows = _rows_of(capture)
        if choice.is_tiered and len(chosen) > 1 and rows > held:
            break
        chosen.append(capture)
        held += rows
    chosen.sort(key=lambda capture: (capture.first_ts_ns or 0, capture.capture_id))
    return chosen if len(chosen) >= choice.least else []


def _bytes_of(capture: Manifest) -> int:
    return sum(part.bytes for part in capture.files)


def _rows_of(capture: Manifest) -> int:
    return sum(part.rows for part in capture.files)


@dataclass
class _Work:
    """What is written under one id: its sources, and where it is until it is in the lake."""

    sources: Sequence[Manifest]
    stage: Stage
    manifest: Manifest
    is_done: bool = False


@contextmanager
def _written(folder: Path, chosen: Sequence[Manifest]) -> Iterator[_Work]:
    """A stage with captures in files of this schema version, under one id and one manifest."""
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
        yield _Work(chosen, stage, manifest)
    finally:
        stage.discard()


def _install_all(folder: Path, manifests: Manifests, works: Sequence[_Work]) -> bool:
    """Swap the compacted files in, the lake being ours to change; False if the sources changed."""
    lake_install.recover(folder, is_alone=True)
    there = {capture.capture_id: capture for capture in manifests.to_change()[0]}
    left = [work for work in works if not work.is_done]
    if any(there.get(each.capture_id) != each for work in left for each in work.sources):
        return False
    for work in left:
        work.stage.install(map(places.place_of, work.sources))
        work.is_done = True
    return True


def _migrated(capture: Manifest) -> Manifest:
    versions = {**writer_versions(), **capture.versions}  # of who decoded it, as before
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
            file = pq.ParquetFile(places.part_path(folder, capture, part))
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
