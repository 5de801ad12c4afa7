"""Pulsar's exchanges: pairing rules beyond the table of commands, in one pass with the registry.

It is the first pass over decoded frames, and the registry fills names in the same pass. An answer
by request id belongs to the producer or consumer of its request; the effect of opening or closing a
producer on its sends is known only after the registry has handled the frame. So for each frame the
pass finds its request, lets the registry handle it, and then updates the exchange.
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
from dissector.protocols.pulsar.registry import RegistryContext, Request, register_frame
from dissector.protocols.pulsar.wire import commands
from dissector.tables import ABSENT


@kernel
def pair_frames(
    context: PassContext, stop: int, protocol: int, registry_context: RegistryContext
) -> int:
    """`pairing.steps.pair_frames` with Pulsar's own rules; also fills the registry's columns."""
    state, frames = context.state, context.frames
    first = state.counters[pairing_state.COUNT_CURSOR]
    for row in range(first, stop):
        if not steps.has_room_for_row(state):
            return stop - row
        steps.begin_row(context, row, state.counters[pairing_state.COUNT_ROW] + 1)
        if frames.protocol[row] != protocol:
            continue
        connection = connections.connection_of(state, frames.connection_id[row])
        state.connections.is_two_way[connection] |= frames.is_two_way[row]
        command = frames.command[row]
        request = ABSENT
        if command == commands.ERROR and frames.request_id[row] == commands.BROKER_REQUEST_ID:
            request = _refused_connect(context, row, connection)
        else:
            request = steps.find_request(context, row, connection)
        register_frame(frames, row, _answered_request(context, request), registry_context)
        if command < 0:
            steps.handle_event(context, row, connection)
            continue
        if command in (commands.MESSAGE, commands.FLOW):
            continue
        if command in (commands.SEND, commands.SEND_RECEIPT) or not _handle_pulsar_only(
            context, row, connection, request
        ):
            steps.handle_frame(context, row, connection, request)
    return 0


@kernel
def _refused_connect(context: PassContext, row: int, connection: int) -> int:
    """The CONNECT that an ERROR without a request id answers: the broker refuses the connection."""
    if context.frames.status[row] == columns.MALFORMED:
        return ABSENT
    side = 1 - context.frames.endpoint_index[row]
    return pending.next_in_turn(context, connection, commands.CONNECT, side)


@inlined
def _answered_request(context: PassContext, request: int) -> Request:
    """A pending request as the registry needs it."""
    if request == ABSENT:
        return Request(NULL, NULL, NULL, NULL, NULL, NULL)
    requests = context.state.pending
    command = requests.request_command[request]
    kind = context.rules.client_handle[command]
    number = requests.producer_id[request]
    if kind == commands.CONSUMER_SUBJECT:
        number = requests.consumer_id[request]
    return Request(
        command,
        kind,
        number,
        requests.incarnation[request],
        requests.topic[request],
        requests.subscription[request],
    )


@kernel
def _handle_pulsar_only(context: PassContext, row: int, connection: int, request: int) -> bool:
    """Apply Pulsar's own rules to a frame; True if it needs no further pairing."""
    frames = context.frames
    command = frames.command[row]
    is_known = command < rules.COMMAND_SLOTS and frames.status[row] != columns.MALFORMED
    if not is_known or context.rules.reply_key[command] == PairedBy.SEND:
        return False
    if frames.handle_kind[row] == commands.PRODUCER_SUBJECT:
        _handle_lifecycle(context, row, connection)
    if command == commands.PRODUCER_SUCCESS and frames.is_ready[row] == 0:
        if request != ABSENT:
            pending.set_answered(context, row, request)
        return True  # another answer follows
    is_close = command in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER)
    is_request = context.rules.request_key[command] == PairedBy.REQUEST_ID
    is_of_broker = is_close and frames.direction[row] == columns.TO_CLIENT
    return bool(
        is_request and (is_of_broker or frames.request_id[row] == commands.BROKER_REQUEST_ID)
    )


@kernel
def _handle_lifecycle(context: PassContext, row: int, connection: int) -> None:
    """Apply the opening or closing of a producer to the group of its sends."""
    state, frames = context.state, context.frames
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
    if lifecycle == Lifecycle.READY:
        group = connections.group_of(state, connection, number)
        if groups.producer_id[group] != NULL and incarnation >= groups.incarnation[group]:
            if incarnation > groups.incarnation[group]:
                sends.begin_incarnation(context, group, incarnation)
            groups.known_at[group] = state.counters[pairing_state.COUNT_ROW]
        return
    group = connections.find_group(state, connection, number)
    if group == ABSENT:
        return
    is_over = lifecycle in (Lifecycle.CLOSED_BY_CLIENT, Lifecycle.REFUSED)
    if is_over and state.group_lists.length[group] == 0:
        connections.free_group(state, group)


class ErrorTexts(NamedTuple):
    """Error texts of a block; indexes: int64[rows], each row's text, NULL in most rows."""

    indexes: Int64Array
    texts: list[bytes]


class PulsarExchanges(Exchanges):
    """Pairs the frames of a capture: call `pair_named` with the blocks in order, then `finish`."""

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
        """Count attempts on the proxy's side of a pair apart from those on the client's side.

        Call it before the connection's first producer, and with False when the connection closes.
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
        """Pair a block as `pair` does, and fill the registry's columns of each frame.

        Args:
            error_texts: of the block, from `read_texts`.
            registry_context: of the block, from `PulsarRegistry.begin`.
        """
        indexes = error_texts.indexes
        indexes[indexes != NULL] += len(self._texts)
        self._texts += error_texts.texts
        context = self.begin(frames, rows, indexes, names)
        for _ in self.reservations():
            if not pair_frames(context, rows, self._protocol, registry_context):
                break
        blocks = self.blocks(context, notices)
        self._keep_texts()
        return blocks

    def read_texts(self, frames: FrameColumns, rows: int, sources: Sources) -> ErrorTexts:
        """The error texts of a block.

        Only this reads the block's bytes, and it depends on no earlier block: `pair_named` may run
        later, and `pair_named` of earlier blocks may run in parallel.
        """
        error_texts = ErrorTexts(np.full(max(rows, 1), NULL, np.int64), [])
        has_text = frames.error_text_bytes[:rows] >= 0
        is_mine = frames.protocol[:rows] == self._protocol
        for row in np.flatnonzero(has_text & is_mine).tolist():
            start = int(frames.error_text_at[row])
            data = sources[int(frames.source[row])]
            error_texts.indexes[row] = len(error_texts.texts)
            length = int(frames.error_text_bytes[row])
            shown = data[start : start + min(length, MAX_DETAIL_TEXT)].tobytes()
            error_texts.texts.append(bounded(shown, length))
        return error_texts

    def _keep_texts(self) -> None:
        """Drop all error texts but those of unmatched responses, whose rows are not written yet."""
        state = self._state
        remaining: list[bytes] = []
        unmatched = int(state.order.first[pairing_state.UNMATCHED])
        while unmatched != ABSENT and self._texts:
            index = int(state.pending.error_text[unmatched])
            if index != NULL:
                state.pending.error_text[unmatched] = len(remaining)
                remaining.append(self._texts[index])
            unmatched = int(state.order_links.next[unmatched])
        self._texts = remaining
