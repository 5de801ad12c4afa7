"""Selections over columns: what a row must be to be kept, nulls, kinds, and wrong comparisons."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.cli import select
from dissector.cli.expression import Node, parse
from dissector.errors import UsageError

KINDS = {
    "number": "number",
    "other": "number",
    "text": "text",
    "flag": "flag",
    "ts": "time",
    "list": "list",
}


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


NAMES = ("number", "other", "text", "flag", "ts", "list")
ROWS: list[dict[str, Any]] = [
    dict(zip(NAMES, values, strict=True))
    for values in (
        (1, 1, "SEND", True, day(1), [1, 2]),
        (-5, 7, "a\nb", False, day(2), []),
        (None, 0, None, None, None, None),
        (2**63 - 1, None, "", True, day(3), [7]),
    )
]
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("other", pa.int64()),
        ("text", pa.dictionary(pa.int32(), pa.string())),
        ("flag", pa.bool_()),
        ("ts", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int64())),
    ]
)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    plain = {name: [row[name] for row in rows] for name in SCHEMA.names}
    arrays = [
        pa.array(plain[field.name], pa.string()).dictionary_encode()
        if field.name == "text"
        else pa.array(plain[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def kept(text: str, rows: list[dict[str, Any]] | None = None) -> list[int]:
    chosen = ROWS if rows is None else rows
    node = parse(text)
    select.check(text, node, KINDS)
    found = select.mask(node, batch(chosen))
    assert found.null_count == 0 and len(found) == len(chosen)
    return [row for row, is_kept in enumerate(found.to_pylist()) if is_kept]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("number == 1", [0]),
        ("number != 1", [1, 3]),
        ("not number == 1", [1, 2, 3]),
        ("number == null", [2]),
        ("null != number", [0, 1, 3]),
        ("0 > number", [1]),
        ("number >= 9223372036854775807", [3]),
        ("number < 1e0", [1]),
        ("number in (1, -5)", [0, 1]),
        ("number not in (1, -5)", [2, 3]),
        ("number in (1, null)", [0, 2]),
        ("number == other", [0]),
        ("number < other", [1]),
        ("text == 'SEND'", [0]),
        ("text > 'A'", [0, 1]),
        ("text contains '\\n'", [1]),
        ("text contains ''", [0, 1, 3]),
        ("text matches '^S.*D$'", [0]),
        ("text in ('', 'SEND')", [0, 3]),
        ("flag", [0, 3]),
        ("not flag", [1, 2]),
        ("flag == false", [1]),
        ("ts > '2026-01-01'", [1, 3]),
        ("ts == '2026-01-01T01:00:00+01:00'", [0]),
        ("list contains 2", [0]),
        ("list == null", [2]),
        ("flag and number > 5 or text == 'SEND'", [0, 3]),
        ("flag and (number > 5 or text == 'SEND') and not other == 1", [3]),
    ],
)
def test_rows_are_kept_as_the_rules_say(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


def test_a_table_without_rows_gives_an_empty_mask() -> None:
    for text in ("text == 'x' and number in (1)", "list contains 1", "flag", "text matches 'x'"):
        assert kept(text, []) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("numbr == 1", "did you mean number?"),
        ("zzz == 1", "see dissector fields"),
        ("number == 'x'", "number is a whole number"),
        ("number == true", "number is a whole number"),
        ("number > 0.5", "number is a whole number"),
        ("number < 9223372036854775808", "of 64 bits"),
        ("number < 1e999", "of 64 bits"),
        ("text == 5", "text is text"),
        ("flag == 1", "flag is true or false"),
        ("number", "compare number with something"),
        ("1 == 2", "a column name belongs"),
        ("number > null", "only be compared by == and !="),
        ("number contains 1", "is for text"),
        ("'S' contains text", "takes a column before it"),
        ("text contains null", "a value after it"),
        ("text contains 5", "text is text"),
        ("text matches '('", "pattern cannot be read"),
        ("ts > 'yesterday'", "ts is a time"),
        ("ts > 5", "ts is a time"),
        ("list == 1", "use contains"),
        ("list contains true", "list is a list"),
        ("number in ('a')", "number is a whole number"),
        ("number == text", "cannot be compared"),
        ("list == list", "cannot be compared"),
    ],
)
def test_comparisons_that_cannot_be_meant_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        select.check(text, parse(text), KINDS)
    assert reason in str(caught.value)
    assert "character" in str(caught.value)


numbers = st.one_of(st.none(), st.integers(-3, 3))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "ab", "b"]))
comparisons = st.one_of(
    st.builds(
        lambda name, sign, value: f"{name} {sign} {value}",
        st.sampled_from(["number", "other"]),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.sampled_from(["-1", "0", "2", "number", "other"]),
    ),
    st.builds(
        lambda sign, value: f"text {sign} '{value}'",
        st.sampled_from(["==", "!=", "<", ">=", "contains", "matches"]),
        st.sampled_from(["", "a", "b"]),
    ),
    st.sampled_from(["flag", "number in (1, null)", "text == null", "2 < other", "null == number"]),
)
trees = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
    ),
    max_leaves=6,
)
tables = st.lists(
    st.fixed_dictionaries(
        {
            "number": numbers,
            "other": numbers,
            "text": texts,
            "flag": st.one_of(st.none(), st.booleans()),
            "ts": st.none(),
            "list": st.none(),
        }
    ),
    max_size=6,
)


@settings(deadline=None)
@given(trees, tables)
def test_columns_and_single_values_are_judged_alike(text: str, rows: list[dict[str, Any]]) -> None:
    node: Node = parse(text)
    expected = [number for number, row in enumerate(rows) if select.holds(node, row.__getitem__)]
    assert kept(text, rows) == expected


def test_values_of_different_kinds_are_unequal_and_without_order() -> None:
    values = {"a": "text", "b": 5, "c": None}
    assert not select.holds(parse("a < 5"), values.__getitem__)
    assert select.holds(parse("a != 5"), values.__getitem__)
    assert not select.holds(parse("c > 0 or c == 0 or c < 0"), values.__getitem__)
