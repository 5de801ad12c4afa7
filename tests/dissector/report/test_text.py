"""The text of report.json: whole where it is short, and it says what it leaves out."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dissector import limits
from dissector.limits import MAX_LISTED
from dissector.report.output import SERIES, report_text, shortened

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
# Of any name but those of series, which are lists.
TOTALS = st.dictionaries(st.text().filter(lambda name: name not in SERIES), VALUES)
ROWS = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=4)
SECTIONS = st.fixed_dictionaries({"total": TOTALS, "by_any": ROWS})


@given(st.dictionaries(st.text(), SECTIONS, max_size=3))
def test_the_text_of_a_short_report_is_the_report(report: dict[str, Any]) -> None:
    assert json.loads(report_text(report)) == report


def test_a_row_of_a_list_is_a_line() -> None:
    report = {"coverage": {"total": {"packets": 3}, "by_capture": [{"a": 1, "b": [2]}, {"a": 3}]}}
    assert report_text(report).splitlines()[6:8] == ['   {"a":1,"b":[2]},', '   {"a":3}']


def test_a_long_list_keeps_its_first_rows_and_says_of_how_many() -> None:
    rows = [{"place": place} for place in range(MAX_LISTED + 5)]
    report: dict[str, Any] = {
        "sources": rows,
        "errors": {"total": {}, "by_code": rows, "by_text": rows[:3]},
    }
    found = json.loads(report_text(report))
    cut = {"rows": MAX_LISTED + 5, "listed": MAX_LISTED}
    assert (
        found["errors"]["by_code"] == rows[:MAX_LISTED] and found["errors"]["by_text"] == rows[:3]
    )
    assert found["errors"]["listed"] == {"by_code": cut} and found["listed"] == {"sources": cut}
    assert len(report["errors"]["by_code"]) == MAX_LISTED + 5, "the report itself stays whole"


def test_long_rows_are_fewer() -> None:
    """So that the text of many lists stays small, whatever is in their rows."""
    rows = [{"name": "x" * (limits.MAX_LIST_BYTES // 3)} for _ in range(9)]
    short = shortened({"errors": {"total": {}, "by_text": rows}})["errors"]
    assert len(short["by_text"]) == 2 and short["listed"] == {"by_text": {"rows": 9, "listed": 2}}


def test_series_over_time_are_cut_in_total_and_left_out_of_rows() -> None:
    minutes = [{"minute": at} for at in range(MAX_LISTED // 2 + 1)]
    row = {"topic": "t", "per_minute": minutes, "per_hour": minutes[:2]}
    short = {"total": {"per_minute": minutes * 2}, "by_topic": [row]}
    found = shortened({"send_latency": short | {"by_topic": [row, row]}})["send_latency"]
    assert found["total"]["per_minute"] == (minutes * 2)[:MAX_LISTED]
    assert [each["per_minute"] for each in found["by_topic"]] == [None, None]
    assert [each["per_hour"] for each in found["by_topic"]] == [minutes[:2]] * 2
    assert found["listed"] == {
        "total.per_minute": {"rows": 2 * len(minutes), "listed": MAX_LISTED},
        "by_topic.per_minute": {"rows": 2 * len(minutes), "listed": 0},
    }
    assert shortened({"send_latency": short})["send_latency"]["by_topic"] == [row]
