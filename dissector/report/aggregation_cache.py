"""Query results of a lake's captures: computed once, cached, and read again by later reports.

A cache partition is one capture, or the captures that `dissector.joining` joins. Every row of a
query names its capture. So any engine can compute the rows of a partition by itself; they are
cached beside the lake (`dissector.lake.cache`), and each report merges those of its partitions.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.findings.querying import RuleQuery, rule_queries
from dissector.joining import planning, survey
from dissector.joining.closing import Target, close_group
from dissector.joining.files import JoinSettings, digest_of, files_of
from dissector.joining.increment_cache import IncrementCache
from dissector.joining.increments import Increment
from dissector.joining.planning import VERSION, parts_of, whole_spans
from dissector.lake.cache import Cache, CachedRows, CachePartition
from dissector.lake.reader import Lake
from dissector.limits import MAX_CACHE_BATCHES
from dissector.queries.catalogue import Query, catalogue
from dissector.queries.duckdb_engine import DuckdbEngine, parquet, parquet_files, quoted, reading
from dissector.queries.selection import Selection
from dissector.report import partitions
from dissector.report.closing import CHANGED
from dissector.report.partitions import Engine, EngineIn, Inputs, Partition, Tables
from dissector.report.result import SECTIONS
from dissector.schemas.small_tables import TEXT, as_schema, no_rows, small_table

Queries = Mapping[str, Query | RuleQuery]
# Tables of joining that are also tables of a report.
CLOSED: Final = ("exchanges", "deliveries", "permits", "untouched")
FINDINGS: Final = "findings"  # the section that rules alone compute
COVERAGE: Final = "coverage"  # the section that every rule over totals reads
JOINED: Final = "joined-"  # prefix of the names of joining's tables in the cache


def with_plain_types(rows: pa.Table) -> pa.Table:
    """Rows of an engine, cast to the types that all engines share: int64, bool, text, lists."""
    fields = [pa.field(field.name, _plain(field.type)) for field in rows.schema]
    return as_schema(rows, pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pa.int64()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def _survey_partitions(digests: Mapping[str, str]) -> list[CachePartition]:
    """The cache partitions of surveys: one per capture, whether it is joined with others or not."""
    return [
        CachePartition(digest_of(["survey", digest]), (name,)) for name, digest in digests.items()
    ]


def survey_captures(
    lake: Lake, digests: Mapping[str, str], cache: Cache | None, work: Path
) -> Inputs:
    """Survey captures, and plan which of them are joined.

    Args:
        digests: of the counted captures. cache: holds earlier surveys; captures without one are
            read. Without a cache all are read.
    """
    settings = JoinSettings(folder=work)
    cache_partitions = _survey_partitions(digests)
    tables: dict[str, list[pa.Table]] = {name: [] for name in survey.SCHEMAS}
    missing = set(digests)
    if cache is not None:
        cached = {name: cache.sources(name, VERSION, cache_partitions) for name in survey.SCHEMAS}
        missing = {
            cache_partition.captures[0] for _, left in cached.values() for cache_partition in left
        }
        with DuckdbEngine(work) as db:
            for name, (sources, _) in cached.items():
                earlier = [
                    source._replace(captures=source.captures - missing, is_all=False)
                    if source.captures & missing else source
                    for source in sources
                ]  # fmt: skip
                tables[name].append(read_sources(db, earlier, survey.SCHEMAS[name]))
    if missing:
        is_alone = cache is None and len(digests) == 1
        with reading():
            fresh = survey.known(files_of(lake, frozenset(missing)), settings, is_alone=is_alone)
        for name, rows in fresh._asdict().items():
            tables[name].append(rows)
        if cache is not None:
            folder = work / "survey"
            folder.mkdir()
            for name, rows in fresh._asdict().items():
                pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")
            new = [
                cache_partition
                for cache_partition in cache_partitions
                if cache_partition.captures[0] in missing
            ]
            cache.add(folder, new, dict.fromkeys(survey.SCHEMAS, VERSION))
    known = survey.SurveyTables(
        *(
            pa.concat_tables(
                [as_schema(each, schema) for each in tables[name]] or [no_rows(schema)]
            )
            for name, schema in survey.SCHEMAS.items()
        )
    )
    with reading():
        plan = survey.plan(known, partial(files_of, lake), settings)
    together = tuple(planning.cache_partitions(plan, digests))
    return Inputs(lake, digests, known, plan, together, whole_spans(known.files, plan))


def select_sources(sources: Iterable[CachedRows], *, by_name: bool = False) -> str:
    """The query of the rows of several sources, empty if they have no files; one scan reads all
    whole sources. by_name: match columns by name, as files of rules may lack some."""
    filled = [source for source in sources if source.paths]
    whole = tuple(path for source in filled if source.is_all for path in source.paths)
    queries = [f"SELECT * FROM {parquet(whole, by_name=by_name)}"] if whole else []
    for source in filled:
        if not source.is_all:
            names = ", ".join(quoted(name) for name in sorted(source.captures))
            condition = f"WHERE capture IN ({names})" if names else "WHERE FALSE"
            queries.append(f"SELECT * FROM {parquet(source.paths, by_name=by_name)} {condition}")
    return " UNION ALL BY NAME ".join(queries)


def _of_captures(sources: Iterable[CachedRows], captures: frozenset[str]) -> Iterator[CachedRows]:
    """Sources restricted to some captures; sources without any of these are left out."""
    for source in sources:
        common = source.captures & captures
        if common:
            is_all = source.is_all and common == source.captures
            yield source._replace(captures=common, is_all=is_all)


def read_sources(db: DuckdbEngine, sources: Sequence[CachedRows], schema: pa.Schema) -> pa.Table:
    """The rows of sources, as one table of the given schema."""
    query = select_sources(sources)
    if not query:
        return no_rows(schema)
    names = ", ".join(f'"{name}"' for name in schema.names)
    rows = with_plain_types(db.table(f"SELECT {names} FROM ({query})"))
    return as_schema(rows, schema)


def _close(task: Sequence[Sequence[Any]]) -> None:
    for source, *others in task:
        with reading(), source.held():
            close_group(source, *others)


def join_captures(
    engine: Engine, read: Inputs, captures: frozenset[str], work: Path
) -> Path | None:
    """Join the groups that have these captures; return the folder of rows, None without groups."""
    parts = [part for part in parts_of(read.plan) if part.groups[0].captures[0] in captures]
    if not parts:
        return None
    folder = work / "closed"
    folder.mkdir(exist_ok=True)
    settings = JoinSettings(*engine.budget(len(parts)), work)
    tasks: list[Sequence[Sequence[Any]]] = []
    cut: list[tuple[IncrementCache, str, list[Increment]]] = []
    for part in parts:
        name = partitions.closed_as(part.groups[0])
        increments = [] if read.memory is None else read.memory.increments(part)
        if read.memory is not None and len(increments) > 1:
            tasks += read.memory.tasks(increments, settings)
            cut.append((read.memory, name, increments))
            continue
        target = Target(folder, name)
        tasks.append([(files_of(read.lake, part.captures), part, target, settings)])
    engine.each(_close, tasks)
    for memory, name, increments in cut:
        memory.collect(increments, name, folder)
    return folder


class AggregationCache:
    """Reads cached rows of a report's captures, computes the missing ones, and caches these.

    Args:
        cache: None: neither read nor write a cache.
    """

    def __init__(
        self,
        read: Inputs,
        cache: Cache | None,
        work: Path,
        engine: EngineIn,
        selection: Selection,
    ) -> None:
        self._read = read
        self._cache = cache
        self._work = work
        self._engine = engine
        self._selection = selection
        self._runs = 0
        self.sources: dict[str, list[CachedRows]] = {}
        self._digests: dict[str, str] = {}
        self.captures_read: set[str] = set()

    def make(self, queries: Queries) -> None:
        """Read or compute the rows of queries and of joining's tables, for all captures."""
        joined = dict.fromkeys((f"{JOINED}{n}" for n in (*CLOSED, *CHANGED)), VERSION)
        wanted = {name: query.digest for name, query in queries.items()} | joined
        runs: dict[tuple[CachePartition, ...], list[str]] = {}
        for name, digest in wanted.items():
            missing = self.find(name, digest)
            # A run of queries over joined captures joins them anyway, and so has these rows.
            together = (each for each in runs if name.startswith(JOINED) and {*missing} <= {*each})
            if missing:
                runs.setdefault(next(together, tuple(sorted(missing))), []).append(name)
        for cache_partitions, names in runs.items():
            texts = {name: text_of(queries[name]) for name in names if name in queries}
            folder = self._run(cache_partitions, names, texts)
            self.keep(folder, cache_partitions, {name: wanted[name] for name in names})

    def find(self, name: str, digest: str) -> list[CachePartition]:
        """Return the partitions without cached rows; register the cached ones as sources."""
        cache_partitions = self._partitions_of(name)
        self._digests[name] = digest
        if self._cache is None:
            self.sources[name] = []
            return list(cache_partitions)
        self.sources[name], missing = self._cache.sources(name, digest, cache_partitions)
        return missing

    def _partitions_of(self, name: str) -> tuple[CachePartition, ...]:
        """The partitions that have rows of a table; joining's tables: those of several captures."""
        cache_partitions = self._read.cache_partitions
        is_joined = name.startswith(JOINED)
        return (
            tuple(
                cache_partition
                for cache_partition in cache_partitions
                if len(cache_partition.captures) > 1
            )
            if is_joined
            else cache_partitions
        )

    def folder(self) -> Path:
        """Create a folder for computed rows."""
        self._runs += 1
        folder = self._work / f"computed-{self._runs}"
        folder.mkdir()
        return folder

    def _run(
        self,
        cache_partitions: Sequence[CachePartition],
        names: Sequence[str],
        queries: Mapping[str, str],
    ) -> Path:
        folder = self.folder()
        captures = frozenset(
            name for cache_partition in cache_partitions for name in cache_partition.captures
        )
        self.captures_read |= captures
        spill = self._work / f"engine-{self._runs}"
        spill.mkdir()
        with self._engine(spill) as engine:
            closed = join_captures(engine, self._read, captures, spill)
            if queries:
                self._query(engine, cache_partitions, queries, closed, folder, spill)
        for name in names:
            if name.startswith(JOINED) and closed is not None:
                os.rename(closed / name.removeprefix(JOINED), folder / name)
        shutil.rmtree(spill, ignore_errors=True)
        return folder

    def _query(
        self,
        engine: Engine,
        cache_partitions: Sequence[CachePartition],
        queries: Mapping[str, str],
        closed: Path | None,
        folder: Path,
        spill: Path,
    ) -> None:
        """Write the queries' rows of cache partitions, one task per `Partition`."""
        parts = partitions.partitioned(cache_partitions, self._read, engine.at_once)
        memory, threads = engine.budget(len(parts))
        folders: list[Path] = []
        for texts, joined, selection in self._over_tables(queries, closed):
            todo = [
                Partition(
                    self._tables(some, joined, selection), texts, folder / f".{number}",
                    spill / f"{number}", memory, threads,
                )
                for number, (_, some) in enumerate(parts, start=len(folders))
            ]  # fmt: skip
            engine.each(partitions.run_partition, todo)
            folders += [each.folder for each in todo]
        for name in queries:
            (folder / name).mkdir()
            paths = (path for part in folders for path in parquet_files(part, name))
            for number, path in enumerate(paths):
                os.rename(path, folder / name / f"part-{number:05}.parquet")
        for part in folders:
            shutil.rmtree(part)

    def _over_tables(
        self, queries: Mapping[str, str], closed: Path | None
    ) -> list[tuple[Mapping[str, str], Path | None, Selection]]:
        """Split queries into runs: queries, folder of joining's tables, selection of rows.

        Rules read all rows of each capture as it landed: a row left out would look like a fault.
        """
        if closed is None and self._selection.is_everything:
            return [(queries, None, self._selection)]
        rules = {name: text for name, text in queries.items() if name in rule_queries()}
        others = {name: text for name, text in queries.items() if name not in rules}
        runs = ((rules, None, Selection()), (others, closed, self._selection))
        return [each for each in runs if each[0]]

    def _tables(
        self, cache_partitions: Sequence[CachePartition], closed: Path | None, selection: Selection
    ) -> Tables:
        captures = frozenset(
            name for cache_partition in cache_partitions for name in cache_partition.captures
        )
        return partitions.tables_of(self._read, captures, closed, selection)

    def keep(
        self, folder: Path, cache_partitions: Sequence[CachePartition], digests: Mapping[str, str]
    ) -> None:
        """Register the computed rows of some partitions as sources, and add them to the cache."""
        captures = frozenset(
            name for cache_partition in cache_partitions for name in cache_partition.captures
        )
        for name in digests:
            paths = tuple(parquet_files(folder, name))
            if paths:
                self.sources[name].append(CachedRows(paths, captures, True))
        if self._cache is not None:
            self._cache.add(folder, cache_partitions, digests)

    def tables(
        self, db: DuckdbEngine, queries: Queries, merged: Callable[[Query, str], str],
        captures: frozenset[str] | None = None,
    ) -> dict[str, pa.Table]:  # fmt: skip
        """The merged rows of queries, by name; a query without rows has the column `capture` alone.
        merged: returns the query that merges rows; captures: whose rows to read, None: all."""
        tables = {}
        for name, query in queries.items():
            is_rule = isinstance(query, RuleQuery)
            sources = self.sources[name]
            if captures is not None:
                sources = [*_of_captures(sources, captures)]
            rows = select_sources(sources, by_name=is_rule)
            if not rows:
                tables[name] = small_table([], capture=TEXT)
            elif isinstance(query, RuleQuery):
                tables[name] = db.table(rows)
            else:
                tables[name] = with_plain_types(db.table(merged(query, rows)))
        return tables

    def tidy(self) -> None:
        """Drop cached rows of removed captures; rewrite the cache if it has over MAX_CACHE_BATCHES
        batches."""
        if self._cache is None:
            return
        if self._read.memory is not None:
            self._read.memory.tidy(self._read.plan)
        of_surveys = _survey_partitions(self._read.digests)
        self._cache.forget(
            {
                cache_partition.digest
                for cache_partition in (*self._read.cache_partitions, *of_surveys)
            }
        )
        if len(self._cache) <= MAX_CACHE_BATCHES:
            return
        memory = Cache(self._read.lake.folder, self._work)  # with what this run added
        parts = (
            (self._read.cache_partitions, self._digests),
            (of_surveys, dict.fromkeys(survey.SCHEMAS, VERSION)),
        )
        with DuckdbEngine(self._work) as db:
            for cache_partitions, digests in parts:
                folder = self.folder()
                for name, digest in digests.items():
                    wanted = (
                        self._partitions_of(name)
                        if cache_partitions is self._read.cache_partitions
                        else cache_partitions
                    )
                    sources, missing = memory.sources(name, digest, wanted)
                    if missing:
                        return  # another process changed the cache meanwhile
                    query = select_sources(sources, by_name=name in rule_queries())
                    if query:
                        db.write({name: query}, folder)
                if not memory.add(folder, cache_partitions, digests):
                    return
        memory.replace_all()


def queries_of(sections: Collection[str], numbers: Collection[str], *, is_kept: bool) -> Queries:
    """The queries that sections are computed from, by name.

    Args:
        numbers: of the rules to run; none: all.
        is_kept: the rows are cached. Then all queries run while the captures are read, as reports
            of other sections need them later; unless only findings are wanted.
    """
    rules = {
        name: query for name, query in rule_queries().items()
        if not numbers or query.rule.number in numbers
    }  # fmt: skip
    if is_kept and {*sections} - {FINDINGS, COVERAGE}:
        return {**catalogue(), **rules}
    wanted = {name for section in sections for name in SECTIONS[section].reads}
    return {name: query for name, query in catalogue().items() if name in wanted} | rules


def text_of(query: Query | RuleQuery) -> str:
    """The SQL of a query over the tables of a lake."""
    return query.per_capture() if isinstance(query, Query) else query.text
