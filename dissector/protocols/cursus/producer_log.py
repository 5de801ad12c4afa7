"""Batches that producers sent: times, numbers of copies, and the progress of producers and logs.

A *series* has the batches of one producer with one epoch in one partition. Batches are stored in
the order in which they were first sent, numbered from 1, up to a bound; then new ones overwrite the
oldest. Batches of a series with rising sequence numbers form a chain from the newest to the oldest,
with longer jumps between, so that the batch of any record is found in a few steps.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector import tables
from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.wrapping import difference, total
from dissector.jit import inlined, kernel
from dissector.limits import MAX_PRODUCED_BATCHES, NULL
from dissector.states import State
from dissector.tables import HashTable, Pool

_SMALL: Final = 64

# Indexes into ProducerLogState.counts: how many were ever added.
_BATCHES: Final = 0
_PROGRESS: Final = 1

_LOG: Final = -2  # in the place of a producer's code: a partition's log

IN_ORDER: Final = 0
EPOCH_BACK: Final = 1  # an epoch below the previous one
GAP: Final = 2  # missing sequence numbers although each batch is stored once


class BatchKey(NamedTuple):
    """Identity of a batch, equal in all its copies; names as codes."""

    topic: int
    partition: int
    producer: int
    epoch: int
    seq_start: int
    seq_end: int


class Order(NamedTuple):
    """Whether a batch continues its producer's sequence.

    flaw: IN_ORDER, EPOCH_BACK or GAP.
    epoch, seq_end: the producer's last ones.
    """

    flaw: int
    epoch: int
    seq_end: int


class BatchSeries(Records):
    """batches: how many are stored; newest: number of the head of the chain, 0 for none."""

    topic: Int64Array
    partition: Int64Array
    producer: Int64Array
    epoch: Int64Array
    batches: Int64Array
    newest: Int64Array
    newest_start: Int64Array


class Batches(Records):
    """copies: times sent; is_stored: 1 if a copy was acknowledged; previous, jump: numbers of
    earlier batches of the series, 0 for none; depth: position in the chain, from 1.
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


class ProducerProgress(Records):
    """A producer's last epoch and sequence number in a partition; or, for a partition's log
    (producer _LOG), the offset of its next record, as last seen.
    """

    topic: Int64Array
    partition: Int64Array
    producer: Int64Array
    epoch: Int64Array
    reached: Int64Array


class ProducerLogState(State):
    """State of all producers and logs.

    once: topics that store each batch only once.
    counts: see above.
    """

    by_series: HashTable
    series: BatchSeries
    free_series: Pool
    by_batch: HashTable
    batches: Batches
    by_progress: HashTable
    progress: ProducerProgress
    once: HashTable
    counts: Int64Array


@inlined
def _slot(number: int, capacity: int) -> int:
    """The slot of a number's record; capacity is a power of two."""
    return (number - 1) & (capacity - 1)


@inlined
def _is_kept(state: ProducerLogState, number: int) -> bool:
    return number > 0 and number > state.counts[_BATCHES] - len(state.batches.series)


@inlined
def _depth_of(state: ProducerLogState, number: int) -> int:
    if not _is_kept(state, number):
        return 0
    return int(state.batches.depth[_slot(number, len(state.batches.series))])


@inlined
def _jump_of(state: ProducerLogState, number: int) -> int:
    if not _is_kept(state, number):
        return 0
    return int(state.batches.jump[_slot(number, len(state.batches.series))])


@inlined
def _forget_batch(state: ProducerLogState, at: int) -> None:
    """Remove the batch of a record, and its series if that is empty then."""
    batches = state.batches
    series = batches.series[at]
    tables.remove(state.by_batch, series, batches.seq_start[at], batches.seq_end[at], 0)
    state.series.batches[series] -= 1
    if state.series.batches[series] == 0:
        known = state.series
        tables.remove(
            state.by_series,
            known.topic[series],
            known.partition[series],
            known.producer[series],
            known.epoch[series],
        )
        tables.give_row(state.free_series, series)


@inlined
def _begin_series(state: ProducerLogState, batch: BatchKey) -> int:
    series = tables.allocate_row(state.free_series)
    known = state.series
    known.topic[series] = batch.topic
    known.partition[series] = batch.partition
    known.producer[series] = batch.producer
    known.epoch[series] = batch.epoch
    known.batches[series] = 0
    known.newest[series] = 0
    known.newest_start[series] = 0
    tables.put(state.by_series, batch.topic, batch.partition, batch.producer, batch.epoch, series)
    return series


