"""A comparison in words: terminal, Markdown and page say the same, and names do no harm."""

import base64
import hashlib
import re
from html import escape as html_escape
from typing import Any

import pytest

from dissector.compare.comparing import compared
from dissector.compare.facts import differences, facts, must_be_comparable, sentence
from dissector.compare.markdown import markdown, plain
from dissector.compare.page import page
from dissector.compare.runs import Run
from dissector.compare.wording import (
    change_text,
    headline,
    interval_text,
    left_out,
    lines,
    repeats,
    rows_in_order,
)
from dissector.errors import InputError

Row = dict[str, Any]
EVIL = "persistent://a/b/<img src=x onerror=alert(1)>|`**\x1b[2J\n# x"


def whole(before: Run, after: Run) -> Row:
    comparison = compared(before, after)
    comparison["before"] = facts(before) | {"sentence": sentence(before)}
    comparison["after"] = facts(after) | {"sentence": sentence(after)}
    comparison["coverage_differences"] = differences(before, after, comparison["topics"])
    return comparison


@pytest.fixture(scope="module")
def comparison(quiet: Run, lossy: Run) -> Row:
    return whole(quiet, lossy)


def renamed(run: Run, name: str) -> Run:
    values = {(m, t if t is None else name): v for (m, t), v in run.values.items()}
    series = {(m, t if t is None else name): v for (m, t), v in run.series.items()}
    return run._replace(values=values, series=series, topics=dict.fromkeys([name], 1), name=name)


def test_the_headline_counts_and_names_the_confidence(comparison: Row, quiet: Run) -> None:
    counts = comparison["verdicts"]
    assert headline(comparison).startswith(
        f"{counts['worse']} worse, of {comparison['tests']} metrics"
    )
    assert "at 95 % confidence" in headline(comparison)
    assert headline(whole(quiet, quiet)).startswith("No evidence of a change in ")
    assert headline(comparison | {"tests": 0}).startswith("Nothing could be tested")


def test_every_metric_is_in_one_place(comparison: Row) -> None:
    shown = {(line.metric, line.topic) for line in lines(comparison)}
    first = [row for row in comparison["metrics"] if row["same_as"] is None]
    judged = [row for row in first if row["verdict"] != "not comparable"]
    assert len(shown) == len(judged) == comparison["tests"]
    text = "\n".join(name for _, names in left_out(comparison) for name in names)
    for row in first:
        if row["verdict"] == "not comparable":
            assert row["metric"].rpartition(".")[0] in text or row["metric"] in text
    assert "logical_latency (all topics): the numbers of send_latency" in list(repeats(comparison))


def test_a_single_topic_is_said_to_be_all_of_them(quiet: Run) -> None:
    same = whole(quiet, quiet)
    assert "persistent://public/default/lat: the numbers of all topics" in list(repeats(same))
    assert {line.topic for line in lines(same)} == {"all topics"}


def test_changes_come_first_in_each_topic(comparison: Row) -> None:
    order = ["worse", "better", "no evidence"]
    verdicts = [
        order.index(line.verdict) for line in lines(comparison) if line.topic == "all topics"
    ]
    assert verdicts == sorted(verdicts) and verdicts[0] == 0


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"difference": 0, "difference_percent": 0.0}, "none"),
        ({"difference": 1, "difference_percent": 12.345}, "+12.3 %"),
        ({"difference": 1, "difference_percent": 1900.0}, "20 times"),
        ({"difference": 0.0123, "difference_percent": None, "unit": "share"}, "+1.23 points"),
        ({"difference": -2.5, "difference_percent": None, "unit": "ms"}, "-2.5 ms"),
        ({"difference": 1, "difference_percent": 123_400.0}, "1,235 times"),
        ({"difference": -4e-7, "difference_percent": None, "unit": "share"}, "-0.00004 points"),
        ({"difference": -10_641, "difference_percent": None, "unit": "per_s"}, "-10,641 /s"),
        ({"difference": 10_641.2, "difference_percent": None, "unit": "per_s"}, "+10,640 /s"),
    ],
)
def test_a_change_is_percent_or_in_its_own_unit(row: Row, text: str) -> None:
    assert change_text(row) == text


def test_an_interval_without_percent_is_in_the_metrics_unit() -> None:
    row: Row = {"interval_percent": None, "interval": [-0.01, 0.0], "unit": "share"}
    assert interval_text(row) == "-1 points to 0 points"
    assert interval_text(row | {"unit": "per_s", "interval": [-3, 12]}) == "-3 /s to +12 /s"


def test_what_was_measured_is_no_less_than_it_was(comparison: Row) -> None:
    """40 ms of sending are not 0 seconds, nor is a consumer that waited 40 ms without a wait."""
    per_s: Row = {"value": 2510.35, "count": 0.04, "part": 100.0}
    share: Row = {"value": 0.01, "count": 4.264, "part": 0.04}
    row = {"metric": "m", "topic": None, "verdict": "worse", "same_as": None, "difference": 0}
    row |= {"interval_percent": [0, 0], "before": per_s, "after": per_s | {"count": 1234.0}}
    rows = [
        row | {"unit": "per_s", "of": "seconds"},
        row | {"unit": "share", "of": "seconds", "before": share, "after": share},
    ]
    assert [line.measured for line in lines({"metrics": rows})] == [
        "0.04 / 1,234 seconds", "0.04 of 4.26 / 0.04 of 4.26 seconds",
    ]  # fmt: skip


