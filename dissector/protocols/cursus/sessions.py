"""Cursus' state of connections and requests beside pairing's, and the steps of a frame.

A session is a connection. There is no request id: a broker reads, handles and answers one frame at
a time, so an answer belongs to the oldest request. The rules in `exchanges` choose the steps of a
frame; for frequent frames `walk` does.
"""

from typing import Final, NamedTuple

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
from dissector.protocols.cursus.deliveries import MANY, DeliveryState, new_ack
from dissector.protocols.cursus.producer_log import BatchKey, ProducerLogState
from dissector.protocols.pairing import connections as pairing_connections
from dissector.protocols.pairing import pending as pairing_pending
from dissector.protocols.pairing import rows as pairing_rows
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.rules import Expectation
from dissector.protocols.pairing.state import PairingState
from dissector.schemas.enums import KIND_PUBLISH
from dissector.states import State

UNKNOWN_STREAM: Final = -2  # of a connection's push: its STREAM was not captured


class Sessions(Records):
    """State of each connection of pairing.

    last_...: of the last batch.
    has_pipelined: two requests were unanswered at once.
    has_asked: a frame of the client was seen.
    must_authenticate: the broker requires authentication, and the client has not authenticated.
    has_stored: a batch of it was stored since it last authenticated.
    group: the group that its client named, NULL for none, MANY for several.
    has_sent: a batch of the client was seen.
    """

    last_topic: Int64Array
    last_producer: Int64Array
    last_epoch: Int64Array
    has_pipelined: Int64Array
    has_asked: Int64Array
    must_authenticate: Int64Array
    has_stored: Int64Array
    group: Int64Array
    has_sent: Int64Array


class Requests(Records):
    """State of each pending row of pairing; NULL if unknown.

    acks, idempotent: of a batch.
    batch: its number in `producer_log`, 0 for none.
    committed_partition, following: of a commit of one offset, see BodyColumns.
    is_passed_on: 1 if a broker forwarded it.
    is_begun: 1 once the first of the two answer frames of a READ_STREAM was seen.
    """

    partition: Int64Array
    consumer_name: Int64Array
    acks: Int64Array
    idempotent: Int64Array
    batch: Int64Array
    committed_partition: Int64Array
    following: Int64Array
    is_passed_on: Int64Array
    is_begun: Int64Array


class SessionState(State):
    """Sessions and requests, by the rows of pairing."""

    sessions: Sessions
    requests: Requests


class PassContext(NamedTuple):
    """A block of frames, and the state that they change."""

    pairing: pairing_state.PassContext
    state: SessionState
    producer_log: ProducerLogState
    deliveries: DeliveryState
    frames: FrameColumns
    bodies: BodyColumns


def new_session_state() -> SessionState:
    """An empty state with no rows: see `reserve`."""
    return SessionState(sessions=Sessions.new(0), requests=Requests.new(0))


def reserve(state: SessionState, pairing: PairingState, connections: int, requests: int) -> None:
    """Reserve rows for so many further connections and requests, in pairing, too."""
    pairing_state.reserve_connections(pairing, connections)
    pairing_state.reserve_pending(pairing, requests)
    table = tables.reserved(pairing.table, pairing_state.ROW_KEYS * (connections + 1))
    pairing.grow(table=table)
    rows = len(pairing.connection_pool.rows)
    if rows > len(state.sessions.matrix):
        state.grow(sessions=state.sessions.grown(rows))
    rows = len(pairing.pending_pool.rows)
    if rows > len(state.requests.matrix):
        state.grow(requests=state.requests.grown(rows))


def open_session(state: SessionState, pairing: PairingState, connection_id: int) -> int:
    """Open a session for a connection that has none, and return its row."""
    reserve(state, pairing, 1, 1)
    session = pairing_connections.connection_of(pairing, connection_id)
    state.sessions.matrix[session] = 0
    state.sessions.last_topic[session] = NULL
    state.sessions.group[session] = NULL
    return session


# -- steps of requests


@inlined
def oldest_of(pairing: PairingState, session: int) -> int:
    """The oldest unanswered request, ABSENT if there is none."""
    return int(pairing.group_lists.first[pairing.connections.requests[session]])


