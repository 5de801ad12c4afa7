"""Comparisons of generated pairs: silent on equal runs, and finding what was changed."""

from typing import Any

import numpy as np
import pytest

from dissector.compare.blocks import CellSeries
from dissector.compare.comparing import compared
from dissector.compare.questions import Choice, must_be_metrics
from dissector.compare.runs import LATENCIES, RATIOS, STATISTICS, Run, metric_of
from dissector.errors import UsageError
from tests.comparebench import STORIES, judged
from tests.runs import TOPICS, Story, made

QUICK = Story(sends=2_000, seconds=40.0, drift=0.05)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def before() -> Run:
    return made(1, QUICK)


@pytest.fixture(scope="module")
def comparison(before: Run) -> Row:
    """Against a run that is 20 % slower, and in which no delivery came again."""
    return compared(before, made(2, QUICK._replace(later=0.2, redelivered=0.0)))


def row_of(comparison: Row, metric: str, topic: str | None = None) -> Row:
    (row,) = (r for r in comparison["metrics"] if (r["metric"], r["topic"]) == (metric, topic))
    return row


def test_equal_runs_raise_no_alarm_and_a_fifth_more_latency_is_found() -> None:
    """A few pairs of what `python -m tests.comparebench` measures with many."""
    assert judged(QUICK, 0.0, range(40, 43)).alarms == 0
    assert judged(QUICK, 0.2, range(40, 42)).found == 2
    assert {"quick drift", "slow drift", "stalls", "short", "long"} == STORIES.keys()


def test_a_run_against_itself_shows_nothing(before: Run) -> None:
    result = compared(before, before)
    verdicts = {row["verdict"] for row in result["metrics"]}
    assert verdicts <= {"no evidence", "not comparable"}
    assert result["verdicts"]["worse"] == result["verdicts"]["better"] == 0
    assert all(row["difference"] in (0, None) for row in result["metrics"])


def test_a_change_is_told_with_its_size_and_interval(comparison: Row) -> None:
    row = row_of(comparison, "send_latency.p50")
    assert row["verdict"] == "worse" and row["worse_if"] == "higher"
    low, high = row["interval_percent"]
    assert 0 < low < 20 < high and low < row["difference_percent"] < high
    assert row["interval"][0] < row["difference"] < row["interval"][1]
    assert row["before"]["count"] == pytest.approx(2000, abs=20)
    assert row["p_adjusted"] >= row["p"] > 0


def test_intervals_have_nothing_in_them_if_and_only_if_there_is_no_evidence(
    comparison: Row,
) -> None:
    judged_rows = [row for row in comparison["metrics"] if row["interval"]]
    assert len(judged_rows) > 20
    for row in judged_rows:
        low, high = row["interval"]
        assert (low <= 0 <= high) == (row["verdict"] == "no evidence"), row


def test_every_topic_is_compared_and_what_changes_in_one_is_found_there(before: Run) -> None:
    after = made(3, QUICK)
    later = dict(after.values)
    for measure, topic in list(later):
        if topic == TOPICS[0]:
            run = later[measure, topic]
            later[measure, topic] = run._replace(values=run.values * 1.5)
    result = compared(before, after._replace(values=later))
    assert row_of(result, "send_latency.p50", TOPICS[0])["verdict"] == "worse"
    assert row_of(result, "send_latency.p50", TOPICS[1])["verdict"] == "no evidence"
    assert result["topics"]["compared"] == sorted(TOPICS, key=lambda t: -before.topics[t])


def test_topics_of_one_run_are_named_and_not_compared_alone(before: Run) -> None:
    other = {"x" if topic == TOPICS[0] else topic: n for topic, n in before.topics.items()}
    values = {(m, "x" if t == TOPICS[0] else t): v for (m, t), v in before.values.items()}
    result = compared(before, before._replace(topics=other, values=values))
    assert result["topics"]["only_before"] == [TOPICS[0]]
    assert result["topics"]["only_after"] == ["x"]
    assert {row["topic"] for row in result["metrics"]} == {None, TOPICS[1]}


def test_numbers_that_are_the_same_twice_are_tested_once(before: Run, comparison: Row) -> None:
    # Without resends, messages take as long as their sends.
    row = row_of(comparison, "logical_latency.p95")
    assert row["same_as"] == {"metric": "send_latency.p95", "topic": None}
    assert row["p"] == row_of(comparison, "send_latency.p95")["p"]
    first = [row for row in comparison["metrics"] if row["same_as"] is None]
    assert comparison["tests"] == sum(row["p"] is not None for row in first)
    assert sum(comparison["verdicts"].values()) == len(first)


