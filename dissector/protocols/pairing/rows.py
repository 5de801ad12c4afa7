"""Kernels that end exchanges: which outcome, the row that is written, what is forgotten."""

from dissector.buckets import bucket_of
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, CUT_BY_SNAPLEN
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.attempts import end_attempt
from dissector.protocols.pairing.columns import REQUEST_COLUMNS, ExchangeColumns
from dissector.protocols.pairing.rules import AWAITED, NEVER_AWAITED, slot_of
from dissector.protocols.pairing.state import PairedAnswer, PairingState, PassContext
from dissector.schemas import enums
from dissector.tables import ABSENT, chain_unlink, give_row, list_unlink

NEGATIVE_DURATION = NOTICE_NUMBER["negative_duration"]


@inlined
def outcome_of(run: PassContext, row: int) -> int:
    """The outcome of the request that a frame answers."""
    frames, rules = run.frames, run.rules
    command = frames.command[row]
    if frames.status[row] != COMPLETE:
        return enums.RESPONSE_CUT
    is_failed = rules.failed_response[command] != NULL
    is_failed &= frames.response[row] == rules.failed_response[command]
    if rules.is_refusal[command] == 1 or frames.error_code[row] != NULL or is_failed:
        return enums.ERROR_ANSWER
    is_nowhere = frames.ledger_id[row] == -1 and frames.entry_id[row] == -1
    if rules.is_receipt[command] == 1 and is_nowhere:
        return enums.DUP_OR_DROPPED
    return enums.OK


@inlined
def answer_of_frame(run: PassContext, row: int, outcome: int) -> PairedAnswer:
    """The answer that a frame is. A cut by the snap length leaves the time of the last byte."""
    frames, status = run.frames, run.frames.status[row]
    is_receipt = run.rules.is_receipt[slot_of(frames.command[row])] == 1
    ledger_id, entry_id = frames.ledger_id[row], frames.entry_id[row]
    return PairedAnswer(
        frames.command[row],
        frames.frame_no[row],
        frames.first_ts_ns[row],
        frames.last_ts_ns[row],
        ledger_id if is_receipt and ledger_id != -1 else NULL,
        entry_id if is_receipt and entry_id != -1 else NULL,
        frames.error_code[row],
        run.error_texts[row],
        outcome,
        1 if status in (COMPLETE, CUT_BY_SNAPLEN) else 0,
        1 if frames.retransmitted[row] == 1 or status != COMPLETE else 0,
    )


@inlined
def with_error(answer: PairedAnswer, error_code: int, error_text: int) -> PairedAnswer:
    """The same answer with an error that no column of its frame says."""
    return PairedAnswer(
        answer.command,
        answer.frame_no,
        answer.first_ns,
        answer.last_ns,
        answer.ledger_id,
        answer.entry_id,
        error_code,
        error_text,
        answer.outcome,
        answer.is_timed,
        answer.is_tainted,
    )


@kernel
def answer_of_unmatched(state: PairingState, unmatched: int) -> PairedAnswer:
    """The answer that waited for its request."""
    pending = state.pending
    return PairedAnswer(
        pending.command[unmatched],
        pending.frame_no[unmatched],
        pending.first_ns[unmatched],
        pending.last_ns[unmatched],
        pending.ledger_id[unmatched],
        pending.entry_id[unmatched],
        pending.error_code[unmatched],
        pending.error_text[unmatched],
        pending.outcome[unmatched],
        0,
        1,
    )


@inlined
def direction_of(state: PairingState, row: int) -> int:
    """Row in DirectionColumns of side 0 of a pending row's connection."""
    return int(2 * state.groups.connection[state.pending.group[row]])


@inlined
def may_be_lost(state: PairingState, row: int) -> bool:
    """Whether the answer of a pending request may lie in a hole."""
    answers = direction_of(state, row) + 1 - state.pending.endpoint_index[row]
    return bool(state.directions.hole_row[answers] > state.pending.row[row])


