"""The fast path of frequent frames: batches, pushes of streams, commits, their answers.

Each frame takes the same steps as by the rules in `exchanges`, which handle any other frame: `walk`
stops there.
"""

from dissector.codecs.wrapping import total
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import COMPLETE, TO_BROKER, TO_CLIENT
from dissector.protocols.cursus import sessions as cursus_sessions
from dissector.protocols.cursus.commands import BATCH
from dissector.protocols.cursus.compact_acks import ReadBy
from dissector.protocols.cursus.deliveries import (
    MANY,
    Commit,
    extend_fetched,
    extends_top,
    handle_commit,
    has_ack_room,
    has_commit_room,
    open_delivery,
    see_client,
)
from dissector.protocols.cursus.producer_log import IN_ORDER, order_of, see_log_end
from dissector.protocols.cursus.sessions import PassContext
from dissector.protocols.pairing.connections import find_connection
from dissector.protocols.pairing.rows import last_hole_of_requests, may_be_lost
from dissector.protocols.pairing.steps import begin_row
from dissector.schemas.enums import DUP_OR_DROPPED, KIND_ACK, KIND_PUBLISH, OK
from dissector.tables import ABSENT, find


@inlined
def _produce(context: PassContext, session: int, row: int) -> bool:
    """Handle a batch of a client; False: take the slow path."""
    frames, sessions = context.frames, context.state.sessions
    is_same = (
        sessions.last_topic[session] == frames.topic[row]
        and sessions.last_producer[session] == frames.producer_name[row]
        and sessions.last_epoch[session] == frames.producer_epoch[row]
    )
    if not is_same or not cursus_sessions.is_countable(frames, row):
        return False
    idempotent = max(context.bodies.idempotent[row], 0)
    batch = cursus_sessions.batch_key(frames, row)
    if order_of(context.producer_log, batch, idempotent).flaw != IN_ORDER:
        return False
    cursus_sessions.ask(context, session, row, KIND_PUBLISH, False)
    return True


@inlined
def _ask_commit(context: PassContext, session: int, row: int) -> bool:
    """Handle a commit of one offset; False: take the slow path."""
    frames, bodies = context.frames, context.bodies
    topic, subscription = frames.topic[row], frames.subscription[row]
    if topic == NULL or subscription == NULL or not has_ack_room(context.deliveries):
        return False
    known = find(context.deliveries.only_group, topic, 0, 0, 0)
    if known != subscription and known != MANY:
        return False
    which = cursus_sessions.ask(context, session, row, KIND_ACK, False)
    partition, following = bodies.committed_partition[row], bodies.following[row]
    cursus_sessions.note_commit(context, which, subscription, topic, partition, following)
    return True


@inlined
def _commit(context: PassContext, which: int, row: int, ordinal: int) -> bool:
    """Handle the good answer to a commit of one offset; False: take the slow path."""
    pending, requests = context.pairing.state.pending, context.state.requests
    state, following = context.deliveries, requests.following[which]
    subscription, partition = pending.subscription[which], requests.committed_partition[which]
    if following == NULL or subscription == NULL:
        return False
    position = find(state.by_position, subscription, pending.topic[which], partition, 0)
    if position == ABSENT or not has_commit_room(state, position):
        return False
    frame_no, ns = pending.request_frame_no[which], pending.request_last_ns[which]
    handle_commit(state, position, Commit(following, frame_no, ns, ordinal))
    cursus_sessions.respond(context, which, row, OK, NULL, NULL)
    return True


@inlined
def _acknowledge(context: PassContext, session: int, which: int, row: int) -> bool:
    """Handle a batch's answer; False: take the slow path. which: the request that it answers."""
    frames, pending = context.frames, context.pairing.state.pending
    if pending.request_command[which] != BATCH:
        return False
    if context.bodies.decoded[row] == ReadBy.ACK:
        has_hole = last_hole_of_requests(context.pairing.state, which) >= 0
        if has_hole and frames.sequence_id[row] != pending.sequence_id[which]:
            return False
        context.state.sessions.has_stored[session] = 1
        partition = context.state.requests.partition[which]
        if partition != NULL:
            following = total(frames.entry_id[row], 1)
            see_log_end(context.producer_log, pending.topic[which], partition, following)
    outcome = OK if cursus_sessions.store(context, which) else DUP_OR_DROPPED
    cursus_sessions.respond(context, which, row, outcome, NULL, NULL)
    return True


