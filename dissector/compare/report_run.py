"""Reads one run of a comparison from a report.json, which has only aggregated numbers.

It has percentiles and rates as values. For sends it also has points in time with count and mean:
these serve as blocks, so the mean latency and the messages per second can be tested. All other
metrics can only be shown.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from dissector.compare.blocks import CellSeries, seconds_between
from dissector.compare.runs import MetricKey, Run
from dissector.errors import InputError
from dissector.report.numbers import NS_PER_MS, NS_PER_S

Json = dict[str, Any]
_NAME: Final = "report.json"
_PERCENTILES: Final = ("p50", "p95", "p99", "mean")
_UNANSWERED: Final = ("conn_closed", "dropped_after_close", "unanswered_at_end")
_JUDGED: Final = ("ok", "dup_or_dropped", "error", *_UNANSWERED)
_MINUTE_MS: Final = 60_000.0


def report_file(path: Path) -> Path | None:
    """The report.json at a path or in the folder at a path; None if there is none."""
    file = path / _NAME if path.is_dir() else path
    is_named = path.is_dir() or path.suffix == ".json"
    return file if is_named and file.is_file() else None


def run_of_report(file: Path, name: str, topics: Sequence[str] = ()) -> Run:
    """Read a run from a report.

    Args:
        name: the user's name for it. topics: full names of the wanted topics, empty for all.

    Raises:
        InputError: the file is no report, or it has no numbers.
    """
    try:
        report = json.loads(file.read_bytes())
        total = report["coverage"]["total"]
        numbers = dict(_numbers(report))
        series = dict(_series(report))
        names = {row["topic"]: row["sends"] or 0 for row in report["send_latency"]["by_topic"]}
        if topics:
            names = {topic: count for topic, count in names.items() if topic in topics}
            numbers = {key: value for key, value in numbers.items() if key[1] in names}
            series = {key: cell_series for key, cell_series in series.items() if key[1] in names}
        digests = frozenset(source["sha256"] for source in report["sources"] if source["sha256"])
        if not total["frames"]:
            raise InputError(f"{name}: no frame of Pulsar or Cursus in it, so nothing to compare")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{name}: is no report of this program, or one of another version: dissector report "
            "writes one"
        ) from error
    topics_known = {topic: count for topic, count in names.items() if topic is not None}
    return Run(name, total, {}, series, numbers, topics_known, digests, is_report=True)


def _numbers(report: Json) -> Iterator[tuple[MetricKey, float]]:
    """The report's value of each metric."""
    sends = report["send_latency"]
    for topic, row in _of_topics(sends):
        for measure, key in (
            ("send_latency", "latency_ms"), ("logical_latency", "logical_latency_ms"),
            ("transmit", "transmit_ms"),
        ):  # fmt: skip
            yield from _durations(measure, topic, row[key])
        outcomes = row["outcomes"] or {}
        judged = sum(outcomes.get(name, 0) for name in _JUDGED)
        if judged:
            yield ("sends_refused", topic), outcomes.get("error", 0) / judged
            lost = sum(outcomes.get(name, 0) for name in _UNANSWERED)
            yield ("sends_unanswered", topic), lost / judged
        if row["sends"]:
            yield ("sends_resent", topic), row["resent"] / row["sends"]
    transits, acks = report["publish_to_delivery"]["total"], report["ack_latency"]["total"]
    yield from _durations("publish_to_delivery", None, transits["transit_ms"])
    yield from _durations("ack_latency", None, acks["ack_latency_ms"])
    for row in report["requests"]["by_command"]:
        if row["kind"] not in ("publish", "ping") and row["request_command"]:
            measure = f"request_latency.{row['request_command']}"
            yield from _durations(measure, None, row["latency_ms"])
    for section, key, name in (
        ("redelivery", "rate_entries", "redeliveries"),
        ("checksum_failures", "rate", "checksum_failures"),
    ):
        for topic, row in _of_topics(report[section]):
            if row[key] is not None:
                yield (name, topic), row[key]
    if report["permit_utilization"]["total"]["exhausted_share"] is not None:
        share = report["permit_utilization"]["total"]["exhausted_share"]
        yield ("permits_exhausted", None), share


def _of_topics(section: Json) -> Iterator[tuple[str | None, Json]]:
    yield None, section["total"]
    for row in section["by_topic"]:
        if row["topic"] is not None:
            yield row["topic"], row


def _durations(measure: str, topic: str | None, latency: Json) -> Iterator[tuple[MetricKey, float]]:
    for name in _PERCENTILES:
        if latency[name] is not None:
            yield (f"{measure}.{name}", topic), latency[name] * NS_PER_MS


def _series(report: Json) -> Iterator[tuple[MetricKey, CellSeries]]:
    """Send latency means and messages per second, from points in time."""
    sends = report["send_latency"]
    over_time = sends["total"]["over_time"]
    if over_time is not None and over_time["points"]:
        span = _span_ns(sends["total"])
        yield from _of_points(None, over_time["points"], "ts", over_time["step_ms"], span)
    for topic, row in _of_topics(sends):
        if topic is not None and row["per_minute"]:
            yield from _of_points(topic, row["per_minute"], "minute", _MINUTE_MS, _span_ns(row))


def _span_ns(sends: Json) -> tuple[int, int]:
    """The times of the first and last sent message; equal times if unknown."""
    texts = (sends.get("first_message_ts"), sends.get("last_message_ts"))
    first, last = (0 if text is None else _ns(text) for text in texts)
    return first, last


def _ns(text: str) -> int:
    """A time of a report in ns since 1970."""
    seconds, _, digits = text.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp())
    return whole * NS_PER_S + int(digits.ljust(9, "0"))


def _of_points(
    topic: str | None,
    points: Sequence[Json],
    key: str,
    step_ms: float,
    span_ns: tuple[int, int],
) -> Iterator[tuple[MetricKey, CellSeries]]:
    counts = np.array([point["latencies"] for point in points], float)
    if counts.any():
        means = np.array([point["mean_ms"] or 0 for point in points], float)
        is_there = counts > 0
        series = CellSeries((means * NS_PER_MS * counts)[is_there], counts[is_there])
        yield ("send_latency.mean", topic), series
    width_ns = step_ms * NS_PER_MS
    times = np.array([_ns(point[key]) for point in points])
    steps = np.rint((times - times[0]) / width_ns).astype(int)
    messages = np.zeros(steps[-1] + 1)
    messages[steps] = [point["messages"] for point in points]
    begins = times[0] + np.arange(len(messages)) * width_ns
    yield (
        ("messages_sent", topic),
        CellSeries(messages, seconds_between(begins, width_ns, *span_ns)),
    )