@kernel
def given_up(state: PairingState, row: int, otherwise: int) -> int:
    """The outcome of a request that nothing will answer: the first that fits, else `otherwise`."""
    pending = state.pending
    answers = direction_of(state, row) + 1 - pending.endpoint_index[row]
    silence, is_lost = pending.silence[row], may_be_lost(state, row)
    if silence == NEVER_AWAITED and not is_lost:
        return enums.NOT_AWAITED
    if state.directions.is_seen[answers] == 0:
        return enums.OTHER_SIDE_NOT_CAPTURED
    if pending.list[row] == pairing_state.SENDS:
        group = pending.group[row]
        is_older = state.groups.incarnation[group] > pending.incarnation[row]
        if state.groups.is_broker_closed[group] == 1 or is_older:
            return enums.DROPPED_AFTER_CLOSE
    if is_lost:
        return enums.LOST_IN_GAP
    is_silent = silence != AWAITED and otherwise != enums.EVICTED
    # Behind a push nothing is answered.
    if is_silent or state.connections.push[answers // 2] != ABSENT:
        return enums.NOT_AWAITED
    return otherwise


@inlined
def _note_negative(run: PassContext, row: int, frame_no: int) -> None:
    """A notice about a duration that came out negative."""
    state, notices = run.state, run.notices
    notice = state.counters[pairing_state.COUNT_NOTICES]
    state.counters[pairing_state.COUNT_NOTICES] = notice + 1
    connection = state.groups.connection[state.pending.group[row]]
    notices[notice, 0] = NEGATIVE_DURATION
    notices[notice, 1] = frame_no
    notices[notice, 2] = state.connections.connection_id[connection]
    notices[notice, 3] = state.counters[pairing_state.COUNT_NOW]


@inlined
def _write_answer(out: ExchangeColumns, out_row: int, answer: PairedAnswer) -> None:
    """The columns that come from the answer."""
    out.response_command[out_row] = answer.command
    out.response_frame_no[out_row] = answer.frame_no
    out.response_first_ns[out_row] = answer.first_ns
    out.response_last_ns[out_row] = answer.last_ns
    out.error_code[out_row] = answer.error_code
    out.error_text[out_row] = answer.error_text
    out.ledger_id[out_row] = answer.ledger_id
    out.entry_id[out_row] = answer.entry_id


@inlined
def _write_no_answer(out: ExchangeColumns, out_row: int) -> None:
    """Nulls for an answer that is not there."""
    out.response_command[out_row] = NULL
    out.response_frame_no[out_row] = NULL
    out.response_first_ns[out_row] = NULL
    out.response_last_ns[out_row] = NULL
    out.error_code[out_row] = NULL
    out.error_text[out_row] = NULL
    out.ledger_id[out_row] = NULL
    out.entry_id[out_row] = NULL
    out.latency_ns[out_row] = NULL
    out.latency_bucket[out_row] = NULL


@inlined
def _write_common(run: PassContext, row: int) -> int:
    """The columns of a pending row that is a request or an early answer; returns the new row."""
    state, pending, out = run.state, run.state.pending, run.out
    out_row = state.counters[pairing_state.COUNT_OUT]
    state.counters[pairing_state.COUNT_OUT] = out_row + 1
    connection = state.groups.connection[pending.group[row]]
    for column in range(REQUEST_COLUMNS):
        out.matrix[column, out_row] = pending.matrix[row, column]
    out.connection_id[out_row] = state.connections.connection_id[connection]
    out.kind[out_row] = pending.kind[row]
    out.ts[out_row] = pending.last_ns[row]
    out.closing_row[out_row] = state.counters[pairing_state.COUNT_ROW]
    return int(out_row)


@inlined
def _write_request(run: PassContext, row: int) -> int:
    """The columns that come from the request; returns the index of the new row."""
    state, pending, out = run.state, run.state.pending, run.out
    out_row = _write_common(run, row)
    out.request_command[out_row] = pending.command[row]
    out.request_frame_no[out_row] = pending.frame_no[row]
    out.request_first_ns[out_row] = pending.first_ns[row]
    out.request_last_ns[out_row] = pending.last_ns[row]
    transmit = pending.last_ns[row] - pending.first_ns[row]
    if transmit < 0:
        transmit = NULL
        _note_negative(run, row, pending.frame_no[row])
    out.transmit_ns[out_row] = transmit
    group = pending.group[row]
    if pending.list[row] == pairing_state.SENDS and state.groups.producer_id[group] != NULL:
        out.topic[out_row] = state.groups.topic[group]
        if state.groups.producer_name[group] != NULL:
            out.producer_name[out_row] = state.groups.producer_name[group]
    out.request_bytes[out_row] = pending.frame_bytes[row]
    return out_row


@inlined
def _last_hole(state: PairingState, row: int) -> int:
    """Ordinal of the last hole of either direction of a pending row's connection, -1 none."""
    one = direction_of(state, row)
    return int(max(state.directions.hole_row[one], state.directions.hole_row[one + 1]))


@inlined
def _is_touched(state: PairingState, row: int) -> bool:
    """Whether the request, or a hole of either direction since then, makes the numbers doubtful."""
    pending = state.pending
    return bool(pending.is_tainted[row] == 1 or _last_hole(state, row) > pending.row[row])


@kernel
def write_answered(run: PassContext, row: int, answer: PairedAnswer) -> None:
    """Write the row of an answered request and forget the request."""
    state, out = run.state, run.out
    out_row = _write_request(run, row)
    _write_answer(out, out_row, answer)
    latency = NULL
    if answer.is_timed == 1:
        latency = answer.last_ns - state.pending.last_ns[row]
        if latency < 0:
            latency = NULL
            _note_negative(run, row, answer.frame_no)
    out.latency_ns[out_row] = latency
    out.latency_bucket[out_row] = bucket_of(latency)
    out.outcome[out_row] = answer.outcome
    out.tainted[out_row] = 1 if answer.is_tainted == 1 or _is_touched(state, row) else 0
    release(state, row)


@kernel
def write_unanswered(run: PassContext, row: int, outcome: int) -> None:
    """Write the row of a request without answer, or of an early answer, and forget it."""
    state, out = run.state, run.out
    if state.pending.list[row] == pairing_state.UNMATCHED:
        _write_orphan(run, row)
    else:
        out_row = _write_request(run, row)
        _write_no_answer(out, out_row)
        out.outcome[out_row] = outcome
        out.tainted[out_row] = 1 if _is_touched(state, row) else 0
    release(state, row)


@inlined
def _write_orphan(run: PassContext, row: int) -> None:
    """An answer whose request never came: the request's columns are null."""
    state, out = run.state, run.out
    out_row = state.counters[pairing_state.COUNT_OUT]
    for column in range(REQUEST_COLUMNS, out.matrix.shape[0]):
        out.matrix[column, out_row] = NULL
    _write_common(run, row)
    _write_answer(out, out_row, answer_of_unmatched(state, row))
    out.outcome[out_row] = enums.ORPHAN_RESPONSE
    # The request was before the capture, or in a hole.
    out.tainted[out_row] = 1 if _last_hole(state, row) >= 0 else state.pending.is_tainted[row]


@kernel
def release(state: PairingState, row: int) -> None:
    """Take a pending row out of everything; that of a push stays for the names of what comes."""
    pending = state.pending
    group, which = pending.group[row], pending.list[row]
    kind, value, extra = pending.key_kind[row], pending.key_value[row], pending.key_extra[row]
    if kind != 0:
        if which == pairing_state.UNMATCHED:
            kind += pairing_state.FOR_EARLY
        chain_unlink(state.table, state.chain_links, kind, group, value, extra, row)
    kind, value, extra = pending.other_kind[row], pending.other_value[row], pending.other_extra[row]
    if kind != 0:
        chain_unlink(state.table, state.other_links, kind, group, value, extra, row)
    list_unlink(state.group_lists, state.member_links, group, row)
    list_unlink(state.order, state.order_links, which, row)
    if pending.attempt_row[row] != ABSENT:
        end_attempt(state.attempts, pending.attempt_row[row])
    if which == pairing_state.REQUESTS and pending.outstanding_before[row] != NULL:
        state.groups.publishes[group] -= 1
    if state.connections.push[state.groups.connection[group]] != row:
        give_row(state.pending_pool, row)
