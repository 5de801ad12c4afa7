"""Kernels that let requests and early answers wait, and find them again for each other."""

from dissector.jit import inlined, kernel
from dissector.limits import MAX_CHAIN_STEPS, NULL
from dissector.protocols.columns import CUT_BY_GAP, MALFORMED
from dissector.protocols.pairing import rows, rules
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.columns import KNOWN_COLUMNS
from dissector.protocols.pairing.rules import PairedBy
from dissector.protocols.pairing.state import KeyKind, PairingState, PassContext
from dissector.schemas.enums import EVICTED, LOST_IN_GAP
from dissector.tables import ABSENT, allocate_row, chain_append, find, list_append, note_cut_walk


@kernel
def _evict_first(run: PassContext, which: int) -> None:
    """Give up the oldest row of a list, which is full."""
    state = run.state
    oldest = state.order.first[which]
    state.counters[pairing_state.COUNT_EVICTED] += 1
    is_early = which == pairing_state.UNMATCHED
    outcome = EVICTED if is_early else rows.given_up(state, oldest, EVICTED)
    connection = state.groups.connection[state.pending.group[oldest]]
    key = run.rules.request_key[rules.slot_of(state.pending.request_command[oldest])]
    is_by_order = key == PairedBy.ORDER and not is_early
    if is_by_order and state.connections.push[connection] == ABSENT:
        state.connections.skipped[connection] += 1  # its answer will come
    rows.write_unanswered(run, oldest, outcome)


@inlined
def _new_pending(run: PassContext, row: int, group: int, which: int) -> int:
    """A pending row for a frame, in its group's list and in the order; in no chain yet."""
    state, frames = run.state, run.frames
    if state.order.length[which] >= state.limits[which]:
        _evict_first(run, which)
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
    pending.kind[new] = run.rules.kind[slot]
    pending.tainted[new] = 0
    pending.list[new] = which
    pending.group[new] = group
    pending.endpoint_index[new] = frames.endpoint_index[row]
    pending.row[new] = state.counters[pairing_state.COUNT_ROW]
    pending.silence[new] = run.rules.silence[slot]
    pending.key_kind[new] = 0
    pending.other_kind[new] = 0
    pending.attempt_row[new] = ABSENT
    list_append(state.group_lists, state.member_links, group, new)
    list_append(state.order, state.order_links, which, new)
    return new


@inlined
def new_request(run: PassContext, row: int, group: int, which: int) -> int:
    """A pending row for a request."""
    frames, pending = run.frames, run.state.pending
    new = _new_pending(run, row, group, which)
    pending.request_command[new] = frames.command[row]
    pending.request_frame_no[new] = frames.frame_no[row]
    pending.request_first_ns[new] = frames.first_ts_ns[row]
    pending.request_last_ns[new] = frames.last_ts_ns[row]
    pending.request_bytes[new] = frames.frame_bytes[row]
    if frames.retransmitted[row] == 1 or frames.status[row] == CUT_BY_GAP:
        pending.tainted[new] = 1
    return new


@inlined
def into_chain(state: PairingState, row: int, kind: int, value: int, extra: int) -> None:
    """Make a pending row findable by its key."""
    pending = state.pending
    pending.key_kind[row] = kind
    pending.key_value[row] = value
    pending.key_extra[row] = extra
    if pending.list[row] == pairing_state.UNMATCHED:
        kind += pairing_state.FOR_EARLY
    chain_append(state.table, state.chain_links, kind, pending.group[row], value, extra, row)


@inlined
def into_other_chain(state: PairingState, row: int, kind: int, value: int, extra: int) -> None:
    """Make a send findable by a second key."""
    pending = state.pending
    pending.other_kind[row] = kind
    pending.other_value[row] = value
    pending.other_extra[row] = extra
    chain_append(state.table, state.other_links, kind, pending.group[row], value, extra, row)


@kernel
def keep_unmatched(run: PassContext, row: int, connection: int, outcome: int) -> int:
    """A pending row for an answer without a request, in no chain yet.

    Whatever it answers, it stands in the group of the connection's other requests: the groups of
    producers hold nothing but sends.
    """
    state, pending = run.state, run.state.pending
    group = state.connections.requests[connection]
    unmatched = _new_pending(run, row, group, pairing_state.UNMATCHED)
    pending.endpoint_index[unmatched] = 1 - run.frames.endpoint_index[row]
    pending.deadline_ns[unmatched] = state.counters[pairing_state.COUNT_NOW] + run.window_ns
    rows.take_answer(run, row, unmatched, outcome)
    return unmatched


@kernel
def request_of(run: PassContext, row: int, connection: int) -> int:
    """The request that an answer other than to a send answers, or ABSENT."""
    state, frames = run.state, run.frames
    command = frames.command[row]
    key = run.rules.reply_key[command]
    has_no_id = key == PairedBy.REQUEST_ID and frames.request_id[row] == NULL
    if frames.status[row] == MALFORMED or has_no_id:
        return ABSENT
    asked, side = run.rules.asked_by[command], 1 - frames.endpoint_index[row]
    if key == PairedBy.TURN:
        return next_in_turn(run, connection, asked, side)
    if key == PairedBy.ORDER:
        return next_in_order(run, connection, command)
    group = state.connections.requests[connection]
    if key == PairedBy.WATCHER:
        return find(state.table, KeyKind.WATCHER, group, frames.watcher_id[row], asked)
    first = find(state.table, KeyKind.REQUEST, group, frames.request_id[row], side)
    return _request_by_id(run, first, command)


