"""Rows of notices: one layout from the code that detects something to the table.

A kernel writes to its parameter `Notices`, other code creates a `Notice`; both are added to a
`notice_log.NoticeLog`.
"""

from typing import NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER, NOTICES


class Notice(NamedTuple):
    """One notice; limits.NULL where a number is not known.

    kind: number in notices.NOTICES.
    direction: as in frames; of what waits until the client is known, the endpoint_index.
    value, value2: integers of the sentence.
    name: of the wire format, for the sentence: index in the names of the log.
    """

    kind: int
    ts_ns: int = NULL
    connection_id: int = NULL
    direction: int = NULL
    frame_no: int = NULL
    packet: int = NULL
    stream_offset: int = NULL
    bytes: int = NULL
    value: int = NULL
    value2: int = NULL
    name: int = NULL

    @property
    def code(self) -> str:
        """The stable name of its kind."""
        return NOTICES[self.kind].code


class NoticeRows(Records):
    """Notices as the rows of a matrix, the columns as in Notice."""

    kind: Int64Array
    ts_ns: Int64Array
    connection_id: Int64Array
    direction: Int64Array
    frame_no: Int64Array
    packet: Int64Array
    stream_offset: Int64Array
    bytes: Int64Array
    value: Int64Array
    value2: Int64Array
    name: Int64Array


class Notices(NamedTuple):
    """Rows that kernels write. used: int64[1], number of rows."""

    rows: NoticeRows
    used: Int64Array


def new_notices(rows: int) -> Notices:
    """Return space for so many notices; memory is used as rows are written."""
    matrix = np.empty((rows, len(NoticeRows._fields)), np.int64)
    return Notices(NoticeRows(matrix), np.zeros(1, np.int64))


def empty_rows(rows: int) -> Int64Array:
    """A matrix of NoticeRows whose cells are not set."""
    return np.empty((rows, len(NoticeRows._fields)), np.int64)


def notice_of(code: str, **numbers: int) -> Notice:
    """A notice by its code. numbers: fields of a Notice."""
    return Notice(NOTICE_NUMBER[code], **numbers)


def drained(notices: Notices) -> Int64Array:
    """Return the rows that kernels wrote, as the matrix of a new NoticeRows, and clear them."""
    rows = notices.rows.matrix[: int(notices.used[0])].copy()
    notices.used[0] = 0
    return rows


@inlined
def has_room(notices: Notices, more: int) -> bool:
    """Whether there is space for so many further rows."""
    return bool(notices.used[0] + more <= len(notices.rows.kind))


@inlined
def add_row(notices: Notices, kind: int) -> int:
    """Append a row of a kind with all other columns null; the caller has checked `has_room`."""
    row = notices.used[0]
    notices.used[0] = row + 1
    notices.rows.matrix[row, :] = NULL
    notices.rows.kind[row] = kind
    return int(row)