@inlined
def batch_key(frames: FrameColumns, row: int) -> BatchKey:
    """The key of the batch in a client's frame."""
    return BatchKey(
        frames.topic[row],
        frames.partition[row],
        frames.producer_name[row],
        frames.producer_epoch[row],
        frames.sequence_id[row],
        frames.highest_sequence_id[row],
    )


@kernel
def ask(context: PassContext, session: int, row: int, kind: int, is_passed_on: bool) -> int:
    """Add the request of a client's frame to the unanswered ones, and return its row.

    Args:
        is_passed_on: a broker forwards the command, which counts where its client sent it.
    """
    frames, bodies, pairing = context.frames, context.bodies, context.pairing.state
    sessions, requests, pending = context.state.sessions, context.state.requests, pairing.pending
    oldest, push = oldest_of(pairing, session), pairing.connections.push[session]
    is_in_order = push == tables.ABSENT
    if is_in_order and oldest != tables.ABSENT and not pairing_rows.may_be_lost(pairing, oldest):
        sessions.has_pipelined[session] = 1
    group = pairing.connections.requests[session]
    which = pairing_pending.new_request(context.pairing, row, group, pairing_state.REQUESTS)
    if frames.status[row] != columns.COMPLETE:
        pending.tainted[which] = 1
    pending.kind[which] = kind
    if kind == KIND_PUBLISH and is_in_order:
        pending.outstanding_before[which] = pairing.groups.publishes[group]
        pairing.groups.publishes[group] += 1
    for column in range(requests.matrix.shape[1]):
        requests.matrix[which, column] = 0
    requests.partition[which] = frames.partition[row]
    requests.consumer_name[which] = frames.consumer_name[row]
    requests.committed_partition[which] = bodies.committed_partition[row]
    requests.following[which] = bodies.following[row]
    requests.is_passed_on[which] = 1 if is_passed_on else 0
    requests.acks[which] = 1
    if frames.command[row] == BATCH:
        requests.acks[which] = bodies.acks[row] if bodies.acks[row] != NULL else 1
        requests.idempotent[which] = max(bodies.idempotent[row], 0)
        sessions.has_sent[session] = 1
    if kind == KIND_PUBLISH or is_passed_on:
        highest = frames.highest_sequence_id[row]
        pending.sequence_id[which] = frames.sequence_id[row]
        pending.highest_sequence_id[which] = highest if highest > 0 else NULL
        pending.message_count[which] = frames.message_count[row]
    if kind == KIND_PUBLISH and requests.acks[which] == 0:
        set_silent(pairing, which)
    if kind == KIND_PUBLISH and is_countable(frames, row):
        number = cursus_producer_log.count_batch(
            context.producer_log, batch_key(frames, row), frames.last_ts_ns[row]
        )
        requests.batch[which] = number
        pending.attempt[which] = cursus_producer_log.copies_of(context.producer_log, number)
    named, known = frames.subscription[row], sessions.group[session]
    if named != NULL and named != known:
        sessions.group[session] = named if known == NULL else MANY
    sessions.has_asked[session] = 1
    return which


@kernel
def set_silent(pairing: PairingState, which: int) -> None:
    """Mark a request whose client may not wait for the answer."""
    if pairing.pending.silence[which] == Expectation.AWAITED:
        pairing.pending.silence[which] = Expectation.MAY_BE_SILENT


@kernel
def is_countable(frames: FrameColumns, row: int) -> bool:
    """Whether a client's frame identifies its batch: topic, producer and sequence number."""
    is_named = frames.topic[row] != NULL and frames.producer_name[row] != NULL
    return bool(is_named and frames.sequence_id[row] != NULL)


