"""Connections that are copies of others."""

import numpy as np

from dissector.dissection.copied_connections import CopiedConnections
from dissector.notice_rows import NoticeRows, empty_rows
from dissector.notices import NOTICE_NUMBER


def test_copies_are_told_once_and_known_until_they_close() -> None:
    notices = empty_rows(3)
    rows = NoticeRows(notices)
    rows.kind[:] = [
        NOTICE_NUMBER[code] for code in ("translated_copy", "gap_lost", "translated_copy")
    ]
    rows.connection_id[:] = 4, 5, 7
    copies = CopiedConnections()
    copies.note(notices)
    assert copies.take_new() == (4, 7) and copies.take_new() == ()
    assert copies.open == {4, 7}
    assert copies.close(np.array([5, 7, 9])) == {7}
    assert copies.open == {4}
