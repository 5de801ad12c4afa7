"""Kernels that let requests and early answers wait, and find them again for each other."""

from dissector.jit import inlined, kernel
from dissector.limits import MAX_CHAIN_STEPS, NULL
from dissector.protocols.columns import CUT_BY_GAP, MALFORMED, FrameColumns
from dissector.protocols.pulsar.exchanges import rows
from dissector.protocols.pulsar.exchanges import state as exchanges_state
from dissector.protocols.pulsar.exchanges.columns import REQUEST_COLUMNS
from dissector.protocols.pulsar.exchanges.rows import PassContext
from dissector.protocols.pulsar.exchanges.state import ExchangeState
from dissector.protocols.pulsar.registry import Asked
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import EVICTED, LOST_IN_GAP
from dissector.tables import ABSENT, allocate_row, chain_append, find, list_append, note_cut_walk


@kernel
def _evict_first(state: ExchangeState, which: int, run: PassContext) -> None:
    """Give up the oldest row of a list, which is full."""
    oldest = state.order.first[which]
    state.counters[exchanges_state.COUNT_EVICTED] += 1
    outcome = (
        EVICTED if which == exchanges_state.UNMATCHED else rows.given_up(state, oldest, EVICTED)
    )
    rows.write_unanswered(state, run, oldest, outcome)


@inlined
def new_pending(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    group: int,
    which: int,
    run: PassContext,
) -> int:
    """A pending row for a frame, in its group's list and in the order; in no chain yet."""
    if state.order.length[which] >= state.limits[which]:
        _evict_first(state, which, run)
    new = allocate_row(state.pending_pool)
    pending = state.pending
    pending.list[new] = which
    pending.group[new] = group
    pending.endpoint_index[new] = frames.endpoint_index[row]
    pending.command[new] = frames.command[row]
    pending.frame_no[new] = frames.frame_no[row]
    pending.first_ns[new] = frames.first_ts_ns[row]
    pending.last_ns[new] = frames.last_ts_ns[row]
    pending.frame_bytes[new] = frames.frame_bytes[row]
    pending.row[new] = state.counters[exchanges_state.COUNT_ROW]
    is_tainted = frames.retransmitted[row] == 1 or frames.status[row] == CUT_BY_GAP
    pending.is_tainted[new] = 1 if is_tainted else 0
    pending.other_kind[new] = 0
    for column in range(REQUEST_COLUMNS):
        pending.matrix[new, column] = NULL
    pending.topic[new] = frames.topic[row]
    pending.subscription[new] = frames.subscription[row]
    pending.producer_name[new] = frames.producer_name[row]
    pending.producer_id[new] = frames.producer_id[row]
    pending.consumer_id[new] = frames.consumer_id[row]
    pending.incarnation[new] = frames.incarnation[row]
    pending.attempt_row[new] = ABSENT
    list_append(state.group_lists, state.member_links, group, new)
    list_append(state.order, state.order_links, which, new)
    return new


@inlined
def into_chain(state: ExchangeState, row: int, kind: int, value: int, extra: int) -> None:
    """Make a pending row findable by its key."""
    pending = state.pending
    pending.key_kind[row] = kind
    pending.key_value[row] = value
    pending.key_extra[row] = extra
    shift = exchanges_state.FOR_EARLY if pending.list[row] == exchanges_state.UNMATCHED else 0
    chain_append(
        state.table, state.chain_links, kind + shift, pending.group[row], value, extra, row
    )


@inlined
def into_other_chain(state: ExchangeState, row: int, kind: int, value: int, extra: int) -> None:
    """Make a send findable by a second key."""
    pending = state.pending
    pending.other_kind[row] = kind
    pending.other_value[row] = value
    pending.other_extra[row] = extra
    chain_append(state.table, state.other_links, kind, pending.group[row], value, extra, row)


