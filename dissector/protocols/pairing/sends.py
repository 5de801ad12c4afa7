"""Kernels for frames paired by send: a producer's sends, their receipts and errors."""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import MAX_CHAIN_STEPS, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, MALFORMED
from dissector.protocols.pairing import attempts, connections, pending, rows
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.state import KeyKind, PairingState, PassContext
from dissector.schemas.enums import DROPPED_AFTER_CLOSE, OK
from dissector.tables import ABSENT, find, note_cut_walk

PUBLISH_TIME_BACK = NOTICE_NUMBER["publish_time_back"]
# Threads of an application publish out of order of their timestamps, by less than this.
_DISORDER_MS: Final = 1000


@inlined
def handle_send(context: PassContext, row: int, connection: int) -> None:
    """Add a pending row for a send; pair it with its response if that was captured before."""
    state, frames = context.state, context.frames
    producer_id = frames.producer_id[row]
    sequence_id = frames.sequence_id[row]
    if producer_id == NULL or sequence_id == NULL or frames.status[row] == MALFORMED:
        if frames.status[row] not in (COMPLETE, MALFORMED):
            connections.note_hole(state, 2 * connection + frames.endpoint_index[row])
        return
    group = connections.group_of(state, connection, producer_id)
    if frames.incarnation[row] != state.groups.incarnation[group]:
        begin_incarnation(context, group, frames.incarnation[row])
    _note_names(context, row, group)
    outstanding = outstanding_of(state, group)
    send = pending.new_request(context, row, group, pairing_state.SENDS)
    sends = state.pending
    is_producer = state.groups.producer_id[group] != NULL
    state.groups.newest[group] = sends.row[send]
    sends.outstanding_before[send] = outstanding if is_producer else NULL
    sends.sequence_id[send] = sequence_id
    sends.chunk_id[send] = frames.chunk_id[row]
    sends.crc32c_stored[send] = frames.crc32c_stored[row]
    sends.message_count[send] = _messages_of(context, row)
    pending.add_key(state, send, KeyKind.SEND, sequence_id, producer_id)
    _note_second_key(context, row, group, send)
    source = state.groups.source[group]
    if source != ABSENT and is_producer:
        attempt = attempts.begin_attempt(
            state.attempts, source, sequence_id, frames.chunk_id[row], frames.crc32c_stored[row]
        )
        sends.attempt_row[send] = attempt
        if attempt != ABSENT:
            sends.attempt[send] = state.attempts.rows.count[attempt]
    if frames.replicated_from[row] == NULL:  # a copy has the time of its first publishing
        _note_publish_time(context, row, group, send)
    if state.order.first[pairing_state.UNMATCHED] != ABSENT:
        pending.pair_unmatched(context, send)


@inlined
def outstanding_of(state: PairingState, group: int) -> int:
    """The sends of a producer that are unanswered; NULL if some sends or answers may be missing."""
    one = 2 * state.groups.connection[group]
    last_hole = max(state.directions.hole_row[one], state.directions.hole_row[one + 1])
    known_at = state.groups.known_at[group]
    if known_at == ABSENT or last_hole > known_at:
        return NULL
    return int(state.group_lists.length[group] - state.groups.gone[group])


@inlined
def _note_publish_time(context: PassContext, row: int, group: int, send: int) -> None:
    """Store the publish time of a send. A producer publishes in order, so its clock was set back if
    a new message is older than the one before: a notice says so."""
    groups, frames = context.state.groups, context.frames
    published = frames.publish_time_ms[row]
    context.state.pending.publish_time_ms[send] = published
    if published == NULL or context.state.pending.attempt[send] != 1:
        return
    before = groups.publish_time_ms[group]
    groups.publish_time_ms[group] = published
    if published < before - _DISORDER_MS:
        rows.note(context, PUBLISH_TIME_BACK, frames.connection_id[row], frames.frame_no[row])


@inlined
def _messages_of(context: PassContext, row: int) -> int:
    """Messages that a send completes: a chunked message counts as one, at its last chunk."""
    chunk_count = context.frames.chunk_count[row]
    if chunk_count > 1:
        return 1 if context.frames.chunk_id[row] == chunk_count - 1 else 0
    return int(context.frames.message_count[row])


@inlined
def _note_names(context: PassContext, row: int, group: int) -> None:
    """Store the names of a producer, and the source under which its attempts are counted."""
    groups, frames = context.state.groups, context.frames
    topic = frames.topic[row]
    producer_name = frames.producer_name[row]
    is_known = topic == groups.topic[group] and producer_name == groups.producer_name[group]
    # A receipt may have set the topic before any send had it.
    if is_known and (topic == NULL or groups.source[group] != ABSENT):
        return
    groups.topic[group] = topic
    groups.producer_name[group] = producer_name
    groups.source[group] = ABSENT
    if topic != NULL and producer_name != NULL:
        connection = frames.connection_id[row]
        groups.source[group] = attempts.source_of(
            context.state.attempts, connection, topic, producer_name
        )


@inlined
def _note_second_key(context: PassContext, row: int, group: int, send: int) -> None:
    """Add the second key of a batch, its last sequence id, or of a copy, its source position."""
    state, frames = context.state, context.frames
    highest = frames.highest_sequence_id[row]
    sequence_id = frames.sequence_id[row]
    if highest > 0:
        state.pending.highest_sequence_id[send] = highest
    ledger_id, entry_id = frames.repl_source_ledger_id[row], frames.repl_source_entry_id[row]
    if ledger_id != NULL:
        state.groups.has_positions[group] = 1
        kind = KeyKind.SOURCE_POSITION
        pending.add_second_key(state, send, kind, ledger_id, entry_id)
        return
    last = sequence_id
    if highest > 0:
        last = highest
    elif frames.message_count[row] > 1:
        last = sequence_id + frames.message_count[row] - 1
    if last != sequence_id:
        producer_id = frames.producer_id[row]
        pending.add_second_key(state, send, KeyKind.LAST, last, producer_id)


