"""The columns of `frames` that all protocols share."""

import numpy as np
import pytest

from dissector.blocks import Coded, Spans
from dissector.limits import NULL
from dissector.protocols.columns import (
    CHECKSUM_NAMES,
    COLUMN_NUMBER,
    CUT_BY_GAP,
    DIRECTION_NAMES,
    NAME_SOURCE_NAMES,
    STATUS_NAMES,
    new_frame_columns,
)
from dissector.protocols.frame_table import (
    PLAIN,
    WORDS,
    common_columns,
    copied_spans,
    with_copies,
)
from dissector.protocols.interface import FrameBlock
from dissector.schemas import TABLES


def block_of(rows: int, seed: int = 1) -> FrameBlock:
    """A block with random numbers and nulls in every column."""
    matrix, frames = new_frame_columns(rows + 3)
    generator = np.random.default_rng(seed)
    matrix[:, :rows] = generator.integers(-50, 50, (matrix.shape[0], rows))
    matrix[:, :rows][generator.random((matrix.shape[0], rows)) < 0.3] = NULL
    for name, words in WORDS.items():
        column = matrix[COLUMN_NUMBER[name], :rows]
        column[:] = np.where(column == NULL, NULL, column % len(words))
    sources = tuple(np.arange(size, dtype=np.uint8) for size in (40, 50, 60, 70))
    frames.source[:rows] = generator.integers(0, 4, rows)
    return FrameBlock(matrix, frames, rows, sources)  # type: ignore[arg-type]


def test_chosen_rows_are_copied_as_they_are() -> None:
    block = block_of(20)
    rows = np.array([0, 3, 4, 8, 11, 17, 19])
    columns = common_columns(block, rows)
    for name in PLAIN:
        assert (columns[name] == block.matrix[COLUMN_NUMBER[name], rows]).all()
    assert (columns["ts"] == block.frames.last_ts_ns[rows]).all()
    assert set(columns) == {*PLAIN, *WORDS, "ts"}
    # Copies: the block is used again for the next frames.
    before = columns["frame_no"].copy()
    block.matrix[:] = 77
    assert (columns["frame_no"] == before).all()


def test_numbers_of_our_own_words_become_these_words() -> None:
    assert WORDS == {
        "direction": DIRECTION_NAMES,
        "status": STATUS_NAMES,
        "checksum": CHECKSUM_NAMES,
        "name_source": NAME_SOURCE_NAMES,
    }
    block = block_of(4)
    block.frames.status[1] = CUT_BY_GAP
    status = common_columns(block, np.array([1]))["status"]
    assert isinstance(status, Coded)
    assert status.names[int(status.codes[0])] == "cut_by_gap"


def test_every_column_is_one_of_the_table() -> None:
    known = {column.name for column in TABLES["frames"].columns}
    assert {*PLAIN, *WORDS, "ts"} <= known


def test_no_row_is_no_trouble() -> None:
    columns = common_columns(block_of(5), np.zeros(0, np.int64))
    assert all(len(getattr(column, "codes", column)) == 0 for column in columns.values())


@pytest.mark.parametrize("is_hex", [False, True])
def test_texts_are_copied_out_of_their_own_buffers(is_hex: bool) -> None:
    block = block_of(6)
    at, size = COLUMN_NUMBER["data_offset"], COLUMN_NUMBER["data_bytes"]
    block.matrix[at, :6] = [0, 5, 10, 15, 20, 25]
    block.matrix[size, :6] = [4, NULL, 0, 7, 1, 3]
    rows = np.array([0, 1, 2, 3, 5])
    spans = copied_spans(block, rows, "data_offset", "data_bytes", is_hex)
    assert isinstance(spans, Spans) and spans.is_hex == is_hex
    found = [
        None if length < 0 else spans.data[start : start + length].tobytes()
        for start, length in zip(spans.starts.tolist(), spans.lengths.tolist(), strict=True)
    ]
    expected = []
    for row in rows.tolist():
        start, length = int(block.matrix[at, row]), int(block.matrix[size, row])
        source = block.sources[int(block.frames.source[row])]
        expected.append(None if length == NULL else source[start : start + length].tobytes())
    assert found == expected


def test_a_column_without_any_text_is_left_out() -> None:
    block = block_of(6)
    block.matrix[COLUMN_NUMBER["data_bytes"], :6] = NULL
    assert copied_spans(block, np.arange(6), "data_offset", "data_bytes") is None


def test_frames_are_the_same_where_copies_stand_for_their_bytes() -> None:
    block = block_of(6)
    frames = block.frames
    frames.source[:6] = [1, 0, 2, 1, 3, 1]
    frames.data_offset[:6] = [7, 1, 2, 0, 4, 9]
    frames.data_bytes[:6] = [4, 5, 6, 0, 7, 3]
    frames.frame_no[:6] = [1, 2, 3, 4, 5, NULL]  # the last one is an event
    before = [bytes_of(block, row) for row in range(5)]
    copied = with_copies(block, np.array([0, 2, 3, 5]), 1)
    for source in (block.sources[1], block.sources[2]):
        source[:] = 0xEE
    assert [bytes_of(copied, row) for row in range(5)] == before
    assert copied.frames.source[:5].tolist() == [1, 0, 1, 1, 3]
    assert copied.frames.data_offset[5] == 9 and with_copies(copied, np.array([5]), 1) is copied


def bytes_of(block: FrameBlock, row: int) -> bytes:
    frames = block.frames
    start, size = int(frames.data_offset[row]), int(frames.data_bytes[row])
    return block.sources[int(frames.source[row])][start : start + size].tobytes()
