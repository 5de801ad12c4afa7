"""What passes remember, written and read again."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dissector.joining import checkpoints
from dissector.joining.checkpoints import Checkpoint, arrays_of, rebuilt
from dissector.joining.replay import INPUT, Replay
from dissector.protocols.pairing.state import PairingBounds, new_pairing_state
from tests.dissector.joining.test_replay import MS, frame, replayed


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (0, 3), (1000, 7)])
def test_arrays_texts_and_tables_are_read_as_they_were_written(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    chance = np.random.default_rng(7)
    array = chance.integers(-9, 9, shape) * chance.integers(0, 2, shape)
    array.reshape(-1)[array.size // 3 :] = 0
    table = pa.table({"a": [1, None], "b": ["x", "ü"]})
    written = Checkpoint(
        {"one": array, "zeros": np.zeros_like(array)}, {"names": [b"", b"\xff\0"]}, {"t": table}
    )
    checkpoints.write(written, tmp_path / "folder" / "file")
    state_read = checkpoints.read(tmp_path / "folder" / "file")
    assert state_read.texts == written.texts and state_read.tables == written.tables
    for name, each in written.arrays.items():
        assert state_read.arrays[name].dtype == np.int64
        assert (
            np.array_equal(state_read.arrays[name], each) and state_read.arrays[name].shape == shape
        )


def test_a_state_has_the_arrays_of_another() -> None:
    one, other = (new_pairing_state(rows, PairingBounds()) for rows in (64, 256))
    one.pending.request_frame_no[:] = np.arange(len(one.pending.request_frame_no))
    one.counters[3] = 99
    arrays = dict(arrays_of(one, "x"))
    assert rebuilt(other, "x", {name: each.copy() for name, each in arrays.items()}) is other
    for name, each in arrays_of(other, "x"):
        assert np.array_equal(each, arrays[name]), name
    assert other.counters[3] == 99 and other.pending.matrix.shape == one.pending.matrix.shape


def test_a_replay_goes_on_where_another_one_was_left(tmp_path: Path) -> None:
    there, back = "to_broker", "to_client"
    rows = [
        frame(0, 1, "PRODUCER", there, request_id=1, producer_id=4, topic="persistent://a/b/t"),
        frame(0, 2, "PRODUCER_SUCCESS", back, request_id=1, producer_name="p"),
        frame(0, 3, "SEND", there, producer_id=4, sequence_id=0, message_count=1),
        frame(1, 1, "SEND_ERROR", back, producer_id=4, sequence_id=0, error_code="ChecksumError",
              error_text="no"),
        frame(1, 2, "SEND", there, producer_id=4, sequence_id=0, message_count=1),
    ]  # fmt: skip
    whole = replayed(rows, 100)
    for place in range(1, len(rows)):
        first = Replay(200 * MS)
        table = pa.Table.from_pylist(rows, schema=INPUT)
        told = [*first.feed(table.slice(0, place)), *first.leave()]
        checkpoints.write(first.checkpoint(), tmp_path / f"{place}")
        second = Replay.resumed(200 * MS, checkpoints.read(tmp_path / f"{place}"))
        closed_rows = replayed(rows[place:], 100, second)
        for name, each in reversed(told):
            closed_rows[name] = each.to_pylist() + closed_rows.get(name, [])
        assert closed_rows["exchanges"] == whole["exchanges"], place
        assert closed_rows["producers"] == whole["producers"], place
