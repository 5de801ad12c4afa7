"""Consumer groups: members, deliveries, commits and redeliveries.

No frame marks a record as redelivered, and none acknowledges a single record: a group commits the
offset that it wants to read next. So fetched offsets are stored per group and partition, a commit
closes all open deliveries below it, and an offset that a group fetches again is a redelivery, whose
cause follows from the events in between.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from dissector import tables
from dissector.blocks import Int64Array
from dissector.limits import MAX_GROUP_DELIVERIES, MAX_GROUP_MEMBERS, MAX_GROUP_PARTITIONS, NULL
from dissector.protocols.columns import NAME_OBSERVED
from dissector.protocols.cursus import deliveries as cursus_deliveries
from dissector.protocols.cursus.deliveries import Commit, OpenDeliveries
from dissector.protocols.cursus.hidden_commits import HiddenCommits
from dissector.protocols.cursus.offsets import Intervals
from dissector.protocols.cursus.rows import ClosedRows, ConsumerRow
from dissector.schemas import enums


@dataclass(slots=True)
class Group:
    """State of a group. reassigned_row: ordinal of the frame that last reassigned partitions."""

    generation: int = NULL
    reassigned_row: int = 0


@dataclass(slots=True)
class Member:
    """A member from its JOIN_GROUP on."""

    connection_id: int
    incarnation: int
    topic: int
    subscription: int
    name: int
    opened_frame_no: int
    ready_frame_no: int


class Groups:
    """All groups of a capture.

    open: open deliveries and positions.
    given_up: number of deliveries closed at the limit.
    hidden: times by which commits may be hidden.

    key: of hash tables.
    """

    def __init__(self, closed_rows: ClosedRows, key: int) -> None:
        self._out = closed_rows
        self._groups: dict[int, Group] = {}
        self._positions: OrderedDict[tuple[int, int, int], int] = OrderedDict()
        self._below: dict[int, Intervals] = {}  # fetched offsets below the topmost run
        self._members: OrderedDict[tuple[int, int, int], Member] = OrderedDict()
        self._joins: dict[tuple[int, int, int], int] = {}
        self.open = OpenDeliveries(MAX_GROUP_DELIVERIES, key)
        self._state = self.open.state
        self.given_up = 0
        self.hidden = HiddenCommits()

    # -- members

    def group(self, code: int) -> Group:
        """A group by the code of its name."""
        return self._groups.setdefault(code, Group())

    def note_topic(self, subscription: int, topic: int) -> None:
        """Note a command that names both a group and a topic."""
        if subscription == NULL or topic == NULL:
            return
        known = self._only_group(topic)
        if known == tables.ABSENT:
            self._state.grow(only_group=tables.reserved(self._state.only_group, 1))
        if known not in (subscription, cursus_deliveries.MANY):
            only = subscription if known == tables.ABSENT else cursus_deliveries.MANY
            tables.put(self._state.only_group, topic, 0, 0, 0, only)

    def _only_group(self, topic: int) -> int:
        """The one group of a topic, ABSENT or MANY."""
        return int(tables.find(self._state.only_group, topic, 0, 0, 0))

    def reassigned(self, subscription: int, generation: int = NULL) -> None:
        """Note that a group's partitions are reassigned, or that a member is informed of it."""
        group = self.group(subscription)
        if generation != NULL:
            if generation == group.generation:
                return
            group.generation = generation
        group.reassigned_row = self._out.row

    def join(self, member: Member, generation: int) -> None:
        """Add an admitted member."""
        key = (member.subscription, member.topic, member.name)
        if len(self._members) >= MAX_GROUP_MEMBERS:
            self._close_member(next(iter(self._members)), NULL, enums.BY_CAPTURE_END)
        if key in self._members:
            self._close_member(key, NULL, enums.BY_CLIENT)
        member.incarnation = self._joins.get(key, -1) + 1
        if len(self._joins) < MAX_GROUP_MEMBERS or key in self._joins:
            self._joins[key] = member.incarnation
        self._members[key] = member
        self.reassigned(member.subscription, generation)

    def refuse(self, member: Member, code: int) -> None:
        """Write the row of a refused member."""
        self._write_member(member, NULL, NULL, code)

    def leave(self, subscription: int, topic: int, name: int, frame_no: int) -> None:
        """Close a member that has left."""
        key = (subscription, topic, name)
        if key in self._members:
            self._close_member(key, frame_no, enums.BY_CLIENT)
        self.reassigned(subscription)

    def _close_member(self, key: tuple[int, int, int], frame_no: int, closed_by: int) -> None:
        self._write_member(self._members.pop(key), frame_no, closed_by, NULL)

    def _write_member(self, member: Member, frame_no: int, closed_by: int, refused: int) -> None:
        self._out.add(
            ConsumerRow(
                member.connection_id,
                member.incarnation,
                member.topic,
                member.subscription,
                member.name,
                member.opened_frame_no,
                member.ready_frame_no,
                frame_no,
                closed_by,
                refused,
                NAME_OBSERVED,
                self._out.row,
            )
        )

    # -- deliveries

    def deliver(self, which: int, is_push: bool) -> None:
        """Open the delivery of a batch, or close it at once if no commit can follow."""
        deliveries = self._state.deliveries
        topic, partition = int(deliveries.topic[which]), int(deliveries.partition[which])
        if deliveries.subscription[which] == NULL and is_push:
            # A stream whose STREAM was not captured belongs to the topic's only group.
            only = self._only_group(topic)
            if only not in (tables.ABSENT, cursus_deliveries.MANY):
                deliveries.subscription[which] = only
        subscription = int(deliveries.subscription[which])
        first, last = int(deliveries.entry_id[which]), int(deliveries.last_offset[which])
        if first == NULL or (subscription == NULL and not is_push):
            deliveries.messages_acked[which] = NULL
            self._write(which, NULL)
            return
        position = self._position(subscription, topic, partition)
        positions = self._state.positions
        fetched = self._fetched(position)
        is_new = not fetched.covered(first, max(first, last))
        fetched.add(first, max(first, last))
        committed = int(positions.committed[position])
        is_late = committed != NULL and deliveries.ts[which] <= positions.commit_ns[position]
        if is_late and max(first, last) < committed:
            # Committed before the frame was released, as at the start of a stream captured midway.
            deliveries.messages_acked[which] = deliveries.message_count[which]
            deliveries.ack_frame_no[which] = positions.commit_frame_no[position]
            deliveries.ack_ns[which] = positions.commit_ns[position]
            self._write(which, enums.ACKED)
        else:
            is_asked = subscription != NULL or not self._is_one_way(which)
            if is_asked and not is_new:
                self._mark_redelivered(position, which, is_push)
                older = self.open.unlinked(position, first, last)
                self.open.close(older, enums.REDELIVERY_REQUESTED, self._out.row)
            cursus_deliveries.open_delivery(self._state, position, which, is_push, self._out.row)
        self._store_top(position, fetched)
        if self.open.open > self.open.limit:
            self._close_oldest()

    def _is_one_way(self, which: int) -> bool:
        connection = int(self._state.deliveries.connection_id[which])
        return cursus_deliveries.is_one_way(self._state, connection)

    def _write(self, which: int, outcome: int) -> None:
        """Close a delivery that was never open."""
        self.open.make_closed_room(1)
        cursus_deliveries.write_delivery(self._state, which, outcome, self._out.row)

    def _mark_redelivered(self, position: int, which: int, is_push: bool) -> None:
        deliveries, positions = self._state.deliveries, self._state.positions
        deliveries.is_redelivered[which] = 1
        deliveries.redelivery_cause[which] = self._cause(position, which, is_push)
        if positions.last_frame_no[position] != NULL:
            deliveries.previous_frame_no[which] = positions.last_frame_no[position]
            deliveries.previous_connection_id[which] = positions.last_connection[position]

    def _cause(self, position: int, which: int, is_push: bool) -> int:
        """Why offsets are redelivered; the continuation of a redelivery has the same cause."""
        deliveries, positions = self._state.deliveries, self._state.positions
        if self._is_one_way(which):
            return enums.CAUSE_UNKNOWN
        first = deliveries.entry_id[which]
        has_last = positions.last_frame_no[position] != NULL
        is_same = positions.last_consumer[position] == deliveries.consumer_name[which]
        is_here = positions.last_connection[position] == deliveries.connection_id[which]
        if has_last and positions.last_is_redelivered[position] == 1:
            is_continued = first > positions.last_offset[position]
            if is_continued and is_same and (is_here or not is_push):
                return int(positions.last_cause[position])
        committed = positions.committed[position]
        if committed != NULL and first < committed:
            return enums.CAUSE_RESET
        reassigned_row = self.group(int(deliveries.subscription[which])).reassigned_row
        if reassigned_row > positions.last_row[position]:
            return enums.CAUSE_REBALANCE
        if not has_last or is_here:
            return enums.CAUSE_NO_COMMIT
        # A polling client may use a connection for each poll; a stream uses one throughout.
        is_polled = not (positions.last_is_push[position] == 1 or is_push)
        return enums.CAUSE_NO_COMMIT if is_polled and is_same else enums.CAUSE_RECONNECT

    def _position(self, subscription: int, topic: int, partition: int) -> int:
        key = (subscription, topic, partition)
        position = self._positions.get(key)
        if position is None:
            if len(self._positions) >= MAX_GROUP_PARTITIONS:
                oldest = self._positions.popitem(last=False)[1]
                self._end(oldest)
                self._note_runs()
                self._below.pop(oldest, None)
                self.open.drop_position(oldest)
            position = self._positions[key] = self.open.new_position(*key)
        return position

    def _note_runs(self) -> None:
        """Store the fetched runs that kernels have ended."""
        for position, first, stop in self.open.drain_runs():
            self._below.setdefault(position, Intervals()).add(first, stop - 1)

    def _fetched(self, position: int) -> Intervals:
        """All fetched offsets of a position; `_store_top` must store the topmost run again."""
        self._note_runs()
        fetched = self._below.setdefault(position, Intervals())
        first, top = self._state.positions.matrix[position, 3:5].tolist()
        if top > first:
            fetched.add(first, top - 1)
        return fetched

    def _store_top(self, position: int, fetched: Intervals) -> None:
        """Move the topmost run, which kernels extend, back to the position."""
        positions = self._state.positions
        first, top = fetched.top_first(), fetched.top()
        if top > cursus_deliveries.LARGEST:
            first = top = cursus_deliveries.LARGEST
        else:
            fetched.drop_top()
        positions.run_first[position], positions.top[position] = first, top

    def _close_oldest(self) -> None:
        """Over the limit: close the open deliveries of the oldest position that has any."""
        length = self._state.positions.length
        key = next(key for key, position in self._positions.items() if length[position])
        position = self._positions[key] = self._positions.pop(key)
        self.given_up += self._end(position)

    def _end(self, position: int) -> int:
        """Close all open deliveries of a position at the limit; returns their number."""
        left = self._all_open(position)
        self.open.close(left, enums.UNRESOLVED_AT_LIMIT, self._out.row)
        return len(left)

    def _all_open(self, position: int) -> Int64Array:
        """Unlink and return all open deliveries of a position."""
        return self.open.unlinked(
            position, -cursus_deliveries.LARGEST - 1, cursus_deliveries.LARGEST
        )

    # -- commits

    def commit(self, subscription: int, topic: int, partition: int, commit: Commit) -> None:
        """Apply a commit that the broker accepted: close deliveries below commit.following."""
        self._assign_unknown_group(subscription, topic, partition)
        position = self._position(subscription, topic, partition)
        self.open.make_closed_room(int(self._state.positions.length[position]))
        cursus_deliveries.handle_commit(self._state, position, commit)

    def _assign_unknown_group(self, subscription: int, topic: int, partition: int) -> None:
        """Assign the deliveries of streams of unknown groups to the topic's only group."""
        key = (subscription, topic, partition)
        unknown = self._positions.get((NULL, topic, partition))
        if unknown is None or self._only_group(topic) != subscription:
            return
        if key in self._positions:
            return
        positions, deliveries = self._state.positions, self._state.deliveries
        del self._positions[NULL, topic, partition]
        self._positions[key] = unknown
        self.open.forget_name(unknown)
        self.open.name_position(unknown, *key)
        positions.last_row[unknown] = self._out.row
        which = positions.first[unknown]
        for _ in range(int(positions.length[unknown])):
            deliveries.subscription[which] = subscription
            which = deliveries.next[which]

    # -- ends

    def finish(self) -> None:
        """Close all open deliveries, in the order of their frames, and all members."""
        deliveries = self._state.deliveries
        unacked = []
        for (subscription, _, _), position in self._positions.items():
            left = self._all_open(position)
            is_hidden = deliveries.ts[left] <= self.hidden.last(subscription)
            deliveries.outcome[left[is_hidden]] = enums.UNKNOWN_GAP
            unacked.append(left)
        if unacked:
            left = np.concatenate(unacked)
            order = np.argsort(deliveries.frame_no[left], kind="stable")
            self.open.close(left[order], enums.UNACKED_AT_END, self._out.row)
        for key in list(self._members):
            self._close_member(key, NULL, enums.BY_CAPTURE_END)
