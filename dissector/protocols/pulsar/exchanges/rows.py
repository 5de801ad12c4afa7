"""Kernels that end exchanges: which outcome, the row that is written, what is forgotten."""

from typing import NamedTuple

from dissector.blocks import Int64Array
from dissector.buckets import bucket_of
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, CUT_BY_SNAPLEN, FrameColumns
from dissector.protocols.pulsar.exchanges import state as exchanges_state
from dissector.protocols.pulsar.exchanges.attempts import end_attempt
from dissector.protocols.pulsar.exchanges.columns import REQUEST_COLUMNS, ExchangeColumns
from dissector.protocols.pulsar.exchanges.state import ExchangeState
from dissector.protocols.pulsar.wire import commands
from dissector.protocols.pulsar.wire.commands import RuleColumns
from dissector.schemas import enums
from dissector.tables import ABSENT, chain_unlink, give_row, list_unlink

NEGATIVE_DURATION = NOTICE_NUMBER["negative_duration"]
_LOOKUP_FAILED = 2  # LookupType of a failed LOOKUP_RESPONSE
_METADATA_FAILED = 1  # LookupType of a failed PARTITIONED_METADATA_RESPONSE


class PairedAnswer(NamedTuple):
    """An answer on its way into a row, from its frame or from where it waited as an early one."""

    command: int
    frame_no: int
    first_ns: int
    last_ns: int
    status: int
    ledger_id: int
    entry_id: int
    error_code: int
    error_text: int
    is_error: int
    is_tainted: int
    was_unmatched: int


class PassContext(NamedTuple):
    """What one pass over a block works with.

    error_texts: int64[rows of the block], index of each frame's error text among the texts of the
        block.
    window_ns: how long an early answer waits, by the largest stamp seen.
    rows: gets what closes, from counters[COUNT_OUT] on.
    notices: int64[.., 4], kind, frame_no, connection_id and ts_ns, from counters[COUNT_NOTICES] on.
        As many as can come fit.
    """

    rules: RuleColumns
    error_texts: Int64Array
    window_ns: int
    rows: ExchangeColumns
    notices: Int64Array


@inlined
def answer_of_frame(frames: FrameColumns, row: int, error_texts: Int64Array) -> PairedAnswer:
    """The answer that a frame is."""
    command = frames.command[row]
    response = frames.response[row]
    is_error = (
        command in (commands.SEND_ERROR, commands.ERROR)
        or frames.error_code[row] != NULL
        or (command == commands.PARTITIONED_METADATA_RESPONSE and response == _METADATA_FAILED)
        or (command == commands.LOOKUP_RESPONSE and response == _LOOKUP_FAILED)
    )
    return PairedAnswer(
        command,
        frames.frame_no[row],
        frames.first_ts_ns[row],
        frames.last_ts_ns[row],
        frames.status[row],
        frames.ledger_id[row],
        frames.entry_id[row],
        frames.error_code[row],
        error_texts[row],
        1 if is_error else 0,
        1 if frames.retransmitted[row] == 1 or frames.status[row] != COMPLETE else 0,
        0,
    )


@kernel
def answer_of_unmatched(state: ExchangeState, unmatched: int) -> PairedAnswer:
    """The answer that waited for its request."""
    pending = state.pending
    return PairedAnswer(
        pending.command[unmatched],
        pending.frame_no[unmatched],
        pending.first_ns[unmatched],
        pending.last_ns[unmatched],
        pending.status[unmatched],
        pending.ledger_id[unmatched],
        pending.entry_id[unmatched],
        pending.error_code[unmatched],
        pending.error_text[unmatched],
        pending.is_error[unmatched],
        pending.is_tainted[unmatched],
        1,
    )


@inlined
def last_hole(state: ExchangeState, direction_index: int) -> int:
    """Ordinal of the last hole of a direction."""
    return int(state.directions.hole_row[direction_index])


@inlined
def answering_direction(state: ExchangeState, row: int) -> int:
    """Row in DirectionColumns of the direction in which the answer of a pending request comes."""
    return int(
        2 * state.groups.connection[state.pending.group[row]]
        + 1
        - state.pending.endpoint_index[row]
    )


