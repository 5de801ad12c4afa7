"""Reports over the captures of a lake: read from the cache or computed, judged, and written."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import NothingMatchesError
from dissector.findings.finding import Finding
from dissector.findings.loading import RuleProblem, load_rules
from dissector.findings.querying import incidents, rule_queries
from dissector.findings.totals import never_wrong, totals_rules
from dissector.joining.closing import SCHEMAS as CLOSED_SCHEMAS
from dissector.joining.files import digests as digests_of
from dissector.joining.increment_cache import IncrementCache
from dissector.lake.cache import Cache
from dissector.lake.manifests import Manifests
from dissector.lake.reader import Lake, open_lake
from dissector.queries.catalogue import catalogue
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.plain_values import plain_rows
from dissector.queries.selection import EVERYTHING, Selection
from dissector.report import aggregation_cache, by_capture, closing
from dissector.report.aggregation_cache import AggregationCache, Queries
from dissector.report.closing import CHANGED
from dissector.report.counted_captures import Counted, Log, captures_that_count
from dissector.report.descriptions import selection_words
from dissector.report.kept_reports import KeptReports
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import Row, step_ns
from dissector.report.output import TABLES, BesideNumbers, put_report, write_report
from dissector.report.partitions import EngineIn, Inputs, tables_of
from dissector.report.program import program
from dissector.report.result import SECTIONS, build
from dissector.report.sections import send_latency
from dissector.report.sections.findings import Judgement, is_wrong, judge_reports, table_of
from dissector.report.selected_incidents import selected_incidents
from dissector.report.timelines import Timeline, timelines
from dissector.report.timelines import table_of as timeline_rows
from dissector.report.workspace import workspace
from dissector.schemas.small_tables import TEXT, no_rows, small_table

VERDICTS: Final = "verdicts"
_STEPS: Final = 4  # of a report
_JUDGED_AT_ONCE: Final = 200  # captures: their rows are in memory
Step = Callable[[int, int, str], None]


class Scope(NamedTuple):
    """The contents that are requested of a report.

    captures: ids, none for all.
    selection: of rows.
    is_exact: percentiles from all values.
    sections: their names.
    rules: numbers of the program's rules to run, none for all.
    is_drawn: whether to draw timelines of findings.
    """

    captures: Sequence[str] = ()
    selection: Selection = EVERYTHING
    is_exact: bool = False
    sections: Sequence[str] = tuple(SECTIONS)
    rules: frozenset[str] = frozenset()
    is_drawn: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the report has all sections."""
        return set(self.sections) >= set(SECTIONS)

    @property
    def sections_made(self) -> tuple[str, ...]:
        """The requested sections, and with findings those that rules over totals read."""
        read = (*totals_rules().sections(self.rules),) if self.has_findings else ()
        read += () if self.selection.is_everything else (aggregation_cache.COVERAGE,)
        return tuple(name for name in SECTIONS if name in (*self.sections, *read))

    @property
    def has_findings(self) -> bool:
        """Whether to run rules."""
        return aggregation_cache.FINDINGS in self.sections

    @property
    def is_kept(self) -> bool:
        """Whether other reports can use the computed rows."""
        return self.selection.is_everything and not self.is_exact


class ReportProgress(NamedTuple):
    """Loggers of a report: of lines, and of steps (done, total, name)."""

    log: Log
    step: Step


ALL: Final = Scope()
SILENT: Final = ReportProgress(lambda text: None, lambda done, total, what: None)


class Report(NamedTuple):
    """A report.

    report: its JSON.
    tables: by path, functions that write a further table into a folder.
    judgement: findings of rules.
    timelines: of findings.
    """

    report: Row
    tables: Mapping[str, Callable[[Path], None]]
    judgement: Judgement
    timelines: Sequence[Timeline] = ()


