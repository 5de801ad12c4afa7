"""Notices of sides of connections that wait until it is known which side is the client.

A flood gives one for each packet, so they stay rows of a matrix; beside it stands, by connection,
which rows are its own.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.notice_rows import NoticeRows, empty_rows

_CONNECTION: Final = NoticeRows._fields.index("connection_id")
_FIRST_ROWS: Final = 64


class HeldNotices:
    """Notices by connection; each gives its own in the order in which they came."""

    def __init__(self) -> None:
        self._rows: Int64Array = empty_rows(_FIRST_ROWS)
        self._used = 0  # rows up to here, those of connections that are gone among them
        self._of: dict[int, list[int]] = {}
        self.count = 0

    def add(self, rows: Int64Array) -> None:
        """Keep notices. rows: the matrix of NoticeRows; they are copied."""
        first, self._used = self._used, self._used + len(rows)
        if self._used > len(self._rows):
            more = empty_rows(max(self._used, 2 * len(self._rows)))
            more[:first] = self._rows[:first]
            self._rows = more
        self._rows[first : self._used] = rows
        self.count += len(rows)
        for row, connection in enumerate(rows[:, _CONNECTION].tolist(), first):
            self._of.setdefault(connection, []).append(row)

    def connections(self) -> Int64Array:
        """Those that have notices, in the order of their first ones."""
        return np.array(list(self._of), np.int64)

    def pop(self, connections: Sequence[int]) -> tuple[Int64Array, Int64Array]:
        """The notices of connections, which are forgotten.

        Returns:
            Their rows, and for each which of the connections it belongs to.
        """
        chosen: list[int] = []
        owners: list[int] = []
        if self._of:
            for number, connection in enumerate(connections):
                rows = self._of.pop(connection, None)
                if rows is not None:
                    chosen += rows
                    owners += [number] * len(rows)
        notice_rows = self._rows[chosen] if chosen else empty_rows(0)
        self.count -= len(chosen)
        if 2 * self.count < self._used:
            self._close_up()
        return notice_rows, np.array(owners, np.int64)

    def _close_up(self) -> None:
        """Let go of the rows of connections that are gone; what is left is half of all at most."""
        kept = [row for rows in self._of.values() for row in rows]
        self._rows[: len(kept)] = self._rows[kept]
        self._used, at = len(kept), 0
        for connection, rows in self._of.items():
            self._of[connection] = list(range(at, at + len(rows)))
            at += len(rows)
