"""What every session has asked and not been answered, and the steps that each frame takes.

A session is a connection. There is no request id: a broker reads, handles and answers one frame at
a time, so requests wait in a queue and an answer is that of the oldest. The rules in `correlation`
decide which step a frame takes, and `walk` does for what comes by the ten thousand.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector import tables
from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.wrapping import difference, total
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns
from dissector.protocols.cursus import producer_log as cursus_producer_log
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.commands import BATCH
from dissector.protocols.cursus.deliveries import DeliveryState
from dissector.protocols.cursus.producer_log import BatchKey, ProducedState
from dissector.protocols.cursus.rows import EXCHANGE_COLUMNS, ClosesRows, Exchanges
from dissector.schemas.enums import KIND_PUBLISH
from dissector.states import State
from dissector.tables import HashTable, Pool

UNKNOWN_STREAM: Final = -2  # of Sessions.stream: its STREAM was not captured

# Indexes into SessionState.counts.
PENDING: Final = 0  # requests that wait, of all sessions
LIMIT: Final = 1  # of those
_CLOSED: Final = 2  # records of closed
NOW: Final = 3  # the latest time of a frame

_COLUMNS: Final = len(EXCHANGE_COLUMNS)
_SPARE: Final = 2  # requests beyond the limit: one too many, and an answer without one


class Sessions(Records):
    """One record per connection.

    stream: the STREAM that turned it into a push, ABSENT, or UNKNOWN_STREAM.
    second: a READ_STREAM whose first frame has come, or ABSENT; last_...: of the last batch.
    first, last, length: the queue of requests, after STREAM: requests that the broker ignores.
    publishes: how many of them are.
    missed: answers still to come for requests that were given up.
    has_pipelined: two requests waited at once.
    has_hole: bytes are missing.
    has_answered: something came from the broker.
    must_authenticate: the broker said so, and the client has not.
    has_stored: a batch of it was stored since it last authenticated.
    """

    stream: Int64Array
    second: Int64Array
    last_topic: Int64Array
    last_producer: Int64Array
    last_epoch: Int64Array
    first: Int64Array
    last: Int64Array
    length: Int64Array
    publishes: Int64Array
    missed: Int64Array
    has_pipelined: Int64Array
    has_hole: Int64Array
    has_asked: Int64Array
    has_answered: Int64Array
    must_authenticate: Int64Array
    has_stored: Int64Array


class SessionState(State):
    """Open sessions.

    by_connection: sessions.
    exchanges: requests that wait, and those of streams.
    closed: exchanges that are over.
    counts: see above.
    """

    by_connection: HashTable
    sessions: Sessions
    exchanges: Exchanges
    free: Pool
    closed: Exchanges
    counts: Int64Array


class PassContext(NamedTuple):
    """A block, and all that its frames change."""

    state: SessionState
    producer_log: ProducedState
    deliveries: DeliveryState
    frames: FrameColumns
    bodies: BodyColumns


# -- steps of requests


@inlined
def batch_key(frames: FrameColumns, row: int) -> BatchKey:
    """Which batch a client's frame holds."""
    return BatchKey(
        frames.topic[row],
        frames.partition[row],
        frames.producer_name[row],
        frames.producer_epoch[row],
        frames.sequence_id[row],
        frames.highest_sequence_id[row],
    )


@inlined
def _new_exchange(context: PassContext, row: int, kind: int) -> int:
    """A record that has nothing but its connection and kind."""
    exchanges = context.state.exchanges
    which = tables.allocate_row(context.state.free)
    for column in range(exchanges.matrix.shape[1]):
        exchanges.matrix[which, column] = NULL
    exchanges.connection_id[which] = context.frames.connection_id[row]
    exchanges.kind[which] = kind
    exchanges.batch[which] = 0
    exchanges.next[which] = tables.ABSENT
    context.state.counts[PENDING] += 1
    return which


