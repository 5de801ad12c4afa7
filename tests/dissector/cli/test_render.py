"""Rows as lines: every format, nulls, times, and text that must not reach a terminal raw."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.cli.render import (
    csv_line,
    detail_lines,
    field_text,
    harmless,
    json_line,
    line_maker,
    plain_value,
    rows_of,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (-1, "-1"),
        ("a\tb\x1b[2J", r"a\x09b\x1b[2J"),
        ([1, -2], "[1,-2]"),
        ([("tcp", 5)], '{"tcp":5}'),
        ([], "[]"),
        (datetime(2026, 1, 31, 23, 59, 59, 123, UTC), "2026-01-31T23:59:59.000123Z"),
        (b"\x00\xff", "00ff"),
    ],
    ids=["null", "flag", "number", "text", "list", "map", "empty", "time", "bytes"],
)
def test_values_become_one_cell(value: Any, text: str) -> None:
    assert field_text(value) == text


def test_json_leaves_nulls_out_unless_columns_were_named() -> None:
    row = {"a": None, "b": [("k", "v")], "c": "\x9b\u202e"}
    assert json_line(row, keeps_nulls=False) == '{"b":{"k":"v"},"c":"\\u009b\\u202e"}'
    assert json.loads(json_line(row, keeps_nulls=True)) == {
        "a": None,
        "b": {"k": "v"},
        "c": row["c"],
    }


@given(st.lists(st.text(), min_size=2, max_size=5))
def test_csv_is_read_back_as_it_was_written(cells: list[str]) -> None:
    """But for the apostrophe before what a spreadsheet would compute."""
    shown = [field_text(cell) for cell in cells]
    found = next(csv.reader([csv_line(shown)]))
    for read, cell in zip(found, shown, strict=True):
        assert read == cell or (read == f"'{cell}" and harmless(cell) == read)


@pytest.mark.parametrize(
    "text",
    ["=cmd|'/c calc'!A1", "+1+cmd", "-1+1", "@SUM(1)", "\t=1", "\r=1", " =1", "=", "-", "--1",
     "\uff1dA1", "+1 2", "-1e", "\n=1"],
)  # fmt: skip
def test_a_cell_that_begins_like_a_formula_is_made_text(text: str) -> None:
    assert next(csv.reader(io.StringIO(csv_line(["a", text]), newline="")))[1] == f"'{text}"


@pytest.mark.parametrize(
    "text", ["-1", "+1", "-1.5", "-9223372036854775808", "-1e-5", "", "1=1", "a-b", "topic", "'=1"]
)
def test_plain_numbers_and_other_texts_stay_as_they_are(text: str) -> None:
    assert next(csv.reader([csv_line(["a", text])]))[1] == text


def test_names_from_the_wire_are_no_formulas_in_csv() -> None:
    """Whatever way a row takes: chosen columns or all of them."""
    row = {"topic": "=HYPERLINK(1)", "sequence_id": -1}
    for is_chosen in (False, True):
        make = line_maker("csv", tuple(row), is_chosen)
        assert make(row) == "'=HYPERLINK(1),-1"


def test_details_show_columns_that_say_something_then_the_decoded_fields() -> None:
    detail = json.dumps(
        {"auth_data": "<redacted>", "ids": [{"ledger_id": 1}, {"ledger_id": 2}], "n": {}}
    )
    lines = [line.strip() for line in detail_lines({"topic": None, "permits": 5, "detail": detail})]
    assert lines == [
        "permits = 5",
        "detail",
        "auth_data = <redacted>",
        "ids[0]",
        "ledger_id = 1",
        "ids[1]",
        "ledger_id = 2",
        "n = {}",
    ]


def test_formats_differ_only_in_form() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", "y,z"]})
    rows = list(rows_of(batch, ("b", "a")))

    def made(kind: str, is_chosen: bool) -> list[str]:
        make = line_maker(kind, ("b", "a"), is_chosen)
        return [make(row) for row in rows]

    assert made("text", True) == made("fields", True) == ["x\t1", "y,z\t"]
    assert made("csv", True) == ["x,1", '"y,z",']
    assert made("jsonl", False) == ['{"b":"x","a":1}', '{"b":"y,z"}']
    assert made("jsonl", True)[1] == '{"b":"y,z","a":null}'


def test_plain_values_are_json() -> None:
    assert plain_value([[("k", b"\x01")]]) == [{"k": "01"}]
