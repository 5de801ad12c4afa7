"""Notices about frames, with the frame's time and position."""

from typing import Final

from dissector.jit import inlined
from dissector.limits import NULL
from dissector.notice_rows import Notice, Notices, add_row
from dissector.protocols.columns import FrameColumns

# The columns of a frame that are copied to a notice, in the order of its fields behind `kind`.
PLACE_COLUMNS: Final = (
    "last_ts_ns",
    "connection_id",
    "direction",
    "frame_no",
    "last_packet",
    "stream_offset",
)


def notice_at(
    kind: int, frames: FrameColumns, row: int, value: int = NULL, value2: int = NULL
) -> Notice:
    """A notice about the frame in a row. kind: number in notices.NOTICES."""
    place = [int(getattr(frames, name)[row]) for name in PLACE_COLUMNS]
    return Notice(kind, *place)._replace(value=value, value2=value2)


@inlined
def note_frame(
    notices: Notices, kind: int, frames: FrameColumns, row: int, value: int, value2: int
) -> None:
    """Add a notice about the frame in a row; the caller has reserved room."""
    at, rows = add_row(notices, kind), notices.rows
    rows.ts_ns[at] = frames.last_ts_ns[row]
    rows.connection_id[at] = frames.connection_id[row]
    rows.direction[at] = frames.direction[row]
    rows.frame_no[at] = frames.frame_no[row]
    rows.packet[at] = frames.last_packet[row]
    rows.stream_offset[at] = frames.stream_offset[row]
    rows.value[at] = value
    rows.value2[at] = value2
