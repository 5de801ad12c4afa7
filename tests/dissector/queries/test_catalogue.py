"""The files of queries say how their rows are put together, and are read that way."""

import pyarrow as pa
import pytest

from dissector.queries.catalogue import catalogue
from tests.dissector.queries.asking import Asking


@pytest.fixture(scope="module")
def asking() -> Asking:
    return Asking().put({})


@pytest.mark.parametrize("name", list(catalogue()))
def test_a_query_gives_the_columns_that_its_header_names(asking: Asking, name: str) -> None:
    query = catalogue()[name]
    columns = asking.table(query.per_capture()).schema.names
    assert columns[0] == "capture"
    if query.is_list:
        assert {column for column, _ in query.order} | set(query.of) <= set(columns)
    else:
        assert tuple(columns) == query.columns


def test_a_tally_keeps_the_first_of_merged_rows(asking: Asking) -> None:
    query = catalogue()["refused_texts"]._replace(first=2)
    rows = pa.table({
        "capture": ["a", "b", "a", "a"], "error_code": ["x"] * 4,
        "error_text": ["s", "s", "t", "u"], "answers": [1, 1, 1, 1],
        "first_ns": [9, 8, 2, 3], "first_frame_no": [1, 1, 1, 1],
    })  # fmt: skip
    asking.register("kept", rows)
    found = asking.table(query.merged("kept")).to_pylist()
    assert [(row["error_text"], row["answers"]) for row in found] == [("s", 2), ("t", 1)]