@inlined
def _push(context: PassContext, session: int, row: int, ordinal: int) -> bool:
    """Handle a batch of a stream; False: take the slow path."""
    state, bodies = context.deliveries, context.bodies
    stream = context.pairing.state.connections.push[session]
    subscription = context.pairing.state.pending.subscription[stream]
    if subscription == NULL or bodies.records[row] == NULL or bodies.records[row] <= 0:
        return False
    topic, partition = context.frames.topic[row], context.frames.partition[row]
    position = find(state.by_position, subscription, topic, partition, 0)
    first, last = bodies.first_offset[row], bodies.last_offset[row]
    if position == ABSENT or not extends_top(
        state, position, first, last, context.frames.last_ts_ns[row]
    ):
        return False
    which = cursus_sessions.new_delivery(context, row, stream)
    extend_fetched(state, position, first, last)
    open_delivery(state, position, which, True, ordinal)
    return True


@inlined
def _step(context: PassContext, session: int, row: int, ordinal: int) -> bool:
    """Handle a frame; False: take the slow path."""
    frames, pairing = context.frames, context.pairing.state
    decoded = context.bodies.decoded[row]
    direction = frames.direction[row]
    stream = pairing.connections.push[session]
    if frames.status[row] != COMPLETE:
        return False
    if stream != ABSENT:
        if stream == cursus_sessions.UNKNOWN_STREAM or direction != TO_CLIENT:
            return False
        is_pushed = decoded == ReadBy.BATCH and _push(context, session, row, ordinal)
        if decoded != ReadBy.EMPTY and not is_pushed:
            return False
        cursus_sessions.inherit(context, stream, row)
        return True
    oldest = cursus_sessions.oldest_of(pairing, session)
    is_lost = oldest != ABSENT and may_be_lost(pairing, oldest)
    must_authenticate = context.state.sessions.must_authenticate[session] == 1
    if is_lost or pairing.connections.skipped[session] > 0 or must_authenticate:
        return False
    if direction == TO_BROKER:
        if decoded == ReadBy.BATCH:
            return context.bodies.records[row] != NULL and _produce(context, session, row)
        return context.bodies.following[row] != NULL and _ask_commit(context, session, row)
    if direction != TO_CLIENT or oldest == ABSENT:
        return False
    if decoded == ReadBy.OK and _commit(context, oldest, row, ordinal):
        return True
    is_answer = decoded == ReadBy.ACK or decoded == ReadBy.OK
    return is_answer and _acknowledge(context, session, oldest, row)


@kernel
def walk(context: PassContext, row: int, stop: int, protocol: int, base: int) -> int:
    """Handle the frames of a protocol from `row` on, up to the first one for the slow path.

    For that one, a frame or an event, only `begin_row` has run.

    Args:
        base: ordinal of row 0.

    Returns:
        The row of that frame, or `stop`.
    """
    frames, pairing = context.frames, context.pairing.state
    connection = NULL
    session = ABSENT
    while row < stop:
        if frames.protocol[row] == protocol:
            begin_row(context.pairing, row, base + row)
            if frames.is_two_way[row] == 1:
                see_client(context.deliveries, frames.connection_id[row])
            if frames.frame_no[row] == NULL:
                break
            if frames.connection_id[row] != connection:
                connection = frames.connection_id[row]
                session = find_connection(pairing, connection)
            if session == ABSENT or not _step(context, session, row, base + row):
                break
            pairing.connections.is_two_way[session] |= frames.is_two_way[row]
        row += 1
    return row
