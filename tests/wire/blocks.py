"""Whole frames as a block of frame columns, as the framing hands them on."""

from collections.abc import Sequence

import numpy as np

from dissector.blocks import ByteArray
from dissector.protocols.columns import COMPLETE, FrameColumns, new_frame_columns

Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]


def block_of(frames: Sequence[bytes], sources_used: int = 4) -> tuple[FrameColumns, Sources]:
    """Frame columns of complete frames, which lie in the four sources in rotation."""
    _, columns = new_frame_columns(len(frames))
    parts: list[bytearray] = [bytearray(b"\xff\x00\x08"[: n % 4]) for n in range(4)]
    for row, frame in enumerate(frames):
        source = row % sources_used
        columns.source[row] = source
        columns.data_offset[row] = len(parts[source])
        parts[source] += frame
        columns.data_bytes[row] = columns.frame_bytes[row] = len(frame)
    columns.connection_id[:] = 0
    columns.endpoint_index[:] = 0
    columns.direction[:] = 0
    columns.protocol[:] = 0
    columns.status[:] = COMPLETE
    columns.frame_no[: len(frames)] = np.arange(1, len(frames) + 1)
    columns.first_ts_ns[:] = columns.last_ts_ns[:] = columns.frame_no * 1000
    sources = [np.frombuffer(part + b"\0", np.uint8) for part in parts]
    return columns, (sources[0], sources[1], sources[2], sources[3])


def cut(columns: FrameColumns, row: int, data_bytes: int, status: int) -> None:
    """Cut a frame to its first bytes."""
    columns.data_bytes[row] = data_bytes
    columns.status[row] = status
