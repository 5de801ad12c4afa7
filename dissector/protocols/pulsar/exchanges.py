"""Pulsar's exchanges: what pairs beyond the table of commands, and what pairing tells the registry.

The first pass over decoded frames, which the registry names as it goes. An answer by request id is
of whom its request was; what closing and opening a producer does to its sends is known once the
registry has had the frame. So each frame's request is found first, then the registry takes the
frame, then the exchange goes on.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dissector.blocks import Int64Array, TableBlock
from dissector.codecs.texts import bounded
from dissector.jit import inlined, kernel
from dissector.limits import MAX_DETAIL_TEXT, NULL
from dissector.notice_log import NoticeLog
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, Lifecycle
from dissector.protocols.interface import Sources
from dissector.protocols.pairing import attempts, connections, pending, rules, sends, steps
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.exchanges import Exchanges
from dissector.protocols.pairing.rules import PairedBy
from dissector.protocols.pairing.state import PairingBounds, PassContext
from dissector.protocols.pulsar.registry import Asked, RegistryContext, register_frame
from dissector.protocols.pulsar.wire import commands
from dissector.tables import ABSENT


@kernel
def pair_frames(
    run: PassContext, stop: int, protocol: int, registry_context: RegistryContext
) -> int:
    """`pairing.steps.pair_frames` with what only Pulsar has; sets the registry's columns, too."""
    state, frames = run.state, run.frames
    first = state.counters[pairing_state.COUNT_AT]
    for row in range(first, stop):
        if not steps.has_room_for_row(state):
            return stop - row
        steps.begin_row(run, row, state.counters[pairing_state.COUNT_ROW] + 1)
        if frames.protocol[row] != protocol:
            continue
        connection = connections.connection_of(state, frames.connection_id[row])
        command = frames.command[row]
        request = ABSENT
        if command == commands.ERROR and frames.request_id[row] == commands.BROKER_REQUEST_ID:
            request = _refused_connect(run, row, connection)
        else:
            request = steps.find_request(run, row, connection)
        register_frame(frames, row, _asked_of(run, request), registry_context)
        if command < 0:
            steps.handle_event(run, row, connection)
            continue
        state.directions.is_seen[2 * connection + frames.endpoint_index[row]] = 1
        if command in (commands.MESSAGE, commands.FLOW):
            continue
        if command in (commands.SEND, commands.SEND_RECEIPT) or not _is_all(
            run, row, connection, request
        ):
            steps.handle_frame(run, row, connection, request)
    return 0


@kernel
def _refused_connect(run: PassContext, row: int, connection: int) -> int:
    """Before it has accepted a connection the broker refuses without a request id."""
    if run.frames.status[row] == columns.MALFORMED:
        return ABSENT
    side = 1 - run.frames.endpoint_index[row]
    return pending.next_in_turn(run, connection, commands.CONNECT, side)


@inlined
def _asked_of(run: PassContext, request: int) -> Asked:
    """A waiting request for the registry."""
    if request == ABSENT:
        return Asked(NULL, NULL, NULL, NULL, NULL, NULL)
    waiting = run.state.pending
    command = waiting.request_command[request]
    kind = run.rules.client_handle[command]
    number = waiting.producer_id[request]
    if kind == commands.CONSUMER_SUBJECT:
        number = waiting.consumer_id[request]
    return Asked(
        command,
        kind,
        number,
        waiting.incarnation[request],
        waiting.topic[request],
        waiting.subscription[request],
    )


@kernel
def _is_all(run: PassContext, row: int, connection: int, request: int) -> bool:
    """Handle what only Pulsar's commands do; whether nothing is left to be paired."""
    frames = run.frames
    command = frames.command[row]
    is_known = command < rules.COMMAND_SLOTS and frames.status[row] != columns.MALFORMED
    if not is_known or run.rules.reply_key[command] == PairedBy.SEND:
        return False
    if frames.handle_kind[row] == commands.PRODUCER_SUBJECT:
        _handle_lifecycle(run, row, connection)
    if command == commands.PRODUCER_SUCCESS and frames.is_ready[row] == 0:
        if request != ABSENT:
            pending.set_answered(run, row, request)
        return True  # another answer follows
    is_close = command in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER)
    is_request = run.rules.request_key[command] == PairedBy.REQUEST_ID
    is_of_broker = is_close and frames.direction[row] == columns.TO_CLIENT
    return bool(
        is_request and (is_of_broker or frames.request_id[row] == commands.BROKER_REQUEST_ID)
    )


