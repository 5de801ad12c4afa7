"""Final arithmetic: from integer sums to the numbers that a report prints. Nothing here reads rows.

Sums stay integers until the last step. Durations are milliseconds with three decimals, shares have
six. A share of nothing and a percentile of nothing are None, never 0.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from dissector.buckets import bucket_middle
from dissector.limits import MAX_CURVE_POINTS

Row = dict[str, Any]
# Name and per-mille rank of each percentile: the least value that this share does not exceed.
PERCENTILES: Final = (("p50", 500), ("p90", 900), ("p95", 950), ("p99", 990), ("p999", 999))
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000
US_PER_MS: Final = 1_000
NS_PER_S: Final = 1_000_000_000
NS_PER_MINUTE: Final = 60 * NS_PER_S
_SECOND: Final = 19  # letters of a time up to its second

# Steps of a series over time, each a multiple of the one before, so that finer cells add up to
# coarser ones exactly; the finest that needs no more than MAX_CURVE_POINTS is used.
STEPS_MS: Final = (
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000,
    21_600_000, 86_400_000, 864_000_000, 8_640_000_000, 864_000_000_000,
)  # fmt: skip

# Outcomes of sends and requests whose answer the capture does not show.
UNKNOWN: Final = {
    "lost_in_gap": "the answer may lie in bytes that are missing",
    "response_cut": "the answer is not whole in the capture",
    "other_side_not_captured": "the direction of the answers was not captured",
    "evicted": "too many waited for an answer, these were given up",
}
READABLE: Final = ("ok", "dup_or_dropped", "error")  # outcomes by an answer that could be read
# Outcomes of requests whose latency cannot be known.
NOT_EVALUATED: Final = ("unanswered_at_end", *UNKNOWN, "orphan_response")


def answered(outcomes: Mapping[str, int]) -> int:
    """The number of sends with an answer: a receipt, one for a duplicate, or a refusal."""
    return sum(outcomes.get(name, 0) for name in (*READABLE, "response_cut"))


def rounded(numerator: int, denominator: int) -> int:
    """numerator / denominator as the nearest integer, halves upwards, without floating point."""
    return (2 * numerator + denominator) // (2 * denominator)


def milliseconds(duration_ns: int | None) -> float | None:
    """Nanoseconds as milliseconds with three decimals."""
    return None if duration_ns is None else rounded(duration_ns, NS_PER_US) / 1000


def share(part: int, whole: int) -> float | None:
    """part / whole with six decimals; None where there is no whole."""
    return None if whole == 0 else rounded(part * 1_000_000, whole) / 1_000_000


def instant(time_ns: int | None) -> str | None:
    """A time as ISO 8601 text, UTC with microseconds; None if it is out of the calendar's range."""
    if time_ns is None:
        return None
    seconds, rest_ns = divmod(time_ns, NS_PER_S)
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return f"{at.isoformat()[:_SECOND]}.{rest_ns // 1000:06d}Z"  # `strftime` takes twice as long


def moment_text(time_ns: int) -> str:
    """`instant` of a time; out of the calendar's range, the number with its unit."""
    return instant(time_ns) or f"{time_ns} ns"


def step_ns(first_ns: int, last_ns: int, points: int = MAX_CURVE_POINTS) -> int:
    """The step of a series from first to last, ns: the finest that gives at most `points`."""
    for step in STEPS_MS:
        width = step * NS_PER_MS
        if last_ns // width - first_ns // width < points:
            return width
    return STEPS_MS[-1] * NS_PER_MS


