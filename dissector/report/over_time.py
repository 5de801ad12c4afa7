"""The table over time: counts, latencies, permits and unacked messages per step of capture time.

An event counts in the step of its time, a send's latency in the step of the send. So a step's row
is the same in the table of a whole capture and of a part of its time.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from dissector.errors import UsageError
from dissector.lake.reader import Lake
from dissector.limits import MAX_STEPS, MAX_STEPS_CHOSEN
from dissector.queries.catalogue import views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selection import Selection
from dissector.report.aggregation_cache import join_captures, survey_captures
from dissector.report.counted_captures import captures_that_count
from dissector.report.numbers import Row, instant, milliseconds, step_ns
from dissector.report.partitions import tables_of

COUNTED: Final = (
    "sends", "receipts", "refused", "deliveries", "acks", "opened", "closed", "lost_bytes",
)  # fmt: skip
HELD: Final = ("permits", "unacked")
_LEVELS: Final = (*HELD, "permits_known")


class Steps(NamedTuple):
    """Steps of equal width that cover [first_ns, until_ns); both may lie inside a step."""

    width_ns: int
    first_ns: int
    until_ns: int

    def begins(self) -> range:
        """The begin of each step, ns."""
        first = self.first_ns // self.width_ns
        return range(
            first * self.width_ns,
            -(-self.until_ns // self.width_ns) * self.width_ns,
            self.width_ns,
        )


def over_time(
    lake: Lake,
    work: Path,
    threads: int | None,
    captures: Sequence[str],
    selection: Selection,
    width_ns: int | None = None,
) -> Row:
    """The table over the captures' time, or its selected part.

    Args:
        work: a folder of the caller. width_ns: of a step; None: chosen for a short table.

    Raises:
        UsageError: there would be more than MAX_STEPS steps.
    """
    lake, digests, _ = captures_that_count(lake, captures)
    read = survey_captures(lake, digests, None, work)
    spans = _spans(read.known.files.to_pylist())
    if not spans:
        return {"step_ms": None, "rows": []}
    steps = _steps(spans, selection, width_ns)
    with DuckdbEngine(work, threads) as db:
        closed = join_captures(db, read, read.captures, work)
        whole = selection._replace(since_ns=None, until_ns=None)
        tables_of(read, read.captures, closed, whole).open(db)
        for view in views("over_time.sql"):
            db.view(view.name, view.query)
        counts = _rows(db, _COUNTS, steps)
        latencies = _rows(db, _LATENCIES, steps)
        changes = _rows(db, _CHANGES, steps._replace(first_ns=-(1 << 62)))
    rows = _table(steps, spans, counts, latencies, changes)
    return {"step_ms": milliseconds(steps.width_ns), "rows": rows}


_STEP: Final = "floor_div(at_ns, {width}) * {width}"
_WHEN: Final = "at_ns >= {first} AND at_ns < {until}"
_COUNTS: Final = (
    f"SELECT {_STEP} AS step, measure, CAST(sum(times) AS BIGINT) AS times FROM happenings "
    f"WHERE {_WHEN} GROUP BY ALL"
)
_LATENCIES: Final = (
    f"SELECT {_STEP} AS step, quantile_disc(latency_ns, 0.5) AS p50, "
    "quantile_disc(latency_ns, 0.99) AS p99 "
    "FROM (SELECT request_last_ns AS at_ns, latency_ns FROM publishes WHERE is_timed) AS timed "
    f"WHERE {_WHEN} GROUP BY ALL"
)
_CHANGES: Final = (
    f"SELECT {_STEP} AS step, "
    + ", ".join(
        f"CAST(sum({name}) AS BIGINT) AS {name}" for name in _LEVELS
    )
    + f" FROM levels WHERE {_WHEN} GROUP BY ALL ORDER BY step"
)  # fmt: skip


def _rows(db: DuckdbEngine, query: str, steps: Steps) -> list[Row]:
    limits = {"width": steps.width_ns, "first": steps.first_ns, "until": steps.until_ns}
    rows: list[Row] = db.table(query.format(**limits)).to_pylist()
    return rows


def _spans(files: Iterable[Row]) -> list[tuple[int, int]]:
    """The times of the first and last packet of each capture."""
    spans: dict[str, tuple[int, int]] = {}
    for file in files:
        first, last = file["first_ts_ns"], file["last_ts_ns"]
        if first is not None and last is not None:
            low, high = spans.get(file["capture"], (first, last))
            spans[file["capture"]] = min(low, first), max(high, last)
    return list(spans.values())


def _steps(spans: Sequence[tuple[int, int]], selection: Selection, width_ns: int | None) -> Steps:
    first, until = min(low for low, _ in spans), max(high for _, high in spans) + 1
    if selection.since_ns is not None:
        first = max(first, selection.since_ns)
    if selection.until_ns is not None:
        until = min(until, selection.until_ns)
    first = min(first, until - 1)
    steps = Steps(width_ns or step_ns(first, until - 1, MAX_STEPS_CHOSEN), first, until)
    if len(steps.begins()) > MAX_STEPS:
        raise UsageError(
            f"--over-time: {len(steps.begins()):,} steps are too many, {MAX_STEPS:,} the most: "
            "write a longer step, or select a time with --since"
        )
    return steps


def _table(
    steps: Steps,
    spans: Sequence[tuple[int, int]],
    counts: Iterable[Row],
    latencies: Iterable[Row],
    changes: Sequence[Row],
) -> list[Row]:
    counted = {(row["step"], row["measure"]): row["times"] for row in counts}
    timed = {row["step"]: row for row in latencies}
    held = _held(steps, changes)
    rows = []
    for begin in steps.begins():
        is_captured = any(low < begin + steps.width_ns and high >= begin for low, high in spans)
        latency = timed.get(begin, {})
        row: Row = {"ts": instant(begin), "ts_ns": begin, "is_captured": is_captured}
        row |= {name: counted.get((begin, name), 0 if is_captured else None) for name in COUNTED}
        row["latency_ms"] = {name: milliseconds(latency.get(name)) for name in ("p50", "p99")}
        level = next(held)
        rows.append(row | (level if is_captured else dict.fromkeys(HELD)))
    return rows


def _held(steps: Steps, changes: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Permits and unacked messages at each step's end; permits None while no balance is known."""
    sums = dict.fromkeys(_LEVELS, 0)
    left = iter(changes)
    change = next(left, None)
    for begin in steps.begins():
        while change is not None and change["step"] <= begin:
            sums = {name: value + change[name] for name, value in sums.items()}
            change = next(left, None)
        permits = sums["permits"] if sums["permits_known"] else None
        yield {"permits": permits, "unacked": sums["unacked"]}
