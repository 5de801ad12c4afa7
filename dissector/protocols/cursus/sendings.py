"""Batches that producers sent: how often each, when, where each producer stands, where logs end.

A *series* is what one producer with one epoch sends to one partition. Batches are kept in the order
in which they were first sent, numbered from 1, up to a bound; the oldest are forgotten. Those of a
series whose sequence numbers rise form a chain from the newest to the oldest, with longer jumps
between, so that the batch of any record is found in a few steps.
"""

from typing import Final, NamedTuple

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
from dissector.states import State

MAX_REMEMBERED: Final = 1 << 17  # batches, producers and logs; a power of two
_SMALL: Final = 64

# Places of SendingState.counts: how many there ever were.
_BATCHES: Final = 0
_PRODUCERS: Final = 1
_LOGS: Final = 2


class Sent(NamedTuple):
    """What makes a batch the same when it is sent again; names as codes."""

    topic: int
    partition: int
    producer: int
    epoch: int
    seq_start: int
    seq_end: int


class Standing(NamedTuple):
    """Where a producer stood. is_known: 0 if it had sent nothing yet."""

    is_known: int
    epoch: int
    seq_end: int


class Series(Records):
    """batches: how many are kept; newest: number of the last of those that rise, 0 for none."""

    topic: Int64Array
    partition: Int64Array
    producer: Int64Array
    epoch: Int64Array
    batches: Int64Array
    newest: Int64Array
    newest_start: Int64Array


class Batches(Records):
    """copies: how often sent; is_stored: a copy was acknowledged; previous, jump: numbers of
    earlier batches of the series, 0 for none; depth: place in the chain, from 1.
    """

    series: Int64Array
    seq_start: Int64Array
    seq_end: Int64Array
    last_ns: Int64Array
    copies: Int64Array
    is_stored: Int64Array
    previous: Int64Array
    jump: Int64Array
    depth: Int64Array


class Producers(Records):
    """Where each producer stands in each partition."""

    topic: Int64Array
    partition: Int64Array
    producer: Int64Array
    epoch: Int64Array
    seq_end: Int64Array


class Logs(Records):
    """following: the offset that the next record of a partition will have, as last seen."""

    topic: Int64Array
    partition: Int64Array
    following: Int64Array


class SendingState(State):
    """All of it. once: topics that store each batch once; counts: see above."""

    by_series: HashTable
    series: Series
    free_series: Pool
    by_batch: HashTable
    batches: Batches
    by_producer: HashTable
    producers: Producers
    by_log: HashTable
    logs: Logs
    once: HashTable
    counts: Int64Array


@inlined
def _place(number: int, capacity: int) -> int:
    """The record of a number; capacity is a power of two."""
    return (number - 1) & (capacity - 1)


@inlined
def _is_kept(state: SendingState, number: int) -> bool:
    return number > 0 and number > state.counts[_BATCHES] - len(state.batches.series)


@inlined
def _depth_of(state: SendingState, number: int) -> int:
    if not _is_kept(state, number):
        return 0
    return int(state.batches.depth[_place(number, len(state.batches.series))])


@inlined
def _jump_of(state: SendingState, number: int) -> int:
    if not _is_kept(state, number):
        return 0
    return int(state.batches.jump[_place(number, len(state.batches.series))])


@inlined
def _forget_batch(state: SendingState, at: int) -> None:
    """Forget the batch of a record, and its series if it was the last of it."""
    batches = state.batches
    series = batches.series[at]
    remove(state.by_batch, series, batches.seq_start[at], batches.seq_end[at], 0)
    state.series.batches[series] -= 1
    if state.series.batches[series] == 0:
        known = state.series
        remove(
            state.by_series,
            known.topic[series],
            known.partition[series],
            known.producer[series],
            known.epoch[series],
        )
        give_row(state.free_series, series)


@inlined
def _begin_series(state: SendingState, sent: Sent) -> int:
    series = take_row(state.free_series)
    known = state.series
    known.topic[series] = sent.topic
    known.partition[series] = sent.partition
    known.producer[series] = sent.producer
    known.epoch[series] = sent.epoch
    known.batches[series] = 0
    known.newest[series] = 0
    known.newest_start[series] = 0
    put(state.by_series, sent.topic, sent.partition, sent.producer, sent.epoch, series)
    return series