@kernel
def given_up(state: ExchangeState, row: int, otherwise: int) -> int:
    """The outcome of a request that nothing will answer: the first that fits, else `otherwise`."""
    pending = state.pending
    answers = answering_direction(state, row)
    if state.directions.is_seen[answers] == 0:
        return enums.OTHER_SIDE_NOT_CAPTURED
    if pending.list[row] == exchanges_state.SENDS:
        group = pending.group[row]
        is_older = state.groups.incarnation[group] > pending.incarnation[row]
        if state.groups.is_broker_closed[group] == 1 or is_older:
            return enums.DROPPED_AFTER_CLOSE
    if last_hole(state, answers) > pending.row[row]:
        return enums.LOST_IN_GAP
    may_be_silent = pending.command[row] == commands.WATCH_SCALABLE_TOPICS
    if may_be_silent and otherwise in (enums.CONN_CLOSED, enums.UNANSWERED_AT_END):
        return enums.NOT_AWAITED
    return otherwise


@inlined
def _answered_outcome(answer: PairedAnswer) -> int:
    """The outcome of a request that was answered."""
    if answer.status != COMPLETE:
        return enums.RESPONSE_CUT
    if answer.is_error == 1:
        return enums.ERROR_ANSWER
    if answer.command == commands.SEND_RECEIPT and answer.ledger_id == -1 and answer.entry_id == -1:
        return enums.DUP_OR_DROPPED
    return enums.OK


@inlined
def _note_negative(state: ExchangeState, run: PassContext, row: int, frame_no: int) -> None:
    """A notice about a duration that came out negative."""
    notice = state.counters[exchanges_state.COUNT_NOTICES]
    state.counters[exchanges_state.COUNT_NOTICES] = notice + 1
    connection = state.groups.connection[state.pending.group[row]]
    run.notices[notice, 0] = NEGATIVE_DURATION
    run.notices[notice, 1] = frame_no
    run.notices[notice, 2] = state.connections.connection_id[connection]
    run.notices[notice, 3] = state.counters[exchanges_state.COUNT_NOW]


@inlined
def _write_answer(rows: ExchangeColumns, out_row: int, answer: PairedAnswer) -> None:
    """The columns that come from the answer."""
    rows.response_command[out_row] = answer.command
    rows.response_frame_no[out_row] = answer.frame_no
    rows.response_first_ns[out_row] = answer.first_ns
    rows.response_last_ns[out_row] = answer.last_ns
    rows.error_code[out_row] = answer.error_code
    rows.error_text[out_row] = answer.error_text
    is_stored = answer.command == commands.SEND_RECEIPT
    rows.ledger_id[out_row] = answer.ledger_id if is_stored and answer.ledger_id != -1 else NULL
    rows.entry_id[out_row] = answer.entry_id if is_stored and answer.entry_id != -1 else NULL


@inlined
def _write_no_answer(rows: ExchangeColumns, out_row: int) -> None:
    """Nulls for an answer that is not there."""
    rows.response_command[out_row] = NULL
    rows.response_frame_no[out_row] = NULL
    rows.response_first_ns[out_row] = NULL
    rows.response_last_ns[out_row] = NULL
    rows.error_code[out_row] = NULL
    rows.error_text[out_row] = NULL
    rows.ledger_id[out_row] = NULL
    rows.entry_id[out_row] = NULL
    rows.latency_ns[out_row] = NULL
    rows.latency_bucket[out_row] = NULL


@inlined
def _write_request(state: ExchangeState, run: PassContext, row: int) -> int:
    """The columns that come from the request; returns the index of the new row."""
    out_row = state.counters[exchanges_state.COUNT_OUT]
    state.counters[exchanges_state.COUNT_OUT] = out_row + 1
    rows = run.rows
    pending = state.pending
    group = pending.group[row]
    command = pending.command[row]
    rows.connection_id[out_row] = state.connections.connection_id[state.groups.connection[group]]
    rows.kind[out_row] = run.rules.kind[command]
    rows.request_command[out_row] = command
    rows.request_frame_no[out_row] = pending.frame_no[row]
    rows.request_first_ns[out_row] = pending.first_ns[row]
    rows.request_last_ns[out_row] = pending.last_ns[row]
    transmit = pending.last_ns[row] - pending.first_ns[row]
    if transmit < 0:
        transmit = NULL
        _note_negative(state, run, row, pending.frame_no[row])
    rows.transmit_ns[out_row] = transmit
    for column in range(REQUEST_COLUMNS):
        rows.matrix[column, out_row] = pending.matrix[row, column]
    if command == commands.SEND and state.groups.producer_id[group] != NULL:
        rows.topic[out_row] = state.groups.topic[group]
        if state.groups.producer_name[group] != NULL:
            rows.producer_name[out_row] = state.groups.producer_name[group]
    rows.request_bytes[out_row] = pending.frame_bytes[row]
    rows.ts[out_row] = pending.last_ns[row]
    rows.closing_row[out_row] = state.counters[exchanges_state.COUNT_ROW]
    return int(out_row)


