"""Filters the rows of a stream by a selection, as the views of `selection` do for a lake.

A producer or consumer opened before the capture may be named only by later frames. Its earlier rows
pass here before the name is known, so the views of a lake may select more rows, never fewer. These
rows are counted.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from dissector.blocks import CLIENTS
from dissector.limits import MAX_SUBJECTS
from dissector.queries.selection import OPENED, Selection

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.blocks import TableBlock

# A connection's number, its client's address and port, and the address that a proxy named.
ClientOfConnection = tuple[int, str | None, int | None, str | None]
_NAMES: Final = ("topic", "subscription")
_HANDLE: Final = ("connection_id", "producer_id", "consumer_id", "incarnation")
_Names = tuple[str | None, str | None]


class SelectedRows:
    """A filter for frames or connections, by the names known when a row arrives.

    For each capture the caller passes the clients of connections before their frames, and frames
    before the row of their connection.

    are_frames: whether frames are filtered, not connections.
    unnamed: frames that were dropped before the selected name was known.
    """

    def __init__(self, selection: Selection, table: str = "frames") -> None:
        """table: the table to filter, frames or connections."""
        self.selection = selection
        self.are_frames = table == "frames"
        self._tables = {table, *(["frames"] if selection.is_of_names else [])}
        self._clients: dict[Hashable, set[int]] = {}
        self._connections_with_frames: dict[Hashable, set[int]] = {}
        self.unnamed = 0
        self._waiting: dict[Hashable, Counter[_Names]] = {}

    def of(self, capture: Hashable, block: "TableBlock") -> "pa.RecordBatch | None":
        """The selected rows of a block, None if another table is filtered.

        Args:
            capture: identifies the capture of the block.
        """
        from dissector.schemas.rows import arrow_batch

        if block.table == CLIENTS:
            columns: dict[str, Any] = block.columns
            ips = columns["client_ip"]
            names = [ips.names[code] for code in ips.codes.tolist()]
            numbers = (columns[name].tolist() for name in ("connection_id", "client_port"))
            proxied = columns["proxied_client_ip"]
            self.add_clients(capture, zip(next(numbers), names, *numbers, proxied, strict=True))
        if block.table in OPENED and self._waiting:
            self.opened(capture, block.table, arrow_batch(block))
        if block.table not in self._tables:
            return None
        choose = self.frames if block.table == "frames" else self.connections
        return choose(capture, arrow_batch(block))

    def add_clients(self, capture: Hashable, connections: Iterable[ClientOfConnection]) -> None:
        """Replace the capture's selected connections, before their frames are passed."""
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
        if what.clients:
            batch = _of_connections(batch, self._clients.get(capture, set()))
        if what.is_of_names:
            self._await_names(capture, batch)
        if what.topics:
            batch = _with_names(batch, "topic", what.has_topic)
        if what.subscriptions:
            batch = _with_names(batch, "subscription", what.subscriptions.__contains__)
        if what.is_of_names:
            connection_ids = batch.column("connection_id").to_pylist()
            self._connections_with_frames.setdefault(capture, set()).update(connection_ids)
        return batch

    def opened(self, capture: Hashable, table: str, batch: "pa.RecordBatch") -> None:
        """Producers or consumers: what their frames lacked may be what is selected."""
        kind = table.removesuffix("s")
        for row in batch.to_pylist():
            handle = (capture, row["connection_id"], kind, row[f"{kind}_id"], row["incarnation"])
            for names, frames in self._waiting.pop(handle, Counter()).items():
                late = [own or row.get(name) for own, name in zip(names, _NAMES, strict=True)]
                if self._has_names(*late):
                    self.unnamed += frames
                    connections = self._connections_with_frames.setdefault(capture, set())
                    connections.add(row["connection_id"])

    def _has_names(self, topic: str | None, subscription: str | None) -> bool:
        what = self.selection
        return (not what.topics or (topic is not None and what.has_topic(topic))) and (
            not what.subscriptions or subscription in what.subscriptions
        )

    def _await_names(self, capture: Hashable, batch: "pa.RecordBatch") -> None:
        """Count frames that lack a name by the producer or consumer that may get it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        what = self.selection
        lacks = [
            batch.column(name).is_null()
            for name, asked in zip(_NAMES, (what.topics, what.subscriptions), strict=True) if asked
        ]  # fmt: skip
        owned = [batch.column("consumer_id").is_valid()]  # a producer has no subscription
        if not what.subscriptions:
            owned.append(batch.column("producer_id").is_valid())
        rows = batch.filter(pc.and_(reduce(pc.or_, lacks), reduce(pc.or_, owned)))
        if not rows.num_rows:
            return
        keys = [*_HANDLE, *_NAMES]
        counted = pa.Table.from_batches([rows]).group_by(keys).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            kind = "producer" if row["consumer_id"] is None else "consumer"
            handle = (capture, row["connection_id"], kind, row[f"{kind}_id"], row["incarnation"])
            if handle in self._waiting or len(self._waiting) < MAX_SUBJECTS:
                waiting = self._waiting.setdefault(handle, Counter())
                waiting[row["topic"], row["subscription"]] += row["count_all"]

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
            columns = (batch.column(name).to_pylist() for name in names)
            is_selected = [what.has_client(*client) for client in zip(*columns, strict=True)]
            batch = _pick(batch, is_selected)
        if what.is_of_names:
            batch = _of_connections(batch, self._connections_with_frames.get(capture, set()))
        return batch


def _pick(batch: "pa.RecordBatch", is_selected: Sequence[bool]) -> "pa.RecordBatch":
    import pyarrow as pa

    return batch.filter(pa.array(is_selected, pa.bool_()))


def _in_time(
    batch: "pa.RecordBatch", limits: Iterable[tuple[str, str, int | None]]
) -> "pa.RecordBatch":
    import pyarrow.compute as pc

    for sign, column, time_ns in limits:
        if time_ns is not None:
            batch = batch.filter(getattr(pc, sign)(batch.column(column), time_ns))
    return batch


def _with_names(
    batch: "pa.RecordBatch", column: str, is_wanted: Callable[[str], bool]
) -> "pa.RecordBatch":
    values = batch.column(column).to_pylist()
    wanted = {name for name in {*values} if name is not None and is_wanted(name)}
    return _pick(batch, [value in wanted for value in values])


def _of_connections(batch: "pa.RecordBatch", connections: set[int]) -> "pa.RecordBatch":
    return _pick(batch, [each in connections for each in batch.column("connection_id").to_pylist()])
