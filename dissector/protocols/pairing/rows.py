"""Kernels that end exchanges: set answer and outcome, write the row, free the pending row."""

from dissector.buckets import bucket_of
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notice_rows import add_row
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, CUT_BY_SNAPLEN
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.attempts import end_attempt
from dissector.protocols.pairing.columns import FIRST_OF_ANSWER, KNOWN_COLUMNS
from dissector.protocols.pairing.rules import Expectation, slot_of
from dissector.protocols.pairing.state import PairingState, PassContext
from dissector.schemas import enums
from dissector.tables import ABSENT, chain_unlink, give_row, list_unlink

NEGATIVE_DURATION = NOTICE_NUMBER["negative_duration"]


@inlined
def outcome_of(context: PassContext, row: int) -> int:
    """The outcome of the request that a frame answers."""
    frames, rules = context.frames, context.rules
    command = frames.command[row]
    if frames.status[row] != COMPLETE:
        return enums.RESPONSE_CUT
    is_failed = rules.failed_response[command] != NULL
    is_failed &= frames.response[row] == rules.failed_response[command]
    if rules.is_refusal[command] == 1 or frames.error_code[row] != NULL or is_failed:
        return enums.ERROR_ANSWER
    is_not_stored = frames.ledger_id[row] == -1 and frames.entry_id[row] == -1
    if rules.is_receipt[command] == 1 and is_not_stored:
        return enums.DUP_OR_DROPPED
    return enums.OK


@inlined
def take_answer(context: PassContext, row: int, pending_row: int, outcome: int) -> None:
    """Fill the columns of an answer in a pending row: a request's, or an unmatched response's."""
    frames, pending = context.frames, context.state.pending
    status = frames.status[row]
    pending.response_command[pending_row] = frames.command[row]
    pending.response_frame_no[pending_row] = frames.frame_no[row]
    pending.response_first_ns[pending_row] = frames.first_ts_ns[row]
    pending.response_last_ns[pending_row] = frames.last_ts_ns[row]
    pending.outcome[pending_row] = outcome
    pending.error_code[pending_row] = frames.error_code[row]
    pending.error_text[pending_row] = context.error_texts[row]
    if frames.retransmitted[row] == 1 or status != COMPLETE:
        pending.tainted[pending_row] = 1
    if context.rules.is_receipt[slot_of(frames.command[row])] == 1:
        ledger_id, entry_id = frames.ledger_id[row], frames.entry_id[row]
        pending.ledger_id[pending_row] = ledger_id if ledger_id != -1 else NULL
        pending.entry_id[pending_row] = entry_id if entry_id != -1 else NULL
    request_ns = pending.request_last_ns[pending_row]
    # Of a frame cut by the snap length the time of the last byte is known.
    if request_ns != NULL and status in (COMPLETE, CUT_BY_SNAPLEN):
        pending.latency_ns[pending_row] = frames.last_ts_ns[row] - request_ns


@kernel
def copy_unmatched(state: PairingState, row: int, unmatched: int) -> None:
    """Copy an unmatched response to the row of its request; free the row of the response."""
    for column in range(FIRST_OF_ANSWER, KNOWN_COLUMNS):
        state.pending.matrix[row, column] = state.pending.matrix[unmatched, column]
    state.pending.tainted[row] = 1
    release(state, unmatched)


@inlined
def direction_of(state: PairingState, row: int) -> int:
    """The row in DirectionColumns of side 0 of a pending row's connection."""
    return int(2 * state.groups.connection[state.pending.group[row]])


@inlined
def last_hole_of_requests(state: PairingState, row: int) -> int:
    """Ordinal of the last hole in the direction of a request, which may hide others; -1 none."""
    side = direction_of(state, row) + state.pending.endpoint_index[row]
    return int(state.directions.hole_row[side])


@inlined
def may_be_lost(state: PairingState, row: int) -> bool:
    """Whether the answer of a pending request may lie in a hole."""
    answers = direction_of(state, row) + 1 - state.pending.endpoint_index[row]
    return bool(state.directions.hole_row[answers] > state.pending.row[row])


@kernel
def unanswered_outcome(state: PairingState, row: int, otherwise: int) -> int:
    """The outcome of a request without an answer: the first that applies, else `otherwise`."""
    pending = state.pending
    connection = state.groups.connection[pending.group[row]]
    silence, is_lost = pending.silence[row], may_be_lost(state, row)
    if silence == Expectation.NEVER_AWAITED and not is_lost:
        return enums.NOT_AWAITED
    if state.connections.is_two_way[connection] == 0:
        return enums.OTHER_SIDE_NOT_CAPTURED
    if is_lost:
        return enums.LOST_IN_GAP
    if pending.list[row] == pairing_state.SENDS:
        group = pending.group[row]
        is_older = state.groups.incarnation[group] > pending.incarnation[row]
        if state.groups.is_broker_closed[group] == 1 or is_older:
            return enums.DROPPED_AFTER_CLOSE
    is_silent = silence != Expectation.AWAITED and otherwise != enums.EVICTED
    # After a push request (ConnectionColumns.push) the broker answers nothing.
    if is_silent or state.connections.push[connection] != ABSENT:
        return enums.NOT_AWAITED
    return otherwise