@kernel
def next_in_order(run: PassContext, connection: int, command: int) -> int:
    """The oldest request of a connection, ABSENT if there is none.

    Those whose answers may have been lost are passed until one fits: they are lost.
    """
    state = run.state
    group = state.connections.requests[connection]
    for _ in range(state.group_lists.length[group]):
        row = state.group_lists.first[group]
        asked = rules.slot_of(state.pending.request_command[row])
        is_pair = run.rules.may_answer[asked, rules.slot_of(command)] == 1
        if is_pair or not rows.may_be_lost(state, row):
            return int(row)
        rows.write_unanswered(run, row, LOST_IN_GAP)
    return ABSENT


@kernel
def _request_by_id(run: PassContext, first: int, command: int) -> int:
    """Among requests of one id the oldest that a command may answer, or ABSENT."""
    state = run.state
    row = first
    for _ in range(MAX_CHAIN_STEPS):
        if row == ABSENT or run.rules.may_answer[state.pending.request_command[row], command] == 1:
            return int(row)
        row = state.chain_links.next[row]
    note_cut_walk(state.table)
    return ABSENT


@kernel
def next_in_turn(run: PassContext, connection: int, asked: int, side: int) -> int:
    """The request that an answer without a key answers: the oldest, ABSENT if there is none.

    Where answers may have been lost since then it is the newest, and the others are lost: pings
    come half a minute apart, their answers at once.

    Args:
        asked: its command. side: that asks.
    """
    state = run.state
    group = state.connections.requests[connection]
    row = find(state.table, KeyKind.TURN, group, asked, side)
    for _ in range(len(state.pending.list)):
        if row == ABSENT:
            return ABSENT
        after = state.chain_links.next[row]
        if after == ABSENT or not rows.may_be_lost(state, row):
            return int(row)
        rows.write_unanswered(run, row, LOST_IN_GAP)
        row = after
    note_cut_walk(state.table)
    return int(row)


@kernel
def _unmatched_response_of(run: PassContext, row: int) -> int:
    """The oldest answer that came before this request and waits for it, or ABSENT."""
    pending = run.state.pending
    value, extra = pending.key_value[row], pending.key_extra[row]
    response = _early_of(run, row, value, extra, NULL)
    if response != ABSENT:
        return response
    if pending.other_kind[row] == KeyKind.LAST:
        return _early_of(run, row, pending.other_value[row], extra, NULL)
    if pending.other_kind[row] == KeyKind.SOURCE_POSITION:
        return _early_of(run, row, pending.other_value[row], extra, pending.other_extra[row])
    return ABSENT


@kernel
def _early_of(run: PassContext, row: int, value: int, extra: int, entry: int) -> int:
    """The oldest early answer of a key that may answer a request, a send's of its incarnation.

    ABSENT if there is none.

    Args:
        entry: of the source cluster, which the receipt of a copy names; NULL for all others.
    """
    state, pending = run.state, run.state.pending
    group = state.connections.requests[state.groups.connection[pending.group[row]]]
    key = pending.key_kind[row] + pairing_state.FOR_EARLY
    unmatched = find(state.table, key, group, value, extra)
    # Where one before it had the same key and may lie in a hole, it is that one's answer.
    shares_key = pending.key_kind[row] == KeyKind.TURN or pending.chunk_id[row] > 0
    hole = rows.last_hole_of_requests(state, row)
    for _ in range(MAX_CHAIN_STEPS):
        if unmatched == ABSENT:
            return ABSENT
        answer = pending.response_command[unmatched]
        # A highest id of 0 counts as none.
        named = max(pending.highest_sequence_id[unmatched], 0)
        is_of_entry = run.rules.is_receipt[answer] == 1 and named == entry
        is_pair = run.rules.may_answer[pending.request_command[row], answer] == 1
        if pending.list[row] == pairing_state.SENDS:
            is_pair &= pending.incarnation[unmatched] == pending.incarnation[row]
        is_pair &= not (shares_key and 0 <= hole < pending.row[unmatched])
        if is_pair and (entry == NULL or is_of_entry):
            return int(unmatched)
        unmatched = state.chain_links.next[unmatched]
    note_cut_walk(state.table)
    return ABSENT


@kernel
def take_unmatched(run: PassContext, row: int) -> None:
    """Answer a request whose answer was captured before it, if there is one."""
    unmatched = _unmatched_response_of(run, row)
    if unmatched != ABSENT:
        rows.take_early(run.state, row, unmatched)
        rows.write(run, row)


@inlined
def set_answered(run: PassContext, row: int, request: int) -> None:
    """Tell the frame what it answers."""
    frames, pending = run.frames, run.state.pending
    frames.answered_frame_no[row] = pending.request_frame_no[request]
    frames.answered_last_ns[row] = pending.request_last_ns[request]
    frames.answered_command[row] = pending.request_command[request]
