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
    CONNECTION_HEADING,
    CONNECTION_TEXT_COLUMNS,
    FRAME_TEXT_COLUMNS,
    connection_line,
    csv_line,
    detail_lines,
    field_text,
    frame_line,
    harmless,
    heading,
    json_line,
    line_maker,
    plain_value,
    rows_of,
)
from dissector.cli.terminal import Paint
from dissector.schemas import TABLES

PLAIN = Paint("never")


def frame(**values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(FRAME_TEXT_COLUMNS)
    row |= {
        "connection_id": 0, "frame_no": 12, "direction": "to_broker", "command": "SEND",
        "last_ts_ns": 1_795_254_379_901_123_456, "first_packet": 45, "last_packet": 47,
        "frame_bytes": 1187, "status": "complete", "retransmitted": False,
    }  # fmt: skip
    return row | values


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
        make = line_maker("csv", tuple(row), lambda _: "", is_chosen)
        assert make(row) == "'=HYPERLINK(1),-1"


def test_a_frame_is_one_line_with_what_it_is_about() -> None:
    line = frame_line(
        frame(
            producer_id=0, sequence_id=3, topic="persistent://t/n/x", checksum="ok", message_count=5
        ),
        PLAIN,
    )
    assert line.startswith("   12 ") and " p45-47 " in line
    assert line.endswith("c0 > SEND 1187 B producer=0 seq=3 messages=5 topic=persistent://t/n/x")


def test_a_frame_says_what_is_wrong_with_it() -> None:
    line = frame_line(
        frame(checksum="mismatch", status="cut_by_gap", retransmitted=True, direction="unknown",
              command=None, first_packet=47),
        PLAIN,
    )  # fmt: skip
    assert line.endswith("c0 ? ? 1187 B checksum=mismatch cut_by_gap retransmitted")
    assert " p47 " in line


def test_hostile_names_stay_on_their_line() -> None:
    line = frame_line(frame(topic="a\n\x1b]0;title\x07", error_text="no \u202e room"), PLAIN)
    assert line.isprintable()
    assert r"topic=a\x0a\x1b]0;title\x07" in line and r'text="no \u202e room"' in line


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


def test_a_connection_is_one_line_with_as_many_cells_as_the_heading() -> None:
    row: dict[str, Any] = dict.fromkeys(CONNECTION_TEXT_COLUMNS)
    row |= {
        "connection_id": 3, "first_ts_ns": 0, "last_ts_ns": 1_500_000_000, "client_ip": "::1",
        "client_port": 5, "broker_ip": "10.0.0.1", "broker_port": 6650, "protocol": "pulsar",
        "history": "ShAd", "started": "midstream", "ended": "fin", "closed_first_by": "client",
        "gap_bytes_to_broker": 7, "client_version": "Go \x1b",
    }  # fmt: skip
    cells = connection_line(row, PLAIN).split("\t")
    assert len(cells) == len(CONNECTION_HEADING.split())
    assert cells[:5] == ["3", "1970-01-01T00:00:00.000000Z", "1.500000", "[::1]:5", "10.0.0.1:6650"]
    assert "7/0" in cells
    assert cells[-1] == r"midstream closed_by=client client_version=Go \x1b"


def test_columns_of_text_lines_exist() -> None:
    for table, columns in (
        ("frames", FRAME_TEXT_COLUMNS),
        ("connections", CONNECTION_TEXT_COLUMNS),
    ):
        assert set(columns) <= {column.name for column in TABLES[table].columns}


def test_formats_differ_only_in_form() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", "y,z"]})
    rows = list(rows_of(batch, ("b", "a")))

    def made(kind: str, is_chosen: bool) -> list[str]:
        make = line_maker(kind, ("b", "a"), lambda row: f"<{row['b']}>", is_chosen)
        return [make(row) for row in rows]

    assert made("text", False) == ["<x>", "<y,z>"]
    assert made("text", True) == made("fields", True) == ["x\t1", "y,z\t"]
    assert made("csv", True) == ["x,1", '"y,z",']
    assert made("jsonl", False) == ['{"b":"x","a":1}', '{"b":"y,z"}']
    assert made("jsonl", True)[1] == '{"b":"y,z","a":null}'
    assert heading("csv", ("b", "a"), "title") == "b,a"
    assert heading("text", ("b",), "title") == "title"
    assert heading("fields", ("b",), "title") is None and heading("text", ("b",), "") is None


def test_plain_values_are_json() -> None:
    assert plain_value([[("k", b"\x01")]]) == [{"k": "01"}]
