"""What queries give for the captures of a lake: made once, kept, and found again.

What is read together is a unit: one capture, or captures that `dissector.joining` puts together.
The rows of every query name their capture, so those of a unit are made apart from all others, by
any engine, kept beside the lake (`dissector.lake.cache`), and put together whenever a report asks.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.findings.querying import incidents, rule_queries, write_incidents
from dissector.joining import planning, survey
from dissector.joining.closing import Target, close_group
from dissector.joining.files import Settings, source_of
from dissector.joining.increment_cache import IncrementCache
from dissector.joining.increments import Increment
from dissector.joining.links import Plan
from dissector.joining.planning import parts_of, whole_spans
from dissector.lake.cache import MAX_BATCHES, Cache, Source, Unit
from dissector.lake.reader import Lake
from dissector.queries.catalogue import catalogue
from dissector.queries.duckdb_engine import DuckdbEngine, parquet, parquet_files, quoted, reading
from dissector.queries.selection import Selection
from dissector.report.closing import CHANGED
from dissector.report.partitions import (
    Engine,
    EngineIn,
    Inputs,
    Partition,
    Tables,
    closed_as,
    partitioned,
    run_partition,
    tables_of,
    tallies_of,
)
from dissector.schemas.arrow import arrow_schema

T = TypeVar("T")
R = TypeVar("R")
# The rows that are in a report's tables.
CLOSED: Final = ("exchanges", "deliveries", "permits")
JOINED: Final = "joined-"  # before the names of these tables, where they are kept
# It steps when what joining or a survey writes means something else.
_JOINED: Final = "1"


def settled(rows: pa.Table) -> pa.Table:
    """Rows of an engine with the types that all engines share: int64, bool, text, lists of them."""
    fields = [pa.field(field.name, _plain(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pa.int64()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _survey_units(digests: Mapping[str, str]) -> list[Unit]:
    return [Unit(_digest("survey", digest), (name,)) for name, digest in digests.items()]


def _units(plan: Plan, digests: Mapping[str, str]) -> tuple[Unit, ...]:
    found = planning.units(plan, digests)
    return tuple(Unit(_digest(_JOINED, each.digest), tuple(each.captures)) for each in found)


def surveyed(lake: Lake, digests: Mapping[str, str], kept: Cache | None, work: Path) -> Inputs:
    """What is known of captures; reads the files of those of which nothing is kept."""
    settings = Settings(folder=work)
    mine = _survey_units(digests)
    if kept is None and len(digests) == 1:
        return _alone(lake, digests, work)
    tables: dict[str, list[pa.Table]] = {name: [] for name in survey.SCHEMAS}
    missing = set(digests)
    if kept is not None:
        found = {name: kept.sources(name, _JOINED, mine) for name in survey.SCHEMAS}
        missing = {unit.captures[0] for _, left in found.values() for unit in left}
        with DuckdbEngine(work) as db:
            for name, (sources, _) in found.items():
                there = [
                    source._replace(captures=source.captures - missing, is_all=False)
                    if source.captures & missing else source
                    for source in sources
                ]  # fmt: skip
                tables[name].append(rows_of(db, there, survey.SCHEMAS[name]))
    if missing:
        with reading():
            fresh = survey.known(source_of(lake, frozenset(missing)), settings)
        made = work / "survey"
        made.mkdir()
        for name, rows in fresh._asdict().items():
            tables[name].append(rows)
            pq.write_table(rows, made / f"{name}.parquet", compression="zstd")
        if kept is not None:
            new = [unit for unit in mine if unit.captures[0] in missing]
            kept.add(made, new, dict.fromkeys(survey.SCHEMAS, _JOINED))
    known = survey.Known(
        *(
            pa.concat_tables([each.cast(schema) for each in tables[name]] or [schema.empty_table()])
            for name, schema in survey.SCHEMAS.items()
        )
    )
    with reading():
        plan = survey.plan(known, partial(source_of, lake), settings)
    together = _units(plan, digests)
    return Inputs(lake, digests, known, plan, together, whole_spans(known.files, plan))


def _alone(lake: Lake, digests: Mapping[str, str], work: Path) -> Inputs:
    """One capture of which nothing is kept: it belongs together with no other."""
    with DuckdbEngine(work) as db:
        paths = lake.part_paths("capture_files")
        db.lake_table("capture_files", paths, (), arrow_schema("capture_files").empty_table())
        files = settled(db.table("SELECT * FROM lake_capture_files"))
    empty = (survey.SCHEMAS[name].empty_table() for name in ("connections", "presence"))
    known = survey.Known(files.cast(survey.SCHEMAS["files"]), *empty)
    plan = survey.plan(known, partial(source_of, lake), Settings(folder=work))
    together = _units(plan, digests)
    return Inputs(lake, digests, known, plan, together, whole_spans(files, plan))


def _select(source: Source, by_name: bool) -> str:
    """The rows of a source, as a query."""
    rows = f"SELECT * FROM {parquet(source.paths, by_name=by_name)}"
    if source.is_all:
        return rows
    names = ", ".join(quoted(name) for name in sorted(source.captures))
    return f"{rows} WHERE capture IN ({names})" if names else f"{rows} LIMIT 0"


def union(sources: Iterable[Source], *, by_name: bool = False) -> str:
    """The rows of several sources, as a query, empty if there are no files of them; those that are
    read whole come as one. by_name: files may lack columns that others have, as rules' do."""
    found = [source for source in sources if source.paths]
    whole = [path for source in found if source.is_all for path in source.paths]
    queries = [_select(Source(tuple(whole), frozenset(), True), by_name)] if whole else []
    queries += [_select(source, by_name) for source in found if not source.is_all]
    return " UNION ALL BY NAME ".join(queries)