@kernel
def begin_incarnation(context: PassContext, group: int, incarnation: int) -> None:
    """Begin an incarnation of a producer: write pending sends of the previous one as dropped."""
    state, groups = context.state, context.state.groups
    if groups.producer_id[group] == NULL or incarnation < groups.incarnation[group]:
        return
    groups.incarnation[group] = incarnation
    groups.is_broker_closed[group] = 0
    groups.gone[group] = 0
    row = state.group_lists.first[group]
    for _ in range(state.group_lists.length[group]):
        after = state.member_links.next[row]
        outcome = rows.unanswered_outcome(state, row, DROPPED_AFTER_CLOSE)
        rows.write_unanswered(context, row, outcome)
        row = after
    groups.topic[group] = NULL
    groups.producer_name[group] = NULL
    groups.source[group] = ABSENT
    groups.publish_time_ms[group] = ABSENT


@inlined
def handle_send_answer(context: PassContext, row: int, connection: int) -> None:
    """Pair a receipt or an error with its send, or keep it as unmatched."""
    state, frames = context.state, context.frames
    producer_id, sequence_id = frames.producer_id[row], frames.sequence_id[row]
    is_readable = producer_id != NULL and sequence_id != NULL
    if not is_readable or frames.status[row] == MALFORMED:
        connections.note_hole(state, 2 * connection + frames.endpoint_index[row])
        return
    group = connections.group_of(state, connection, producer_id)
    send = _send_of(context, row, group)
    groups = state.groups
    is_of_group = send != ABSENT or groups.incarnation[group] == frames.incarnation[row]
    if groups.topic[group] == NULL and is_of_group:
        groups.topic[group] = frames.topic[row]
    if send == ABSENT:
        unmatched = pending.keep_unmatched(context, row, connection, rows.outcome_of(context, row))
        state.pending.sequence_id[unmatched] = sequence_id
        if frames.highest_sequence_id[row] > 0:
            state.pending.highest_sequence_id[unmatched] = frames.highest_sequence_id[row]
        pending.add_key(state, unmatched, KeyKind.SEND, sequence_id, producer_id)
        return
    pending.set_answered(context, row, send)
    outcome = rows.outcome_of(context, row)
    is_oldest = state.group_lists.first[group] == send
    is_newest = state.pending.row[send] == groups.newest[group]
    is_known = (is_oldest or is_newest) and outcome == OK
    is_known &= rows.last_hole_of_requests(state, send) < state.pending.row[send]
    rows.take_answer(context, row, send, outcome)
    rows.write(context, send)
    if is_known:
        groups.known_at[group] = state.counters[pairing_state.COUNT_ROW]
        groups.gone[group] = 0 if is_oldest else state.group_lists.length[group]


@inlined
def _send_of(context: PassContext, row: int, group: int) -> int:
    """The send of a receipt or error, or ABSENT.

    It is the oldest of that sequence id: chunks share the id and are answered in order. An error
    repeats the last sequence id of a batch. The receipt of a copy made by replication repeats the
    position in the source cluster instead.
    """
    state, frames = context.state, context.frames
    sequence_id = frames.sequence_id[row]
    producer_id = frames.producer_id[row]
    highest = frames.highest_sequence_id[row]
    if context.rules.is_receipt[frames.command[row]] == 0:
        return _send_of_error(state, group, sequence_id, producer_id)
    if state.groups.has_positions[group] == 1:
        send = find(state.table, KeyKind.SOURCE_POSITION, group, sequence_id, highest)
        if send != ABSENT:
            return send
    send = find(state.table, KeyKind.SEND, group, sequence_id, producer_id)
    if send == ABSENT:
        # Some brokers repeat the last sequence id of a batch.
        return find(state.table, KeyKind.LAST, group, sequence_id, producer_id)
    if highest > 0 and state.chain_links.next[send] != ABSENT:
        return _with_highest(state, send, highest)
    return send


@kernel
def _with_highest(state: PairingState, first: int, highest: int) -> int:
    """The oldest send of a sequence id with this last sequence id; else the oldest of all."""
    row = first
    for _ in range(MAX_CHAIN_STEPS):
        if row == ABSENT:
            return first
        if state.pending.highest_sequence_id[row] == highest:
            return int(row)
        row = state.chain_links.next[row]
    note_cut_walk(state.table)
    return first


@kernel
def _send_of_error(state: PairingState, group: int, sequence_id: int, producer_id: int) -> int:
    """The oldest send with this first or last sequence id.

    A last id that was only computed from the number of messages matches if nothing else does.
    """
    by_first = find(state.table, KeyKind.SEND, group, sequence_id, producer_id)
    by_last = find(state.table, KeyKind.LAST, group, sequence_id, producer_id)
    if by_first == ABSENT:
        return int(by_last)
    if by_last == ABSENT or state.pending.highest_sequence_id[by_last] == NULL:
        return int(by_first)
    if state.pending.row[by_last] < state.pending.row[by_first]:
        return int(by_last)
    return int(by_first)
