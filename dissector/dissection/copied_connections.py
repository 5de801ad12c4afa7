"""Connections that are copies of others (`stream.translations`), from notices to closing."""

from typing import Final

from dissector.blocks import Int64Array
from dissector.notice_rows import NoticeRows
from dissector.notices import NOTICE_NUMBER

_TRANSLATED_COPY: Final = NOTICE_NUMBER["translated_copy"]


class CopiedConnections:
    """The copies among open connections. open: their connection ids."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self._new: list[int] = []

    def note(self, notices: Int64Array) -> None:
        """Add the copies that notices of the streams name. notices: the matrix of NoticeRows."""
        rows = NoticeRows(notices)
        copies = rows.connection_id[rows.kind == _TRANSLATED_COPY].tolist()
        self.open.update(copies)
        self._new += copies

    def take_new(self) -> tuple[int, ...]:
        """The copies that were added since last asked."""
        new, self._new = tuple(self._new), []
        return new

    def close(self, connections: Int64Array) -> set[int]:
        """Remove closed connections; return those that were copies."""
        closed = self.open.intersection(connections.tolist())
        self.open -= closed
        return closed
