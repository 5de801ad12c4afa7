"""Compares two runs in every metric, overall and by topic, with one error rate for all verdicts.

All tests form one family. Holm's method, weighted (S. Holm, Scandinavian Journal of
Statistics 6, 1979), keeps the probability of any false "changed" verdict below 1 - confidence,
whatever the dependence between metrics, such as percentiles of the same sends.
Benjamini-Hochberg would bound the share of false alarms among alarms instead, so a run without any
change would fail sometimes. Half of the error is reserved for metrics over all topics, so that many
topics do not hide a change in all of them.

A change needs both a significant test and an interval without 0, which has the error of this one
metric. The test is exact if blocks are independent, whatever their distribution; the interval
accounts for the small number of blocks. Either alone fails more often on correlated runs.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from dissector.compare import testing
from dissector.compare.blocks import TIMES_APART
from dissector.compare.questions import EVERYTHING, Choice, Question, questions
from dissector.compare.runs import Run
from dissector.compare.testing import Limits
from dissector.limits import MAX_COMPARED_TOPICS
from dissector.report.formatting import many

Row = dict[str, Any]
WORSE: Final = "worse"
BETTER: Final = "better"
NO_EVIDENCE: Final = "no evidence"
NOT_COMPARABLE: Final = "not comparable"
VERDICTS: Final = (WORSE, BETTER, NO_EVIDENCE, NOT_COMPARABLE)
OVERALL: Final = 0.5  # share of the error that metrics over all topics may make


def compared(before: Run, after: Run, choice: Choice = EVERYTHING) -> Row:
    """Compare two runs.

    Returns:
        {confidence, least_percent, tests, verdicts (count of each), topics, metrics}, as
        docs/compare.md explains.
    """
    topics = _topics(before, after)
    both = [name for name in topics if name in before.topics and name in after.topics]
    family = [
        question
        for topic in (None, *both[:MAX_COMPARED_TOPICS])
        for question in questions(before, after, topic, choice)
    ]
    _share_out(family, 1 - choice.confidence)
    _test(family)
    _adjust(family)
    spans = [run.coverage["span_ns"] or 0 for run in (before, after)]
    rows = [_row(question, choice, spans) for question in family]
    _name_repeats(family, rows)
    counts = {name.replace(" ", "_"): 0 for name in VERDICTS}
    for row in rows:
        counts[row["verdict"].replace(" ", "_")] += row["same_as"] is None
    return {
        "confidence": choice.confidence,
        "least_percent": choice.least * 100,
        "tests": len({question.alike for question in family if question.p is not None}),
        "verdicts": counts,
        "topics": {
            "compared": both[:MAX_COMPARED_TOPICS],
            "not_listed": len(both[MAX_COMPARED_TOPICS:]),
            "only_before": [name for name in topics if name not in after.topics],
            "only_after": [name for name in topics if name not in before.topics],
        },
        "metrics": rows,
    }


def _topics(before: Run, after: Run) -> list[str]:
    """The topics of both runs, sorted by number of events, descending."""
    names = {*before.topics, *after.topics}
    events = {name: before.topics.get(name, 0) + after.topics.get(name, 0) for name in names}
    return sorted(names, key=lambda name: (-events[name], name))


# -- tests


def _share_out(family: Sequence[Question], error: float) -> None:
    """Allocate the error rate of the family to its tests.

    A metric that is equal in all blocks of both runs gets none: no permutation can show a change.
    A question whose runs are too short for its error gets a reason with the needed length.
    """
    groups: dict[bytes, bool] = {}
    for question in family:
        if question.pair is not None and not question.pair.is_constant:
            is_overall = groups.get(question.alike, False) or question.topic is None
            groups[question.alike] = is_overall
    overall = sum(groups.values())
    for question in family:
        if question.pair is None:
            continue
        is_overall = groups.get(question.alike, question.topic is None)
        of = overall if is_overall else len(groups) - overall
        part = OVERALL if is_overall else 1 - OVERALL
        question.error = error / max(of, 1) * (part if 0 < overall < len(groups) else 1.0)
        one, other = question.pair.cut.sizes
        if min(one, other) < 2 or testing.least_chance(one, other) > question.error:
            question.needs = next(
                n for n in range(2, 99) if testing.least_chance(n, n) <= question.error
            )


def _test(family: Sequence[Question]) -> None:
    known: dict[bytes, float] = {}
    for question in family:
        if question.pair is not None and question.needs is None:
            if question.alike not in known:
                known[question.alike] = testing.chance(
                    *question.pair.blocks, question.pair.cut.excess
                )
            question.p = known[question.alike]


def _adjust(family: Sequence[Question]) -> None:
    """Holm's steps: the adjusted p-value of each question."""
    tested = {q.alike: q for q in family if q.p is not None}
    order = sorted(tested.values(), key=lambda question: (question.p or 0) / question.error)
    rest = sum(question.error for question in order)
    adjusted, highest = {}, 0.0
    for question in order:
        assert question.p is not None
        highest = max(highest, min(question.p * rest / question.error, 1.0))
        adjusted[question.alike] = highest
        rest -= question.error
    for question in family:
        if question.p is not None:
            question.adjusted = adjusted[question.alike]


# -- what is answered


def _name_repeats(family: Sequence[Question], rows: Sequence[Row]) -> None:
    """Mark rows that have the same numbers as an earlier one and were tested with it."""
    first: dict[bytes, Row] = {}
    for question, row in zip(family, rows, strict=True):
        row["same_as"] = None
        if question.alike:
            earlier = first.setdefault(question.alike, row)
            if earlier is not row:
                row["same_as"] = {"metric": earlier["metric"], "topic": earlier["topic"]}