def test_holms_steps_are_those_of_the_definition(comparison: Row) -> None:
    """Overall and topics have half of the error each, shared by their tests that can vary."""
    rows = [row for row in comparison["metrics"] if row["same_as"] is None and row["p"] is not None]
    moving = [row for row in rows if row["before"]["value"] or row["after"]["value"]]
    overall = sum(row["topic"] is None for row in moving)
    weights = [0.5 / (overall if row["topic"] is None else len(moving) - overall) for row in moving]
    order = sorted(range(len(moving)), key=lambda at: moving[at]["p"] / weights[at])
    highest = 0.0
    for place, at in enumerate(order):
        rest = sum(weights[other] for other in order[place:])
        highest = max(highest, min(moving[at]["p"] * rest / weights[at], 1.0))
        if highest < 0.5:  # those that cannot vary come last, and move nothing before
            assert moving[at]["p_adjusted"] == pytest.approx(highest, rel=0.2)


def test_too_little_data_says_how_much_is_needed(before: Run) -> None:
    short = made(4, QUICK._replace(sends=12, seconds=0.3))
    result = compared(before, short)
    row = row_of(result, "send_latency.p99")
    assert row["verdict"] == "not comparable"
    assert row["reason"] == "12 receipts after, 500 needed for p99"
    mean = row_of(result, "send_latency.mean")
    assert mean["verdict"] == "not comparable" and mean["blocks_needed"] > mean["after"]["blocks"]
    assert "12 receipts after, at least" in mean["reason"]


def test_runs_that_hang_together_for_long_ask_for_more_time() -> None:
    slow = Story(sends=2_000, seconds=40.0, drift=1.0, drift_s=20.0, stalls=0.0)
    row = row_of(compared(made(1, slow), made(2, slow)), "send_latency.p50")
    assert row["verdict"] == "not comparable"
    assert "of such traffic" in row["reason"] and "independent block" in row["reason"]


def test_a_change_below_the_least_one_counts_as_none(before: Run) -> None:
    after = made(2, QUICK._replace(later=0.2))
    wanted = Choice(metrics=("send_latency.p50",), least=0.5)
    (row,) = [r for r in compared(before, after, wanted)["metrics"] if r["topic"] is None]
    assert row["verdict"] == "no evidence"
    assert row["reason"] == "the change may be as small as 50 %, which counts as none"
    (row,) = [
        r for r in compared(before, after, wanted._replace(least=0.02))["metrics"]
        if r["topic"] is None
    ]  # fmt: skip
    assert row["verdict"] == "worse"


def test_less_throughput_is_worse_and_less_latency_better(before: Run) -> None:
    part, whole = before.series["messages_sent", None]
    slower = before.series | {("messages_sent", None): CellSeries(part * 0.5, whole)}
    faster = made(2, QUICK._replace(later=-0.4))
    result = compared(before, faster._replace(series=slower))
    assert row_of(result, "messages_sent")["verdict"] == "worse"
    assert row_of(result, "messages_sent")["worse_if"] == "lower"
    assert row_of(result, "send_latency.p50")["verdict"] == "better"


def test_more_refusals_are_worse_and_told_with_their_denominators(before: Run) -> None:
    after = made(2, QUICK._replace(refused=0.08))
    row = row_of(compared(before, after), "sends_refused")
    assert row["verdict"] == "worse" and row["unit"] == "share"
    assert row["after"]["count"] == 2000 and row["after"]["part"] > 100
    assert row["after"]["value"] == pytest.approx(row["after"]["part"] / 2000)


def test_a_metric_of_one_run_alone_says_so(before: Run) -> None:
    values = {place: run for place, run in before.values.items() if place[0] != "ack_latency"}
    row = row_of(compared(before, before._replace(values=values)), "ack_latency.p50")
    assert (row["verdict"], row["reason"]) == ("not comparable", "no acks after")


@pytest.mark.parametrize(
    "name", ["send_latency", "send_latency.p99", "request_latency.LOOKUP.p50", "redeliveries"]
)
def test_names_of_metrics_are_taken(name: str) -> None:
    must_be_metrics([name])


@pytest.mark.parametrize("name", ["", "p99", "send_latency.p98", "redeliveries.p50", "a.b"])
def test_other_names_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UsageError, match="there are send_latency, logical_latency"):
        must_be_metrics([name])


def test_every_metric_has_words() -> None:
    for name in [*RATIOS, *(f"{m}.{s}" for m in LATENCIES for s in STATISTICS)]:
        metric = metric_of(name)
        assert metric.name == name and metric.title and all(metric.of)
    assert metric_of("request_latency.SEEK.p50").title.endswith("SEEK, p50")


def test_the_same_runs_get_the_same_answer(before: Run) -> None:
    after = made(5, QUICK)
    one, other = compared(before, after), compared(before, after)
    assert np.all([a == b for a, b in zip(one["metrics"], other["metrics"], strict=True)])
