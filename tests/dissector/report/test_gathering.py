"""Blocks of rows gathered into larger batches: in order, frames first, within bounds."""

import numpy as np
import pyarrow as pa
import pytest

from dissector.blocks import Coded, TableBlock
from dissector.report import gathering
from dissector.report.gathering import Gatherer

Taken = list[tuple[str, list[int], str]]


def block_of(table: str, *frames: int, texts: int = 0) -> TableBlock:
    columns = {"frame_no": np.asarray(frames, np.int64)}
    text = {"error_text": ["x" * texts] * len(frames)} if texts else {}
    return TableBlock(table, len(frames), columns | text)


def gatherer(taken: Taken) -> Gatherer:
    def take(table: str, batch: pa.RecordBatch, capture: str) -> None:
        taken.append((table, batch.column("frame_no").to_pylist(), capture))

    return Gatherer(take)


def test_rows_come_together_frames_first_and_in_their_order() -> None:
    taken: Taken = []
    found = gatherer(taken)
    found.add(block_of("acks", 3), "c")
    found.add(block_of("frames", 1, 2), "c")
    found.add(block_of("acks", 4, 5), "c")
    assert taken == []
    found.flush()
    assert taken == [("frames", [1, 2], "c"), ("acks", [3, 4, 5], "c")]
    found.flush()
    assert len(taken) == 2


def test_captures_are_kept_apart() -> None:
    taken: Taken = []
    found = gatherer(taken)
    found.add(block_of("acks", 1), "one")
    found.add(block_of("acks", 1), "two")
    found.flush()
    assert [capture for _, _, capture in taken] == ["one", "two"]


def test_what_gathers_is_bounded_in_rows_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHERED_ROWS", 4)
    taken: Taken = []
    found = gatherer(taken)
    found.add(block_of("acks", *range(10)), "c")
    assert [rows for _, rows, _ in taken] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    found.flush()
    monkeypatch.setattr(gathering, "GATHERED_TEXT", 50)
    found.add(block_of("frames", 1, texts=30), "c")
    assert len(taken) == 3
    found.add(block_of("frames", 2, texts=30), "c")
    assert taken[-1] == ("frames", [1, 2], "c")


def test_what_was_handed_on_stays_as_it_was() -> None:
    kept: list[pa.RecordBatch] = []
    found = Gatherer(lambda table, batch, capture: kept.append(batch))
    for number in range(3):
        names = Coded(np.zeros(1, np.int64), [f"t{number}".encode()])
        columns = {"frame_no": np.array([number], np.int64), "topic": names}
        found.add(TableBlock("acks", 1, columns), "c")
        found.flush()
    assert [batch.column("frame_no").to_pylist() for batch in kept] == [[0], [1], [2]]
    assert [batch.column("topic").to_pylist() for batch in kept] == [["t0"], ["t1"], ["t2"]]
