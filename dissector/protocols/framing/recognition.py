"""Decide a connection's protocol where options, TLS, HTTP or a PROXY header decide it.

What the user says of a port, or of all connections, decides before any content, as in Wireshark:
the connection is read so, whatever that gives. Where its first bytes are plainly another
protocol's, a notice says so. A PROXY header is no content, and comes off first.
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
_MORE: Final = -2  # the next bytes tell
_READ_AS_ASKED: Final = NOTICE_NUMBER["read_as_asked"]


@inlined
def has_broker_port(state: FramingState, connection_index: int) -> bool:
    """Whether a port of a connection is one of a known protocol's."""
    ports = state.connections.ports[connection_index]
    hints = state.port_hints[ports >> 16] | state.port_hints[ports & 0xFFFF]
    return bool(hints & framing_state.PORT_OF_BROKER)


@inlined
def _asked(state: FramingState, connection_index: int) -> int:
    """The protocol that the user says a connection speaks, or UNDECIDED."""
    ports = state.connections.ports[connection_index]
    by_port = state.port_hints[ports >> 16] >> framing_state.PROTOCOL_SHIFT
    if by_port == 0:
        by_port = state.port_hints[ports & 0xFFFF] >> framing_state.PROTOCOL_SHIFT
    return int(by_port if by_port > 0 else state.counters[framing_state.COUNTER_ONLY]) - 1


@kernel
def recognise(work: PassContext, direction_index: int, is_final: bool) -> bool:
    """Set the protocol if a direction's first bytes, or an option, decide it.

    Returns:
        Whether there must be more bytes to judge them.
    """
    state, connection_index = work.state, direction_index >> 1
    asked = framing_state.UNDECIDED
    if state.counters[framing_state.COUNTER_IS_ASKED]:
        asked = _asked(state, connection_index)
    protocol = _opaque(work, direction_index, is_final)
    if protocol == framing_state.UNDECIDED and asked != framing_state.UNDECIDED:
        protocol = _begun(work, direction_index, asked, is_final)
    if protocol == _MORE:
        return True
    if asked != framing_state.UNDECIDED and protocol not in (framing_state.UNDECIDED, asked):
        _note_contradiction(state, direction_index)
    state.connections.protocol[connection_index] = (
        protocol if asked == framing_state.UNDECIDED else asked
    )
    return False


@inlined
def _note_contradiction(state: FramingState, direction_index: int) -> None:
    """First bytes are plainly not of the protocol that was asked for."""
    first = state.pool.buffers.first[state.directions.buffer[direction_index]]
    row, rows = add_row(state.notices, _READ_AS_ASKED), state.notices.rows
    rows.ts_ns[row] = state.pool.ranges.ts_ns[first]
    rows.connection_id[row] = state.connections.connection_id[direction_index >> 1]
    rows.packet[row] = state.pool.ranges.packet[first]


@inlined
def _add_name(state: FramingState, direction_index: int, verdict: int, at: int, size: int) -> None:
    """First bytes may name somebody: whoever reads texts looks at them."""
    naming = state.naming
    row = min(
        state.counters[framing_state.COUNTER_NAMING], len(naming.at) - 1
    )  # the last ones, of many at once
    state.counters[framing_state.COUNTER_NAMING] = row + 1
    naming.connection_id[row] = state.connections.connection_id[direction_index >> 1]
    naming.verdict[row] = verdict
    naming.at[row] = at
    naming.size[row] = size


@inlined
def _opaque(work: PassContext, direction_index: int, is_final: bool) -> int:
    """TLS or HTTP, UNDECIDED, or _MORE. Takes PROXY headers off."""
    state = work.state
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    if buffers.is_tls[buffer]:
        return framing_state.TLS
    while buffers.size[buffer] > 0:
        at, size = buffers.at[buffer], min(buffers.size[buffer], HEAD_BYTES)
        head = first_bytes.judge_head(state.arena, at, size, buffers.at_start[buffer] != 0)
        if head.verdict == HeadVerdict.IS_PROXY_HEADER:
            _add_name(state, direction_index, head.verdict, at, head.header_bytes)
            drop_bytes(work, direction_index, head.header_bytes)
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
def _begun(work: PassContext, direction_index: int, asked: int, is_final: bool) -> int:
    """The protocol of the frame with which a direction begins, UNDECIDED, or _MORE.

    The one that the user named comes first.
    """
    state, count = work.state, len(work.calls.check)
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    if buffers.at_start[buffer] == 0:
        return framing_state.UNDECIDED
    at, size = buffers.at[buffer], min(buffers.size[buffer], HEADER_WINDOW)
    limit = state.counters[framing_state.COUNTER_FRAME_LIMIT]
    for turn in range(-1, count):
        protocol = asked if turn < 0 else turn
        if turn == asked:
            continue
        judged = work.calls.check[protocol](state.arena, at, at + size, 2, limit, STRICT)
        if judged > 0:
            return protocol
        if judged == 0 and size < HEADER_WINDOW and not is_final:
            return _MORE
    return framing_state.UNDECIDED
