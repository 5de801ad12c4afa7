"""Kernels for pending rows: add requests and unmatched responses, look them up by key or order."""

from dissector.jit import inlined, kernel
from dissector.limits import MAX_CHAIN_STEPS, NULL
from dissector.protocols.columns import CUT_BY_END, CUT_BY_GAP, MALFORMED
from dissector.protocols.pairing import rows, rules
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.columns import KNOWN_COLUMNS
from dissector.protocols.pairing.rules import PairedBy
from dissector.protocols.pairing.state import KeyKind, PairingState, PassContext
from dissector.schemas.enums import EVICTED, LOST_IN_GAP
from dissector.tables import ABSENT, allocate_row, chain_append, find, list_append, note_cut_walk


@kernel
def _evict_first(context: PassContext, queue: int) -> None:
    """Write the oldest row of a full list as evicted."""
    state = context.state
    oldest = state.order.first[queue]
    state.counters[pairing_state.COUNT_EVICTED] += 1
    is_unmatched = queue == pairing_state.UNMATCHED
    outcome = EVICTED if is_unmatched else rows.unanswered_outcome(state, oldest, EVICTED)
    connection = state.groups.connection[state.pending.group[oldest]]
    key = context.rules.request_key[rules.slot_of(state.pending.request_command[oldest])]
    is_by_order = key == PairedBy.ORDER and not is_unmatched
    if is_by_order and state.connections.push[connection] == ABSENT:
        state.connections.skipped[connection] += 1  # its answer is still expected
    rows.write_unanswered(context, oldest, outcome)


@inlined
def _new_pending(context: PassContext, row: int, group: int, queue: int) -> int:
    """Add a pending row for a frame to its group and to a list; it has no key yet."""
    state, frames = context.state, context.frames
    if state.order.length[queue] >= state.limits[queue]:
        _evict_first(context, queue)
    new = allocate_row(state.pending_pool)
    pending = state.pending
    slot = rules.slot_of(frames.command[row])
    for column in range(KNOWN_COLUMNS):
        pending.matrix[new, column] = NULL
    pending.topic[new] = frames.topic[row]
    pending.subscription[new] = frames.subscription[row]
    pending.producer_name[new] = frames.producer_name[row]
    pending.producer_id[new] = frames.producer_id[row]
    pending.consumer_id[new] = frames.consumer_id[row]
    pending.incarnation[new] = frames.incarnation[row]
    pending.kind[new] = context.rules.kind[slot]
    pending.tainted[new] = 0
    pending.list[new] = queue
    pending.group[new] = group
    pending.endpoint_index[new] = frames.endpoint_index[row]
    pending.row[new] = state.counters[pairing_state.COUNT_ROW]
    pending.silence[new] = context.rules.silence[slot]
    pending.key_kind[new] = 0
    pending.other_kind[new] = 0
    pending.attempt_row[new] = ABSENT
    list_append(state.group_lists, state.member_links, group, new)
    list_append(state.order, state.order_links, queue, new)
    return new


@inlined
def new_request(context: PassContext, row: int, group: int, queue: int) -> int:
    """Add a pending row for a request; it has no key yet."""
    frames, pending = context.frames, context.state.pending
    new = _new_pending(context, row, group, queue)
    pending.request_command[new] = frames.command[row]
    pending.request_frame_no[new] = frames.frame_no[row]
    pending.request_first_ns[new] = frames.first_ts_ns[row]
    pending.request_last_ns[new] = frames.last_ts_ns[row]
    if frames.status[row] != CUT_BY_END:  # else nobody knows when its last byte came
        pending.transmit_ns[new] = frames.last_ts_ns[row] - frames.first_ts_ns[row]
    pending.request_bytes[new] = frames.frame_bytes[row]
    if frames.retransmitted[row] == 1 or frames.status[row] == CUT_BY_GAP:
        pending.tainted[new] = 1
    return new


@inlined
def add_key(state: PairingState, row: int, kind: int, value: int, extra: int) -> None:
    """Add a pending row to the chain of its key."""
    pending = state.pending
    pending.key_kind[row] = kind
    pending.key_value[row] = value
    pending.key_extra[row] = extra
    if pending.list[row] == pairing_state.UNMATCHED:
        kind += pairing_state.FOR_UNMATCHED
    chain_append(state.table, state.chain_links, kind, pending.group[row], value, extra, row)


@inlined
def add_second_key(state: PairingState, row: int, kind: int, value: int, extra: int) -> None:
    """Add a send to the chain of its second key."""
    pending = state.pending
    pending.other_kind[row] = kind
    pending.other_value[row] = value
    pending.other_extra[row] = extra
    chain_append(state.table, state.other_links, kind, pending.group[row], value, extra, row)


@kernel
def keep_unmatched(context: PassContext, row: int, connection: int, outcome: int) -> int:
    """Add a pending row for an answer without a request; it has no key yet.

    It belongs to the group of the connection's other requests, whatever it answers: the groups of
    producers hold only sends.
    """
    state, pending = context.state, context.state.pending
    group = state.connections.requests[connection]
    unmatched = _new_pending(context, row, group, pairing_state.UNMATCHED)
    pending.endpoint_index[unmatched] = 1 - context.frames.endpoint_index[row]
    pending.deadline_ns[unmatched] = state.counters[pairing_state.COUNT_CLOCK] + context.window_ns
    rows.take_answer(context, row, unmatched, outcome)
    return unmatched