def test_differences_of_the_captures_are_told(quiet: Run, lossy: Run) -> None:
    worse = {
        **quiet.coverage, "span_ns": quiet.coverage["span_ns"] * 3, "gap_bytes": 5000, "gaps": 2,
        "dropped_by_interface": 7, "snaplen_cut_bytes": 9, "decoded_share": 0.5,
        "connections_by_start": {"midstream": 1}, "one_way_connections": {"to_client": 1},
        "truncated_files": 1, "limits_hit": {"held_bytes_limit": 1},
    }  # fmt: skip
    topics = {"only_before": ["a"], "only_after": ["b", "c", "d", "e"], "not_listed": 3}
    text = "\n".join(differences(quiet, lossy._replace(coverage=worse), topics))
    for piece in (
        "not equally long: 5.61 s before, 16.8 s after", "Lost after: 4.88 KiB in 2 gaps",
        "Dropped after by the capturing machine: 7 packets",
        "Not captured whole after: 9 bytes cut by the snap length",
        "Older than the capture after: 1 connection of 1", "Decoded after: 50 % of the stream",
        "Not captured after: the direction to client of 1 connection", "Cut after: 1 file",
        "held_bytes_limit", "Only before: 1 topic", "b, c, d … (4 in all)", "3 topics with few",
    ):  # fmt: skip
        assert piece in text, piece
    none = {"only_before": [], "only_after": [], "not_listed": 0}
    assert differences(quiet, lossy, none) == []
    assert differences(quiet, quiet, none)[0].startswith("Both runs are the same files")


def test_runs_of_different_protocols_are_refused(quiet: Run) -> None:
    other = quiet._replace(
        name="b", coverage={**quiet.coverage, "connections_by_protocol": {"cursus": 1}}
    )
    with pytest.raises(InputError, match="is pulsar, b is cursus"):
        must_be_comparable(quiet, other)
    must_be_comparable(quiet, quiet)


def test_markdown_has_what_changed_and_folds_the_rest(comparison: Row) -> None:
    text = markdown(comparison)
    head, _, rest = text.partition("<details>")
    assert "| 🔴 worse | send\\_latency.p50 |" in head and "| no evidence |" not in head
    assert "| no evidence | send\\_latency.p99 |" in rest and "Not comparable" in rest
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert len(text) < 65_536


def test_markdown_fits_a_comment_whatever_there_is(comparison: Row) -> None:
    """GitHub takes 65,536 characters; what changed is what stays."""
    first = next(rows_in_order(comparison))
    assert first["verdict"] == "worse"
    topics = [f"persistent://{'|`*' * 60}-{number}" for number in range(500)]
    rows = [row | {"topic": topic} for topic in topics
            for row in (first, first | {"verdict": "no evidence"})]  # fmt: skip
    reasons = [first | {"topic": topic, "verdict": "not comparable", "reason": f"{topic} of it"}
               for topic in topics]  # fmt: skip
    text = markdown(comparison | {"metrics": [*rows, *reasons]})
    assert len(text.encode()) < 65_536 and text.count("| 🔴 worse |") > 50
    assert text.count("<details>") == text.count("</details>") and "more; `--json` has all" in text
    rows_of_tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows_of_tables} == {7}


def test_names_from_the_wire_are_text_in_markdown_and_page(quiet: Run) -> None:
    slower = {place: run._replace(values=run.values * 3) for place, run in quiet.values.items()}
    both = whole(renamed(quiet, EVIL), renamed(quiet._replace(values=slower), EVIL))
    for topic in (None, EVIL):
        assert any(row["topic"] == topic for row in both["metrics"])
    text = markdown(both)
    assert "\x1b" not in text and "\n# x" not in text
    assert "<img" not in text.replace("\\<", "") and plain("<`|") == "\\<\\`\\|"
    html = page(both)
    assert "\x1b" not in html and "<img" not in html and "&lt;img" in html


def test_the_page_is_one_file_that_fetches_nothing(comparison: Row) -> None:
    html = page(comparison)
    assert html.startswith("<!DOCTYPE html>") and "default-src &#39;none&#39;" in html
    # A browser uses the style only if it is the one that the policy names.
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"sha256-{html_escape(digest)}" in html
    assert not re.findall(r"(?:src|href)\s*=", html) and "<script" not in html
    assert html.count("<tr class=") == len(list(lines(comparison)))
    assert headline(comparison) in html and "send_latency.p50" in html


def test_no_sentence_is_cut_and_names_are(comparison: Row, quiet: Run) -> None:
    """Names are of any length; a sentence cut in its middle says something else."""
    long = "persistent://public/default/" + "x" * 500
    reason = "a reason that takes more words than a name may have, " * 5
    row = comparison["metrics"][0] | {"topic": long}
    odd = comparison | {
        "metrics": [row],
        "before": comparison["before"] | {"sentence": f"{reason}."},
        "coverage_differences": [reason],
    }
    for text in (markdown(odd), page(odd)):
        shown = text.replace("\\", "")
        assert headline(odd) in shown
        assert text.count(reason) == 2 and long not in shown and "x" * 50 in shown
