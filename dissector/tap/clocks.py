"""Client clock offsets in a running tap, carried from window to window.

The query is that of reports (`client_clocks` of `queries/shared_views.sql`): a clock is judged by
all sends of its client so far, not by those of one window (`queries/live/carried_clocks.sql`).
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from dissector.limits import MAX_FOLLOWED_CLOCKS
from dissector.queries.catalogue import catalogue
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.schemas.small_tables import NUMBER, TEXT, small_table

# Views over the rows of a window and the carried rows.
WITH_CARRIED: Final = {
    "publish_distances": "{} UNION ALL SELECT u.unit, k.client_ip, k.distance_ns, k.sends "
    "FROM carried_clocks AS k CROSS JOIN units AS u WHERE k.is_set_back = 0",
    "clocks_set_back": "{} UNION SELECT u.unit, k.client_ip "
    "FROM carried_clocks AS k CROSS JOIN units AS u WHERE k.is_set_back = 1",
}
_CELLS: Final = {
    "client_ip": TEXT, "distance_ns": NUMBER, "sends": NUMBER, "is_set_back": NUMBER,
}  # fmt: skip


class Clocks:
    """Distances between publish times and sends, by client; at most MAX_FOLLOWED_CLOCKS clients."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, Any]] = []

    def texts(self) -> list[str]:
        """The queries that run on each window."""
        return [catalogue("live")["carried_clocks"].text]

    def carried(self) -> pa.Table:
        """The rows to carry, the table `carried_clocks`."""
        return small_table((tuple(row[name] for name in _CELLS) for row in self._rows), **_CELLS)

    def take(self, db: DuckdbEngine) -> None:
        """Add a window, whose tables and views `db` has."""
        clients: dict[str, list[Mapping[str, Any]]] = {}
        for row in db.table(self.texts()[0]).to_pylist():
            if row["client_ip"] in clients or len(clients) < MAX_FOLLOWED_CLOCKS:
                clients.setdefault(row["client_ip"], []).append(row)
        self._rows = [row for rows in clients.values() for row in rows]

    def forget(self) -> None:
        """End the run: discard all clients."""
        self._rows = []