@inlined
def _enqueue(state: SessionState, session: int, which: int) -> None:
    """Put a request at the end of its session's queue."""
    sessions, exchanges = state.sessions, state.exchanges
    if sessions.stream[session] == tables.ABSENT and exchanges.kind[which] == KIND_PUBLISH:
        exchanges.outstanding_before[which] = sessions.publishes[session]
        sessions.publishes[session] += 1
    if sessions.length[session] == 0:
        sessions.first[session] = which
    else:
        exchanges.next[sessions.last[session]] = which
        is_lost = exchanges.may_be_lost[sessions.first[session]] == 1
        if sessions.stream[session] == tables.ABSENT and not is_lost:
            sessions.has_pipelined[session] = 1
    sessions.last[session] = which
    sessions.length[session] += 1


@kernel
def ask(context: PassContext, session: int, row: int, kind: int, is_passed_on: bool) -> int:
    """A client's frame asks for something; returns the request, which waits from now on.

    Args:
        is_passed_on: a broker passes on what counts where its client sent it.
    """
    state, frames, bodies = context.state, context.frames, context.bodies
    exchanges = state.exchanges
    which = _new_exchange(context, row, kind)
    command = frames.command[row]
    transmit = difference(frames.last_ts_ns[row], frames.first_ts_ns[row])
    exchanges.request_command[which] = command
    exchanges.request_frame_no[which] = frames.frame_no[row]
    exchanges.request_first_ns[which] = frames.first_ts_ns[row]
    exchanges.request_last_ns[which] = frames.last_ts_ns[row]
    exchanges.transmit_ns[which] = transmit if transmit >= 0 else NULL
    exchanges.ts[which] = frames.last_ts_ns[row]
    exchanges.request_bytes[which] = frames.frame_bytes[row]
    is_tainted = frames.retransmitted[row] == 1 or frames.status[row] != columns.COMPLETE
    exchanges.tainted[which] = 1 if is_tainted else 0
    exchanges.topic[which] = frames.topic[row]
    exchanges.partition[which] = frames.partition[row]
    exchanges.subscription[which] = frames.subscription[row]
    exchanges.producer_name[which] = frames.producer_name[row]
    exchanges.consumer_name[which] = frames.consumer_name[row]
    exchanges.is_passed_on[which] = 1 if is_passed_on else 0
    exchanges.acks[which] = 1
    if command == BATCH:
        exchanges.acks[which] = bodies.acks[row] if bodies.acks[row] != NULL else 1
        exchanges.idempotent[which] = max(bodies.idempotent[row], 0)
    if kind == KIND_PUBLISH or is_passed_on:
        highest = frames.highest_sequence_id[row]
        exchanges.sequence_id[which] = frames.sequence_id[row]
        exchanges.highest_sequence_id[which] = highest if highest > 0 else NULL
        exchanges.message_count[which] = frames.message_count[row]
    if kind == KIND_PUBLISH and is_countable(frames, row):
        number = cursus_producer_log.count_batch(
            context.producer_log, batch_key(frames, row), frames.last_ts_ns[row]
        )
        exchanges.batch[which] = number
        exchanges.attempt[which] = cursus_producer_log.copies_of(context.producer_log, number)
    _enqueue(state, session, which)
    state.sessions.has_asked[session] = 1
    return which


@kernel
def is_countable(frames: FrameColumns, row: int) -> bool:
    """Whether a client's frame says which batch it holds."""
    is_named = frames.topic[row] != NULL and frames.producer_name[row] != NULL
    return bool(is_named and frames.sequence_id[row] != NULL)


@kernel
def pop_oldest(state: SessionState, session: int) -> int:
    """The oldest request of a session, which waits no longer."""
    sessions, exchanges = state.sessions, state.exchanges
    which = sessions.first[session]
    sessions.first[session] = exchanges.next[which]
    sessions.length[session] -= 1
    if exchanges.outstanding_before[which] != NULL:
        sessions.publishes[session] -= 1
    return int(which)


@kernel
def taint(state: SessionState, session: int, is_answering: bool) -> None:
    """Bytes are missing. is_answering: of the broker, so answers may be."""
    which = state.sessions.first[session]
    for _ in range(state.sessions.length[session]):
        state.exchanges.tainted[which] = 1
        if is_answering:
            state.exchanges.may_be_lost[which] = 1
        which = state.exchanges.next[which]


# -- steps of answers