def quantiles_ns(
    buckets: Mapping[int, int], permilles: Sequence[int], low_ns: int, high_ns: int
) -> list[int]:
    """For each rank, the middle of the bucket of that rank's value; the value itself if it is the
    least or the greatest, as p99 is of fewer than 100.

    Args:
        buckets: number of values per histogram bucket, not all 0.
        low_ns, high_ns: the least and the greatest value.
    """
    ordered = sorted(buckets)
    passed = list(accumulate(buckets[bucket] for bucket in ordered))
    ranks = (max(1, -(-passed[-1] * permille // 1000)) for permille in permilles)
    known = {1: low_ns, passed[-1]: high_ns}
    return [
        known[rank]
        if rank in known
        else min(max(bucket_middle(ordered[bisect_left(passed, rank)]), low_ns), high_ns)
        for rank in ranks
    ]


def durations(
    buckets: Mapping[int, int],
    sum_ns: int,
    low_ns: int | None,
    high_ns: int | None,
    exact: Row | None = None,
) -> Row:
    """{count, min, p50, p90, p95, p99, p999, max, mean} in ms; all but count None where empty.

    Args:
        buckets: number of values per histogram bucket.
        sum_ns, low_ns, high_ns: of the values themselves, so that mean, min and max are exact.
        exact: percentiles in ns by name, where they were computed from the values themselves.
    """
    count = sum(buckets.values())
    if count == 0 or low_ns is None or high_ns is None:
        names = ("min", *(name for name, _ in PERCENTILES), "max", "mean")
        return {"count": 0, **dict.fromkeys(names)}
    if exact is None:
        permilles = [permille for _, permille in PERCENTILES]
        values = quantiles_ns(buckets, permilles, low_ns, high_ns)
    else:
        values = [int(exact[name]) for name, _ in PERCENTILES]
    statistics: Row = {"count": count, "min": milliseconds(low_ns)}
    for (name, _), value in zip(PERCENTILES, values, strict=True):
        statistics[name] = milliseconds(value)
    statistics["max"] = milliseconds(high_ns)
    # The mean is divided once, at the end.
    statistics["mean"] = rounded(sum_ns, count * NS_PER_US) / 1000
    return statistics


def histogram(rows: Iterable[Row], count: str) -> dict[int, int]:
    """The histogram of rows with a bucket. count: column of the number of values of a row."""
    buckets: dict[int, int] = {}
    for row in rows:
        if row["bucket"] is not None and row[count]:
            buckets[row["bucket"]] = buckets.get(row["bucket"], 0) + row[count]
    return buckets


def timed(rows: Sequence[Row], count: str, what: str, exact: Row | None = None) -> Row:
    """`durations` of an aggregation's rows. count: column of the number of timed values; what:
    column of their sum, ns, and prefix of those of their minimum and maximum."""
    return durations(
        histogram(rows, count),
        sum(row[what] for row in rows),
        low(row[f"{what}_min"] for row in rows),
        high(row[f"{what}_max"] for row in rows),
        exact,
    )


def counts_by(rows: Iterable[Row], key: str, count: str) -> dict[str | None, int]:
    """Sums of the column `count` by the values of the column `key`."""
    counts: dict[str | None, int] = {}
    for row in rows:
        counts[row[key]] = counts.get(row[key], 0) + row[count]
    return counts


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by their values in some columns, groups in the order of their first rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def by_time(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """Rows in the order of their times and frames; the text `ts` replaces the time `at_us`.

    Args:
        names: columns to keep; include `at_us`, `capture` and `frame_no`.
    """
    kept = [{name: row[name] for name in names} for row in rows]
    kept.sort(key=lambda row: nulls_last(row["at_us"], row["capture"], row["frame_no"]))
    for row in kept:
        at_us = row.pop("at_us")  # None: its packet has no timestamp
        row["ts"] = None if at_us is None else instant(at_us * NS_PER_US)
    return kept


def low(values: Iterable[int | None]) -> int | None:
    """The least of the known values."""
    return min((value for value in values if value is not None), default=None)


def high(values: Iterable[int | None]) -> int | None:
    """The greatest of the known values."""
    return max((value for value in values if value is not None), default=None)


def nulls_last(*values: Any) -> tuple[tuple[bool, Any], ...]:
    """A sort key of values that may be None; None sorts last."""
    return tuple((value is None, "" if value is None else value) for value in values)


def unseen(row: Row, *keys: str) -> Row:
    """A row with None for the counts `keys`, which need a direction that was not captured."""
    return row | {key: None for key in keys if key in row}


def applicable(row: Row, reason: str | None) -> Row:
    """A row with `not_applicable`: why none of its numbers exist. All of them are None then, as 0
    would say that something was counted. reason: None if they exist.
    """
    return (row if reason is None else _emptied(row)) | {"not_applicable": reason}


def _emptied(row: Row) -> Row:
    return {key: _emptied(value) if isinstance(value, dict) else None for key, value in row.items()}


def known(counts: Mapping[str | None, int]) -> dict[str, int]:
    """Counts by name, sorted, without zeros; the name None or "" becomes `unknown`."""
    named: dict[str, int] = {}
    for name, count in counts.items():
        if count:
            named[name or "unknown"] = named.get(name or "unknown", 0) + count
    return dict(sorted(named.items()))
