"""Reads one run of a comparison from the tables of a lake, with DuckDB.

Events are counted per cell of time and value, so that memory does not grow with the run. Values are
precise to one in a thousand (10 bits after the first), 32 times finer than the histograms of
reports: a percentile that moves by one percent moves visibly.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.compare.blocks import CellSeries, Floats, seconds_between
from dissector.compare.runs import CELLS, RATIOS, MetricKey, Run
from dissector.compare.testing import Values
from dissector.errors import InputError, NothingMatchesError
from dissector.lake.reader import Lake
from dissector.queries.catalogue import catalogue, views
from dissector.queries.duckdb_engine import DuckdbEngine, quoted
from dissector.queries.selection import Selection
from dissector.report.aggregation_cache import join_captures, survey_captures, with_plain_types
from dissector.report.counted_captures import Log, captures_that_count
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import NS_PER_S
from dissector.report.partitions import Inputs, tables_of
from dissector.report.sections.coverage import coverage

# Values below 2048 ns are exact; others are rounded to the middle of one of 1024 steps per octave.
_FINE: Final = "greatest(histogram_octave(value_ns) - 5, 0)"
_ROUNDED: Final = f"((value_ns >> {_FINE}) << {_FINE}) + ((1 << {_FINE}) >> 1)"
_COVERAGE: Final = (
    "connections", "unfinished", "frames", "notices", "capture_notices", "directions",
)  # fmt: skip
_RATES: Final = tuple(name for name, metric in RATIOS.items() if metric.unit == "per_s")


class Clock:
    """Maps times of a run to cells. spans: first and last packet of each capture, ns."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        known = sorted(span for span in spans if span != (0, 0)) or [(0, 0)]
        self.first_ns = known[0][0]
        joined = [known[0]]
        for first, last in known[1:]:
            if first <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        self.width_ns = max(-(-sum(last - first for first, last in joined) // CELLS), 1)
        self._ranges = [(self.cell(first), self.cell(last)) for first, last in joined]

    def cell(self, at_ns: int) -> int:
        """The cell of a time."""
        return (at_ns - self.first_ns) // self.width_ns

    def between(self, first: int, last: int) -> Floats:
        """The cells from `first` to `last` that a capture covers, ascending."""
        ranges = [(max(first, low), min(last, high)) for low, high in self._ranges]
        cells = [np.arange(low, high + 1, dtype=np.float64) for low, high in ranges if low <= high]
        return np.unique(np.concatenate(cells)) if cells else np.zeros(0)


def run_of_lake(
    lake: Lake,
    name: str,
    work: Path,
    threads: int | None,
    what: Selection,
    log: Log | None = None,
) -> Run:
    """Read a run from an open lake.

    Args:
        name: the user's name for it. work: a temporary folder of the caller.
        log: as of `captures_that_count`.

    Raises:
        InputError: the lake has no recognised traffic, or a file cannot be read.
        UsageError: the lake is empty, or has no events of the selected topics.
    """
    lake, digests, _ = captures_that_count(lake, log=log)
    read = survey_captures(lake, digests, None, work)
    with DuckdbEngine(work, threads) as db:
        closed = join_captures(db, read, read.captures, work)
        tables_of(read, read.captures, closed, what).open(db)
        total = _coverage(db, read)
        if not total["frames"] and not what.is_everything:
            raise NothingMatchesError(
                f"{name}: nothing in it matches{what.words(str)}", what.question
            )
        if not total["frames"]:
            raise InputError(f"{name}: no frame of Pulsar or Cursus in it, so nothing to compare")
        run = taken(db, Clock(list(read.spans.values())), name)
    files = frozenset(file.sha256 for one in lake.captures for file in one.sources if file.sha256)
    return run._replace(coverage=total, digests=files)


def taken(db: DuckdbEngine, clock: Clock, name: str) -> Run:
    """Read a run from an engine with the tables of queries; without coverage and digests."""
    for view in views("comparing.sql"):
        db.view(view.name, view.query)
    values = dict(_values(db, clock))
    series = dict(_series(db, clock))
    series.update(_permits(db, clock))
    topics: dict[str, int] = {}
    counts = [(topic, durations.counts) for (_, topic), durations in values.items()]
    counts += [(topic, cell_series.whole) for (_, topic), cell_series in series.items()]
    for topic, events in counts:
        if topic is not None:
            topics[topic] = topics.get(topic, 0) + int(events.sum())
    return Run(name, {}, values, series, {}, topics, frozenset())


def _coverage(db: DuckdbEngine, read: Inputs) -> dict[str, Any]:
    tables: dict[str, Any] = {"files": read.known.files}
    for name in _COVERAGE:
        query = catalogue()[name]
        tables[name] = with_plain_types(
            db.table(query.merged(f"({query.per_capture()}) AS counted"))
        )
    total: dict[str, Any] = coverage(MergedTables(tables, NS_PER_S, only_totals=True))["total"]
    return total


def _values(db: DuckdbEngine, clock: Clock) -> Iterator[tuple[MetricKey, Values]]:
    """Durations by measure and topic."""
    known = db.table("SELECT DISTINCT measure FROM timed_events ORDER BY measure")
    for measure in known.column(0).to_pylist():
        rows = with_plain_types(db.table(
            f"SELECT topic, {_cell(clock)} AS cell, {_ROUNDED} AS value, count(*) AS number "
            f"FROM timed_events WHERE measure = {quoted(measure)} AND value_ns >= 0 "
            "AND at_ns IS NOT NULL GROUP BY ALL ORDER BY cell, value, topic"
        ))  # fmt: skip
        for topic, taken in _by_topic(rows):
            cells = np.unique(_column(taken, "cell"), return_inverse=True)[1].astype(np.intp)
            durations = Values(cells, _column(taken, "value"), _column(taken, "number"))
            yield (measure, topic), durations


def _series(db: DuckdbEngine, clock: Clock) -> Iterator[tuple[MetricKey, CellSeries]]:
    """Counts by metric and topic."""
    rows = with_plain_types(db.table(
        f"SELECT metric, topic, {_cell(clock)} AS cell, sum(part) AS part, count(*) AS whole, "
        "min(at_ns) AS first_ns, max(at_ns) AS last_ns "
        "FROM counted_events WHERE at_ns IS NOT NULL GROUP BY ALL ORDER BY cell, metric, topic"
    ))  # fmt: skip
    for metric in RATIOS:
        metric_rows = rows.filter(pc.equal(rows.column("metric"), metric))
        for topic, taken in _by_topic(metric_rows):
            cells, indices = np.unique(_column(taken, "cell"), return_inverse=True)
            cell_series = CellSeries(_column(taken, "part"), _column(taken, "whole"))
            cell_series = cell_series.added(indices, len(cells))
            if metric in _RATES:
                span = pc.min(taken.column("first_ns")), pc.max(taken.column("last_ns"))
                cell_series = _paced(clock, cells, cell_series, *(time.as_py() for time in span))
            yield (metric, topic), cell_series


def _paced(
    clock: Clock, cells: Floats, counted: CellSeries, first_ns: int, last_ns: int
) -> CellSeries:
    """Counts per second from the first event to the last; cells in between may be 0."""
    covered = clock.between(int(cells[0]), int(cells[-1]))
    covered = np.union1d(covered, cells)
    part = np.zeros(len(covered))
    part[np.searchsorted(covered, cells)] = counted.part
    begins = clock.first_ns + covered * clock.width_ns
    return CellSeries(part, seconds_between(begins, clock.width_ns, first_ns, last_ns))


def _permits(db: DuckdbEngine, clock: Clock) -> Iterator[tuple[MetricKey, CellSeries]]:
    """Seconds without permits, per second in which a consumer's balance is known."""
    rows = db.table(
        f"SELECT topic, is_exhausted, (from_ns - {clock.first_ns}) / {clock.width_ns} AS begins, "
        f"(until_ns - {clock.first_ns}) / {clock.width_ns} AS ends FROM permit_times"
    )
    for topic, taken in _by_topic(rows):
        begins, ends = _column(taken, "begins"), _column(taken, "ends")
        cells = clock.between(int(begins.min()), int(ends.max()))  # covered by a capture
        is_exhausted = _column(taken, "is_exhausted") > 0
        seconds = partial(_overlaps, cells, clock.width_ns / NS_PER_S)
        whole = seconds(begins, ends)
        part = seconds(begins[is_exhausted], ends[is_exhausted])
        is_there = whole > 0
        if is_there.any():
            yield ("permits_exhausted", topic), CellSeries(part[is_there], whole[is_there])


def _overlaps(cells: Floats, width_s: float, begins: Floats, ends: Floats) -> Floats:
    """Seconds of spans (in cells) that fall into each cell."""

    def passed(at: Floats) -> Floats:
        """The total length of all spans before a time."""
        lengths = np.zeros(len(at))
        for edges, sign in ((np.sort(begins), 1.0), (np.sort(ends), -1.0)):
            number = np.searchsorted(edges, at)
            sums = np.concatenate([[0.0], np.cumsum(edges)])
            lengths += sign * (number * at - sums[number])
        return lengths

    seconds: Floats = np.maximum(passed(cells + 1) - passed(cells), 0) * width_s
    return seconds


def _cell(clock: Clock) -> str:
    return f"floor_div(at_ns - {clock.first_ns}, {clock.width_ns})"


def _by_topic(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """Yield all rows, then those of each topic in order; rows without a topic are only in all."""
    if not rows.num_rows:
        return
    yield None, rows
    names = rows.column("topic").combine_chunks().dictionary_encode()
    codes = names.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    for topic, begin, end in zip(names.dictionary.to_pylist(), ends[:-1], ends[1:], strict=True):
        yield topic, rows.take(order[begin:end])


def _column(rows: pa.Table, name: str) -> Floats:
    column: Floats = rows.column(name).cast(pa.float64()).to_numpy()
    return column
