"""Kernels for what is paired by send: sends of a producer, their receipts and errors."""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import MAX_CHAIN_STEPS, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import MALFORMED
from dissector.protocols.pairing import attempts, connections, pending, rows
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.state import KeyKind, PairingState, PassContext
from dissector.schemas.enums import DROPPED_AFTER_CLOSE
from dissector.tables import ABSENT, find, note_cut_walk

PUBLISH_TIME_BACK = NOTICE_NUMBER["publish_time_back"]
# Threads of an application publish in another order than they stamp, by less than that.
_DISORDER_MS: Final = 1000


@inlined
def handle_send(run: PassContext, row: int, connection: int) -> None:
    """A send waits for its receipt or error."""
    state, frames = run.state, run.frames
    producer_id = frames.producer_id[row]
    sequence_id = frames.sequence_id[row]
    if producer_id == NULL or sequence_id == NULL or frames.status[row] == MALFORMED:
        return
    group = connections.group_of(state, connection, producer_id)
    if frames.incarnation[row] != state.groups.incarnation[group]:
        begin_incarnation(run, group, frames.incarnation[row])
    _note_names(run, row, group)
    outstanding = state.group_lists.length[group]
    send = pending.new_request(run, row, group, pairing_state.SENDS)
    sends = state.pending
    is_producer = state.groups.producer_id[group] != NULL
    sends.outstanding_before[send] = outstanding if is_producer else NULL
    sends.sequence_id[send] = sequence_id
    sends.chunk_id[send] = frames.chunk_id[row]
    sends.crc32c_stored[send] = frames.crc32c_stored[row]
    sends.message_count[send] = _messages_of(run, row)
    pending.into_chain(state, send, KeyKind.SEND, sequence_id, producer_id)
    _note_second_key(run, row, group, send)
    source = state.groups.source[group]
    if source != ABSENT and is_producer:
        attempt = attempts.begin_attempt(
            state.attempts, source, sequence_id, frames.chunk_id[row], frames.crc32c_stored[row]
        )
        sends.attempt_row[send] = attempt
        if attempt != ABSENT:
            sends.attempt[send] = state.attempts.rows.count[attempt]
    if frames.replicated_from[row] == NULL:  # a copy has the time of its first publishing
        _note_publish_time(run, row, group, send)
    if state.order.first[pairing_state.UNMATCHED] != ABSENT:
        pending.take_unmatched(run, send)


@inlined
def _note_publish_time(run: PassContext, row: int, group: int, send: int) -> None:
    """Keep when the client published; a producer publishes in order, so that its clock was set back
    where a new message is older than the one before."""
    groups, published = run.state.groups, run.frames.publish_time_ms[row]
    run.state.pending.publish_time_ms[send] = published
    if published == NULL or run.state.pending.attempt[send] != 1:
        return
    before = groups.publish_time_ms[group]
    groups.publish_time_ms[group] = published
    if published < before - _DISORDER_MS:
        rows.note(run, PUBLISH_TIME_BACK, run.frames.connection_id[row], run.frames.frame_no[row])


@inlined
def _messages_of(run: PassContext, row: int) -> int:
    """Messages that a send completes: of a chunked message only the last chunk counts, as one."""
    chunk_count = run.frames.chunk_count[row]
    if chunk_count > 1:
        return 1 if run.frames.chunk_id[row] == chunk_count - 1 else 0
    return int(run.frames.message_count[row])


@inlined
def _note_names(run: PassContext, row: int, group: int) -> None:
    """Keep the names of a producer, and the source whose attempts are counted."""
    groups, frames = run.state.groups, run.frames
    topic = frames.topic[row]
    producer_name = frames.producer_name[row]
    is_known = topic == groups.topic[group] and producer_name == groups.producer_name[group]
    # A receipt may have told the topic, which no send had until now.
    if is_known and (topic == NULL or groups.source[group] != ABSENT):
        return
    groups.topic[group] = topic
    groups.producer_name[group] = producer_name
    groups.source[group] = ABSENT
    if topic != NULL and producer_name != NULL:
        connection = frames.connection_id[row]
        groups.source[group] = attempts.source_of(
            run.state.attempts, connection, topic, producer_name
        )


