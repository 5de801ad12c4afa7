"""Connections that are copies of others (`stream.translations`), from notices to closing."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.limits import NULL
from dissector.notice_rows import NoticeRows
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.interface import CLIENT_LEG, PROXY_LEG, ConnectionFacts
from dissector.stream.records import Connections

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


def with_translations(
    rows: Connections, facts: Mapping[int, ConnectionFacts]
) -> Mapping[int, ConnectionFacts]:
    """The facts of connections, with the legs and twins of those captured around a translation."""
    legs = {PROXY_LEG: rows.copy_of, CLIENT_LEG: rows.twin}
    if all((twins == NULL).all() for twins in legs.values()):
        return facts
    known = dict(facts)
    for leg, twins in legs.items():
        for row in np.flatnonzero(twins != NULL).tolist():
            connection = int(rows.connection_id[row])
            own = known.get(connection, ConnectionFacts())
            if leg == PROXY_LEG or own.leg is None:
                known[connection] = own._replace(leg=leg, twin_connection_id=int(twins[row]))
    return known
