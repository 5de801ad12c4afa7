"""Frames that come by the ten thousand: batches, their acknowledgements, pushes of streams.

Each takes the steps that the rules in `exchanges` would let it take; `walk` stops at the first
frame that is anything else.
"""

from dissector.codecs.wrapping import total
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import COMPLETE, TO_BROKER, TO_CLIENT
from dissector.protocols.cursus import sessions as cursus_sessions
from dissector.protocols.cursus.commands import BATCH
from dissector.protocols.cursus.compact_acks import ReadBy
from dissector.protocols.cursus.deliveries import extend_fetched, goes_on, open_delivery
from dissector.protocols.cursus.producer_log import IN_ORDER, order_of, see_log_end
from dissector.protocols.cursus.sessions import PassContext
from dissector.protocols.pairing.connections import find_connection
from dissector.protocols.pairing.rows import may_be_lost
from dissector.protocols.pairing.steps import begin_row
from dissector.schemas.enums import DUP_OR_DROPPED, KIND_PUBLISH, OK
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
def _acknowledge(context: PassContext, session: int, row: int) -> bool:
    """Handle a batch's answer; False: take the slow path."""
    frames, pending = context.frames, context.pairing.state.pending
    which = cursus_sessions.oldest_of(context.pairing.state, session)
    if which == ABSENT or pending.request_command[which] != BATCH:
        return False
    if context.bodies.decoded[row] == ReadBy.ACK:
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
        is_batch = decoded == ReadBy.BATCH and context.bodies.records[row] != NULL
        return is_batch and _produce(context, session, row)
    if direction != TO_CLIENT or (decoded != ReadBy.ACK and decoded != ReadBy.OK):
        return False
    return _acknowledge(context, session, row)


@kernel
def walk(context: PassContext, row: int, stop: int, protocol: int, base: int) -> int:
    """Do the frames of a protocol from `row` on, up to the first that is for the rules.

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
            if frames.frame_no[row] == NULL:
                break
            if frames.connection_id[row] != connection:
                connection = frames.connection_id[row]
                session = find_connection(pairing, connection)
            begin_row(context.pairing, row, base + row)
            if session == ABSENT or not _step(context, session, row, base + row):
                break
            pairing.directions.is_seen[2 * session + frames.endpoint_index[row]] = 1
        row += 1
    return row
