"""The rows of a capture that a selection leaves, as they come: what its views are to a lake.

A row is gone before the name is known that a producer or consumer gets later, which was opened
before the capture: of those a lake has more rows, and never fewer.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dissector.blocks import CLIENTS
from dissector.queries.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.blocks import TableBlock

# A connection's number, its client's address and port, and the address that a proxy named.
ClientOfConnection = tuple[int, str | None, int | None, str | None]


class SelectedRows:
    """What a selection leaves of frames or connections, by the names that they have by then.

    Of each capture it is told the clients of connections before their frames, and frames before the
    row of their connection.
    """

    def __init__(self, selection: Selection, table: str = "frames") -> None:
        """table: whose rows are wanted, frames or connections."""
        self.selection = selection
        self._tables = {table, *(["frames"] if selection.is_of_names else [])}
        self._clients: dict[Hashable, set[int]] = {}
        self._spoken: dict[Hashable, set[int]] = {}

    def of(self, capture: Hashable, block: "TableBlock") -> "pa.RecordBatch | None":
        """The selected rows of a block, if its table is wanted.

        Args:
            capture: what the block is of.
        """
        from dissector.schemas.rows import arrow_batch

        if block.table == CLIENTS:
            columns: dict[str, Any] = block.columns
            ips = columns["client_ip"]
            names = [ips.names[code] for code in ips.codes.tolist()]
            numbers = (columns[name].tolist() for name in ("connection_id", "client_port"))
            proxied = columns["proxied_client_ip"]
            self.add_clients(capture, zip(next(numbers), names, *numbers, proxied, strict=True))
        if block.table not in self._tables:
            return None
        choose = self.frames if block.table == "frames" else self.connections
        return choose(capture, arrow_batch(block))

    def add_clients(self, capture: Hashable, connections: Iterable[ClientOfConnection]) -> None:
        """The connections of a capture whose frames come next."""
        self._clients[capture] = {
            number
            for number, ip, port, proxied in connections
            if self.selection.has_client(ip, port, proxied)
        }

    def frames(self, capture: Hashable, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The selected rows of frames."""
        what = self.selection
        limits = ("greater_equal", what.since_ns), ("less", what.until_ns)
        batch = _in_time(batch, [(sign, "last_ts_ns", ns) for sign, ns in limits])
        if what.topics:
            batch = _named(batch, "topic", what.has_topic)
        if what.subscriptions:
            batch = _named(batch, "subscription", what.subscriptions.__contains__)
        if what.clients:
            batch = _numbered(batch, self._clients.get(capture, set()))
        if what.is_of_names:
            spoken = batch.column("connection_id").to_pylist()
            self._spoken.setdefault(capture, set()).update(spoken)
        return batch

    def connections(self, capture: Hashable, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The selected rows of connections."""
        what = self.selection
        limits = (
            ("greater_equal", "last_ts_ns", what.since_ns),
            ("less", "first_ts_ns", what.until_ns),
        )
        batch = _in_time(batch, limits)
        if what.clients:
            names = "client_ip", "client_port", "proxied_client_ip"
            ends = (batch.column(name).to_pylist() for name in names)
            kept = [what.has_client(*client) for client in zip(*ends, strict=True)]
            batch = _kept(batch, kept)
        if what.is_of_names:
            batch = _numbered(batch, self._spoken.get(capture, set()))
        return batch


def _kept(batch: "pa.RecordBatch", kept: Sequence[bool]) -> "pa.RecordBatch":
    import pyarrow as pa

    return batch.filter(pa.array(kept, pa.bool_()))


def _in_time(
    batch: "pa.RecordBatch", limits: Iterable[tuple[str, str, int | None]]
) -> "pa.RecordBatch":
    import pyarrow.compute as pc

    for sign, column, time_ns in limits:
        if time_ns is not None:
            batch = batch.filter(getattr(pc, sign)(batch.column(column), time_ns))
    return batch


def _named(
    batch: "pa.RecordBatch", column: str, is_wanted: Callable[[str], bool]
) -> "pa.RecordBatch":
    values = batch.column(column).to_pylist()
    wanted = {name for name in {*values} if name is not None and is_wanted(name)}
    return _kept(batch, [value in wanted for value in values])


def _numbered(batch: "pa.RecordBatch", connections: set[int]) -> "pa.RecordBatch":
    return _kept(batch, [each in connections for each in batch.column("connection_id").to_pylist()])