def make_report(
    lake: Lake,
    work: Path,
    engine: EngineIn,
    scope: Scope,
    progress: ReportProgress = SILENT,
    *,
    has_memory: bool = True,
    counted: Counted | None = None,
) -> Report:
    """Compute a report of an open lake.

    Args:
        work: a folder of the caller, for intermediate files.
        has_memory: whether to cache results in the lake, which outlives this report.
        counted: the result of `captures_that_count`, if it ran before.

    Raises:
        UsageError, InputError: the requested captures do not exist, or cannot be read.
    """
    lake, digests, twice = counted or captures_that_count(lake, scope.captures, progress.log)
    progress.step(0, _STEPS, "what the captures hold")
    kept = Cache(lake.folder, work) if has_memory else None
    read = aggregation_cache.survey_captures(lake, digests, kept, work)
    if has_memory:
        read = read._replace(memory=IncrementCache(lake, digests, read.known, work))
    progress.step(1, _STEPS, "the rows of new captures")
    queries = aggregation_cache.queries_of(
        scope.sections_made, scope.rules, is_kept=has_memory and scope.is_kept
    )
    if not has_memory and len(read.captures) == 1:
        with engine(work) as opened:
            if isinstance(opened, DuckdbEngine):
                return _of_one(read, opened, queries, scope, work)
    cache = AggregationCache(read, kept if scope.is_kept else None, work, engine, scope.selection)
    cache.make({**queries, **(catalogue("exact") if scope.is_exact else {})})
    progress.log(f"captures read anew: {len(cache.captures_read)} of {len(read.captures)}")
    # The verdict of a single capture would judge the same rows as its report.
    is_alone = len(read.captures) == 1 and scope.is_kept
    with DuckdbEngine(work) as db:
        is_wanted = scope.is_whole and not is_alone
        verdicts = _verdicts(db, cache, queries, read, scope) if is_wanted else None
        progress.step(2, _STEPS, "all captures together")
        tables = _merged(db, cache, queries, read, scope.selection)
        if scope.is_exact:
            values = cache.sources[send_latency.VALUES]
            query = aggregation_cache.select_sources(values)
            tables |= _exact(db, query) if query else {"exact": small_table([], capture=TEXT)}
        report, merged = _build(read, scope, tables, verdicts)
        if len(read.captures) > 1 and scope.has_findings:
            report["closing"] = _closing(db, cache, read)
        judged = _judged(db, report, merged, scope, is_alone=is_alone)
        if scope.is_whole and twice:
            report["coverage"]["not_counted"] = [
                {"capture": name, "held_by": other} for name, other in twice.items()
            ]
    if scope.is_kept and not scope.captures:
        cache.tidy()
    writers = _closed_tables(cache) if scope.is_whole else {}
    if scope.has_findings:
        writers[f"{TABLES}/findings_findings"] = partial(_write_findings, judged)
    result = Report(report, writers, judged)
    return _drawn(result, read, work) if scope.is_drawn else result


def _drawn(result: Report, read: Inputs, work: Path) -> Report:
    """The report with timelines of its findings, also as a table."""
    wrong = [one for one in result.judgement.findings if is_wrong(one)]
    drawn = timelines(read, wrong, work)
    rows = partial(_write_rows, timeline_rows(drawn, wrong))
    return result._replace(
        tables={**result.tables, f"{TABLES}/findings_timelines": rows}, timelines=drawn
    )


def _of_one(read: Inputs, db: DuckdbEngine, queries: Queries, scope: Scope, work: Path) -> Report:
    """The report of one capture without a cache, from the rows of its queries alone."""
    tables_of(read, read.captures, None, scope.selection).open(db)
    texts = {name: aggregation_cache.text_of(query) for name, query in queries.items()}
    rows = db.tables({name: text for name, text in texts.items() if name in catalogue()})
    tables = {name: aggregation_cache.with_plain_types(rows_of) for name, rows_of in rows.items()}
    incidents_by_query = _incidents_of_one(read, db, texts, scope.selection, work)
    tables |= selected_incidents(incidents_by_query, read, scope.selection)
    tables["files"] = read.known.files
    if scope.is_exact:
        tables |= _exact(db, catalogue("exact")[send_latency.VALUES].per_capture())
    report, merged = _build(read, scope, tables, None)
    return Report(report, {}, _judged(db, report, merged, scope, is_alone=True))


def _incidents_of_one(
    read: Inputs, db: DuckdbEngine, texts: Mapping[str, str], selection: Selection, work: Path
) -> dict[str, pa.Table]:
    """The incidents of rules. They judge all rows: of a selection, a second engine opens the rest.

    work: folder in which that engine gets a spill folder.
    """
    if selection.is_everything:
        return incidents(db, texts)
    if rule_queries().keys().isdisjoint(texts):
        return {}
    folder = work / "whole"
    folder.mkdir()
    with DuckdbEngine(folder) as whole:
        tables_of(read, read.captures, None, EVERYTHING).open(whole)
        return incidents(whole, texts)


def _judged(
    db: DuckdbEngine, report: Row, merged: MergedTables, scope: Scope, *, is_alone: bool
) -> Judgement:
    """The findings of rules, also of rules over totals. Removes sections that only these needed.

    is_alone: the report is also the verdict of its only capture.
    """
    judged = Judgement([], [])
    if scope.has_findings:
        judged = judge_reports(db, [(merged, report)], scope.rules)[0]
    for name in {*scope.sections_made} - {*scope.sections}:
        del report[name]
    if not scope.is_whole:  # sentences name removed sections
        for name in scope.sections:
            report[name].pop("about", None)
    elif is_alone:
        report[VERDICTS] = by_capture.section_of_one(report)
    return judged