@kernel
def respond(context: PassContext, which: int, row: int) -> None:
    """Fill what an exchange has from the frame that answers it."""
    frames, exchanges = context.frames, context.state.exchanges
    exchanges.response_command[which] = frames.command[row]
    exchanges.response_frame_no[which] = frames.frame_no[row]
    exchanges.response_first_ns[which] = frames.first_ts_ns[row]
    exchanges.response_last_ns[which] = frames.last_ts_ns[row]
    is_timed = (
        frames.status[row] == columns.COMPLETE or frames.status[row] == columns.CUT_BY_SNAPLEN
    )
    if is_timed and exchanges.request_last_ns[which] != NULL:
        latency = difference(frames.last_ts_ns[row], exchanges.request_last_ns[which])
        exchanges.latency_ns[which] = latency if latency >= 0 else NULL
    if frames.retransmitted[row] == 1 or frames.status[row] != columns.COMPLETE:
        exchanges.tainted[which] = 1
    if frames.command[row] != BATCH:
        exchanges.entry_id[which] = frames.entry_id[row]


@kernel
def respond_unasked(context: PassContext, row: int, kind: int, is_tainted: bool) -> int:
    """An exchange of which there is only an answer."""
    frames, exchanges = context.frames, context.state.exchanges
    which = _new_exchange(context, row, kind)
    respond(context, which, row)
    highest = frames.highest_sequence_id[row]
    exchanges.tainted[which] = 1 if is_tainted or frames.retransmitted[row] == 1 else 0
    exchanges.topic[which] = frames.topic[row]
    exchanges.producer_name[which] = frames.producer_name[row]
    exchanges.sequence_id[which] = frames.sequence_id[row]
    exchanges.highest_sequence_id[which] = highest if highest > 0 else NULL
    exchanges.ts[which] = frames.last_ts_ns[row]
    return which


@kernel
def store(context: PassContext, which: int) -> bool:
    """A batch was acknowledged; False if it was stored already and is stored once."""
    exchanges = context.state.exchanges
    was_stored = cursus_producer_log.store_batch(context.producer_log, exchanges.batch[which]) == 1
    is_once = cursus_producer_log.is_stored_once(
        context.producer_log, exchanges.topic[which], exchanges.idempotent[which]
    )
    return not (was_stored and is_once)


@kernel
def inherit(context: PassContext, which: int, row: int) -> None:
    """Name what an answer does not say of itself as its request does."""
    frames, asked = context.frames, context.state.exchanges
    is_named = False
    if asked.topic[which] != NULL and frames.topic[row] == NULL:
        frames.topic[row] = asked.topic[which]
        is_named = True
    if asked.subscription[which] != NULL and frames.subscription[row] == NULL:
        frames.subscription[row] = asked.subscription[which]
        is_named = True
    if asked.producer_name[which] != NULL and frames.producer_name[row] == NULL:
        frames.producer_name[row] = asked.producer_name[which]
        is_named = True
    if asked.consumer_name[which] != NULL and frames.consumer_name[row] == NULL:
        frames.consumer_name[row] = asked.consumer_name[which]
        is_named = True
    if is_named:
        frames.name_source[row] = columns.NAME_OBSERVED


@kernel
def close_exchange(state: SessionState, which: int, outcome: int, ordinal: int) -> None:
    """An exchange that waits no longer is a row; its record is free, but for a stream's."""
    exchanges, closed = state.exchanges, state.closed
    exchanges.outcome[which] = outcome
    exchanges.closing_row[which] = ordinal
    at = state.counts[_CLOSED]
    for column in range(_COLUMNS):
        closed.matrix[at, column] = exchanges.matrix[which, column]
    state.counts[_CLOSED] = at + 1
    state.counts[PENDING] -= 1
    if exchanges.is_stream[which] != 1:
        tables.give_row(state.free, which)