@inlined
def _is_touched(state: ExchangeState, row: int) -> bool:
    """Whether the request, or a hole of either direction since then, makes the numbers doubtful."""
    direction_index = 2 * state.groups.connection[state.pending.group[row]]
    hole = max(last_hole(state, direction_index), last_hole(state, direction_index + 1))
    return bool(state.pending.is_tainted[row] == 1 or hole > state.pending.row[row])


@kernel
def write_answered(state: ExchangeState, run: PassContext, row: int, answer: PairedAnswer) -> int:
    """Write the row of an answered request and forget the request; returns the row's index."""
    out_row = _write_request(state, run, row)
    rows = run.rows
    _write_answer(rows, out_row, answer)
    latency = NULL
    # A cut by the snap length leaves the time of the last byte known.
    if answer.was_unmatched == 0 and answer.status in (COMPLETE, CUT_BY_SNAPLEN):
        latency = answer.last_ns - state.pending.last_ns[row]
        if latency < 0:
            latency = NULL
            _note_negative(state, run, row, answer.frame_no)
    rows.latency_ns[out_row] = latency
    rows.latency_bucket[out_row] = bucket_of(latency)
    rows.outcome[out_row] = _answered_outcome(answer)
    is_tainted = answer.is_tainted == 1 or answer.was_unmatched == 1 or _is_touched(state, row)
    rows.tainted[out_row] = 1 if is_tainted else 0
    release(state, row)
    return out_row


@kernel
def write_unanswered(state: ExchangeState, run: PassContext, row: int, outcome: int) -> None:
    """Write the row of a request without answer, or of an early answer, and forget it."""
    if state.pending.list[row] == exchanges_state.UNMATCHED:
        _write_orphan(state, run, row)
        release(state, row)
        return
    out_row = _write_request(state, run, row)
    _write_no_answer(run.rows, out_row)
    run.rows.outcome[out_row] = outcome
    run.rows.tainted[out_row] = 1 if _is_touched(state, row) else 0
    release(state, row)


@inlined
def _write_orphan(state: ExchangeState, run: PassContext, row: int) -> None:
    """An answer whose request never came: the request's columns are null."""
    out_row = state.counters[exchanges_state.COUNT_OUT]
    state.counters[exchanges_state.COUNT_OUT] = out_row + 1
    rows = run.rows
    for column in range(REQUEST_COLUMNS, rows.matrix.shape[0]):
        rows.matrix[column, out_row] = NULL
    pending = state.pending
    answer = answer_of_unmatched(state, row)
    _write_answer(rows, out_row, answer)
    group = pending.group[row]
    rows.connection_id[out_row] = state.connections.connection_id[state.groups.connection[group]]
    rows.kind[out_row] = run.rules.reply_kind[answer.command]
    rows.outcome[out_row] = enums.ORPHAN_RESPONSE
    # The request was before the capture, or in a hole.
    direction_index = 2 * state.groups.connection[group]
    has_hole = max(last_hole(state, direction_index), last_hole(state, direction_index + 1)) >= 0
    rows.tainted[out_row] = 1 if has_hole else pending.is_tainted[row]
    for column in range(REQUEST_COLUMNS):
        rows.matrix[column, out_row] = pending.matrix[row, column]
    rows.ts[out_row] = answer.last_ns
    rows.closing_row[out_row] = state.counters[exchanges_state.COUNT_ROW]


@kernel
def release(state: ExchangeState, row: int) -> None:
    """Take a pending row out of everything."""
    pending = state.pending
    group = pending.group[row]
    shift = exchanges_state.FOR_EARLY if pending.list[row] == exchanges_state.UNMATCHED else 0
    chain_unlink(
        state.table,
        state.chain_links,
        pending.key_kind[row] + shift,
        group,
        pending.key_value[row],
        pending.key_extra[row],
        row,
    )
    if pending.other_kind[row] != 0:
        chain_unlink(
            state.table,
            state.other_links,
            pending.other_kind[row],
            group,
            pending.other_value[row],
            pending.other_extra[row],
            row,
        )
    list_unlink(state.group_lists, state.member_links, group, row)
    list_unlink(state.order, state.order_links, pending.list[row], row)
    if pending.attempt_row[row] != ABSENT:
        end_attempt(state.attempts, pending.attempt_row[row])
    give_row(state.pending_pool, row)