@inlined
def _chain(state: SendingState, series: int, number: int, at: int, seq_start: int) -> None:
    """Put a batch at the head of its series' chain if its sequence numbers go on rising."""
    batches = state.batches
    newest = state.series.newest[series]
    batches.previous[at] = 0
    batches.jump[at] = 0
    batches.depth[at] = 0
    if newest > 0 and seq_start <= state.series.newest_start[series]:
        return
    before = newest if _is_kept(state, newest) else 0
    jump = _jump_of(state, before)
    depth = _depth_of(state, before)
    middle = _depth_of(state, jump)
    is_pair = before > 0 and depth - middle == middle - _depth_of(state, _jump_of(state, jump))
    batches.previous[at] = before
    batches.jump[at] = _jump_of(state, jump) if is_pair else before
    batches.depth[at] = depth + 1
    state.series.newest[series] = number
    state.series.newest_start[series] = seq_start


@kernel
def find_batch(state: SendingState, sent: Sent) -> int:
    """The number of a batch that was sent before, ABSENT if it was not."""
    series = find(state.by_series, sent.topic, sent.partition, sent.producer, sent.epoch)
    if series == ABSENT:
        return ABSENT
    return int(find(state.by_batch, series, sent.seq_start, sent.seq_end, 0))


@kernel
def begin_batch(state: SendingState, sent: Sent, last_ns: int) -> int:
    """A batch was sent, complete on the wire at last_ns; returns its number."""
    series = find(state.by_series, sent.topic, sent.partition, sent.producer, sent.epoch)
    if series == ABSENT:
        series = _begin_series(state, sent)
    batches = state.batches
    capacity = len(batches.series)
    number = find(state.by_batch, series, sent.seq_start, sent.seq_end, 0)
    if number != ABSENT:
        batches.copies[_place(number, capacity)] += 1
        return number
    state.series.batches[series] += 1
    number = state.counts[_BATCHES] + 1
    at = _place(number, capacity)
    if number > capacity:
        _forget_batch(state, at)
    state.counts[_BATCHES] = number
    batches.series[at] = series
    batches.seq_start[at] = sent.seq_start
    batches.seq_end[at] = sent.seq_end
    batches.last_ns[at] = last_ns
    batches.copies[at] = 1
    batches.is_stored[at] = 0
    put(state.by_batch, series, sent.seq_start, sent.seq_end, 0, number)
    _chain(state, series, number, at, sent.seq_start)
    return int(number)


@kernel
def copies_of(state: SendingState, number: int) -> int:
    """How often a batch was sent, the last time included; NULL if that is forgotten."""
    if not _is_kept(state, number):
        return NULL
    return int(state.batches.copies[_place(number, len(state.batches.series))])


@kernel
def store_batch(state: SendingState, number: int) -> int:
    """A copy of a batch was acknowledged: 1 if one was before."""
    if not _is_kept(state, number):
        return 0
    at = _place(number, len(state.batches.series))
    before = state.batches.is_stored[at]
    state.batches.is_stored[at] = 1
    return int(before)


@kernel
def published_ns(
    state: SendingState, topic: int, partition: int, producer: int, epoch: int, seq_num: int
) -> int:
    """When the batch that held a record was complete on the wire; NULL if that is not known."""
    series = find(state.by_series, topic, partition, producer, epoch)
    if series == ABSENT:
        return NULL
    batches = state.batches
    capacity = len(batches.series)
    number = state.series.newest[series]
    while _is_kept(state, number):
        at = _place(number, capacity)
        if batches.seq_start[at] <= seq_num:
            is_in = seq_num <= max(batches.seq_end[at], batches.seq_start[at])
            return int(batches.last_ns[at]) if is_in else NULL
        jump = batches.jump[at]
        if _is_kept(state, jump) and batches.seq_start[_place(jump, capacity)] > seq_num:
            number = jump
        else:
            number = batches.previous[at]
    return NULL


@kernel
def standing(state: SendingState, sent: Sent) -> Standing:
    """Where the producer of a batch stands before it."""
    at = find(state.by_producer, sent.topic, sent.partition, sent.producer, 0)
    if at == ABSENT:
        return Standing(0, 0, 0)
    return Standing(1, state.producers.epoch[at], state.producers.seq_end[at])


