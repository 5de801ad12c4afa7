"""One row of a block as plain numbers, for rules that run in the interpreter."""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.protocols.columns import COLUMN_NUMBER, FrameColumns
from dissector.protocols.cursus.bodies import BodyColumns


class Cell(NamedTuple):
    """Columns of frames, and behind them columns of bodies; limits.NULL where there is nothing."""

    connection_id: int
    direction: int
    command: int
    first_ts_ns: int
    last_ts_ns: int
    frame_bytes: int
    status: int
    retransmitted: int
    frame_no: int
    topic: int
    subscription: int
    producer_name: int
    consumer_name: int
    partition: int
    producer_epoch: int
    sequence_id: int
    highest_sequence_id: int
    message_count: int
    entry_id: int
    last_packet: int
    stream_offset: int
    acks: int
    idempotent: int
    records: int
    first_offset: int
    last_offset: int
    first_seq: int
    first_producer: int
    first_epoch: int


_OF_FRAMES: Final = np.array(
    [COLUMN_NUMBER[name] for name in Cell._fields if name in COLUMN_NUMBER], np.int64
)
_OF_BODIES: Final = np.array(
    [BodyColumns._fields.index(name) for name in Cell._fields[len(_OF_FRAMES) :]], np.int64
)


def cells_of(frames: FrameColumns, bodies: BodyColumns, rows: Int64Array) -> dict[int, Cell]:
    """The columns of many rows, by row."""
    own = frames.matrix[np.ix_(_OF_FRAMES, rows)].T.tolist()
    held = bodies.matrix[np.ix_(_OF_BODIES, rows)].T.tolist()
    made = (Cell._make(one + other) for one, other in zip(own, held, strict=True))
    return dict(zip(rows.tolist(), made, strict=True))


def cell_of(frames: FrameColumns, bodies: BodyColumns, row: int) -> Cell:
    """The columns of a row."""
    own = frames.matrix[_OF_FRAMES, row].tolist()
    return Cell(*own, *bodies.matrix[_OF_BODIES, row].tolist())
