"""Consumer groups: members, what is handed to them, what they commit, and what comes again.

Nothing on the wire says that a record is delivered again, and nothing is acknowledged one by one: a
group commits the offset that it wants to read next. So what a group was handed is remembered as
offsets per partition, a commit closes all open deliveries below it, and an offset that is handed to
the same group once more is a redelivery, whose cause is read from what happened in between.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from dissector.limits import NULL
from dissector.protocols.columns import NAME_OBSERVED
from dissector.protocols.cursus.handing import Commit, Handing
from dissector.protocols.cursus.offsets import Intervals
from dissector.protocols.cursus.rows import AckRow, ConsumerRow, DeliveryRow, Gathered
from dissector.protocols.tables import ABSENT
from dissector.schemas.words import (
    ACKED,
    BY_CAPTURE_END,
    BY_CLIENT,
    DELIVERY_CONN_CLOSED,
    REDELIVERY_REQUESTED,
    UNACKED_AT_END,
    UNRESOLVED_AT_LIMIT,
)
from dissector.schemas.words import CAUSE_NO_COMMIT as NO_COMMIT
from dissector.schemas.words import CAUSE_REBALANCE as REBALANCE
from dissector.schemas.words import CAUSE_RECONNECT as RECONNECT
from dissector.schemas.words import CAUSE_RESET as RESET

MAX_OPEN: Final = 1 << 17  # deliveries that wait for a commit; the oldest are given up
MAX_PARTITIONS: Final = 1 << 17  # of groups, whose offsets are remembered
MAX_MEMBERS: Final = 1 << 16


@dataclass(slots=True)
class Delivery:
    """A batch that was handed out and is not committed yet; codes and ns as in DeliveryRow."""

    connection_id: int
    frame_no: int
    ts: int
    topic: int
    partition: int
    subscription: int
    consumer_name: int
    first: int = NULL
    last: int = NULL
    count: int = 0
    published_ns: int = NULL
    is_push: bool = False
    lag: int = NULL
    is_redelivered: int = 0
    cause: int = NULL
    previous_frame_no: int = NULL
    previous_connection_id: int = NULL
    acked: int = 0
    ack_frame_no: int = NULL
    ack_ns: int = NULL


@dataclass(slots=True)
class Position:
    """A group's place in a partition: what it was handed, what it committed (next offset).

    last_row: ordinal of the last delivery; place: of handing, which has what is not here while
    is_straight.
    """

    seen: Intervals = field(default_factory=Intervals)
    open: deque[Delivery] = field(default_factory=deque)
    is_mixed: bool = False  # open deliveries do not stand in the order of their offsets
    committed: int = NULL
    commit_frame_no: int = NULL
    commit_ns: int = NULL
    last: Delivery | None = None
    last_row: int = 0
    place: int = ABSENT
    is_straight: bool = False


@dataclass(slots=True)
class Group:
    """What is known of a group. moved_row: ordinal of what last dealt its partitions anew."""

    generation: int = NULL
    moved_row: int = 0


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
    """All groups of a capture."""

    def __init__(self, gathered: Gathered) -> None:
        self._out = gathered
        self._groups: dict[int, Group] = {}
        self._positions: dict[tuple[int, int, int], Position] = {}
        self._of_topic: dict[int, set[int]] = {}
        self._members: dict[tuple[int, int, int], Member] = {}
        self._joins: dict[tuple[int, int, int], int] = {}
        self._closed: set[int] = set()
        self.handing = Handing(MAX_OPEN)
        self._at: dict[int, Position] = {}
        self.given_up = 0

    # -- members

    def group(self, code: int) -> Group:
        """A group by the code of its name."""
        found = self._groups.get(code)
        if found is None:
            found = self._groups[code] = Group()
        return found

    def meet(self, subscription: int, topic: int) -> None:
        """A command names a group and a topic together."""
        if subscription != NULL and topic != NULL:
            self._of_topic.setdefault(topic, set()).add(subscription)

    def moved(self, subscription: int, generation: int = NULL) -> None:
        """Partitions of a group are dealt anew, or a member is told so."""
        group = self.group(subscription)
        if generation != NULL:
            if generation == group.generation:
                return
            group.generation = generation
        group.moved_row = self._out.row

    def join(self, member: Member, generation: int) -> None:
        """A member was admitted."""
        key = (member.subscription, member.topic, member.name)
        if len(self._members) >= MAX_MEMBERS:
            self._close_member(next(iter(self._members)), NULL, BY_CAPTURE_END)
        if key in self._members:
            self._close_member(key, NULL, BY_CLIENT)
        member.incarnation = self._joins.get(key, -1) + 1
        if len(self._joins) < MAX_MEMBERS or key in self._joins:
            self._joins[key] = member.incarnation
        self._members[key] = member
        self.moved(member.subscription, generation)

    def refuse(self, member: Member, code: int) -> None:
        """A member was not admitted."""
        row = _consumer_row(member, NULL, BY_CLIENT, self._out.row)
        self._out.add(row._replace(closed_by=NULL, refused_code=code))

    def leave(self, subscription: int, topic: int, name: int, frame_no: int) -> None:
        """A member has left."""
        key = (subscription, topic, name)
        if key in self._members:
            self._close_member(key, frame_no, BY_CLIENT)
        self.moved(subscription)

    def _close_member(self, key: tuple[int, int, int], frame_no: int, closed_by: int) -> None:
        self._out.add(_consumer_row(self._members.pop(key), frame_no, closed_by, self._out.row))

    # -- deliveries

    def deliver(self, delivery: Delivery) -> None:
        """A batch was handed out."""
        if delivery.subscription == NULL:
            self._adopt_group(delivery)
        has_group = delivery.subscription != NULL or delivery.is_push
        if delivery.count == 0 or delivery.first == NULL or not has_group:
            self._out.add(_delivery_row(delivery, NULL, self._out.row))
            return
        position = self._position(delivery.subscription, delivery.topic, delivery.partition)
        first, last = delivery.first, max(delivery.first, delivery.last)
        is_late = position.committed != NULL and delivery.ts <= position.commit_ns
        if is_late and last < position.committed:
            # Held back for long, as the start of a stream is that was caught in the middle.
            position.seen.add(first, last)
            delivery.acked = delivery.count
            delivery.ack_frame_no, delivery.ack_ns = position.commit_frame_no, position.commit_ns
            self._out.add(_delivery_row(delivery, ACKED, self._out.row))
            return
        if position.seen.covered(first, last):
            delivery.is_redelivered = 1
            delivery.cause = self._cause(position, delivery)
            if position.last is not None:
                delivery.previous_frame_no = position.last.frame_no
                delivery.previous_connection_id = position.last.connection_id
            self._settle_older(position, delivery)
        position.seen.add(first, last)
        if position.open and position.open[-1].last >= first:
            position.is_mixed = True
        position.open.append(delivery)
        position.last, position.last_row = delivery, self._out.row
        self.handing.add_open(1)
        if self.handing.open > MAX_OPEN:
            self._give_up_oldest()
        self._give_back(position)

    def _adopt_group(self, delivery: Delivery) -> None:
        """A stream whose beginning was not captured belongs to the topic's group if it has one."""
        known = self._of_topic.get(delivery.topic)
        if delivery.is_push and known is not None and len(known) == 1:
            delivery.subscription = next(iter(known))

    def _position(self, subscription: int, topic: int, partition: int) -> Position:
        key = (subscription, topic, partition)
        found = self._positions.get(key)
        if found is None:
            if len(self._positions) >= MAX_PARTITIONS:
                self._forget(self._positions.pop(next(iter(self._positions))))
            found = self._positions[key] = Position()
        self._take(found)
        return found

    # -- places that go straight on are with compiled passes

    def _take(self, position: Position) -> None:
        """Take a place back from the compiled passes."""
        if not position.is_straight:
            return
        self._note_runs()
        straight = self.handing.take(position.place)
        position.is_straight = False
        if straight.top > straight.run_first:
            position.seen.add(straight.run_first, straight.top - 1)
        position.committed = straight.committed
        position.commit_frame_no, position.commit_ns = straight.commit_frame_no, straight.commit_ns
        position.last_row = straight.last_row
        key = (straight.topic, straight.partition, straight.subscription)
        for each in straight.open:
            found = Delivery(each.connection_id, each.frame_no, each.ts, *key, each.consumer_name)
            found.first, found.last, found.count = each.first, each.last, each.records
            found.published_ns, found.is_push, found.lag = (
                each.published_ns,
                bool(each.is_push),
                each.lag,
            )
            found.acked, found.ack_frame_no, found.ack_ns = (
                each.acked,
                each.ack_frame_no,
                each.ack_ns,
            )
            position.open.append(found)
        if position.last is None or straight.last_frame_no != position.last.frame_no:
            position.last = Delivery(
                straight.last_connection, straight.last_frame_no, NULL, *key, straight.last_consumer
            )
            position.last.last = straight.last_offset
            position.last.is_push = bool(straight.last_is_push)

    def _note_runs(self) -> None:
        """Runs of offsets that ended while the compiled passes had their places."""
        for place, first, stop in self.handing.take_runs():
            self._at[place].seen.add(first, stop - 1)

    def _give_back(self, position: Position) -> None:
        """Let the compiled passes have a place where at most the last delivery is open."""
        last = position.last
        if last is None or last.subscription == NULL or len(position.open) > 1:
            return
        if position.is_mixed or any(each.is_redelivered for each in position.open):
            return
        top = position.seen.top()
        if position.open and position.open[0].last + 1 != top:
            return
        if position.place == ABSENT:
            position.place = self.handing.new_place(last.subscription, last.topic, last.partition)
            self._at[position.place] = position
        if not self.handing.give(position.place, position, top):
            return
        position.seen.drop_top()
        position.open.clear()
        position.is_straight = True

    def _cause(self, position: Position, delivery: Delivery) -> int:
        """Why offsets are handed out again; what follows on such a delivery has its cause."""
        last = position.last
        if last is not None and _goes_on(last, delivery):
            return last.cause
        if position.committed != NULL and delivery.first < position.committed:
            return RESET
        if self.group(delivery.subscription).moved_row > position.last_row:
            return REBALANCE
        if last is None or last.connection_id == delivery.connection_id:
            return NO_COMMIT
        # Who polls may have a connection for each poll; a stream has one for life.
        is_polled = not (last.is_push or delivery.is_push)
        is_same = last.consumer_name == delivery.consumer_name
        return NO_COMMIT if is_polled and is_same else RECONNECT

    def _settle_older(self, position: Position, delivery: Delivery) -> None:
        """Open deliveries of offsets that come again will not be committed for themselves."""
        kept: deque[Delivery] = deque()
        for older in position.open:
            if older.last < delivery.first or older.first > delivery.last:
                kept.append(older)
                continue
            is_over = older.connection_id in self._closed
            self._close(older, DELIVERY_CONN_CLOSED if is_over else REDELIVERY_REQUESTED)
        position.open = kept

    def _close(self, delivery: Delivery, outcome: int) -> None:
        self.handing.add_open(-1)
        self._out.add(_delivery_row(delivery, outcome, self._out.row))

    def _give_up_oldest(self) -> None:
        """Too many wait: those of the partition that has waited longest are given up."""
        key = next(key for key, each in self._positions.items() if self._has_open(each))
        position = self._positions.pop(key)
        self._take(position)
        self.given_up += len(position.open)
        self._end(position, UNRESOLVED_AT_LIMIT)
        self._positions[key] = position

    def _forget(self, position: Position) -> None:
        """Give up a place, and what is open there."""
        self._take(position)
        self._end(position, UNRESOLVED_AT_LIMIT)
        if position.place != ABSENT:
            self._at.pop(position.place)
            self.handing.drop_place(position.place)

    def _has_open(self, position: Position) -> bool:
        if position.is_straight:
            return self.handing.length(position.place) > 0
        return bool(position.open)

    def _end(self, position: Position, outcome: int) -> None:
        for delivery in position.open:
            self._close(delivery, outcome)
        position.open.clear()
        position.is_mixed = False

    # -- commits

    def commit(
        self, subscription: int, topic: int, partition: int, following: int, ack: AckRow
    ) -> None:
        """The broker took a commit: all below `following` is done with.

        ack: the row of the commit, which has been written when it was sent.
        """
        self._adopt_open(subscription, topic, partition)
        known = self._positions.get((subscription, topic, partition))
        if known is not None and known.is_straight:
            rows = self._out.deliveries
            rows.make_room(self.handing.length(known.place))
            commit = Commit(following, ack.frame_no, ack.ts, self._out.row)
            rows.count = self.handing.commit(known.place, commit, rows.columns, rows.count)
            return
        position = self._position(subscription, topic, partition)
        position.committed = following
        position.commit_frame_no, position.commit_ns = ack.frame_no, ack.ts
        kept: deque[Delivery] = deque()
        waiting = position.open
        while waiting:
            delivery = waiting.popleft()
            if delivery.first < following:
                delivery.acked = min(delivery.count, following - delivery.first)
                delivery.ack_frame_no, delivery.ack_ns = ack.frame_no, ack.ts
            if delivery.last < following:
                delivery.acked = delivery.count
                self._close(delivery, ACKED)
                continue
            kept.append(delivery)
            if not position.is_mixed:
                break
        kept.extend(waiting)
        position.open = kept
        position.is_mixed = position.is_mixed and bool(kept)
        self._give_back(position)

    def _adopt_open(self, subscription: int, topic: int, partition: int) -> None:
        """What streams of an unknown group were handed is this group's if it is the only one."""
        unknown = self._positions.get((NULL, topic, partition))
        if unknown is None or self._of_topic.get(topic) != {subscription}:
            return
        if (subscription, topic, partition) in self._positions:
            return
        del self._positions[NULL, topic, partition]
        for delivery in unknown.open:
            delivery.subscription = subscription
        if unknown.last is not None:
            unknown.last.subscription = subscription
        unknown.last_row = self._out.row
        self._positions[subscription, topic, partition] = unknown

    # -- ends

    def connection_over(self, connection: int) -> None:
        """A connection is over; what it was handed may still be committed on another."""
        if len(self._closed) < MAX_OPEN:
            self._closed.add(connection)

    def finish(self) -> None:
        """The capture is over: close what is open, in the order of its frames."""
        for position in self._positions.values():
            self._take(position)
        left = [each for position in self._positions.values() for each in position.open]
        for delivery in sorted(left, key=lambda each: each.frame_no):
            is_over = delivery.connection_id in self._closed
            self._close(delivery, DELIVERY_CONN_CLOSED if is_over else UNACKED_AT_END)
        for key in list(self._members):
            self._close_member(key, NULL, BY_CAPTURE_END)