@kernel
def follow(state: SendingState, sent: Sent) -> None:
    """A batch that was not sent before moves its producer on."""
    known = state.producers
    at = find(state.by_producer, sent.topic, sent.partition, sent.producer, 0)
    if at == ABSENT:
        state.counts[_PRODUCERS] += 1
        at = _place(state.counts[_PRODUCERS], len(known.topic))
        if state.counts[_PRODUCERS] > len(known.topic):
            remove(state.by_producer, known.topic[at], known.partition[at], known.producer[at], 0)
        known.topic[at] = sent.topic
        known.partition[at] = sent.partition
        known.producer[at] = sent.producer
        known.epoch[at] = sent.epoch
        known.seq_end[at] = sent.seq_end
        put(state.by_producer, sent.topic, sent.partition, sent.producer, 0, at)
    elif sent.epoch > known.epoch[at]:
        known.epoch[at] = sent.epoch
        known.seq_end[at] = sent.seq_end
    elif sent.epoch == known.epoch[at]:
        known.seq_end[at] = max(known.seq_end[at], sent.seq_end)


@kernel
def see_end(state: SendingState, topic: int, partition: int, following: int) -> None:
    """A log reaches so far at least."""
    logs = state.logs
    at = find(state.by_log, topic, partition, 0, 0)
    if at == ABSENT:
        state.counts[_LOGS] += 1
        at = _place(state.counts[_LOGS], len(logs.topic))
        if state.counts[_LOGS] > len(logs.topic):
            remove(state.by_log, logs.topic[at], logs.partition[at], 0, 0)
        logs.topic[at] = topic
        logs.partition[at] = partition
        logs.following[at] = following
        put(state.by_log, topic, partition, 0, 0, at)
    elif following > logs.following[at]:
        logs.following[at] = following


@kernel
def lag_from(state: SendingState, topic: int, partition: int, following: int) -> int:
    """How many records there are from an offset on; NULL where the end was not seen."""
    at = find(state.by_log, topic, partition, 0, 0)
    if at == ABSENT:
        return NULL
    return max(difference(state.logs.following[at], following), 0)


class Sendings:
    """The state with room for what comes. limit: a power of two."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        rows = min(_SMALL, limit)
        self.state = SendingState(
            by_series=new_hash_table(2 * _SMALL),
            series=Series.new(rows + 1),
            free_series=new_pool(rows + 1),
            by_batch=new_hash_table(2 * _SMALL),
            batches=Batches.new(rows),
            by_producer=new_hash_table(2 * _SMALL),
            producers=Producers.new(rows),
            by_log=new_hash_table(2 * _SMALL),
            logs=Logs.new(rows),
            once=new_hash_table(2 * _SMALL),
            counts=np.zeros(3, np.int64),
        )

    def make_room(self, more: int) -> None:
        """Room for `more` further batches, producers and logs, or for as many as are kept."""
        state = self.state
        state.grow(
            by_series=roomy(state.by_series, more),
            by_batch=roomy(state.by_batch, more),
            by_producer=roomy(state.by_producer, more),
            by_log=roomy(state.by_log, more),
        )
        wanted = self._wanted(_BATCHES, more)
        if wanted > len(state.batches.matrix):
            state.grow(
                series=state.series.grown(wanted + 1),
                free_series=grown_pool(state.free_series, wanted + 1),
                batches=state.batches.grown(wanted),
            )
        wanted = self._wanted(_PRODUCERS, more)
        if wanted > len(state.producers.matrix):
            state.grow(producers=state.producers.grown(wanted))
        wanted = self._wanted(_LOGS, more)
        if wanted > len(state.logs.matrix):
            state.grow(logs=state.logs.grown(wanted))

    def _wanted(self, place: int, more: int) -> int:
        """Records for `more` further ones: a power of two, and no more than the limit."""
        wanted = int(self.state.counts[place]) + more
        return min(self._limit, 1 << max(wanted - 1, 1).bit_length())

    def see_end(self, topic: int, partition: int, following: int) -> None:
        """A log reaches so far at least; makes the room for it."""
        if following < 0:
            return
        self.state.grow(by_log=roomy(self.state.by_log, 1))
        wanted = self._wanted(_LOGS, 1)
        if wanted > len(self.state.logs.matrix):
            self.state.grow(logs=self.state.logs.grown(wanted))
        see_end(self.state, topic, partition, following)

    def lag_from(self, topic: int, partition: int, following: int) -> int:
        """How many records there are from an offset on; NULL where the end was not seen."""
        return int(lag_from(self.state, topic, partition, following))

    def is_once(self, topic: int) -> bool:
        """Whether a topic stores each batch once."""
        return int(find(self.state.once, topic, 0, 0, 0)) != ABSENT

    def store_once(self, topic: int) -> None:
        """A topic stores each batch once, whatever its producers say."""
        self.state.grow(once=roomy(self.state.once, 1))
        put(self.state.once, topic, 0, 0, 0, 0)