@inlined
def _chain(state: ProducerLogState, series: int, number: int, at: int, seq_start: int) -> None:
    """Prepend a batch to its series' chain if its sequence numbers are above the chain's."""
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
def find_batch(state: ProducerLogState, batch: BatchKey) -> int:
    """The number of a stored batch, ABSENT if there is none."""
    series = tables.find(state.by_series, batch.topic, batch.partition, batch.producer, batch.epoch)
    if series == tables.ABSENT:
        return tables.ABSENT
    return int(tables.find(state.by_batch, series, batch.seq_start, batch.seq_end, 0))


@kernel
def count_batch(state: ProducerLogState, batch: BatchKey, last_ns: int) -> int:
    """Count a sent batch, complete on the wire at last_ns, and update its producer's progress.

    Returns:
        The number of the batch.
    """
    series = tables.find(state.by_series, batch.topic, batch.partition, batch.producer, batch.epoch)
    if series == tables.ABSENT:
        series = _begin_series(state, batch)
    batches = state.batches
    capacity = len(batches.series)
    number = tables.find(state.by_batch, series, batch.seq_start, batch.seq_end, 0)
    if number != tables.ABSENT:
        batches.copies[_slot(number, capacity)] += 1
        return number
    state.series.batches[series] += 1
    number = state.counts[_BATCHES] + 1
    at = _slot(number, capacity)
    if number > capacity:
        _forget_batch(state, at)
    state.counts[_BATCHES] = number
    batches.series[at] = series
    batches.seq_start[at] = batch.seq_start
    batches.seq_end[at] = batch.seq_end
    batches.last_ns[at] = last_ns
    batches.copies[at] = 1
    batches.is_stored[at] = 0
    tables.put(state.by_batch, series, batch.seq_start, batch.seq_end, 0, number)
    _chain(state, series, number, at, batch.seq_start)
    _advance(state, batch.topic, batch.partition, batch.producer, batch.epoch, batch.seq_end)
    return int(number)


@kernel
def copies_of(state: ProducerLogState, number: int) -> int:
    """How often a batch was sent, the last time included; NULL if it was overwritten."""
    if not _is_kept(state, number):
        return NULL
    return int(state.batches.copies[_slot(number, len(state.batches.series))])


@kernel
def store_batch(state: ProducerLogState, number: int) -> int:
    """Mark a batch as acknowledged; returns 1 if it was already."""
    if not _is_kept(state, number):
        return 0
    at = _slot(number, len(state.batches.series))
    before = state.batches.is_stored[at]
    state.batches.is_stored[at] = 1
    return int(before)


@kernel
def published_ns(
    state: ProducerLogState, topic: int, partition: int, producer: int, epoch: int, seq_num: int
) -> int:
    """When the batch of a record was complete on the wire; NULL if unknown."""
    series = tables.find(state.by_series, topic, partition, producer, epoch)
    if series == tables.ABSENT:
        return NULL
    batches = state.batches
    capacity = len(batches.series)
    number = state.series.newest[series]
    for _ in range(capacity):
        if not _is_kept(state, number):
            return NULL
        at = _slot(number, capacity)
        if batches.seq_start[at] <= seq_num:
            is_in = seq_num <= max(batches.seq_end[at], batches.seq_start[at])
            return int(batches.last_ns[at]) if is_in else NULL
        jump = batches.jump[at]
        if _is_kept(state, jump) and batches.seq_start[_slot(jump, capacity)] > seq_num:
            number = jump
        else:
            number = batches.previous[at]
    return NULL


@kernel
def is_stored_once(state: ProducerLogState, topic: int, idempotent: int) -> bool:
    """Whether the broker stores a batch only once, however often it is sent."""
    return idempotent == 1 or tables.find(state.once, topic, 0, 0, 0) != tables.ABSENT