def _limits(question: Question, side: int) -> Limits:
    """The interval of one run."""
    pair, value, level = question.pair, question.values[side], 1 - question.error
    assert pair is not None and value is not None
    blocks, size, excess = pair.blocks[side], pair.cut.sizes[side], pair.cut.excess
    if pair.share is not None and pair.runs is not None:
        return testing.percentile_limits(pair.runs[side], pair.share, pair.cut, side, level)
    if question.metric.unit == "share":
        # For metrics of time the sample size is the number of blocks, not of seconds.
        count = size if question.metric.is_of_time else float(blocks.whole.sum())
        return testing.share_limits(value, count, testing.error_of(blocks) * excess, size, level)
    return testing.mean_limits(blocks, excess, level)


def _intervals(question: Question) -> tuple[Limits, Limits | None]:
    """The interval of the difference; and as a share of the value before, None if undefined."""
    was, now = question.values
    assert was is not None and now is not None
    one, other = _limits(question, 0), _limits(question, 1)
    plain = testing.difference_limits(one, other, (was, now))
    if min(was, now, *one, *other) <= 0:
        return plain, None
    logs = [(math.log(low), math.log(high)) for low, high in (one, other)]
    low, high = testing.difference_limits(logs[0], logs[1], (math.log(was), math.log(now)))
    return plain, (math.expm1(low), math.expm1(high))


def _fitted(limits: Limits, is_changed: bool, difference: float) -> Limits:
    """An interval that contains 0 if and only if there is no evidence of a change.

    It contains the values that the test does not exclude; the test also decides about 0.
    """
    low, high = limits
    if not is_changed:
        return min(low, 0.0), max(high, 0.0)
    return (max(low, 0.0), high) if difference > 0 else (low, min(high, 0.0))


def _row(question: Question, choice: Choice, spans: Sequence[int]) -> Row:
    """The row of the comparison for a question and its answer."""
    metric = question.metric
    was, now = question.values
    row: Row = {
        "metric": metric.name,
        "title": metric.title,
        "topic": question.topic,
        "unit": metric.unit,
        "of": metric.of[1],
        "worse_if": "higher" if metric.is_more_worse else "lower",
        "before": _side(question, 0),
        "after": _side(question, 1),
        "difference": None,
        "difference_percent": None,
        "interval": None,
        "interval_percent": None,
        "p": question.p,
        "p_adjusted": question.adjusted,
        "verdict": NOT_COMPARABLE,
        "reason": question.reason or None,
        "blocks_needed": question.needs,
    }
    if was is not None and now is not None:
        row["difference"] = _shown(now - was, metric.unit)
        row["difference_percent"] = round((now / was - 1) * 100, 3) if was else None
    if question.needs is not None:
        row["reason"] = _too_short(question, spans)
    elif question.p is not None:
        _answer(row, question, choice)
    return row


def _answer(row: Row, question: Question, choice: Choice) -> None:
    was, now = question.values
    assert was is not None and now is not None and question.adjusted is not None
    plain, relative = _intervals(question)
    difference = now - was
    low, high = relative or plain
    is_changed = question.adjusted <= 1 - choice.confidence and (low > 0 or high < 0)
    least = max(choice.least, question.metric.least)
    plain = _fitted(plain, is_changed, difference)
    if relative is not None:
        relative = _fitted(relative, is_changed, difference)
    row["verdict"] = NO_EVIDENCE
    if is_changed and relative is not None and least:
        near = relative[0] if difference > 0 else -relative[1]
        if near <= least:
            is_changed = False
            row["reason"] = f"the change may be as small as {least * 100:g} %, which counts as none"
    if is_changed:
        is_more = difference > 0
        row["verdict"] = WORSE if is_more == question.metric.is_more_worse else BETTER
    row["interval"] = [_shown(each, question.metric.unit) for each in plain]
    if relative is not None:
        row["interval_percent"] = [round(each * 100, 3) for each in relative]


def _too_short(question: Question, spans: Sequence[int]) -> str:
    """The sentence on how much more data a test needs."""
    assert question.pair is not None and question.needs is not None
    sizes = question.pair.cut.sizes
    side = 0 if sizes[0] <= sizes[1] else 1
    word = ("before", "after")[side]
    count, least = question.wholes[side] or 0, question.needs * TIMES_APART
    if count < least and not question.metric.is_of_time:
        return f"{count:,.0f} {question.metric.of[count != 1]} {word}, at least {least:,} needed"
    missing_s = spans[side] / 1e9 * (question.needs / sizes[side] - 1)
    both = "each run" if sizes[0] == sizes[1] else f"the run {word}"
    return (
        f"{both} has {many(sizes[side], 'independent block')} of time, {question.needs} are "
        f"needed: about {_seconds(missing_s)} more of such traffic"
    )


def _seconds(time_s: float) -> str:
    return f"{math.ceil(time_s / 60):,} min" if time_s >= 120 else f"{math.ceil(time_s):,} s"


def _shown(value: float, unit: str) -> float:
    """A value in its unit: durations in ms."""
    return round(value / 1e6, 6) if unit == "ms" else round(value, 9)


def _side(question: Question, side: int) -> Row:
    value, whole, part = (of[side] for of in (question.values, question.wholes, question.parts))
    unit = question.metric.unit
    return {
        "value": None if value is None else _shown(value, unit),
        "part": None if part is None or unit == "ms" else round(part, 3),
        "count": None if whole is None else round(whole, 3),
        "blocks": None if question.pair is None else question.pair.cut.sizes[side],
    }
