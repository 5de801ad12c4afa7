"""The texts of a comparison, shared by terminal, Markdown and page."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.compare.comparing import BETTER, NO_EVIDENCE, NOT_COMPARABLE, WORSE
from dissector.compare.runs import RATIOS
from dissector.report.formatting import count_text, duration_text, many, share_text
from dissector.schemas.quantities import amount_text

Row = dict[str, Any]
ALL_TOPICS: Final = "all topics"
HEADINGS: Final = ("verdict", "metric", "before", "after", "change", "interval", "measured")
# The order of verdicts: changes first.
_ORDER: Final = (WORSE, BETTER, NO_EVIDENCE)


class ResultLine(NamedTuple):
    """A row of the table as texts; topic: unescaped, from the wire."""

    verdict: str
    metric: str
    before: str
    after: str
    change: str
    interval: str
    measured: str
    topic: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells in the order of the headings."""
        return self[:-1]


def headline(comparison: Row) -> str:
    """The result in one sentence."""
    counts, tests = comparison["verdicts"], comparison["tests"]
    if not tests:
        return "Nothing could be tested: the runs are too short, or share nothing."
    share = f"{comparison['confidence'] * 100:g} %"
    changed = [f"{count_text(counts[name])} {name}" for name in (WORSE, BETTER) if counts[name]]
    if not changed:
        return (
            f"No evidence of a change in {many(tests, 'metric')}: equal runs look like this. What "
            f"the intervals hold is still possible, at {share} confidence for all of them."
        )
    return (
        f"{' and '.join(changed)}, of {many(tests, 'metric')} that could be tested, at {share} "
        "confidence for all of them together."
    )


def lines(comparison: Row) -> Iterator[ResultLine]:
    """The tested rows, as texts."""
    return map(_line, rows_in_order(comparison))


def rows_in_order(comparison: Row) -> Iterator[Row]:
    """The tested rows without repeats: all topics, then each topic; changes first."""
    rows = [row for row in comparison["metrics"] if row["same_as"] is None]
    for topic in dict.fromkeys(row["topic"] for row in rows):
        for verdict in _ORDER:
            for row in rows:
                if (row["topic"], row["verdict"]) == (topic, verdict):
                    yield row


def repeats(comparison: Row) -> Iterator[str]:
    """Sentences on rows with the numbers of other rows: one per measure or whole topic."""
    sentences: dict[str, None] = {}
    for topic in dict.fromkeys(row["topic"] for row in comparison["metrics"]):
        rows = [row for row in comparison["metrics"] if row["topic"] == topic]
        if topic is not None and all(_is_overall(row) for row in rows):
            sentences[f"{topic}: the numbers of {ALL_TOPICS}"] = None
            continue
        for row in rows:
            if row["same_as"] is not None:
                what, of = _measure(row["metric"]), row["same_as"]
                other = _measure(of["metric"])
                topics = topic or ALL_TOPICS
                if of["topic"] != topic:
                    other = ALL_TOPICS if other == what else f"{other} of {ALL_TOPICS}"
                sentences[f"{what} ({topics}): the numbers of {other}"] = None
    yield from sentences


def _is_overall(row: Row) -> bool:
    """Whether a topic's row only repeats the row of all topics, or has nothing to test."""
    if row["same_as"] is None:
        return bool(row["verdict"] == NOT_COMPARABLE)
    return True


def _measure(metric: str) -> str:
    """The name of a metric without its statistic."""
    return metric if metric in RATIOS else metric.rpartition(".")[0]


def left_out(comparison: Row) -> Iterator[tuple[str, list[str]]]:
    """The reasons for uncompared metrics, with their names; a measure covers its statistics."""
    rows = [
        row
        for row in comparison["metrics"]
        if row["verdict"] == NOT_COMPARABLE and row["same_as"] is None
    ]
    known = {
        (_measure(row["metric"]), row["topic"])
        for row in comparison["metrics"]
        if row["verdict"] != NOT_COMPARABLE
    }
    reasons: dict[str, list[str]] = {}
    for row in rows:
        name, is_whole = row["metric"], (_measure(row["metric"]), row["topic"]) not in known
        if is_whole and name not in RATIOS:
            if not name.endswith(".mean"):
                continue
            name = _measure(name)
        topic = f" ({row['topic']})" if row["topic"] is not None else ""
        reasons.setdefault(row["reason"], []).append(f"{name}{topic}")
    yield from reasons.items()


def _line(row: Row) -> ResultLine:
    before, after = row["before"], row["after"]
    return ResultLine(
        row["verdict"],
        row["metric"],
        value_text(before["value"], row["unit"]),
        value_text(after["value"], row["unit"]),
        change_text(row),
        interval_text(row),
        f"{_measured(before, row)} / {_measured(after, row)} {row['of']}",
        ALL_TOPICS if row["topic"] is None else row["topic"],
    )


def value_text(value: float | None, unit: str) -> str:
    """A value with its unit."""
    if value is None:
        return "not known"
    if unit == "ms":
        return duration_text(value)
    return share_text(value) if unit == "share" else f"{amount_text(value)} /s"


def _measured(side: Row, row: Row) -> str:
    if side["count"] is None:
        return "?"
    count = amount_text(side["count"], 3)
    return f"{amount_text(side['part'], 3)} of {count}" if row["unit"] == "share" else count


def change_text(row: Row) -> str:
    """The difference, in percent of the value before or else in its unit."""
    if row["difference"] == 0:
        return "none"
    if row["difference_percent"] is not None:
        return _percent(row["difference_percent"])
    return _own(row["difference"], row["unit"])


def interval_text(row: Row) -> str:
    """The interval of the change."""
    if row["interval_percent"] is not None:
        return " to ".join(_percent(each) for each in row["interval_percent"])
    return " to ".join(_own(each, row["unit"]) for each in row["interval"])


def _percent(value: float) -> str:
    if abs(value) >= 1000:
        return f"{amount_text(value / 100 + 1, 3)} times"
    return f"{_signed(value)} %"


def _own(value: float, unit: str) -> str:
    """A difference in the metric's unit; shares in percentage points."""
    if unit == "share":
        return f"{_signed(value * 100)} points"
    if value == 0:
        return "0"
    return f"{'+' if value > 0 else '-'}{value_text(abs(value), unit)}"


def _signed(value: float) -> str:
    sign = "" if value == 0 else "+" if value > 0 else "-"
    return f"{sign}{amount_text(abs(value), 3)}"
