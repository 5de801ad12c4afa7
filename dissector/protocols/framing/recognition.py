"""Decide a connection's protocol by the user's options, TLS or HTTP; strip PROXY headers.

The user's protocol for a port, or for all connections, overrides the content, as in Wireshark: the
connection is decoded so, even if nothing decodes. If its first bytes are clearly another
protocol's, a notice says so. A PROXY header is not content: it is stripped first.
"""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.notice_rows import add_row
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.framing import first_bytes
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.buffers import drop_bytes
from dissector.protocols.framing.first_bytes import HeadVerdict
from dissector.protocols.framing.row_output import PassContext
from dissector.protocols.framing.state import FramingState
from dissector.protocols.interface import HEADER_WINDOW
from dissector.protocols.strictness import STRICT

HEAD_BYTES: Final = 4096  # of a direction, looked at for TLS, HTTP and PROXY headers
_MORE: Final = -2  # more bytes are needed
_READ_AS_ASKED: Final = NOTICE_NUMBER["read_as_asked"]


@inlined
def has_broker_port(state: FramingState, connection_index: int) -> bool:
    """Whether a port of a connection is one of a known protocol's."""
    ports = state.connections.ports[connection_index]
    hints = state.port_hints[ports >> 16] | state.port_hints[ports & 0xFFFF]
    return bool(hints & framing_state.PORT_OF_BROKER)


@inlined
def _forced_protocol(state: FramingState, connection_index: int) -> int:
    """The protocol that the user's options give a connection, or UNDECIDED."""
    ports = state.connections.ports[connection_index]
    by_port = state.port_hints[ports >> 16] >> framing_state.PROTOCOL_SHIFT
    if by_port == 0:
        by_port = state.port_hints[ports & 0xFFFF] >> framing_state.PROTOCOL_SHIFT
    return int(by_port if by_port > 0 else state.counters[framing_state.COUNTER_ONLY]) - 1


@kernel
def recognise(context: PassContext, direction_index: int, is_final: bool) -> bool:
    """Set a connection's protocol if a direction's first bytes, or an option, decide it.

    Returns:
        True if more bytes are needed to decide.
    """
    state, connection_index = context.state, direction_index >> 1
    forced = framing_state.UNDECIDED
    if state.counters[framing_state.COUNTER_IS_FORCED]:
        forced = _forced_protocol(state, connection_index)
    protocol = _opaque_protocol(context, direction_index, is_final)
    if protocol == framing_state.UNDECIDED and forced != framing_state.UNDECIDED:
        protocol = _framed_protocol(context, direction_index, forced, is_final)
    if protocol == _MORE:
        return True
    if forced != framing_state.UNDECIDED and protocol not in (framing_state.UNDECIDED, forced):
        _note_contradiction(state, direction_index)
    is_free = forced == framing_state.UNDECIDED
    state.connections.protocol[connection_index] = protocol if is_free else forced
    return False


@inlined
def _note_contradiction(state: FramingState, direction_index: int) -> None:
    """Add a notice: first bytes are clearly not of the protocol that the user chose."""
    first = state.pool.buffers.first[state.directions.buffer[direction_index]]
    row, rows = add_row(state.notices, _READ_AS_ASKED), state.notices.rows
    rows.ts_ns[row] = state.pool.ranges.ts_ns[first]
    rows.connection_id[row] = state.connections.connection_id[direction_index >> 1]
    rows.packet[row] = state.pool.ranges.packet[first]


@inlined
def _add_name(state: FramingState, direction_index: int, verdict: int, at: int, size: int) -> None:
    """Store the position of first bytes that may hold a name (`Detection.read_names`)."""
    naming = state.naming
    row = min(
        state.counters[framing_state.COUNTER_NAMING], len(naming.at) - 1
    )  # the last row is overwritten where the array is full
    state.counters[framing_state.COUNTER_NAMING] = row + 1
    naming.connection_id[row] = state.connections.connection_id[direction_index >> 1]
    naming.verdict[row] = verdict
    naming.at[row] = at
    naming.size[row] = size


@inlined
def _opaque_protocol(context: PassContext, direction_index: int, is_final: bool) -> int:
    """TLS or HTTP, UNDECIDED, or _MORE. Strips PROXY headers."""
    state = context.state
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    if buffers.is_tls[buffer]:
        return framing_state.TLS
    while buffers.size[buffer] > 0:
        at, size = buffers.at[buffer], min(buffers.size[buffer], HEAD_BYTES)
        head = first_bytes.judge_head(state.arena, at, size, buffers.at_start[buffer] != 0)
        if head.verdict == HeadVerdict.IS_PROXY_HEADER:
            _add_name(state, direction_index, head.verdict, at, head.header_bytes)
            drop_bytes(context, direction_index, head.header_bytes)
            buffers.at_start[buffer] = 1
            continue
        needed = (
            HEAD_BYTES
            if head.verdict == HeadVerdict.MORE_NEEDED
            else min(head.header_bytes, HEAD_BYTES)
        )
        if size < needed and not is_final:
            return _MORE  # the rest of a ClientHello may name the server
        if head.verdict == HeadVerdict.IS_TLS:
            _add_name(state, direction_index, head.verdict, at, size)
            return framing_state.TLS
        return (
            framing_state.HTTP if head.verdict == HeadVerdict.IS_HTTP else framing_state.UNDECIDED
        )
    return framing_state.UNDECIDED


@inlined
def _framed_protocol(
    context: PassContext, direction_index: int, forced: int, is_final: bool
) -> int:
    """The protocol of the frame with which a direction begins, UNDECIDED, or _MORE.

    The protocol that the user chose is tried first.
    """
    state, count = context.state, len(context.calls.check)
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    if buffers.at_start[buffer] == 0:
        return framing_state.UNDECIDED
    at, size = buffers.at[buffer], min(buffers.size[buffer], HEADER_WINDOW)
    limit = state.counters[framing_state.COUNTER_FRAME_LIMIT]
    for turn in range(-1, count):
        protocol = forced if turn < 0 else turn
        if turn == forced:
            continue
        verdict = context.calls.check[protocol](state.arena, at, at + size, 2, limit, STRICT)
        if verdict > 0:
            return protocol
        if verdict == 0 and size < HEADER_WINDOW and not is_final:
            return _MORE
    return framing_state.UNDECIDED
