"""The questions of a comparison: each metric, overall and per topic, with both runs' values."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.compare.blocks import BlockCut, CellSeries, cut
from dissector.compare.runs import LATENCIES, RATIOS, STATISTICS, Metric, MetricKey, Run, metric_of
from dissector.compare.testing import Ranked, Values
from dissector.errors import UsageError

MIN_BEYOND: Final = 5  # least number of values above a percentile, per run
_NO_VALUES: Final = "a report holds no values of single events: compare captures or lakes"


class Choice(NamedTuple):
    """The user's choice.

    metrics: names, or prefixes up to a dot; empty for all.
    least: a change below this share of the value before counts as unchanged.
    """

    confidence: float = 0.95
    metrics: tuple[str, ...] = ()
    least: float = 0.0

    def wants(self, name: str) -> bool:
        """Whether a metric is chosen."""
        return not self.metrics or any(
            name == wanted or name.startswith(f"{wanted}.") for wanted in self.metrics
        )


EVERYTHING: Final = Choice()


def must_be_metrics(names: Sequence[str]) -> None:
    """Check names of metrics.

    Raises:
        UsageError: a name is unknown; the text lists the metrics.
    """
    for name in names:
        first, *more = name.split(".")
        if more and more[-1] in STATISTICS:
            more.pop()
        is_request = first == "request_latency"
        if not (name in RATIOS or (first in LATENCIES and len(more) <= is_request)):
            known = ", ".join((*LATENCIES, *RATIOS))
            raise UsageError(
                f"--metric: there is no {name}; there are {known}; of latencies also one of "
                f"{', '.join(STATISTICS)} behind a dot"
            )


class RunPair(NamedTuple):
    """A metric of both runs, in blocks. share, runs: a percentile and its values, else None."""

    share: float | None
    cut: BlockCut
    blocks: tuple[CellSeries, CellSeries]
    runs: tuple[Values, Values] | None = None

    @property
    def is_constant(self) -> bool:
        """Whether all blocks of both runs have the same ratio."""
        part, whole = (np.concatenate(columns) for columns in zip(*self.blocks, strict=True))
        return not (part * whole.sum() - whole * part.sum()).any()


class Question:
    """A metric of one topic or of all: the values of both runs, and whether they differ.

    reason: why it cannot be tested, "" if it can.
    alike: equal for questions with the same numbers, which are tested once.
    """

    def __init__(self, metric: Metric, topic: str | None) -> None:
        self.metric, self.topic = metric, topic
        self.values: list[float | None] = [None, None]
        self.wholes: list[float | None] = [None, None]
        self.parts: list[float | None] = [None, None]
        self.pair: RunPair | None = None
        self.reason = ""
        self.alike = b""
        self.p: float | None = None
        self.adjusted: float | None = None
        self.error = 0.0
        self.needs: int | None = None


def questions(before: Run, after: Run, topic: str | None, choice: Choice) -> Iterator[Question]:
    names = {measure for run in (before, after) for measure, _ in run.values}
    names |= {
        name.rpartition(".")[0]
        for run in (before, after)
        for name, _ in (*run.numbers, *run.series)
        if "." in name
    }
    for kind in LATENCIES:
        for measure in sorted(name for name in names if name.split(".")[0] == kind):
            if any(choice.wants(f"{measure}.{statistic}") for statistic in STATISTICS):
                latency_questions = _of_latency(before, after, (measure, topic))
                yield from (
                    question for question in latency_questions if choice.wants(question.metric.name)
                )
    for metric in RATIOS.values():
        if choice.wants(metric.name):
            yield from _of_ratio(before, after, metric, topic)


def _of_ratio(before: Run, after: Run, metric: Metric, topic: str | None) -> Iterator[Question]:
    question = Question(metric, topic)
    runs = [run.series.get((metric.name, topic)) for run in (before, after)]
    if not _fill(question, before, after, runs):
        return
    yield question
    if not question.reason:
        one, other = _both(runs)
        blocks_cut = cut([(one, other)])
        question.pair = RunPair(None, blocks_cut, blocks_cut.blocks(one, other))


def _fill(
    question: Question, before: Run, after: Run, runs: Sequence[CellSeries | Values | None]
) -> bool:
    """Set the values of both runs in a question; False if neither has one."""
    key = question.metric.name, question.topic
    numbers = [run.numbers.get(key) for run in (before, after)]
    for side, (run, number) in enumerate(zip(runs, numbers, strict=True)):
        question.values[side] = number
        if isinstance(run, CellSeries):
            question.values[side] = run.ratio
            question.parts[side] = float(run.part.sum())
            question.wholes[side] = float(run.whole.sum())
        elif run is not None:
            question.wholes[side] = run.number
    if all(run is None for run in runs) and all(number is None for number in numbers):
        return False
    for side, (run, number) in enumerate(zip(runs, numbers, strict=True)):
        if run is None and number is None:
            is_report = (before, after)[side].is_report
            what = f"no {question.metric.of[1]} {('before', 'after')[side]}"
            question.reason = _NO_VALUES if is_report else what
    if not question.reason and any(run is None for run in runs):
        question.reason = _NO_VALUES
    if not question.reason:
        question.alike = _fingerprint(question.metric.name.rpartition(".")[2], runs)
    return True


def _both(runs: Sequence[Any]) -> tuple[Any, Any]:
    one, other = runs
    return one, other


def _fingerprint(statistic: str, runs: Sequence[CellSeries | Values | None]) -> bytes:
    digest = hashlib.blake2b(statistic.encode(), digest_size=16)
    for run in runs:
        for column in run or ():
            digest.update(np.ascontiguousarray(column).tobytes())
            digest.update(b"|")
    return digest.digest()


def _of_latency(before: Run, after: Run, key: MetricKey) -> list[Question]:
    """The questions on the statistics of a measure, all cut into the same blocks."""
    runs = [run.values.get(key) for run in (before, after)]
    means = [
        run.series.get((f"{key[0]}.mean", key[1])) if values is None else values.mean()
        for run, values in zip((before, after), runs, strict=True)
    ]
    both = Ranked(*_both(runs)) if all(run is not None for run in runs) else None
    latency_questions, series = [], []
    for statistic, share in STATISTICS.items():
        question = Question(metric_of(f"{key[0]}.{statistic}"), key[1])
        compared_runs = means if share is None else runs
        if not _fill(question, before, after, compared_runs):
            continue
        latency_questions.append(question)
        if share is None:
            question.parts = [None, None]
        else:
            _fill_percentile(question, share, runs)
        if question.reason:
            continue
        if share is None or both is None:
            series.append((question, share, _both(means)))
        else:
            value = both.at(share)
            one, other = _both(runs)
            series.append((question, share, (one.above(value), other.above(value))))
    if series:
        blocks_cut = cut([metric for _, _, metric in series])
        for question, share, (one, other) in series:
            kept = None if share is None else _both(runs)
            question.pair = RunPair(share, blocks_cut, blocks_cut.blocks(one, other), kept)
    return latency_questions


def _fill_percentile(question: Question, share: float, runs: Sequence[Values | None]) -> None:
    """Set the percentile of each run, and the reason if a test is impossible."""
    needed = math.ceil(MIN_BEYOND / (1 - share) - 1e-9)
    for side, run in enumerate(runs):
        if run is None:
            continue
        question.values[side] = Ranked(run).at(share)
        if not question.reason and run.number < needed:
            what = f"{run.number:,.0f} {question.metric.of[run.number != 1]}"
            question.reason = (
                f"{what} {('before', 'after')[side]}, {needed:,} needed for "
                f"{question.metric.name.rpartition('.')[2]}"
            )
