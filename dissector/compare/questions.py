"""What a comparison asks: each metric of all topics and of each, with what both runs say of it."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.compare.blocks import BlockCut, CellSeries, cut
from dissector.compare.runs import LATENCIES, RATIOS, STATISTICS, Metric, MetricKey, Run, metric_of
from dissector.compare.testing import Ranked, Values
from dissector.errors import UsageError

MIN_BEYOND: Final = 5  # values above a percentile, of each run
_NO_VALUES: Final = "a report holds no values of single events: compare captures or lakes"


class Choice(NamedTuple):
    """What is wanted.

    metrics: names or their beginnings up to a dot, none: all.
    least: a change smaller than this share of the value before is none.
    """

    confidence: float = 0.95
    metrics: tuple[str, ...] = ()
    least: float = 0.0

    def wants(self, name: str) -> bool:
        """Whether a metric is wanted."""
        return not self.metrics or any(
            name == wanted or name.startswith(f"{wanted}.") for wanted in self.metrics
        )


EVERYTHING: Final = Choice()


def must_be_metrics(names: Sequence[str]) -> None:
    """Refuse names that no metric has.

    Raises:
        UsageError: one of them; the text names those that there are.
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
    """A metric of both runs, as blocks. share, runs: of a percentile, and the values; else None."""

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
    """A metric of a topic, or of all: what both runs say, and whether they differ.

    reason: why that cannot be told, empty if it can.
    alike: equal of questions about the same numbers, which are asked once.
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
        pieces = cut([(one, other)])
        question.pair = RunPair(None, pieces, pieces.blocks(one, other))


def _fill(
    question: Question, before: Run, after: Run, runs: Sequence[CellSeries | Values | None]
) -> bool:
    """Take what both runs say into a question; False if neither says anything."""
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
    """The statistics of a measure, which are cut into the same blocks."""
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
        pieces = cut([metric for _, _, metric in series])
        for question, share, (one, other) in series:
            kept = None if share is None else _both(runs)
            question.pair = RunPair(share, pieces, pieces.blocks(one, other), kept)
    return latency_questions


def _fill_percentile(question: Question, share: float, runs: Sequence[Values | None]) -> None:
    """The percentile of each run, and why a test of it would tell nothing."""
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