@inlined
def _note_second_key(run: PassContext, row: int, group: int, send: int) -> None:
    """Batches are also known by their last sequence id, copies by their position in the source."""
    state, frames = run.state, run.frames
    highest = frames.highest_sequence_id[row]
    sequence_id = frames.sequence_id[row]
    if highest > 0:
        state.pending.highest_sequence_id[send] = highest
    ledger_id, entry_id = frames.repl_source_ledger_id[row], frames.repl_source_entry_id[row]
    if ledger_id != NULL:
        state.groups.has_positions[group] = 1
        kind = KeyKind.SOURCE_POSITION
        pending.into_other_chain(state, send, kind, ledger_id, entry_id)
        return
    last = sequence_id
    if highest > 0:
        last = highest
    elif frames.message_count[row] > 1:
        last = sequence_id + frames.message_count[row] - 1
    if last != sequence_id:
        producer_id = frames.producer_id[row]
        pending.into_other_chain(state, send, KeyKind.LAST, last, producer_id)


@kernel
def begin_incarnation(run: PassContext, group: int, incarnation: int) -> None:
    """A producer is open again: what still waits from before was dropped."""
    state, groups = run.state, run.state.groups
    if groups.producer_id[group] == NULL or incarnation < groups.incarnation[group]:
        return
    groups.incarnation[group] = incarnation
    groups.is_broker_closed[group] = 0
    row = state.group_lists.first[group]
    for _ in range(state.group_lists.length[group]):
        after = state.member_links.next[row]
        rows.write_unanswered(run, row, rows.given_up(state, row, DROPPED_AFTER_CLOSE))
        row = after
    groups.topic[group] = NULL
    groups.producer_name[group] = NULL
    groups.source[group] = ABSENT
    groups.publish_time_ms[group] = ABSENT


@inlined
def handle_send_answer(run: PassContext, row: int, connection: int) -> None:
    """A receipt or an error."""
    state, frames = run.state, run.frames
    producer_id, sequence_id = frames.producer_id[row], frames.sequence_id[row]
    is_readable = producer_id != NULL and sequence_id != NULL
    if not is_readable or frames.status[row] == MALFORMED:
        connections.note_hole(state, 2 * connection + frames.endpoint_index[row])
        return
    group = connections.group_of(state, connection, producer_id)
    send = _send_of(run, row, group)
    groups = state.groups
    is_of_group = send != ABSENT or groups.incarnation[group] == frames.incarnation[row]
    if groups.topic[group] == NULL and is_of_group:
        groups.topic[group] = frames.topic[row]
    if send == ABSENT:
        unmatched = pending.keep_unmatched(run, row, connection, rows.outcome_of(run, row))
        state.pending.sequence_id[unmatched] = sequence_id
        if frames.highest_sequence_id[row] > 0:
            state.pending.highest_sequence_id[unmatched] = frames.highest_sequence_id[row]
        pending.into_chain(state, unmatched, KeyKind.SEND, sequence_id, producer_id)
        return
    pending.set_answered(run, row, send)
    rows.take_answer(run, row, send, rows.outcome_of(run, row))
    rows.write(run, send)


@inlined
def _send_of(run: PassContext, row: int, group: int) -> int:
    """The send that a receipt or error answers, or ABSENT.

    The oldest of that sequence id: chunks share it and are answered in order. An error of a batch
    repeats its last sequence id. The receipt of a copy made by replication repeats the position in
    the source cluster instead.
    """
    state, frames = run.state, run.frames
    sequence_id = frames.sequence_id[row]
    producer_id = frames.producer_id[row]
    highest = frames.highest_sequence_id[row]
    if run.rules.is_receipt[frames.command[row]] == 0:
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
    """Among sends of one sequence id the oldest with this last one; else the oldest."""
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
    """The oldest send whose first or last sequence id this is.

    A last id that was only reckoned from the number of messages counts if nothing else fits.
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