@inlined
def _duration(context: PassContext, duration: int, connection_id: int, frame_no: int) -> int:
    """A duration, ns; NULL with a notice if it is negative."""
    if duration >= 0 or duration == NULL:
        return duration
    note(context, NEGATIVE_DURATION, connection_id, frame_no)
    return NULL


@inlined
def note(context: PassContext, kind: int, connection_id: int, frame_no: int) -> None:
    """Add a notice with the current time."""
    notice, rows = add_row(context.notices, kind), context.notices.rows
    rows.frame_no[notice] = frame_no
    rows.connection_id[notice] = connection_id
    rows.ts_ns[notice] = context.state.counters[pairing_state.COUNT_CLOCK]


@kernel
def write(context: PassContext, row: int) -> None:
    """Write the row of a request, answered or not, or of an unmatched response; free it."""
    state, out, counters = context.state, context.out, context.state.counters
    pending = state.pending
    out_row = counters[pairing_state.COUNT_OUT]
    counters[pairing_state.COUNT_OUT] = out_row + 1
    group, queue = pending.group[row], pending.list[row]
    connection_id = state.connections.connection_id[state.groups.connection[group]]
    for column in range(KNOWN_COLUMNS):
        out.matrix[column, out_row] = pending.matrix[row, column]
    out.connection_id[out_row] = connection_id
    out.closing_row[out_row] = counters[pairing_state.COUNT_ROW]
    one = direction_of(state, row)
    last_hole = max(state.directions.hole_row[one], state.directions.hole_row[one + 1])
    if queue == pairing_state.UNMATCHED:
        # The request was sent before the capture, or lies in a hole.
        since = -1
        out.ts[out_row] = pending.response_last_ns[row]
        out.outcome[out_row] = enums.ORPHAN_RESPONSE
    else:
        since = pending.row[row]
        out.ts[out_row] = pending.request_last_ns[row]
        if pending.outcome[row] == enums.OTHER_SIDE_NOT_CAPTURED:
            out.outstanding_before[out_row] = NULL  # nobody saw which were answered
    if last_hole > since:
        out.tainted[out_row] = 1
    frame_no = pending.request_frame_no[row]
    out.transmit_ns[out_row] = _duration(context, pending.transmit_ns[row], connection_id, frame_no)
    frame_no = pending.response_frame_no[row]
    latency = _duration(context, pending.latency_ns[row], connection_id, frame_no)
    out.latency_ns[out_row] = latency
    out.latency_bucket[out_row] = bucket_of(latency)
    if queue == pairing_state.SENDS and state.groups.producer_id[group] != NULL:
        out.topic[out_row] = state.groups.topic[group]
        if state.groups.producer_name[group] != NULL:
            out.producer_name[out_row] = state.groups.producer_name[group]
    release(state, row)


@inlined
def write_unanswered(context: PassContext, row: int, outcome: int) -> None:
    """Write the row of a request without an answer; free it."""
    context.state.pending.outcome[row] = outcome
    write(context, row)


@kernel
def release(state: PairingState, row: int) -> None:
    """Remove a pending row from chains and lists and free it; a push request's row stays allocated
    for the names that later frames need."""
    pending = state.pending
    group, queue = pending.group[row], pending.list[row]
    kind, value, extra = pending.key_kind[row], pending.key_value[row], pending.key_extra[row]
    if kind != 0:
        if queue == pairing_state.UNMATCHED:
            kind += pairing_state.FOR_UNMATCHED
        chain_unlink(state.table, state.chain_links, kind, group, value, extra, row)
    kind, value, extra = pending.other_kind[row], pending.other_value[row], pending.other_extra[row]
    if kind != 0:
        chain_unlink(state.table, state.other_links, kind, group, value, extra, row)
    list_unlink(state.group_lists, state.member_links, group, row)
    list_unlink(state.order, state.order_links, queue, row)
    if pending.attempt_row[row] != ABSENT:
        end_attempt(state.attempts, pending.attempt_row[row])
    is_gone = queue == pairing_state.SENDS and pending.row[row] <= state.groups.known_at[group]
    if is_gone and state.groups.gone[group] > 0:
        state.groups.gone[group] -= 1
    if queue == pairing_state.REQUESTS and pending.outstanding_before[row] != NULL:
        state.groups.publishes[group] -= 1
    if state.connections.push[state.groups.connection[group]] != row:
        give_row(state.pending_pool, row)
