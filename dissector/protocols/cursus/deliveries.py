"""Open deliveries, which wait for a commit, and the fetched and committed offsets of each group.

A *position* is the progress of a group in a partition. Its open deliveries are listed, oldest
first, until a commit closes them. Of its fetched offsets only the topmost run is stored here; runs
below a gap go to the rules in `groups`, which also handle every offset that is fetched again.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector import tables
from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.wrapping import difference
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.cursus.rows import DELIVERY_COLUMNS, AckRows, DeliveryRows
from dissector.schemas.enums import (
    ACKED,
    DELIVERY_CONN_CLOSED,
    UNKNOWN_GAP,
    UNRESOLVED_AT_LIMIT,
)
from dissector.states import State
from dissector.tables import HashTable, Pool

LARGEST: Final = (1 << 63) - 1
MANY: Final = LARGEST  # groups of a topic
_COLUMNS: Final = len(DELIVERY_COLUMNS)

# Indexes into DeliveryState.counts.
OPEN: Final = 0  # open deliveries at all positions
_RUNS: Final = 1  # used records of ended
_LIMIT: Final = 2  # bound of open deliveries
_CLOSED: Final = 3  # used records of closed
_ACKS: Final = 4  # used records of acks


class ReadPositions(Records):
    """One record per group and partition.

    run_first, top: the topmost run of fetched offsets, its end exclusive.
    committed: the next offset to read, NULL before a commit.
    commit_frame_no, commit_ns: of the commit; last_...: of the last delivery, last_frame_no NULL if
        there was none, last_row the ordinal of its row.
    first, last, length: the list of open deliveries.
    is_mixed: 1 if that list is not in the order of offsets.
    """

    subscription: Int64Array
    topic: Int64Array
    partition: Int64Array
    run_first: Int64Array
    top: Int64Array
    committed: Int64Array
    commit_frame_no: Int64Array
    commit_ns: Int64Array
    last_connection: Int64Array
    last_frame_no: Int64Array
    last_consumer: Int64Array
    last_offset: Int64Array
    last_is_push: Int64Array
    last_is_redelivered: Int64Array
    last_cause: Int64Array
    last_row: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    is_mixed: Int64Array


class EndedRuns(Records):
    """Runs of fetched offsets below the topmost run of their position."""

    position: Int64Array
    first: Int64Array
    stop: Int64Array


class DeliveryState(State):
    """All deliveries, and all commits.

    only_group: by topic, the one group that commands name with it, or MANY.
    by_position: positions by subscription, topic, partition.
    closed_connections: ids of ended connections.
    one_way: ids of connections with deliveries and, so far, no packet of the client.
    closed: closed deliveries.
    acks: committed offsets.
    counts: see above.
    """

    only_group: HashTable
    by_position: HashTable
    positions: ReadPositions
    deliveries: DeliveryRows
    free: Pool
    closed_connections: HashTable
    one_way: HashTable
    ended: EndedRuns
    closed: DeliveryRows
    acks: AckRows
    counts: Int64Array


@inlined
def extends_top(state: DeliveryState, position: int, first: int, last: int, ts: int) -> bool:
    """Whether offsets are above all fetched ones, not committed yet, and there is room for them."""
    positions = state.positions
    if first < positions.top[position] or last < first or first < 0 or last == LARGEST:
        return False
    if state.counts[OPEN] >= state.counts[_LIMIT]:
        return False
    if first > positions.top[position] and state.counts[_RUNS] >= len(state.ended.first):
        return False
    committed = positions.committed[position]
    return not (committed != NULL and ts <= positions.commit_ns[position] and last < committed)


@inlined
def extend_fetched(state: DeliveryState, position: int, first: int, last: int) -> None:
    """Add offsets above all fetched ones."""
    positions, ended = state.positions, state.ended
    if first > positions.top[position]:
        if positions.top[position] > positions.run_first[position]:
            at = state.counts[_RUNS]
            ended.position[at] = position
            ended.first[at] = positions.run_first[position]
            ended.stop[at] = positions.top[position]
            state.counts[_RUNS] = at + 1
        positions.run_first[position] = first
    positions.top[position] = last + 1


@kernel
def open_delivery(state: DeliveryState, position: int, which: int, is_push: bool, row: int) -> None:
    """Append a delivery to the open ones of its position. row: its ordinal."""
    positions, deliveries = state.positions, state.deliveries
    last = positions.last[position]
    if positions.length[position] == 0:
        positions.first[position] = which
    else:
        if deliveries.last_offset[last] >= deliveries.entry_id[which]:
            positions.is_mixed[position] = 1
        deliveries.next[last] = which
    positions.last[position] = which
    positions.length[position] += 1
    positions.last_connection[position] = deliveries.connection_id[which]
    positions.last_frame_no[position] = deliveries.frame_no[which]
    positions.last_consumer[position] = deliveries.consumer_name[which]
    positions.last_offset[position] = deliveries.last_offset[which]
    positions.last_is_push[position] = 1 if is_push else 0
    positions.last_is_redelivered[position] = deliveries.is_redelivered[which]
    positions.last_cause[position] = deliveries.redelivery_cause[which]
    positions.last_row[position] = row
    state.counts[OPEN] += 1


@kernel
def write_delivery(state: DeliveryState, which: int, outcome: int, row: int) -> None:
    """Close a delivery that is in no list. row: ordinal of the frame or event that closes it."""
    deliveries, closed = state.deliveries, state.closed
    deliveries.outcome[which] = outcome
    deliveries.closing_row[which] = row
    if outcome == ACKED:
        latency = difference(deliveries.ack_ns[which], deliveries.ts[which])
        deliveries.ack_latency_ns[which] = latency if latency >= 0 else NULL
    else:
        deliveries.ack_frame_no[which] = NULL
    at = state.counts[_CLOSED]
    for column in range(_COLUMNS):
        closed.matrix[at, column] = deliveries.matrix[which, column]
    state.counts[_CLOSED] = at + 1
    tables.give_row(state.free, which)


@inlined
def _unlink(state: DeliveryState, position: int, before: int, which: int) -> None:
    """Unlink a delivery from its list. before: the previous delivery, ABSENT for the first."""
    positions, deliveries = state.positions, state.deliveries
    after = deliveries.next[which]
    if before == tables.ABSENT:
        positions.first[position] = after
    else:
        deliveries.next[before] = after
    if after == tables.ABSENT:
        positions.last[position] = before
    positions.length[position] -= 1
    if positions.length[position] == 0:
        positions.is_mixed[position] = 0
    state.counts[OPEN] -= 1


class Commit(NamedTuple):
    """A commit of offsets below `following`. frame_no, ns: its request's; row: its answer's."""

    following: int
    frame_no: int
    ns: int
    row: int


@inlined
def new_ack(state: DeliveryState) -> int:
    """Allocate a record for a committed offset; there must be room for it."""
    at = state.counts[_ACKS]
    state.counts[_ACKS] = at + 1
    return int(at)


@inlined
def has_ack_room(state: DeliveryState) -> bool:
    """Whether there is room for one more committed offset."""
    return bool(state.counts[_ACKS] < len(state.acks.matrix))


@inlined
def has_commit_room(state: DeliveryState, position: int) -> bool:
    """Whether there is room to close all open deliveries of a position."""
    rows = state.counts[_CLOSED] + state.positions.length[position]
    return bool(rows <= len(state.closed.matrix))


@kernel
def handle_commit(state: DeliveryState, position: int, commit: Commit) -> None:
    """Close the deliveries that a commit covers; see `has_commit_room`."""
    positions, deliveries = state.positions, state.deliveries
    positions.committed[position] = commit.following
    positions.commit_frame_no[position] = commit.frame_no
    positions.commit_ns[position] = commit.ns
    before = tables.ABSENT
    which = positions.first[position]
    for _ in range(positions.length[position]):
        after = deliveries.next[which]
        count = deliveries.message_count[which]
        if deliveries.entry_id[which] < commit.following:
            acked = difference(commit.following, deliveries.entry_id[which])
            deliveries.messages_acked[which] = min(count, acked)
            deliveries.ack_frame_no[which] = commit.frame_no
            deliveries.ack_ns[which] = commit.ns
        if deliveries.last_offset[which] < commit.following:
            deliveries.messages_acked[which] = count
            _unlink(state, position, before, which)
            write_delivery(state, which, ACKED, commit.row)
        elif positions.is_mixed[position] == 1:
            before = which
        else:
            break
        which = after


@kernel
def unlink_overlapping(
    state: DeliveryState, position: int, first: int, last: int, unlinked: Int64Array
) -> int:
    """Unlink open deliveries that contain some offset from first to last.

    Args:
        unlinked: receives their rows, oldest first; at least as long as the list.

    Returns:
        The number of deliveries.
    """
    positions, deliveries = state.positions, state.deliveries
    count = 0
    before = tables.ABSENT
    which = positions.first[position]
    for _ in range(positions.length[position]):
        after = deliveries.next[which]
        if deliveries.last_offset[which] < first or deliveries.entry_id[which] > last:
            before = which
        else:
            _unlink(state, position, before, which)
            unlinked[count] = which
            count += 1
        which = after
    return count


@inlined
def is_one_way(state: DeliveryState, connection: int) -> bool:
    """Whether nothing of a connection's client was captured: what it asked for and committed, here
    or on further connections, is not known."""
    return bool(tables.find(state.one_way, connection, 0, 0, 0) != tables.ABSENT)


@inlined
def see_client(state: DeliveryState, connection: int) -> None:
    """Note that both directions of a connection were captured."""
    if state.one_way.counts[tables.TAKEN] > 0:
        tables.remove(state.one_way, connection, 0, 0, 0)


@kernel
def write_deliveries(state: DeliveryState, indexes: Int64Array, outcome: int, row: int) -> None:
    """Close deliveries that are in no list: but for limits, as unknown if that is their outcome or
    nothing of their client was captured, else as those of an ended connection, else with `outcome`.
    """
    deliveries = state.deliveries
    for index in range(len(indexes)):
        which = indexes[index]
        connection = deliveries.connection_id[which]
        is_over = tables.find(state.closed_connections, connection, 0, 0, 0) != tables.ABSENT
        fallback = DELIVERY_CONN_CLOSED if is_over else outcome
        if deliveries.outcome[which] != NULL or is_one_way(state, connection):
            fallback = UNKNOWN_GAP
            deliveries.messages_acked[which] = NULL
        write_delivery(state, which, outcome if outcome == UNRESOLVED_AT_LIMIT else fallback, row)


class OpenDeliveries:
    """The state and its growth; closed rows collect in `state.closed` until drained.

    limit: of open deliveries.
    key: of hash tables.
    """

    def __init__(self, limit: int, key: int = 0) -> None:
        self.limit = limit
        self.state = DeliveryState(
            only_group=tables.new_hash_table(64, key),
            by_position=tables.new_hash_table(128, key),
            positions=ReadPositions.new(64),
            deliveries=DeliveryRows.new(64),
            free=tables.new_pool(64),
            closed_connections=tables.new_hash_table(64, key),
            one_way=tables.new_hash_table(64, key),
            ended=EndedRuns.new(1024),
            closed=DeliveryRows.new(64),
            acks=AckRows.new(64),
            counts=np.array([0, 0, limit, 0, 0], np.int64),
        )
        self._used = 0
        self._free_positions: list[int] = []

    @property
    def open(self) -> int:
        """Number of open deliveries at all positions."""
        return int(self.state.counts[OPEN])

    def make_closed_room(self, more: int) -> None:
        """Reserve room for `more` further closed rows."""
        rows = int(self.state.counts[_CLOSED]) + more
        if rows > len(self.state.closed.matrix):
            self.state.grow(closed=self.state.closed.grown(2 * rows))

    def make_ack_room(self) -> None:
        """Reserve room for one more committed offset."""
        rows = int(self.state.counts[_ACKS]) + 1
        if rows > len(self.state.acks.matrix):
            self.state.grow(acks=self.state.acks.grown(2 * rows))

    def drain_acks(self) -> Int64Array:
        """Remove and return the rows of the table acks, int64[columns, rows]."""
        count = int(self.state.counts[_ACKS])
        self.state.counts[_ACKS] = 0
        ack_rows: Int64Array = self.state.acks.matrix[:count].T.copy()
        return ack_rows

    def drain_closed(self) -> Int64Array:
        """Remove and return the rows of the table deliveries, int64[columns, rows]."""
        count = int(self.state.counts[_CLOSED])
        self.state.counts[_CLOSED] = 0
        closed_rows: Int64Array = self.state.closed.matrix[:count, :_COLUMNS].T.copy()
        return closed_rows

    def reserve(self, more: int) -> None:
        """Reserve room for `more` further deliveries; there may be one more than the limit."""
        state = self.state
        rows = len(state.free.rows)
        if int(state.free.free[0]) < more and rows < self.limit + 2:
            rows = min(self.limit + 2, 1 << (rows + more).bit_length())
            state.grow(
                deliveries=state.deliveries.grown(rows), free=tables.grown_pool(state.free, rows)
            )
        self.make_closed_room(more)

    def new_position(self, subscription: int, topic: int, partition: int) -> int:
        """Allocate a position without fetched offsets."""
        state = self.state
        if self._free_positions:
            position = self._free_positions.pop()
        else:
            position = self._used
            self._used += 1
            if position >= len(state.positions.matrix):
                state.grow(positions=state.positions.grown(2 * position))
        state.positions.matrix[position] = 0
        state.positions.committed[position] = NULL
        state.positions.last_frame_no[position] = NULL
        self.name_position(position, subscription, topic, partition)
        return position

    def name_position(self, position: int, subscription: int, topic: int, partition: int) -> None:
        """Set the group and partition of a position."""
        state = self.state
        state.grow(by_position=tables.reserved(state.by_position, 1))
        state.positions.matrix[position, :3] = subscription, topic, partition
        tables.put(state.by_position, subscription, topic, partition, 0, position)

    def forget_name(self, position: int) -> None:
        """Remove the key of a position from the table."""
        subscription, topic, partition = self.state.positions.matrix[position, :3].tolist()
        tables.remove(self.state.by_position, subscription, topic, partition, 0)

    def drop_position(self, position: int) -> None:
        """Free a position."""
        self.forget_name(position)
        self._free_positions.append(position)

    def drain_runs(self) -> list[list[int]]:
        """Remove and return the ended runs: position, first offset, exclusive end."""
        count = int(self.state.counts[_RUNS])
        self.state.counts[_RUNS] = 0
        runs: list[list[int]] = self.state.ended.matrix[:count].tolist()
        return runs

    def unlinked(self, position: int, first: int, last: int) -> Int64Array:
        """Unlink and return open deliveries that contain some offset from first to last."""
        indexes = np.empty(int(self.state.positions.length[position]), np.int64)
        return indexes[: unlink_overlapping(self.state, position, first, last, indexes)]

    def close(self, indexes: Int64Array, outcome: int, row: int) -> None:
        """Close unlinked deliveries; see write_deliveries."""
        self.make_closed_room(len(indexes))
        write_deliveries(self.state, indexes, outcome, row)

    def close_connection(self, connection: int) -> None:
        """Note an ended connection; another one may still commit its deliveries."""
        self.state.grow(closed_connections=self._with(self.state.closed_connections, connection))

    def note_one_way(self, connection: int) -> None:
        """Note a connection with a delivery and no packet of the client so far."""
        self.state.grow(one_way=self._with(self.state.one_way, connection))

    def _with(self, table: HashTable, connection: int) -> HashTable:
        """A table of connections, grown, with one more if there are not too many."""
        table = tables.reserved(table, 1)
        if int(table.counts[tables.TAKEN]) < self.limit:
            tables.put(table, connection, 0, 0, 0, 0)
        return table
