"""What groups are handed and commit, as far as it goes straight on: no offset comes twice.

A *place* is a group's place in a partition. While each batch begins where the last one ended or
behind it, compiled passes keep what was handed out: the run of offsets at its top, and the batches
that no commit has closed yet. Anything else, an offset that comes again above all, is for the rules
in `groups`, which take the place over and give it back when nothing is open.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.wrapping import difference
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.tables import (
    ABSENT,
    HashTable,
    Pool,
    find,
    give_row,
    grown_pool,
    new_hash_table,
    new_pool,
    put,
    remove,
    roomy,
    take_row,
)
from dissector.schemas.words import ACKED
from dissector.states import State

_LARGEST: Final = (1 << 63) - 1

# Places of HandingState.counts.
OPEN: Final = 0  # deliveries that wait for a commit, of all places
RUNS: Final = 1  # runs that ended and are still to be noted
_LIMIT: Final = 2  # of those that wait


class Places(Records):
    """One record per place that goes straight on.

    is_straight: 0 while the rules of `groups` have it; run_first, top: the run of offsets at the
    top, up to the one behind the last; committed: next offset, NULL; commit_frame_no, commit_ns: of
    the commit; last_...: of the last delivery, last_row the ordinal of its row; first, last: of the
    open ones; length: how many.
    """

    subscription: Int64Array
    topic: Int64Array
    partition: Int64Array
    is_straight: Int64Array
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
    last_row: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array


class Handed(Records):
    """A delivery that waits for a commit, as in groups.Delivery; next: the one behind it."""

    connection_id: Int64Array
    frame_no: Int64Array
    ts: Int64Array
    consumer_name: Int64Array
    first: Int64Array
    last: Int64Array
    count: Int64Array
    published_ns: Int64Array
    is_push: Int64Array
    lag: Int64Array
    acked: Int64Array
    ack_frame_no: Int64Array
    ack_ns: Int64Array
    next: Int64Array


class EndedRuns(Records):
    """Runs of offsets that another one above them has ended."""

    place: Int64Array
    first: Int64Array
    stop: Int64Array


class HandingState(State):
    """All of it. by_place: numbers of spots by subscription, topic and partition."""

    by_place: HashTable
    spots: Places
    handed: Handed
    free: Pool
    ended: EndedRuns
    counts: Int64Array


@inlined
def can_hand(state: HandingState, place: int, first: int, last: int, ts: int) -> bool:
    """Whether a batch of these offsets goes straight on at a place, and there is room for it."""
    places = state.spots
    if place == ABSENT or places.is_straight[place] == 0 or first < places.top[place]:
        return False
    if last < first or first < 0 or last == _LARGEST:
        return False
    if state.counts[OPEN] >= state.counts[_LIMIT] or state.free.free[0] == 0:
        return False
    if first > places.top[place] and state.counts[RUNS] >= len(state.ended.first):
        return False
    is_late = places.committed[place] != NULL and ts <= places.commit_ns[place]
    return not (is_late and last < places.committed[place])


@inlined
def hand(state: HandingState, place: int, first: int, last: int, row: int) -> int:
    """Hand out a batch that can be; returns its record of `handed`. row: its ordinal."""
    places = state.spots
    if first > places.top[place]:
        at = state.counts[RUNS]
        state.ended.place[at] = place
        state.ended.first[at] = places.run_first[place]
        state.ended.stop[at] = places.top[place]
        state.counts[RUNS] = at + 1
        places.run_first[place] = first
    places.top[place] = last + 1
    new = take_row(state.free)
    handed = state.handed
    handed.first[new] = first
    handed.last[new] = last
    handed.acked[new] = 0
    handed.ack_frame_no[new] = NULL
    handed.ack_ns[new] = NULL
    handed.next[new] = ABSENT
    if places.length[place] == 0:
        places.first[place] = new
    else:
        handed.next[places.last[place]] = new
    places.last[place] = new
    places.length[place] += 1
    places.last_offset[place] = last
    places.last_row[place] = row
    state.counts[OPEN] += 1
    return new


@inlined
def _write_acked(state: HandingState, place: int, which: int, out: Any, at: int, row: int) -> None:
    """The row of a delivery that a commit has closed."""
    places, handed = state.spots, state.handed
    latency = difference(handed.ack_ns[which], handed.ts[which])
    since = NULL
    if handed.published_ns[which] != NULL:
        since = difference(handed.ts[which], handed.published_ns[which])
    out.connection_id[at] = handed.connection_id[which]
    out.frame_no[at] = handed.frame_no[which]
    out.ts[at] = handed.ts[which]
    out.topic[at] = places.topic[place]
    out.subscription[at] = places.subscription[place]
    out.consumer_name[at] = handed.consumer_name[which]
    out.entry_id[at] = handed.first[which]
    out.partition[at] = places.partition[place]
    out.batch_size[at] = handed.count[which]
    out.message_count[at] = handed.count[which]
    out.messages_acked[at] = handed.count[which]
    out.is_redelivered[at] = 0
    out.redelivery_cause[at] = NULL
    out.previous_frame_no[at] = NULL
    out.previous_connection_id[at] = NULL
    out.outcome[at] = ACKED
    out.ack_frame_no[at] = handed.ack_frame_no[which]
    out.ack_latency_ns[at] = latency if latency >= 0 else NULL
    out.publish_to_delivery_ns[at] = since if since >= 0 else NULL
    out.lag[at] = handed.lag[which]
    out.closing_row[at] = row


class Commit(NamedTuple):
    """A commit of all below `following`: frame_no, ns: of it; row: ordinal of what closes them."""

    following: int
    frame_no: int
    ns: int
    row: int


@kernel
def commit_straight(state: HandingState, place: int, commit: Commit, out: Any, written: int) -> int:
    """A commit at a place that goes straight on; returns how many rows there are then.

    Args:
        out, written: rows of deliveries and how many there are; there must be room for all that
            is open.
    """
    places, handed = state.spots, state.handed
    places.committed[place] = commit.following
    places.commit_frame_no[place] = commit.frame_no
    places.commit_ns[place] = commit.ns
    while places.length[place] > 0:
        which = places.first[place]
        if handed.first[which] < commit.following:
            handed.acked[which] = min(
                handed.count[which], difference(commit.following, handed.first[which])
            )
            handed.ack_frame_no[which] = commit.frame_no
            handed.ack_ns[which] = commit.ns
        if handed.last[which] >= commit.following:
            break
        _write_acked(state, place, which, out, written, commit.row)
        written += 1
        places.first[place] = handed.next[which]
        places.length[place] -= 1
        state.counts[OPEN] -= 1
        give_row(state.free, which)
    return written


class Waiting(NamedTuple):
    """A record of Handed."""

    connection_id: int
    frame_no: int
    ts: int
    consumer_name: int
    first: int
    last: int
    records: int
    published_ns: int
    is_push: int
    lag: int
    acked: int
    ack_frame_no: int
    ack_ns: int
    next: int


class Straight(NamedTuple):
    """A record of Places, and what is open there."""

    subscription: int
    topic: int
    partition: int
    run_first: int
    top: int
    committed: int
    commit_frame_no: int
    commit_ns: int
    last_connection: int
    last_frame_no: int
    last_consumer: int
    last_offset: int
    last_is_push: int
    last_row: int
    open: list[Waiting]


def _take(free: Pool) -> int:
    """A free row of a pool that has one."""
    free.free[0] -= 1
    return int(free.rows[free.free[0]])


class Handing:
    """The state with room for what comes. limit: of deliveries that wait for a commit."""

    def __init__(self, limit: int) -> None:
        self.state = HandingState(
            by_place=new_hash_table(128),
            spots=Places.new(64),
            handed=Handed.new(64),
            free=new_pool(64),
            ended=EndedRuns.new(1024),
            counts=np.array([0, 0, limit], np.int64),
        )
        self.used = 0
        self._free_places: list[int] = []

    @property
    def open(self) -> int:
        """Deliveries that wait for a commit, of all places."""
        return int(self.state.counts[OPEN])

    def add_open(self, more: int) -> None:
        """So many more wait, or fewer."""
        self.state.counts[OPEN] += more

    def make_room(self, more: int) -> None:
        """Room for `more` further deliveries."""
        state = self.state
        left, limit = int(state.free.free[0]), int(state.counts[_LIMIT])
        if left < more and len(state.free.rows) < limit:
            rows = min(limit, 1 << (len(state.free.rows) + more).bit_length())
            state.grow(handed=state.handed.grown(rows), free=grown_pool(state.free, rows))

    def new_place(self, subscription: int, topic: int, partition: int) -> int:
        """A place for one that has none; the rules of `groups` have it at first."""
        state = self.state
        if self.used >= len(state.spots.matrix):
            state.grow(spots=state.spots.grown(2 * self.used))
        state.grow(by_place=roomy(state.by_place, 1))
        if self._free_places:
            place = self._free_places.pop()
        else:
            place = self.used
            self.used += 1
        state.spots.matrix[place] = 0
        state.spots.subscription[place] = subscription
        state.spots.topic[place] = topic
        state.spots.partition[place] = partition
        put(state.by_place, subscription, topic, partition, 0, place)
        return place

    def drop_place(self, place: int) -> None:
        """A place is given up; its record is used again."""
        key = self.state.spots.matrix[place, :3].tolist()
        remove(self.state.by_place, key[0], key[1], key[2], 0)
        self._free_places.append(place)

    def length(self, place: int) -> int:
        """How many deliveries wait at a place."""
        return int(self.state.spots.length[place])

    def commit(self, place: int, commit: Commit, out: Any, written: int) -> int:
        """A commit at a place that goes straight on; see commit_straight."""
        return int(commit_straight(self.state, place, commit, out, written))

    def give(self, place: int, position: Any, top: int) -> bool:
        """Take over a place from the rules; False if there is no room for its open delivery.

        position: of groups.
        """
        state = self.state
        if position.open and int(state.free.free[0]) == 0:
            return False
        last = position.last
        places = state.spots
        places.run_first[place], places.top[place] = position.seen.top_first(), top
        places.committed[place] = position.committed
        places.commit_frame_no[place] = position.commit_frame_no
        places.commit_ns[place] = position.commit_ns
        places.last_connection[place] = last.connection_id
        places.last_frame_no[place] = last.frame_no
        places.last_consumer[place] = last.consumer_name
        places.last_offset[place] = last.last
        places.last_is_push[place] = int(last.is_push)
        places.last_row[place] = position.last_row
        places.length[place] = 0
        for each in position.open:
            new = _take(state.free)
            values = [getattr(each, name) for name in Handed._fields[:-1]]
            state.handed.matrix[new] = [*values, ABSENT]
            places.first[place] = places.last[place] = new
            places.length[place] = 1
        places.is_straight[place] = 1
        return True

    def take(self, place: int) -> Straight:
        """Give a place back to the rules."""
        state = self.state
        state.spots.is_straight[place] = 0
        values = state.spots.matrix[place].tolist()
        opened = []
        which = int(state.spots.first[place])
        for _ in range(int(state.spots.length[place])):
            opened.append(Waiting(*state.handed.matrix[which].tolist()))
            state.free.rows[state.free.free[0]] = which
            state.free.free[0] += 1
            which = opened[-1].next
        state.spots.length[place] = 0
        named = dict(zip(Places._fields, values, strict=True))
        return Straight(**{name: named[name] for name in Straight._fields[:-1]}, open=opened)

    def take_runs(self) -> list[list[int]]:
        """Place, first offset and the one behind the last of runs that ended since last asked."""
        count = int(self.state.counts[RUNS])
        self.state.counts[RUNS] = 0
        runs: list[list[int]] = self.state.ended.matrix[:count].tolist()
        return runs

    def place_of(self, subscription: int, topic: int, partition: int) -> int:
        """The place of a group in a partition, ABSENT if it has none."""
        return int(find(self.state.by_place, subscription, topic, partition, 0))
