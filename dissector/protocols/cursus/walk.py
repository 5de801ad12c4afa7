"""Frames that come by the ten thousand: batches, their acknowledgements, pushes of streams.

Each takes the steps that the rules in `correlation` would let it take; `walk` stops at the first
frame that is anything else.
"""

from dissector.codecs.wrapping import total
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import COMPLETE, TO_BROKER, TO_CLIENT
from dissector.protocols.cursus import sessions as cursus_sessions
from dissector.protocols.cursus.commands import BATCH
from dissector.protocols.cursus.compact_acks import ACK_READ, BATCH_READ, EMPTY_READ, OK_READ
from dissector.protocols.cursus.deliveries import extend_fetched, goes_on, open_delivery
from dissector.protocols.cursus.producer_log import IN_ORDER, order_of, see_log_end
from dissector.protocols.cursus.sessions import PassContext
from dissector.schemas.enums import DUP_OR_DROPPED, KIND_PUBLISH, OK
from dissector.tables import ABSENT, find


@inlined
def _produce(context: PassContext, session: int, row: int) -> bool:
    """Handle a batch of a client; False: take the slow path."""
    state, frames = context.state, context.frames
    sessions = state.sessions
    is_same = (
        sessions.last_topic[session] == frames.topic[row]
        and sessions.last_producer[session] == frames.producer_name[row]
        and sessions.last_epoch[session] == frames.producer_epoch[row]
    )
    if not is_same or not cursus_sessions.is_countable(frames, row):
        return False
    if state.counts[cursus_sessions.PENDING] >= state.counts[cursus_sessions.LIMIT]:
        return False
    idempotent = max(context.bodies.idempotent[row], 0)
    if (
        order_of(context.producer_log, cursus_sessions.batch_key(frames, row), idempotent).flaw
        != IN_ORDER
    ):
        return False
    cursus_sessions.ask(context, session, row, KIND_PUBLISH, False)
    return True


@inlined
def _acknowledge(context: PassContext, session: int, row: int, ordinal: int) -> bool:
    """Handle a batch's answer; False: take the slow path."""
    state, frames = context.state, context.frames
    sessions, exchanges = state.sessions, state.exchanges
    which = sessions.first[session]
    if sessions.length[session] == 0 or exchanges.request_command[which] != BATCH:
        return False
    cursus_sessions.pop_oldest(state, session)
    sessions.has_answered[session] = 1
    if context.bodies.decoded[row] == ACK_READ:
        sessions.has_stored[session] = 1
        if exchanges.partition[which] != NULL:
            following = total(frames.entry_id[row], 1)
            see_log_end(
                context.producer_log, exchanges.topic[which], exchanges.partition[which], following
            )
    outcome = OK if cursus_sessions.store(context, which) else DUP_OR_DROPPED
    cursus_sessions.respond(context, which, row)
    cursus_sessions.inherit(context, which, row)
    cursus_sessions.close_exchange(state, which, outcome, ordinal)
    return True


@inlined
def _push(context: PassContext, session: int, row: int, ordinal: int) -> bool:
    """Handle a batch of a stream; False: take the slow path."""
    state, bodies = context.deliveries, context.bodies
    stream = context.state.sessions.stream[session]
    subscription = context.state.exchanges.subscription[stream]
    if subscription == NULL or bodies.records[row] == NULL or bodies.records[row] <= 0:
        return False
    topic, partition = context.frames.topic[row], context.frames.partition[row]
    position = find(state.by_position, subscription, topic, partition, 0)
    first, last = bodies.first_offset[row], bodies.last_offset[row]
    if position == ABSENT or not goes_on(
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
    frames, sessions = context.frames, context.state.sessions
    decoded = context.bodies.decoded[row]
    direction = frames.direction[row]
    stream = sessions.stream[session]
    if frames.status[row] != COMPLETE or sessions.second[session] != ABSENT:
        return False
    if stream != ABSENT:
        if stream == cursus_sessions.UNKNOWN_STREAM or direction != TO_CLIENT:
            return False
        is_pushed = decoded == BATCH_READ and _push(context, session, row, ordinal)
        if decoded != EMPTY_READ and not is_pushed:
            return False
        sessions.has_answered[session] = 1
        cursus_sessions.inherit(context, stream, row)
        return True
    oldest = sessions.first[session]
    is_lost = sessions.length[session] > 0 and context.state.exchanges.may_be_lost[oldest] == 1
    if is_lost or sessions.missed[session] > 0 or sessions.must_authenticate[session] == 1:
        return False
    if direction == TO_BROKER:
        is_batch = decoded == BATCH_READ and context.bodies.records[row] != NULL
        return is_batch and _produce(context, session, row)
    if direction != TO_CLIENT or (decoded != ACK_READ and decoded != OK_READ):
        return False
    return _acknowledge(context, session, row, ordinal)


@kernel
def walk(context: PassContext, row: int, stop: int, protocol: int, base: int) -> int:
    """Do the frames of a protocol from `row` on, up to the first that is for the rules.

    Args:
        base: ordinal of row 0.

    Returns:
        The row of that frame, or `stop`.
    """
    frames, counts = context.frames, context.state.counts
    connection = NULL
    session = ABSENT
    while row < stop:
        if frames.protocol[row] == protocol:
            if frames.frame_no[row] == NULL:
                break
            if frames.connection_id[row] != connection:
                connection = frames.connection_id[row]
                session = find(context.state.by_connection, connection, 0, 0, 0)
            if session == ABSENT or not _step(context, session, row, base + row):
                break
            counts[cursus_sessions.NOW] = max(counts[cursus_sessions.NOW], frames.last_ts_ns[row])
        row += 1
    return row