@kernel
def note_commit(
    context: PassContext, which: int, subscription: int, topic: int, partition: int, following: int
) -> None:
    """Add a row of acks for an offset that a request commits; the row must be reserved."""
    pairing, acks = context.pairing.state, context.deliveries.acks
    at = new_ack(context.deliveries)
    connection = pairing.groups.connection[pairing.pending.group[which]]
    acks.connection_id[at] = pairing.connections.connection_id[connection]
    acks.frame_no[at] = pairing.pending.request_frame_no[which]
    acks.ts[at] = pairing.pending.request_last_ns[which]
    acks.topic[at] = topic
    acks.subscription[at] = subscription
    acks.entry_id[at] = following - 1 if following > 0 else NULL
    acks.partition[at] = partition
    acks.lag[at] = NULL
    if topic != NULL:
        acks.lag[at] = cursus_producer_log.lag_from(
            context.producer_log, topic, partition, following
        )
    acks.closing_row[at] = pairing.counters[pairing_state.COUNT_ROW]


# -- steps of answers


@kernel
def respond(
    context: PassContext, which: int, row: int, outcome: int, error_code: int, error_text: int
) -> None:
    """Answer a request with a frame and write its exchange.

    Args:
        error_code, error_text: codes of names.
    """
    pending = context.pairing.state.pending
    inherit(context, which, row)
    pairing_rows.take_answer(context.pairing, row, which, outcome)
    pending.error_code[which] = error_code
    pending.error_text[which] = error_text
    pairing_rows.write(context.pairing, which)


@kernel
def respond_unasked(
    context: PassContext, session: int, row: int, kind: int, error_code: int, error_text: int
) -> None:
    """Write the exchange of an answer whose request was not captured."""
    frames, pending = context.frames, context.pairing.state.pending
    which = pairing_pending.keep_unmatched(context.pairing, row, session, NULL)
    highest = frames.highest_sequence_id[row]
    pending.kind[which] = kind
    pending.sequence_id[which] = frames.sequence_id[row]
    pending.highest_sequence_id[which] = highest if highest > 0 else NULL
    pending.error_code[which] = error_code
    pending.error_text[which] = error_text
    pairing_rows.write(context.pairing, which)


@kernel
def store(context: PassContext, which: int) -> bool:
    """Mark an acknowledged batch as stored; False if it was already and is stored only once."""
    requests, log = context.state.requests, context.producer_log
    was_stored = cursus_producer_log.store_batch(log, requests.batch[which]) == 1
    topic = context.pairing.state.pending.topic[which]
    is_once = cursus_producer_log.is_stored_once(log, topic, requests.idempotent[which])
    return not (was_stored and is_once)


@kernel
def inherit(context: PassContext, which: int, row: int) -> None:
    """Copy names that an answer lacks from its request."""
    frames, asked = context.frames, context.pairing.state.pending
    consumer_name = context.state.requests.consumer_name[which]
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
    if consumer_name != NULL and frames.consumer_name[row] == NULL:
        frames.consumer_name[row] = consumer_name
        is_named = True
    if is_named:
        frames.name_source[row] = columns.NAME_OBSERVED


@kernel
def new_delivery(context: PassContext, row: int, asked: int) -> int:
    """Allocate the delivery of a broker's batch, in no list yet, and return its row.

    Args:
        asked: the request that it answers, ABSENT if unknown.
    """
    frames, bodies, state = context.frames, context.bodies, context.deliveries
    deliveries = state.deliveries
    which = tables.allocate_row(state.free)
    for column in range(deliveries.matrix.shape[1]):
        deliveries.matrix[which, column] = NULL
    topic, partition, ts = frames.topic[row], frames.partition[row], frames.last_ts_ns[row]
    records = bodies.records[row]
    announced = records if records != NULL else frames.message_count[row]
    count = max(announced, 0)
    first, last = bodies.first_offset[row], bodies.last_offset[row]
    if last == NULL and first != NULL:
        last = total(first, count - 1)  # cut: the later records' offsets are missing
    deliveries.connection_id[which] = frames.connection_id[row]
    deliveries.frame_no[which] = frames.frame_no[row]
    deliveries.ts[which] = ts
    deliveries.topic[which] = topic
    deliveries.partition[which] = partition
    if asked >= 0:
        deliveries.subscription[which] = context.pairing.state.pending.subscription[asked]
        deliveries.consumer_name[which] = context.state.requests.consumer_name[asked]
    if announced != NULL:
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
