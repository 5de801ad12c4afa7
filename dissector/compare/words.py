"""A comparison in words: the same for terminal, Markdown and page."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.compare.comparing import BETTER, NO_EVIDENCE, NOT_COMPARABLE, WORSE
from dissector.report.words import count_text, duration_text, many, share_text

Row = dict[str, Any]
ALL_TOPICS: Final = "all topics"
HEADINGS: Final = ("verdict", "metric", "before", "after", "change", "interval", "measured")
# Those that say something come first.
_ORDER: Final = (WORSE, BETTER, NO_EVIDENCE)


class Line(NamedTuple):
    """A row of the table, as texts; topic: as the wire has it."""

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
        """What stands below the headings."""
        return self[:-1]


def headline(found: Row) -> str:
    """What came of it, in one sentence."""
    counts, tests = found["verdicts"], found["tests"]
    if not tests:
        return "Nothing could be tested: the runs are too short, or share nothing."
    share = f"{found['confidence'] * 100:g} %"
    changed = [f"{count_text(counts[name])} {name}" for name in (WORSE, BETTER) if counts[name]]
    if not changed:
        return (
            f"No evidence of a change in {many(tests, 'independent comparison')}: equal runs look "
            f"like this. What the intervals hold is still possible, at {share} confidence."
        )
    number = sum(counts[name] for name in (WORSE, BETTER, "no_evidence"))
    return (
        f"{' and '.join(changed)}, of {many(number, 'metric')} that could be tested, at {share} "
        "confidence for all of them together."
    )


def lines(found: Row) -> Iterator[Line]:
    """The rows that were tested: all topics, then each; changes first."""
    topics = dict.fromkeys(row["topic"] for row in found["metrics"])
    for topic in topics:
        for verdict in _ORDER:
            for row in found["metrics"]:
                if (row["topic"], row["verdict"]) == (topic, verdict):
                    yield _line(row)


def left_out(found: Row) -> Iterator[tuple[str, list[str]]]:
    """Why metrics could not be compared, and which ones."""
    reasons: dict[str, list[str]] = {}
    for row in found["metrics"]:
        if row["verdict"] == NOT_COMPARABLE:
            topic = f" ({row['topic']})" if row["topic"] is not None else ""
            reasons.setdefault(row["reason"], []).append(f"{row['metric']}{topic}")
    yield from reasons.items()


def _line(row: Row) -> Line:
    before, after = row["before"], row["after"]
    return Line(
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
    return share_text(value) if unit == "share" else f"{value:,.4g} /s"


def _measured(side: Row, row: Row) -> str:
    if side["count"] is None:
        return "?"
    if row["unit"] == "share" and not float(side["part"]).is_integer():
        return f"{side['part']:,.1f} of {side['count']:,.1f}"
    if row["unit"] == "share":
        return f"{side['part']:,.0f} of {side['count']:,.0f}"
    return f"{side['count']:,.0f}"


def change_text(row: Row) -> str:
    """The difference: as percent of the value before, else in its own unit."""
    if row["difference"] == 0:
        return "none"
    if row["difference_percent"] is not None:
        return _percent(row["difference_percent"])
    return _own(row["difference"], row["unit"])


def interval_text(row: Row) -> str:
    """What the change may be."""
    if row["interval_percent"] is not None:
        return " to ".join(_percent(each) for each in row["interval_percent"])
    return " to ".join(_own(each, row["unit"]) for each in row["interval"])


def _percent(value: float) -> str:
    if abs(value) >= 1000:
        return f"×{value / 100 + 1:,.3g}"
    return "0 %" if value == 0 else f"{value:+.3g} %"


def _own(value: float, unit: str) -> str:
    """A difference in the unit of the metric; shares in points of percent."""
    if unit == "share":
        return "0 points" if value == 0 else f"{value * 100:+.3g} points"
    if value == 0:
        return "0"
    return f"{'+' if value > 0 else '-'}{value_text(abs(value), unit)}"