@kernel
def new_delivery(context: PassContext, row: int, asked: int) -> int:
    """The delivery of a broker's batch, which is in no list yet.

    Args:
        asked: the request that it answers, ABSENT if that is not known.
    """
    frames, bodies, state = context.frames, context.bodies, context.deliveries
    deliveries = state.deliveries
    which = tables.allocate_row(state.free)
    for column in range(deliveries.matrix.shape[1]):
        deliveries.matrix[which, column] = NULL
    topic, partition, ts = frames.topic[row], frames.partition[row], frames.last_ts_ns[row]
    records = bodies.records[row]
    count = records if records != NULL else max(frames.message_count[row], 0)
    first, last = bodies.first_offset[row], bodies.last_offset[row]
    if last == NULL and first != NULL:
        last = total(first, count - 1)  # cut: the offsets of the rest are not there
    deliveries.connection_id[which] = frames.connection_id[row]
    deliveries.frame_no[which] = frames.frame_no[row]
    deliveries.ts[which] = ts
    deliveries.topic[which] = topic
    deliveries.partition[which] = partition
    if asked >= 0:
        deliveries.subscription[which] = context.state.exchanges.subscription[asked]
        deliveries.consumer_name[which] = context.state.exchanges.consumer_name[asked]
    deliveries.batch_size[which] = count
    deliveries.message_count[which] = count
    deliveries.messages_acked[which] = 0
    deliveries.is_redelivered[which] = 0
    deliveries.next[which] = tables.ABSENT
    if records > 0:
        producer, epoch = bodies.first_producer[row], bodies.first_epoch[row]
        sent = cursus_producer_log.published_ns(
            context.producer_log, topic, partition, producer, epoch, bodies.first_seq[row]
        )
        since = difference(ts, sent)
        deliveries.publish_to_delivery_ns[which] = since if sent != NULL and since >= 0 else NULL
    if count > 0:
        deliveries.entry_id[which] = first
        deliveries.last_offset[which] = last
        if last != NULL:
            following = total(last, 1)
            deliveries.lag[which] = cursus_producer_log.lag_from(
                context.producer_log, topic, partition, following
            )
            cursus_producer_log.see_log_end(context.producer_log, topic, partition, following)
    return which


class OpenSessions(ClosesRows):
    """The state with room for what comes.

    limit: of requests that wait.
    key: of its table.
    """

    CLOSED = _CLOSED
    COLUMNS = _COLUMNS
    state: SessionState

    def __init__(self, limit: int, key: int = 0) -> None:
        self._limit = limit
        self.state = SessionState(
            by_connection=tables.new_hash_table(128, key),
            sessions=Sessions.new(64),
            exchanges=Exchanges.new(64),
            free=tables.new_pool(64),
            closed=Exchanges.new(64),
            counts=np.array([0, limit, 0, NULL], np.int64),
        )
        self._free_sessions: list[int] = []
        self._used = 0

    @property
    def is_over_limit(self) -> bool:
        """Whether more requests wait than may."""
        return int(self.state.counts[PENDING]) > self._limit

    def reserve(self, more: int) -> None:
        """Room for `more` further requests, and no more than may wait; and to close as many."""
        state = self.state
        rows, limit = len(state.free.rows), self._limit + self._used + _SPARE
        if int(state.free.free[0]) < more and rows < limit:
            rows = min(limit, 1 << (rows + more).bit_length())
            state.grow(
                exchanges=state.exchanges.grown(rows), free=tables.grown_pool(state.free, rows)
            )
        self.make_closed_room(more)

    def open(self, connection: int) -> int:
        """The session of a connection that has none."""
        state = self.state
        if self._free_sessions:
            session = self._free_sessions.pop()
        else:
            session = self._used
            self._used += 1
            if session >= len(state.sessions.matrix):
                state.grow(sessions=state.sessions.grown(2 * session))
        state.grow(by_connection=tables.reserved(state.by_connection, 1))
        state.sessions.matrix[session] = 0
        for name in ("stream", "second"):
            getattr(state.sessions, name)[session] = tables.ABSENT
        state.sessions.last_topic[session] = NULL
        tables.put(state.by_connection, connection, 0, 0, 0, session)
        self.reserve(1)
        return session

    def close(self, connection: int, session: int) -> None:
        """A connection is over, and nothing waits on it any more."""
        state = self.state
        tables.remove(state.by_connection, connection, 0, 0, 0)
        stream = int(state.sessions.stream[session])
        if stream >= 0:
            tables.give_row(state.free, stream)
        self._free_sessions.append(session)

    def waiting(self, session: int) -> list[int]:
        """Requests of a session that wait, in the order of their frames; none do then."""
        sessions = self.state.sessions
        found = []
        if sessions.second[session] != tables.ABSENT:
            found.append(int(sessions.second[session]))
            sessions.second[session] = tables.ABSENT
        while sessions.length[session]:
            found.append(pop_oldest(self.state, session))
        return found