@kernel
def order_of(state: ProducerLogState, batch: BatchKey, idempotent: int) -> Order:
    """Whether a batch, not counted yet, continues its producer's sequence; copies always do."""
    at = tables.find(state.by_progress, batch.topic, batch.partition, batch.producer, 0)
    if at == tables.ABSENT or find_batch(state, batch) != tables.ABSENT:
        return Order(IN_ORDER, 0, 0)
    epoch, seq_end = state.progress.epoch[at], state.progress.reached[at]
    flaw = IN_ORDER
    if batch.epoch < epoch:
        flaw = EPOCH_BACK
    elif batch.epoch == epoch and batch.seq_start > total(seq_end, 1):
        flaw = GAP if is_stored_once(state, batch.topic, idempotent) else IN_ORDER
    return Order(flaw, epoch, seq_end)


@inlined
def _advance(
    state: ProducerLogState, topic: int, partition: int, producer: int, epoch: int, reached: int
) -> None:
    """Update the progress of a producer or a log, if it is an advance."""
    known = state.progress
    at = tables.find(state.by_progress, topic, partition, producer, 0)
    if at == tables.ABSENT:
        state.counts[_PROGRESS] += 1
        at = _slot(state.counts[_PROGRESS], len(known.topic))
        if state.counts[_PROGRESS] > len(known.topic):
            tables.remove(
                state.by_progress, known.topic[at], known.partition[at], known.producer[at], 0
            )
        known.topic[at] = topic
        known.partition[at] = partition
        known.producer[at] = producer
        tables.put(state.by_progress, topic, partition, producer, 0, at)
    elif epoch < known.epoch[at] or (epoch == known.epoch[at] and reached <= known.reached[at]):
        return
    known.epoch[at] = epoch
    known.reached[at] = reached


@kernel
def see_log_end(state: ProducerLogState, topic: int, partition: int, following: int) -> None:
    """Note that the next offset of a log is at least `following`."""
    if following >= 0:
        _advance(state, topic, partition, _LOG, 0, following)


@kernel
def lag_from(state: ProducerLogState, topic: int, partition: int, following: int) -> int:
    """How many records a log has from an offset on; NULL if its end was not seen."""
    at = tables.find(state.by_progress, topic, partition, _LOG, 0)
    if at == tables.ABSENT:
        return NULL
    return max(difference(state.progress.reached[at], following), 0)


class ProducerLog:
    """The state and its growth.

    limit: a power of two.
    key: of hash tables.
    """

    def __init__(self, limit: int = MAX_PRODUCED_BATCHES, key: int = 0) -> None:
        self._limit = limit
        rows = min(_SMALL, limit)
        self.state = ProducerLogState(
            by_series=tables.new_hash_table(2 * _SMALL, key),
            series=BatchSeries.new(rows + 1),
            free_series=tables.new_pool(rows + 1),
            by_batch=tables.new_hash_table(2 * _SMALL, key),
            batches=Batches.new(rows),
            by_progress=tables.new_hash_table(2 * _SMALL, key),
            progress=ProducerProgress.new(rows),
            once=tables.new_hash_table(2 * _SMALL, key),
            counts=np.zeros(2, np.int64),
        )

    def reserve(self, more: int) -> None:
        """Reserve room for `more` further batches, producers and logs, up to the limit."""
        state = self.state
        state.grow(
            by_series=tables.reserved(state.by_series, more),
            by_batch=tables.reserved(state.by_batch, more),
        )
        rows = self._rows_for(_BATCHES, more)
        if rows > len(state.batches.matrix):
            state.grow(
                series=state.series.grown(rows + 1),
                free_series=tables.grown_pool(state.free_series, rows + 1),
                batches=state.batches.grown(rows),
            )
        self._make_progress_room(2 * more)

    def _make_progress_room(self, more: int) -> None:
        state = self.state
        state.grow(by_progress=tables.reserved(state.by_progress, more))
        rows = self._rows_for(_PROGRESS, more)
        if rows > len(state.progress.matrix):
            state.grow(progress=state.progress.grown(rows))

    def _rows_for(self, counter: int, more: int) -> int:
        """Number of records with room for `more`: a power of two, not above the limit."""
        rows = int(self.state.counts[counter]) + more
        return min(self._limit, 1 << max(rows - 1, 1).bit_length())

    def see_log_end(self, topic: int, partition: int, following: int) -> None:
        """As the function `see_log_end`, with room reserved."""
        self._make_progress_room(1)
        see_log_end(self.state, topic, partition, following)

    def store_once(self, topic: int) -> None:
        """Note a topic that stores each batch only once, whatever its producers request."""
        self.state.grow(once=tables.reserved(self.state.once, 1))
        tables.put(self.state.once, topic, 0, 0, 0, 0)