def _close(task: Sequence[Sequence[Any]]) -> None:
    with reading():
        for arguments in task:
            close_group(*arguments)


def closed_groups(
    engine: Engine, read: Inputs, captures: frozenset[str], work: Path
) -> Path | None:
    """Join the captures that belong together; the folder of what came of it, None if none do."""
    parts = [part for part in parts_of(read.plan) if part.groups[0].captures[0] in captures]
    if not parts:
        return None
    folder = work / "closed"
    folder.mkdir(exist_ok=True)
    settings = Settings(folder=work)
    tasks: list[Sequence[Sequence[Any]]] = []
    cut: list[tuple[IncrementCache, str, list[Increment]]] = []
    for part in parts:
        name = closed_as(part.groups[0])
        increments = [] if read.memory is None else read.memory.increments(part)
        if read.memory is not None and len(increments) > 1:
            tasks += read.memory.tasks(increments, settings)
            cut.append((read.memory, name, increments))
            continue
        target = Target(folder, name)
        tasks.append([(source_of(read.lake, part.captures), part, target, settings)])
    engine.each(_close, tasks)
    for memory, name, increments in cut:
        memory.collect(increments, name, folder)
    return folder


class TallyCache:
    """Finds what is kept of the captures of a report, makes what is missing, and keeps it."""

    def __init__(
        self,
        read: Inputs,
        kept: Cache | None,
        work: Path,
        engine: EngineIn,
        what: Selection,
        also: Callable[[Engine], None] | None = None,
    ) -> None:
        """kept: None where nothing is kept, and what is kept does not serve; also: done with the
        engine while it has the tables, of all captures if nothing is kept."""
        self._read = read
        self._kept = kept
        self._work = work
        self._engine = engine
        self._what = what
        self._also = also
        self._runs = 0
        self.sources: dict[str, list[Source]] = {}
        self._digests: dict[str, str] = {}
        self.captures_read: set[str] = set()

    def make(self, digests: Mapping[str, str]) -> None:
        """Find or make the rows of queries, and of what joining closed, of all captures.

        digests: of queries by their name.
        """
        joined = dict.fromkeys((f"{JOINED}{n}" for n in (*CLOSED, *CHANGED)), _JOINED)
        wanted = {**digests, **joined}
        runs: dict[tuple[Unit, ...], list[str]] = {}
        for name, digest in wanted.items():
            missing = self.find(name, digest)
            # Whoever runs queries over joined captures has joined them.
            together = (each for each in runs if name.startswith(JOINED) and {*missing} <= {*each})
            if missing:
                runs.setdefault(next(together, tuple(sorted(missing))), []).append(name)
        for units, names in runs.items():
            folder = self._run(units, names)
            self.keep(folder, units, {name: wanted[name] for name in names})

    def find(self, name: str, digest: str) -> list[Unit]:
        """The units of which no rows of a table are kept; those that are become its sources."""
        units = self._units_of(name)
        self._digests[name] = digest
        if self._kept is None:
            self.sources[name] = []
            return list(units)
        self.sources[name], missing = self._kept.sources(name, digest, units)
        return missing

    def _units_of(self, name: str) -> tuple[Unit, ...]:
        """The units that have rows of a table: what joining closed is of captures joined."""
        units = self._read.units
        is_joined = name.startswith(JOINED)
        return tuple(unit for unit in units if len(unit.captures) > 1) if is_joined else units

    def folder(self) -> Path:
        """A new folder for rows that are made."""
        self._runs += 1
        folder = self._work / f"made-{self._runs}"
        folder.mkdir()
        return folder

    def _run(self, units: Sequence[Unit], names: Sequence[str]) -> Path:
        folder = self.folder()
        captures = frozenset(name for unit in units for name in unit.captures)
        self.captures_read |= captures
        queries = {name: text for name in names if (text := query_of(name)) is not None}
        spill = self._work / f"engine-{self._runs}"
        spill.mkdir()
        with self._engine(spill) as engine:
            closed = closed_groups(engine, self._read, captures, spill)
            if queries:
                self._query(engine, units, queries, closed, folder, spill)
        for name in names:
            if name.startswith(JOINED) and closed is not None:
                os.rename(closed / name.removeprefix(JOINED), folder / name)
        shutil.rmtree(spill, ignore_errors=True)
        return folder

    def _query(
        self,
        engine: Engine,
        units: Sequence[Unit],
        queries: Mapping[str, str],
        closed: Path | None,
        folder: Path,
        spill: Path,
    ) -> None:
        """Write what queries give for units: a partition of them is a task, but for what is too
        large for one, and for what `also` wants to see in one piece."""
        parts = partitioned(units, self._read, engine.at_once)
        if self._also is not None:
            whole, parts = list(units), []
        else:
            whole = [unit for rows, some in parts if rows > engine.task_rows for unit in some]
            parts = [(rows, some) for rows, some in parts if rows <= engine.task_rows]
        memory, threads = engine.budget(len(parts))
        pieces: list[Path] = []
        for mine, joined, what in self._over_tables(queries, closed):
            todo = [
                Partition(
                    self._tables(some, joined, what), mine, folder / f".{place}",
                    spill / f"{place}", memory, threads,
                )
                for place, (_, some) in enumerate(parts, start=len(pieces))
            ]  # fmt: skip
            engine.each(run_partition, todo)
            pieces += [each.folder for each in todo]
            if whole:
                self._tables(whole, joined, what).open(engine)
                pieces.append(folder / f".{len(pieces)}")
                pieces[-1].mkdir()
                write_incidents(engine, mine, pieces[-1])
                engine.write(tallies_of(mine), pieces[-1])
        if whole and self._also is not None:
            self._also(engine)
        for name in queries:
            (folder / name).mkdir()
            paths = (path for piece in pieces for path in parquet_files(piece, name))
            for place, path in enumerate(paths):
                os.rename(path, folder / name / f"part-{place:05}.parquet")
        for piece in pieces:
            shutil.rmtree(piece)

    def _over_tables(
        self, queries: Mapping[str, str], closed: Path | None
    ) -> list[tuple[Mapping[str, str], Path | None, Selection]]:
        """Queries, what joining wrote for the tables that they read, and which rows they read.

        Rules read all rows of each capture as it landed: what is missing would be a fault to them.
        The others are the last: what is done besides finds their tables.
        """
        if closed is None and self._what.is_everything:
            return [(queries, None, self._what)]
        rules = {name: text for name, text in queries.items() if name in rule_queries()}
        others = tallies_of(queries)
        found = ((rules, None, Selection()), (others, closed, self._what))
        return [each for each in found if each[0]]

    def _tables(self, units: Sequence[Unit], closed: Path | None, what: Selection) -> Tables:
        captures = frozenset(name for unit in units for name in unit.captures)
        return tables_of(self._read, captures, closed, what)

    def keep(self, folder: Path, units: Sequence[Unit], digests: Mapping[str, str]) -> None:
        """Take rows that were made for some units, and keep them if that is wanted."""
        captures = frozenset(name for unit in units for name in unit.captures)
        for name in digests:
            paths = tuple(parquet_files(folder, name))
            if paths:
                self.sources[name].append(Source(paths, captures, True))
        if self._kept is not None:
            self._kept.add(folder, units, digests)

    def tidy(self) -> None:
        """Forget what is kept of captures that are gone, and put batches together when they are
        many."""
        if self._kept is None:
            return
        if self._read.memory is not None:
            self._read.memory.tidy(self._read.plan)
        surveyed_units = _survey_units(self._read.digests)
        self._kept.forget({unit.digest for unit in (*self._read.units, *surveyed_units)})
        if len(self._kept) <= MAX_BATCHES:
            return
        memory = Cache(self._read.lake.folder, self._work)  # with what this run added
        parts = (
            (self._read.units, self._digests),
            (surveyed_units, dict.fromkeys(survey.SCHEMAS, _JOINED)),
        )
        with DuckdbEngine(self._work) as db:
            for units, digests in parts:
                folder = self.folder()
                for name, digest in digests.items():
                    wanted = self._units_of(name) if units is self._read.units else units
                    sources, missing = memory.sources(name, digest, wanted)
                    if missing:
                        return  # somebody else changed it meanwhile
                    query = union(sources, by_name=name in rule_queries())
                    if query:
                        db.write({name: query}, folder)
                if not memory.add(folder, units, digests):
                    return
        memory.replace_all()


def query_of(name: str) -> str | None:
    """The query of a table that is kept, None of what no query makes."""
    if name in rule_queries():
        return rule_queries()[name].text
    return catalogue()[name].per_capture() if name in catalogue() else None


def tallied_at_once(
    db: DuckdbEngine, read: Inputs, names: Iterable[str], what: Selection
) -> dict[str, pa.Table]:
    """The rows of queries, of captures that are few and none of which was joined."""
    tables_of(read, read.captures, None, what).open(db)
    queries = {name: text for name in names if (text := query_of(name)) is not None}
    tallies = db.tables(tallies_of(queries))
    return {name: settled(rows) for name, rows in tallies.items()} | incidents(db, queries)


def rows_of(db: DuckdbEngine, sources: Sequence[Source], schema: pa.Schema) -> pa.Table:
    """The rows of sources, in one table of these columns."""
    query = union(sources)
    if not query:
        return schema.empty_table()
    names = ", ".join(f'"{name}"' for name in schema.names)
    rows = settled(db.table(f"SELECT {names} FROM ({query})"))
    return rows.cast(schema)
