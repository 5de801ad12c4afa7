"""Notices of sides of connections, held until it is known which side is the client.

A flood has one per packet, so they stay rows of a matrix, with an index of rows by connection.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.notice_rows import NoticeRows, empty_rows

_CONNECTION: Final = NoticeRows._fields.index("connection_id")
_FIRST_ROWS: Final = 64


class HeldNotices:
    """Notices by connection, in order of arrival."""

    def __init__(self) -> None:
        self._rows: Int64Array = empty_rows(_FIRST_ROWS)
        self._used = 0  # rows in use, including rows of removed connections
        self._rows_by_connection: dict[int, list[int]] = {}
        self.count = 0

    def add(self, rows: Int64Array) -> None:
        """Add notices. rows: the matrix of NoticeRows, which is copied."""
        first, self._used = self._used, self._used + len(rows)
        if self._used > len(self._rows):
            more = empty_rows(max(self._used, 2 * len(self._rows)))
            more[:first] = self._rows[:first]
            self._rows = more
        self._rows[first : self._used] = rows
        self.count += len(rows)
        for row, connection in enumerate(rows[:, _CONNECTION].tolist(), first):
            self._rows_by_connection.setdefault(connection, []).append(row)

    def connections(self) -> Int64Array:
        """int64[], connections with notices, in order of their first ones."""
        return np.array(list(self._rows_by_connection), np.int64)

    def pop(self, connections: Sequence[int]) -> tuple[Int64Array, Int64Array]:
        """Remove and return the notices of connections.

        Returns:
            Their rows, and int64[rows], the index in `connections` of each row's connection.
        """
        chosen: list[int] = []
        owners: list[int] = []
        if self._rows_by_connection:
            for number, connection in enumerate(connections):
                rows = self._rows_by_connection.pop(connection, None)
                if rows is not None:
                    chosen += rows
                    owners += [number] * len(rows)
        notice_rows = self._rows[chosen] if chosen else empty_rows(0)
        self.count -= len(chosen)
        if 2 * self.count < self._used:
            self._compact()
        return notice_rows, np.array(owners, np.int64)

    def _compact(self) -> None:
        """Free the rows of removed connections: at least half of all."""
        remaining = [row for rows in self._rows_by_connection.values() for row in rows]
        self._rows[: len(remaining)] = self._rows[remaining]
        self._used, at = len(remaining), 0
        for connection, rows in self._rows_by_connection.items():
            self._rows_by_connection[connection] = list(range(at, at + len(rows)))
            at += len(rows)
