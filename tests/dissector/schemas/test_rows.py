"""Blocks to Arrow against a row-by-row twin, however the rows are cut into blocks."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.blocks import Coded, Lists, Spans, TableBlock
from dissector.limits import NULL
from dissector.schemas import TABLES
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.rows import TableBuilder, arrow_batch, text_bytes
from tests.dissector.schemas.made import NAMES, made_block
from tests.naive.rows import plain_rows


@pytest.mark.parametrize("table", list(TABLES))
def test_a_block_becomes_the_same_rows_as_one_by_one(table: str) -> None:
    for seed in range(12):
        block = made_block(table, 37, seed)
        batch = arrow_batch(block)
        batch.validate(full=True)
        assert batch.schema == in_memory_schema(table)
        assert batch.to_pylist() == plain_rows(block)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TABLES)),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 99)), max_size=6),
    st.integers(1, 9),
)
def test_rows_of_several_blocks_come_out_in_order_and_the_builder_can_be_used_again(
    table: str, sizes: list[tuple[int, int]], capacity: int
) -> None:
    builder = TableBuilder(table, capacity)
    wanted, found = [], []
    for rows, seed in sizes:
        block = made_block(table, rows, seed)
        wanted += plain_rows(block)
        start = 0
        while start < rows:
            stop = min(rows, start + builder.free_rows)
            builder.append(block, start, stop)
            start = stop
            if builder.free_rows == 0:
                found += builder.finish().to_pylist()
    batch = builder.finish()
    batch.validate(full=True)
    assert found + batch.to_pylist() == wanted
    assert builder.rows == 0


def test_only_the_names_in_use_are_in_the_dictionary() -> None:
    codes = np.array([3, NULL, 41, 3], np.int64)
    batch = arrow_batch(TableBlock("frames", 4, {"topic": Coded(codes, NAMES)}))
    topic = batch.column("topic")
    assert len(topic.dictionary) == 2
    assert topic.null_count == 1
    assert topic.to_pylist() == [NAMES[3].decode(), None, NAMES[41].decode(), NAMES[3].decode()]


def test_a_list_of_names_that_grows_gives_the_same_dictionary() -> None:
    short, long = list(NAMES[:5]), list(NAMES)
    codes = np.array([0, 4, 2], np.int64)
    batches = [
        arrow_batch(TableBlock("frames", 3, {"topic": Coded(codes, names)}))
        for names in (short, long)
    ]
    assert batches[0].equals(batches[1])
    assert batches[0].column("topic").dictionary.equals(batches[1].column("topic").dictionary)


def test_times_are_rounded_down_to_microseconds() -> None:
    stamps = np.array([1_999, -1, NULL, 0], np.int64)
    batch = arrow_batch(TableBlock("notices", 4, {"ts": stamps}))
    assert batch.column("ts").cast(pa.int64()).to_pylist() == [1, -1, None, 0]


def test_any_number_but_zero_is_true() -> None:
    flags = np.array([0, 1, 256, NULL], np.int64)
    batch = arrow_batch(TableBlock("frames", 4, {"is_batch": flags}))
    assert batch.column("is_batch").to_pylist() == [False, True, True, None]


def test_a_column_without_values_needs_no_memory() -> None:
    block = TableBlock("frames", 3, {"request_id": np.full(3, NULL)})
    builder = TableBuilder("frames", 1_000_000_000_000)  # could not be allocated
    builder.append(block, 0, 3)
    assert builder.finish().column("request_id").null_count == 3


def test_a_wrong_column_or_code_is_refused() -> None:
    with pytest.raises(AssertionError, match="no column"):
        arrow_batch(TableBlock("frames", 1, {"no_such": np.zeros(1, np.int64)}))
    with pytest.raises(AssertionError, match="code 3 of 2 names"):
        arrow_batch(TableBlock("frames", 1, {"topic": Coded(np.array([3]), [b"a", b"b"])}))
    beyond = Spans(np.zeros(4, np.uint8), np.array([2]), np.array([3]))
    with pytest.raises(AssertionError, match="outside"):
        arrow_batch(TableBlock("messages", 1, {"partition_key": beyond}))


def test_text_bytes_counts_what_makes_rows_large() -> None:
    block = TableBlock(
        "messages",
        2,
        {
            "frame_no": np.arange(2),
            "partition_key": Spans(np.zeros(9, np.uint8), np.array([0, 4]), np.array([4, -1])),
            "ordering_key": Spans(np.zeros(9, np.uint8), np.array([0, 4]), np.array([4, 5]), True),
            "properties": [None, {"ab": "c"}],
        },
    )
    assert text_bytes(block, 0, 1) == 4 + 8
    assert text_bytes(block, 1, 2) == 10 + 8 + 8 + 3
    lists = Lists(np.zeros(9, np.int64), np.array([0, 0]), np.array([3, -1]))
    assert text_bytes(TableBlock("acks", 2, {"ack_set": lists}), 0, 2) == 24