@kernel
def request_of(context: PassContext, row: int, connection: int) -> int:
    """The request of an answer, or ABSENT; not for answers to sends."""
    state, frames = context.state, context.frames
    command = frames.command[row]
    key = context.rules.reply_key[command]
    has_no_id = key == PairedBy.REQUEST_ID and frames.request_id[row] == NULL
    if frames.status[row] == MALFORMED or has_no_id:
        return ABSENT
    request_command, side = context.rules.first_request[command], 1 - frames.endpoint_index[row]
    if key == PairedBy.TURN:
        return next_in_turn(context, connection, request_command, side)
    if key == PairedBy.ORDER:
        return next_in_order(context, connection, command)
    group = state.connections.requests[connection]
    if key == PairedBy.WATCHER:
        return find(state.table, KeyKind.WATCHER, group, frames.watcher_id[row], request_command)
    first = find(state.table, KeyKind.REQUEST, group, frames.request_id[row], side)
    return _request_by_id(context, first, command)


@kernel
def next_in_order(context: PassContext, connection: int, command: int) -> int:
    """The oldest request of a connection, ABSENT if there is none.

    Requests that the command cannot answer are written as lost if their answers may lie in a hole.
    """
    state = context.state
    group = state.connections.requests[connection]
    for _ in range(state.group_lists.length[group]):
        row = state.group_lists.first[group]
        request_command = rules.slot_of(state.pending.request_command[row])
        is_pair = context.rules.may_answer[request_command, rules.slot_of(command)] == 1
        if is_pair or not rows.may_be_lost(state, row):
            return int(row)
        rows.write_unanswered(context, row, LOST_IN_GAP)
    return ABSENT


@kernel
def _request_by_id(context: PassContext, first: int, command: int) -> int:
    """The oldest request of an id that a command may answer, or ABSENT. first: of its chain."""
    state = context.state
    row = first
    for _ in range(MAX_CHAIN_STEPS):
        if (
            row == ABSENT
            or context.rules.may_answer[state.pending.request_command[row], command] == 1
        ):
            return int(row)
        row = state.chain_links.next[row]
    note_cut_walk(state.table)
    return ABSENT


@kernel
def next_in_turn(context: PassContext, connection: int, request_command: int, side: int) -> int:
    """The request of an answer without a key: the oldest, ABSENT if there is none.

    If older answers may lie in a hole it is the newest request, and the others are written as lost:
    pings are sent half a minute apart, and answered at once.

    Args:
        request_command: of the request. side: of its sender.
    """
    state = context.state
    group = state.connections.requests[connection]
    row = find(state.table, KeyKind.TURN, group, request_command, side)
    for _ in range(len(state.pending.list)):
        if row == ABSENT:
            return ABSENT
        after = state.chain_links.next[row]
        if after == ABSENT or not rows.may_be_lost(state, row):
            return int(row)
        rows.write_unanswered(context, row, LOST_IN_GAP)
        row = after
    note_cut_walk(state.table)
    return int(row)


@kernel
def _unmatched_response_of(context: PassContext, row: int) -> int:
    """The oldest unmatched response that answers a request, or ABSENT."""
    pending = context.state.pending
    value, extra = pending.key_value[row], pending.key_extra[row]
    response = _unmatched_by_key(context, row, value, extra, NULL)
    if response != ABSENT:
        return response
    if pending.other_kind[row] == KeyKind.LAST:
        return _unmatched_by_key(context, row, pending.other_value[row], extra, NULL)
    if pending.other_kind[row] == KeyKind.SOURCE_POSITION:
        return _unmatched_by_key(
            context, row, pending.other_value[row], extra, pending.other_extra[row]
        )
    return ABSENT


@kernel
def _unmatched_by_key(context: PassContext, row: int, value: int, extra: int, entry: int) -> int:
    """The oldest unmatched response of a key that may answer a request, or ABSENT.

    It must be of a send's own incarnation.

    Args:
        entry: entry id in the source cluster, which the receipt of a copy repeats; else NULL.
    """
    state, pending = context.state, context.state.pending
    group = state.connections.requests[state.groups.connection[pending.group[row]]]
    key = pending.key_kind[row] + pairing_state.FOR_UNMATCHED
    unmatched = find(state.table, key, group, value, extra)
    # An earlier request with the same key may lie in a hole: then the response is to that one.
    shares_key = pending.key_kind[row] == KeyKind.TURN or pending.chunk_id[row] > 0
    hole = rows.last_hole_of_requests(state, row)
    for _ in range(MAX_CHAIN_STEPS):
        if unmatched == ABSENT:
            return ABSENT
        answer = pending.response_command[unmatched]
        # A highest sequence id of 0 means none.
        named = max(pending.highest_sequence_id[unmatched], 0)
        is_of_entry = context.rules.is_receipt[answer] == 1 and named == entry
        is_pair = context.rules.may_answer[pending.request_command[row], answer] == 1
        if pending.list[row] == pairing_state.SENDS:
            is_pair &= pending.incarnation[unmatched] == pending.incarnation[row]
        is_pair &= not (shares_key and 0 <= hole < pending.row[unmatched])
        if is_pair and (entry == NULL or is_of_entry):
            return int(unmatched)
        unmatched = state.chain_links.next[unmatched]
    note_cut_walk(state.table)
    return ABSENT


@kernel
def pair_unmatched(context: PassContext, row: int) -> None:
    """Pair a request with the response that was captured before it, if there is one."""
    unmatched = _unmatched_response_of(context, row)
    if unmatched != ABSENT:
        rows.copy_unmatched(context.state, row, unmatched)
        rows.write(context, row)


@inlined
def set_answered(context: PassContext, row: int, request: int) -> None:
    """Write the request of an answer to the frame's columns answered_*."""
    frames, pending = context.frames, context.state.pending
    frames.answered_frame_no[row] = pending.request_frame_no[request]
    frames.answered_last_ns[row] = pending.request_last_ns[request]
    frames.answered_command[row] = pending.request_command[request]