@kernel
def _handle_lifecycle(run: PassContext, row: int, connection: int) -> None:
    """What closing and reopening a producer does to its sends."""
    state, frames = run.state, run.frames
    lifecycle = frames.lifecycle[row]
    number = frames.handle_id[row]
    incarnation = frames.handle_incarnation[row]
    groups = state.groups
    if lifecycle == Lifecycle.CLOSED_BY_BROKER:
        group = connections.group_of(state, connection, number)
        if groups.incarnation[group] == NULL:
            groups.incarnation[group] = incarnation
        if groups.incarnation[group] == incarnation and groups.producer_id[group] != NULL:
            groups.is_broker_closed[group] = 1
        return
    group = connections.find_group(state, connection, number)
    if group == ABSENT:
        return
    if lifecycle == Lifecycle.READY and incarnation > groups.incarnation[group]:
        sends.begin_incarnation(run, group, incarnation)
    is_over = lifecycle in (Lifecycle.CLOSED_BY_CLIENT, Lifecycle.REFUSED)
    if is_over and state.group_lists.length[group] == 0:
        connections.free_group(state, group)


class ErrorTexts(NamedTuple):
    """Error texts of a block, and for each row the index of its own; few rows have one."""

    indexes: Int64Array
    texts: list[bytes]


class PulsarExchanges(Exchanges):
    """State of one capture; `pair_named` takes the blocks in order, `finish` closes what waits."""

    def __init__(
        self,
        protocol: int,
        reorder_window_ns: int,
        bounds: PairingBounds | None = None,
        key: int = 0,
    ) -> None:
        """key: of hash tables."""
        super().__init__(protocol, commands.rule_columns(), reorder_window_ns, bounds, key)
        self._texts: list[bytes] = []

    def set_proxy_side(self, connection: int, is_proxy_side: bool) -> None:
        """Count attempts of a proxy's leg apart from those of its twin.

        To be called before the connection's first producer, and with False when it is over.
        """
        pairing_state.reserve(self._state, 1)
        attempts.set_proxy_side(self._state.attempts, connection, int(is_proxy_side))

    def pair_named(
        self,
        frames: FrameColumns,
        rows: int,
        error_texts: ErrorTexts,
        names: Sequence[bytes],
        registry_context: RegistryContext,
        notices: NoticeLog,
    ) -> list[TableBlock]:
        """`pair`, and what the registry knows of each frame.

        Args:
            error_texts: what `read_texts` says of the block.
            registry_context: what the registry began the block with.
        """
        indexes = error_texts.indexes
        indexes[indexes != NULL] += len(self._texts)
        self._texts += error_texts.texts
        run = self.begin(frames, rows, indexes, names)
        for _ in self.rooms():
            if not pair_frames(run, rows, self._protocol, registry_context):
                break
        blocks = self.blocks(run, notices)
        self._keep_texts()
        return blocks

    def read_texts(self, frames: FrameColumns, rows: int, sources: Sources) -> ErrorTexts:
        """The error texts of a block.

        It alone needs the bytes of the block, and nothing of the blocks before it: `pair_named` may
        run later, and those of the blocks before it beside it.
        """
        found = ErrorTexts(np.full(max(rows, 1), NULL, np.int64), [])
        has_text = frames.error_text_bytes[:rows] >= 0
        is_mine = frames.protocol[:rows] == self._protocol
        for row in np.flatnonzero(has_text & is_mine).tolist():
            start = int(frames.error_text_at[row])
            data = sources[int(frames.source[row])]
            found.indexes[row] = len(found.texts)
            length = int(frames.error_text_bytes[row])
            shown = data[start : start + min(length, MAX_DETAIL_TEXT)].tobytes()
            found.texts.append(bounded(shown, length))
        return found

    def _keep_texts(self) -> None:
        """Start a new list of texts with those of early answers, which are still to be written."""
        state = self._state
        kept: list[bytes] = []
        unmatched = int(state.order.first[pairing_state.UNMATCHED])
        while unmatched != ABSENT and self._texts:
            index = int(state.pending.error_text[unmatched])
            if index != NULL:
                state.pending.error_text[unmatched] = len(kept)
                kept.append(self._texts[index])
            unmatched = int(state.order_links.next[unmatched])
        self._texts = kept