def _exact(db: DuckdbEngine, values: str) -> dict[str, pa.Table]:
    """Percentiles of all values. values: the query of their rows."""
    return {"exact": aggregation_cache.with_plain_types(send_latency.exact(db.table, values))}


def _build(
    read: Inputs, scope: Scope, tables: Mapping[str, pa.Table], verdicts: pa.Table | None
) -> tuple[Row, MergedTables]:
    """The JSON of a report, and its input.

    Args:
        tables: merged rows by query. verdicts: of all captures, if wanted.
    """
    spans = [span for span in read.spans.values() if span != (0, 0)] or [(0, 0)]
    widest = min(first for first, _ in spans), max(last for _, last in spans)
    steps: dict[str | None, int] = {name: step_ns(*span) for name, span in read.spans.items()}
    tables = {**{name: [] for name in rule_queries()}, "files": read.known.files, **tables}
    merged = MergedTables(tables, step_ns(*widest), steps, scope.selection)
    section = None if verdicts is None else by_capture.verdict_section(verdicts.to_pylist())
    report = build(merged, scope.sections_made, section)
    if not scope.selection.is_everything:
        report["selection"] = scope.selection.as_json()
        if not report[aggregation_cache.COVERAGE]["total"]["frames"]:
            raise NothingMatchesError(
                f"no frame in the captures matches{selection_words(report)}",
                scope.selection.question,
            )
    return report, merged


def _closing(db: DuckdbEngine, cache: AggregationCache, read: Inputs) -> Row:
    changes = {
        name: aggregation_cache.read_sources(
            db, cache.sources.get(f"{aggregation_cache.JOINED}{name}", ()), CLOSED_SCHEMAS[name]
        )
        for name in CHANGED
    }
    return closing.section(read.plan, read.captures, changes)


def find(
    lake: Lake,
    work: Path,
    engine: EngineIn,
    captures: Sequence[str] = (),
    *,
    selection: Selection = EVERYTHING,
    has_memory: bool = True,
    rules: frozenset[str] = frozenset(),
    log: Log = SILENT.log,
) -> tuple[list[Finding], list[RuleProblem], list[Row]]:
    """The findings of the program's rules, the rules that failed, and the captures' files.

    rules: by number, none for all. log: as in `captures_that_count`.

    Raises:
        UsageError, InputError: as in `make_report`.
    """
    # Rules that never report a fault are not listed.
    numbers_run = (rules or frozenset(rule.number for rule in load_rules()[0])) - never_wrong()
    sections = (aggregation_cache.FINDINGS,)
    scope = Scope(captures, selection, sections=sections, rules=numbers_run or rules)
    counted = captures_that_count(lake, captures, log)
    result = make_report(lake, work, engine, scope, has_memory=has_memory, counted=counted)
    wrong = [one for one in result.judgement.findings if is_wrong(one)]
    return wrong, result.judgement.problems, result.report["sources"]


def _write_findings(judged: Judgement, folder: Path) -> None:
    _write_rows(table_of(one for one in judged.findings if is_wrong(one)), folder)


def _write_rows(rows: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "part-00000.parquet", compression="zstd")


def aggregate(lake: Path, work: Path, engine: EngineIn) -> None:
    """Compute and cache the rows of landed captures that reports need, for the next report.

    Raises:
        InputError: the lake cannot be read.
    """
    with open_lake(lake) as opened:
        if opened.captures:
            make_report(opened, work, engine, Scope())


def _merged(
    db: DuckdbEngine, cache: AggregationCache, queries: Queries, read: Inputs, selection: Selection
) -> dict[str, pa.Table]:
    """The rows of each query, merged over captures."""
    tables = cache.tables(db, queries, lambda query, rows: query.merged(f"({rows})"))
    return selected_incidents(tables, read, selection)


def _verdicts(
    db: DuckdbEngine, cache: AggregationCache, queries: Queries, read: Inputs, scope: Scope
) -> pa.Table:
    """The verdict of every capture, cached or computed."""
    digests = (query.digest for query in queries.values())
    key = [program(), *digests, *sorted(scope.rules)]
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()
    missing = cache.find(VERDICTS, digest)
    if missing:
        captures = sorted(name for cache_partition in missing for name in cache_partition.captures)
        verdicts = [
            _judge(db, cache, queries, read, scope, captures[start : start + _JUDGED_AT_ONCE])
            for start in range(0, len(captures), _JUDGED_AT_ONCE)
        ]
        folder = cache.folder()
        rows = pa.concat_tables([no_rows(by_capture.SCHEMA), *verdicts])
        pq.write_table(rows, folder / f"{VERDICTS}.parquet", compression="zstd")
        cache.keep(folder, missing, {VERDICTS: digest})
    return aggregation_cache.read_sources(db, cache.sources[VERDICTS], by_capture.SCHEMA)


