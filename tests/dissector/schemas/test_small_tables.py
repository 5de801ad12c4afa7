"""Tables of a few values are what Arrow makes of the same values."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.schemas.small_tables import (
    NUMBER,
    TEXT,
    nested_array,
    nested_table,
    no_rows,
    small_table,
)

ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    )
)


@given(ROWS)
def test_values_are_what_they_were(rows: list[tuple[str | None, int | None]]) -> None:
    found = small_table(iter(rows), name=TEXT, number=NUMBER)
    found.validate(full=True)
    columns = [[row[at] for row in rows] for at in (0, 1)]
    expected = {"name": pa.array(columns[0], TEXT), "number": pa.array(columns[1], NUMBER)}
    assert found.equals(pa.table(expected))


def test_nothing_has_its_columns() -> None:
    assert no_rows(small_table([], a=TEXT, b=NUMBER).schema).to_pydict() == {"a": [], "b": []}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN = (TEXTS, st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False))


def no_count(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a kind, or lists of them: counts by name are pairs."""
    return st.lists(kind, max_size=2) if kind in PLAIN[1:3] else kind


# Values of one kind, each perhaps missing.
VALUES: st.SearchStrategy[st.SearchStrategy[Any]] = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        inner.map(lambda each: st.lists(st.none() | each, max_size=4)),
        st.dictionaries(TEXTS, inner.map(no_count), min_size=1, max_size=3).map(
            lambda kinds: st.fixed_dictionaries({}, optional=kinds)
        ),
    ),
    max_leaves=6,
)


def without_missing(value: Any) -> Any:
    """A value without names that have no value: a mapping in Arrow has all of them, or is none."""
    if isinstance(value, dict):
        plain = {name: without_missing(each) for name, each in value.items()}
        return {name: each for name, each in plain.items() if each is not None} or None
    return [*map(without_missing, value)] if isinstance(value, list) else value


@given(st.data())
def test_nested_values_are_what_they_were(data: st.DataObject) -> None:
    kind = data.draw(VALUES)
    values = data.draw(st.lists(st.none() | kind, max_size=6))
    found = nested_array(values)
    found.validate(full=True)
    assert [*map(without_missing, found.to_pylist())] == [*map(without_missing, values)]


def test_counts_by_name_are_pairs_in_all_rows_or_in_none() -> None:
    def pairs(**counts: int | None) -> list[dict[str, Any]]:
        return [{"name": name, "count": count} for name, count in counts.items()]

    counts = nested_array([{"ok": 3, "error": 1}, None, {}, {"ok": None}])
    assert counts.to_pylist() == [pairs(ok=3, error=1), None, None, pairs(ok=None)]
    mapping = {"a": {"b": 1.5}, "c": {}, "d": {"e": True}}
    assert nested_array([mapping]).to_pylist() == [mapping | {"c": None, "d": pairs(e=True)}]
    rows = [[{"a": 1, "b": "x"}, {}], None, []]
    assert nested_array(rows).to_pylist() == [[{"a": 1, "b": "x"}, None], None, []]
    assert nested_array([{}, None]).type == pa.string()


def test_nested_rows_have_the_types_that_arrow_finds() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": [{"name": "x", "count": 2}], "c": None, "d": 1, "e": True, "f": {"g": [1]}},
        {"a": None, "b": None, "c": 0.5, "d": 2.5, "e": None, "f": {"h": "y"}},
    ]
    assert nested_table(rows).equals(pa.Table.from_pylist(rows))
    empty = nested_table([{"a": None, "b": [], "c": [{"d": None}]}])
    assert empty.schema.types == [pa.string(), pa.list_(pa.string()),
                                  pa.list_(pa.struct({"d": pa.string()}))]  # fmt: skip
    kinds = {"a": pa.int64(), "b": pa.list_(pa.int64()), "c": pa.map_(pa.string(), pa.string())}
    wanted = pa.schema(kinds)
    some = [{"b": ()}, {"c": [("x", "1"), ("y", None)], "a": 3}, {"b": [None, 2], "c": []}]
    assert nested_table(some, wanted).equals(pa.Table.from_pylist(some, wanted))
    assert nested_table([], wanted).schema == wanted
    bytes_of = pa.schema({"name": pa.string(), "content": pa.binary()})
    files = [{"name": "a", "content": b"\xff\0"}, {"name": "b"}, {"name": "c", "content": b""}]
    assert nested_table(files, bytes_of).equals(pa.Table.from_pylist(files, bytes_of))


@pytest.mark.parametrize("values", [[1, "a"], [True, 1], [[1], {}], [b"x"]])
def test_values_of_several_kinds_are_refused(values: list[Any]) -> None:
    with pytest.raises(TypeError, match="values of one column"):
        nested_array(values)
