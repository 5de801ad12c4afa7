"""Kernels that let requests and early answers wait."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import CUT_BY_GAP, FrameColumns
from dissector.protocols.pulsar.exchanges.columns import REQUEST_COLUMNS
from dissector.protocols.pulsar.exchanges.rows import (
    Pairing,
    answer_of_frame,
    given_up,
    write_unanswered,
)
from dissector.protocols.pulsar.exchanges.state import (
    COUNT_EVICTED,
    COUNT_NOW,
    COUNT_ROW,
    EARLY,
    FOR_EARLY,
    ExchangeState,
)
from dissector.protocols.tables import ABSENT, chain_append, list_append, take_row
from dissector.schemas.words import EVICTED


@kernel
def _evict_first(state: ExchangeState, which: int, run: Pairing) -> None:
    """Give up the oldest row of a list, which is full."""
    oldest = state.order.first[which]
    state.counters[COUNT_EVICTED] += 1
    outcome = EVICTED if which == EARLY else given_up(state, oldest, EVICTED)
    write_unanswered(state, run, oldest, outcome)


@inlined
def new_pending(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    group: int,
    which: int,
    run: Pairing,
) -> int:
    """A pending row for a frame, in its group's list and in the order; in no chain yet."""
    if state.order.length[which] >= state.limits[which]:
        _evict_first(state, which, run)
    new = take_row(state.pending_pool)
    pending = state.pending
    pending.list[new] = which
    pending.group[new] = group
    pending.side[new] = frames.side[row]
    pending.command[new] = frames.command[row]
    pending.frame_no[new] = frames.frame_no[row]
    pending.first_ns[new] = frames.first_ts_ns[row]
    pending.last_ns[new] = frames.last_ts_ns[row]
    pending.frame_bytes[new] = frames.frame_bytes[row]
    pending.row[new] = state.counters[COUNT_ROW]
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
    shift = FOR_EARLY if pending.list[row] == EARLY else 0
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
def keep_early(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: Pairing,
) -> int:
    """A pending row for an answer without a request, in no chain yet.

    Whatever it answers, it stands in the group of the connection's other requests: the groups of
    producers hold nothing but sends.
    """
    group = state.connections.requests[connection]
    early = new_pending(state, frames, row, group, EARLY, run)
    answer = answer_of_frame(frames, row, run.error_texts)
    pending = state.pending
    pending.side[early] = 1 - frames.side[row]
    pending.ledger_id[early] = answer.ledger_id
    pending.entry_id[early] = answer.entry_id
    pending.error_code[early] = answer.error_code
    pending.error_text[early] = answer.error_text
    pending.status[early] = answer.status
    pending.is_error[early] = answer.is_error
    pending.is_tainted[early] = answer.is_tainted
    pending.deadline_ns[early] = state.counters[COUNT_NOW] + run.window_ns
    return early