def _goes_on(last: Delivery, delivery: Delivery) -> bool:
    """Whether a delivery is the next of a run that was a redelivery already."""
    if not last.is_redelivered or delivery.first <= last.last:
        return False
    is_same_way = last.connection_id == delivery.connection_id or not delivery.is_push
    return is_same_way and last.consumer_name == delivery.consumer_name


def _consumer_row(member: Member, frame_no: int, closed_by: int, row: int) -> ConsumerRow:
    return ConsumerRow(
        member.connection_id,
        member.incarnation,
        member.topic,
        member.subscription,
        member.name,
        member.opened_frame_no,
        member.ready_frame_no,
        frame_no,
        closed_by,
        NULL,
        NAME_OBSERVED,
        row,
    )


def _delivery_row(delivery: Delivery, outcome: int, row: int) -> DeliveryRow:
    is_acked = outcome == ACKED
    latency = delivery.ack_ns - delivery.ts if is_acked else NULL
    since = delivery.ts - delivery.published_ns if delivery.published_ns != NULL else NULL
    return DeliveryRow(
        delivery.connection_id,
        delivery.frame_no,
        delivery.ts,
        delivery.topic,
        delivery.subscription,
        delivery.consumer_name,
        delivery.first if delivery.count else NULL,
        delivery.partition,
        delivery.count,
        delivery.count,
        delivery.acked,
        delivery.is_redelivered,
        delivery.cause,
        delivery.previous_frame_no,
        delivery.previous_connection_id,
        outcome,
        delivery.ack_frame_no if is_acked else NULL,
        latency if latency >= 0 else NULL,
        since if since >= 0 else NULL,
        delivery.lag,
        row,
    )
