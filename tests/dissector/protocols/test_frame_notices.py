"""Notices about frames: of a kernel and of other code alike."""

from dissector.jit import kernel
from dissector.limits import NULL
from dissector.notice_rows import Notice, Notices, drained, new_notices
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns, new_frame_columns
from dissector.protocols.frame_notices import note_frame, notice_at


@kernel
def written(notices: Notices, kind: int, frames: FrameColumns) -> None:
    note_frame(notices, kind, frames, 1, 8, NULL)


def test_a_notice_is_at_the_end_of_its_frame() -> None:
    _, frames = new_frame_columns(2)
    for number, name in enumerate(frames._fields):
        getattr(frames, name)[1] = number
    kind, notices = NOTICE_NUMBER["malformed_frame"], new_notices(1)
    written(notices, kind, frames)
    (row,) = drained(notices).tolist()
    assert Notice(*row) == notice_at(kind, frames, 1, 8)
    assert notice_at(kind, frames, 1) == Notice(
        kind,
        ts_ns=frames.last_ts_ns[1],
        connection_id=frames.connection_id[1],
        direction=frames.direction[1],
        frame_no=frames.frame_no[1],
        packet=frames.last_packet[1],
        stream_offset=frames.stream_offset[1],
    )