@kernel
def keep_unmatched(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> int:
    """A pending row for an answer without a request, in no chain yet.

    Whatever it answers, it stands in the group of the connection's other requests: the groups of
    producers hold nothing but sends.
    """
    group = state.connections.requests[connection]
    unmatched = new_pending(state, frames, row, group, exchanges_state.UNMATCHED, run)
    answer = rows.answer_of_frame(frames, row, run.error_texts)
    pending = state.pending
    pending.endpoint_index[unmatched] = 1 - frames.endpoint_index[row]
    pending.ledger_id[unmatched] = answer.ledger_id
    pending.entry_id[unmatched] = answer.entry_id
    pending.error_code[unmatched] = answer.error_code
    pending.error_text[unmatched] = answer.error_text
    pending.status[unmatched] = answer.status
    pending.is_error[unmatched] = answer.is_error
    pending.is_tainted[unmatched] = answer.is_tainted
    pending.deadline_ns[unmatched] = state.counters[exchanges_state.COUNT_NOW] + run.window_ns
    return unmatched


@inlined
def send_of(state: ExchangeState, frames: FrameColumns, row: int, group: int) -> int:
    """The send that a SEND_RECEIPT or SEND_ERROR answers, or ABSENT.

    The oldest of that sequence id: chunks share it and are answered in order. An error of a batch
    repeats its last sequence id. The receipt of a copy made by replication repeats the position in
    the source cluster instead.
    """
    sequence_id = frames.sequence_id[row]
    producer_id = frames.producer_id[row]
    highest = frames.highest_sequence_id[row]
    if frames.command[row] == commands.SEND_RECEIPT:
        if state.groups.has_positions[group] == 1:
            found = find(
                state.table, exchanges_state.KEY_SOURCE_POSITION, group, sequence_id, highest
            )
            if found != ABSENT:
                return found
        found = find(state.table, exchanges_state.KEY_SEND, group, sequence_id, producer_id)
        if found == ABSENT:
            # Some brokers repeat the last sequence id of a batch.
            return find(state.table, exchanges_state.KEY_LAST, group, sequence_id, producer_id)
        if highest > 0 and state.chain_links.next[found] != ABSENT:
            return _with_highest(state, found, highest)
        return found
    return _send_of_error(state, group, sequence_id, producer_id)


@kernel
def _with_highest(state: ExchangeState, first: int, highest: int) -> int:
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
def _send_of_error(state: ExchangeState, group: int, sequence_id: int, producer_id: int) -> int:
    """The oldest send whose first or last sequence id this is.

    A last id that was only reckoned from the number of messages counts if nothing else fits.
    """
    by_first = find(state.table, exchanges_state.KEY_SEND, group, sequence_id, producer_id)
    by_last = find(state.table, exchanges_state.KEY_LAST, group, sequence_id, producer_id)
    if by_first == ABSENT:
        return int(by_last)
    if by_last == ABSENT or state.pending.highest_sequence_id[by_last] == NULL:
        return int(by_first)
    if state.pending.row[by_last] < state.pending.row[by_first]:
        return int(by_last)
    return int(by_first)


@kernel
def request_of(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> int:
    """The request that any other answer answers, or ABSENT."""
    command = frames.command[row]
    asking_endpoint = 1 - frames.endpoint_index[row]
    key = run.rules.reply_key[command]
    has_no_id = key == commands.BY_REQUEST_ID and frames.request_id[row] == NULL
    if frames.status[row] == MALFORMED or has_no_id:
        return ABSENT
    group = state.connections.requests[connection]
    if command == commands.ERROR and frames.request_id[row] == commands.BROKER_REQUEST_ID:
        # Before it has accepted a connection the broker refuses without a request id.
        return find(state.table, exchanges_state.KEY_TURN, group, commands.CONNECT, asking_endpoint)
    if key == commands.BY_REQUEST_ID:
        first = find(
            state.table, exchanges_state.KEY_REQUEST, group, frames.request_id[row], asking_endpoint
        )
        return _request_by_id(state, first, command, run)
    asked = run.rules.asked_by[command]
    if key == commands.BY_TURN:
        found = find(state.table, exchanges_state.KEY_TURN, group, asked, asking_endpoint)
        return _next_in_turn(state, found, run)
    return find(state.table, exchanges_state.KEY_WATCHER, group, frames.watcher_id[row], asked)


@inlined
def asked_of(state: ExchangeState, request: int, run: PassContext) -> Asked:
    """A waiting request for the registry."""
    if request == ABSENT:
        return Asked(NULL, NULL, NULL, NULL, NULL, NULL)
    pending = state.pending
    command = pending.command[request]
    kind = run.rules.client_handle[command]
    number = pending.producer_id[request]
    if kind == commands.CONSUMER_SUBJECT:
        number = pending.consumer_id[request]
    return Asked(
        command,
        kind,
        number,
        pending.incarnation[request],
        pending.topic[request],
        pending.subscription[request],
    )


@kernel
def _request_by_id(state: ExchangeState, first: int, command: int, run: PassContext) -> int:
    """Among requests of one id the oldest that a command may answer, or ABSENT."""
    row = first
    for _ in range(MAX_CHAIN_STEPS):
        if row == ABSENT or run.rules.may_answer[state.pending.command[row], command] == 1:
            return int(row)
        row = state.chain_links.next[row]
    note_cut_walk(state.table)
    return ABSENT


@kernel
def _next_in_turn(state: ExchangeState, first: int, run: PassContext) -> int:
    """The request that an answer without a key answers: the oldest.

    Where answers may have been lost since then it is the newest, and the others are lost: pings
    come half a minute apart, their answers at once.
    """
    row = first
    for _ in range(len(state.pending.list)):
        if row == ABSENT:
            return ABSENT
        after = state.chain_links.next[row]
        if (
            after == ABSENT
            or rows.last_hole(state, rows.answering_direction(state, row)) < state.pending.row[row]
        ):
            return int(row)
        rows.write_unanswered(state, run, row, LOST_IN_GAP)
        row = after
    note_cut_walk(state.table)
    return int(row)


@kernel
def unmatched_response_of(state: ExchangeState, row: int, run: PassContext) -> int:
    """The oldest answer that came before this request and waits for it, or ABSENT."""
    pending = state.pending
    kind = pending.key_kind[row]
    value, extra = pending.key_value[row], pending.key_extra[row]
    found = _early_of(state, row, value, extra, NULL, run)
    if (
        found == ABSENT
        and kind == exchanges_state.KEY_SEND
        and pending.other_kind[row] == exchanges_state.KEY_LAST
    ):
        found = _early_of(state, row, pending.other_value[row], extra, NULL, run)
    if (
        found == ABSENT
        and kind == exchanges_state.KEY_SEND
        and pending.other_kind[row] == exchanges_state.KEY_SOURCE_POSITION
    ):
        ledger, entry = pending.other_value[row], pending.other_extra[row]
        found = _early_of(state, row, ledger, extra, entry, run)
    return int(found)


@kernel
def _early_of(
    state: ExchangeState, row: int, value: int, extra: int, entry: int, run: PassContext
) -> int:
    """The oldest early answer of a key that may answer a request, a send's of its incarnation.

    ABSENT if there is none.

    Args:
        entry: of the source cluster, which the receipt of a copy names; NULL for all others.
    """
    pending = state.pending
    group = state.connections.requests[state.groups.connection[pending.group[row]]]
    unmatched = find(
        state.table, pending.key_kind[row] + exchanges_state.FOR_EARLY, group, value, extra
    )
    for _ in range(MAX_CHAIN_STEPS):
        if unmatched == ABSENT:
            return ABSENT
        # A highest id of 0 counts as none.
        named = max(pending.highest_sequence_id[unmatched], 0)
        is_of_entry = pending.command[unmatched] == commands.SEND_RECEIPT and named == entry
        is_pair = run.rules.may_answer[pending.command[row], pending.command[unmatched]] == 1
        if pending.key_kind[row] == exchanges_state.KEY_SEND:
            is_pair &= pending.incarnation[unmatched] == pending.incarnation[row]
        if is_pair and (entry == NULL or is_of_entry):
            return int(unmatched)
        unmatched = state.chain_links.next[unmatched]
    note_cut_walk(state.table)
    return ABSENT