def _judge(
    db: DuckdbEngine, cache: AggregationCache, queries: Queries, read: Inputs, scope: Scope,
    captures: Sequence[str],
) -> pa.Table:  # fmt: skip
    """The verdicts of some captures, from their own rows alone."""
    tables = cache.tables(
        db, queries, lambda query, rows: by_capture.rows_to_judge(query, f"({rows}) AS wanted"),
        frozenset(captures),
    )  # fmt: skip
    judged = selected_incidents(tables, read, scope.selection)
    wanted = {*captures}
    files = [row for row in plain_rows(read.known.files) if row["capture"] in wanted]
    return by_capture.verdict_rows({**judged, "files": files}, db, scope.rules)


def _closed_tables(cache: AggregationCache) -> dict[str, Callable[[Path], None]]:
    """Functions that write the closed rows of each table into a folder of its own."""
    db = DuckdbEngine()  # connected when the first of them has rows

    def writer(name: str) -> Callable[[Path], None]:
        def write(folder: Path) -> None:
            folder.mkdir(parents=True)
            sources = cache.sources.get(f"{aggregation_cache.JOINED}{name}", ())
            query = aggregation_cache.select_sources(sources)
            if not query:
                empty = no_rows(CLOSED_SCHEMAS[name])
                pq.write_table(empty, folder / "part-00000.parquet", compression="zstd")
                return
            db.write({"part-00000": query}, folder)

        return write

    return {f"{TABLES}/closed_{name}": writer(name) for name in aggregation_cache.CLOSED}


def write(
    lake: Path,
    output: Path,
    engine: EngineIn,
    scope: Scope = ALL,
    progress: ReportProgress = SILENT,
    *,
    has_page: bool = True,
    has_lists: bool = True,
    is_forced: bool = False,
    manifests: Manifests | None = None,
) -> Row:
    """Compute a report over a lake and write it into a folder; return its numbers.

    Args:
        manifests: of the lake, if they were read before.
        has_lists: return and cache whole lists, which costs more than the page for a large lake;
            else lists may be cut as in report.json.

    Raises:
        InputError, UsageError: the lake cannot be read. OutputError: the report not written.
    """
    scope = scope._replace(is_drawn=has_page and scope.is_whole)
    with workspace(output) as work:
        with open_lake(lake, manifests) as opened:
            counted = captures_that_count(opened, scope.captures, progress.log)
            beside = [str(opened.shown), has_page, has_lists]
            reports = _kept_reports(opened, counted, work, scope, beside)
            kept = reports.find()
            if kept is None:
                result = make_report(opened, work, engine, scope, progress, counted=counted)
        progress.step(3, _STEPS, "writing the report")
        if kept is not None:
            progress.log(f"captures read anew: 0 of {len(counted.digests)}")
            put_report(output, kept.write, is_forced=is_forced)
            return kept.numbers
        keep = partial(reports.keep, result.report if has_lists else None)
        write_report(
            output, result.report, has_page=has_page, more=result.tables, is_forced=is_forced,
            beside=BesideNumbers(
                opened.shown, result.timelines, scope.is_exact, reports.figures
            ),
            keep=keep if _is_sound(result) else None,
        )  # fmt: skip
    return result.report


def numbers(lake: Lake, work: Path, engine: EngineIn, scope: Scope, log: Log = SILENT.log) -> Row:
    """The JSON of a report of an open lake, cached or computed.

    log: as in `captures_that_count`.

    Raises:
        UsageError, InputError: as in `make_report`.
    """
    counted = captures_that_count(lake, scope.captures, log)
    reports = _kept_reports(lake, counted, work, scope, ["numbers"])
    kept = reports.find()
    if kept is not None:
        return kept.numbers
    result = make_report(lake, work, engine, scope, counted=counted)
    if _is_sound(result):
        reports.keep(result.report)
    return result.report


def _is_sound(result: Report) -> bool:
    """Whether no rule or verdict failed: such a report is not cached, as it may succeed later."""
    failed = result.report[VERDICTS]["total"]["failed"] if VERDICTS in result.report else 0
    return not result.judgement.problems and not failed


def _kept_reports(
    lake: Lake, counted: Counted, work: Path, scope: Scope, beside: Sequence[object]
) -> KeptReports:
    """The cache of reports of an open lake, for one request.

    beside: further values that determine the report's text.
    """
    digests = digests_of(lake.captures) if scope.captures else counted.digests
    queries: Queries = {**catalogue(), **rule_queries()}
    # `counted` has the captures of the scope; sets are sorted, as they have no order.
    request = [
        sorted(counted.digests.items()), sorted(counted.twice.items()), bool(scope.captures),
        repr(scope._replace(captures=(), rules=frozenset())), sorted(scope.rules),
        [query.digest for query in queries.values()], *beside,
    ]  # fmt: skip
    return KeptReports(lake.folder, work, digests, request)
