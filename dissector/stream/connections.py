"""Connections: address pairs to rows, opening, ageing, closing, reuse.

The key of a connection is the IP version and both endpoints with the lower one first. Where the
same key is in use behind several tags (VLANs, tunnels), tags.py tells the connections apart.

Every connection is in one list of least recent use: SYN only (nothing but unanswered SYNs, given up
early and first, so that a scan stays cheap), open, or lingering (closed, still owning late packets
of its addresses). A list is sorted by the second of the last packet: a busy connection moves
once per second and not once per packet; time-outs therefore count whole seconds.
"""

from typing import Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import LINGER_MS, NULL, SYN_ONLY_TIMEOUT_MS
from dissector.notices import NOTICE_NUMBER
from dissector.packet.columns import SegmentColumns
from dissector.stream import layout
from dissector.stream.columns import ENDED_IDLE
from dissector.stream.doubt import address_sum
from dissector.stream.index import enter, find_value, leave
from dissector.stream.layout import (
    BITS,
    CLOCK,
    CLOCK_TICK,
    CLOSING,
    CONNECTION_CELLS,
    CONNECTION_CLOSED,
    CONNECTION_DETACHED,
    CONNECTION_ID,
    FOLLOWING,
    KEY_HASH,
    LIST,
    LIST_COUNT,
    LIST_HEAD,
    LIST_LINGERING,
    LIST_OPEN,
    LIST_SYN_ONLY,
    LIST_TAIL,
    PREVIOUS,
    SIDE_CELLS,
    TICK,
)
from dissector.stream.output import note
from dissector.stream.queue import queue_put, queue_remove
from dissector.stream.segment import Segment
from dissector.stream.sequence import mix, scatter
from dissector.stream.state import StreamState

_CONNECTION_LIMIT: Final = NOTICE_NUMBER["connection_limit"]
# Odd multipliers without structure, one per part of a key.
_LOW: Final = 0x2127_599B_F432_5C37
_OTHER_LOW: Final = 0x6A09_E667_F3BC_C909
_PORTS: Final = 0x3C6E_F372_FE94_F82B
_HIGH: Final = 0x1F83_D9AB_FB41_BD6B
_OTHER_HIGH: Final = 0x5BE0_CD19_137E_2179
_TUNNEL: Final = 0x510E_527F_ADE6_82D1
_TAG_MASK: Final = (1 << 62) - 1
_SECOND_NS: Final = 1_000_000_000
_SYN_ONLY_SECONDS: Final = SYN_ONLY_TIMEOUT_MS // 1000
_LINGER_SECONDS: Final = LINGER_MS // 1000


class Key(NamedTuple):
    """An address pair, lower endpoint first, and what was around the packet.

    tag: of tunnel and vlans together; is_upper: 1 if the source is the upper endpoint.
    """

    lower_high: int
    lower_low: int
    upper_high: int
    upper_low: int
    ports: int
    tunnel: int
    vlans: int
    tag: int
    hash: int
    is_upper: int


@inlined
def key_at(segments: SegmentColumns, row: int) -> Key:
    """The key of a segment's connection."""
    high = segments.source_high[row]
    low = segments.source_low[row]
    port = segments.source_port[row]
    other_high = segments.destination_high[row]
    other_low = segments.destination_low[row]
    other_port = segments.destination_port[row]
    is_upper = 0
    if high > other_high or (
        high == other_high and (low > other_low or (low == other_low and port > other_port))
    ):
        is_upper = 1
        high, other_high = other_high, high
        low, other_low = other_low, low
        port, other_port = other_port, port
    ports = (segments.ip_version[row] << 32) | (port << 16) | other_port
    tunnel = segments.tunnel[row]
    vlans = segments.vlans[row]
    value = scatter(low, _LOW) ^ scatter(other_low, _OTHER_LOW) ^ scatter(ports, _PORTS)
    value ^= scatter(high, _HIGH) ^ scatter(other_high, _OTHER_HIGH)
    value = mix(value)
    return Key(
        high,
        low,
        other_high,
        other_low,
        ports,
        tunnel,
        vlans,
        (vlans ^ scatter(tunnel, _TUNNEL)) & _TAG_MASK,
        (value >> 16) & 0xFFFF_FFFF,
        is_upper,
    )


@inlined
def has_key(cells: Int64Array, base: int, key: Key) -> bool:
    """Whether a connection is between the endpoints of a key."""
    return bool(
        cells[base + layout.LOWER_LOW] == key.lower_low
        and cells[base + layout.UPPER_LOW] == key.upper_low
        and cells[base + layout.PORTS] == key.ports
        and cells[base + layout.LOWER_HIGH] == key.lower_high
        and cells[base + layout.UPPER_HIGH] == key.upper_high
    )


@inlined
def find_connection(cells: Int64Array, index: Int64Array, key: Key) -> int:
    """The row of the connection whose last packet from this endpoint had the same tag, or -1."""
    mask = len(index) - 1
    at = key.hash & mask
    while index[at] >= 0:
        base = index[at]
        if has_key(cells, base, key) and cells[base + layout.LOWER_TAG + key.is_upper] == key.tag:
            return int(base)
        at = (at + 1) & mask
    return -1


@inlined
def side_at(base: int, side_no: int) -> int:
    """The address of a side of a connection."""
    return base + CONNECTION_CELLS + side_no * SIDE_CELLS


@kernel
def _detach(state: StreamState, base: int) -> None:
    """Take a connection out of the table: the next packet of its addresses opens another."""
    cells = state.cells
    if cells[base + BITS] & CONNECTION_DETACHED:
        return
    cells[base + BITS] |= CONNECTION_DETACHED
    state.registers[layout.LIVE] -= 1
    state.registers[layout.STEPS] += leave(state.index, cells, KEY_HASH, base)


@kernel
def leave_list(cells: Int64Array, registers: Int64Array, base: int) -> None:
    """Take a connection out of its list of least recent use."""
    kind = cells[base + LIST]
    if kind < 0:
        return
    before = cells[base + PREVIOUS]
    after = cells[base + FOLLOWING]
    if before < 0:
        registers[LIST_HEAD + kind] = after
    else:
        cells[before + FOLLOWING] = after
    if after < 0:
        registers[LIST_TAIL + kind] = before
    else:
        cells[after + PREVIOUS] = before
    cells[base + LIST] = -1
    registers[LIST_COUNT + kind] -= 1


@kernel
def join_list(cells: Int64Array, registers: Int64Array, base: int, kind: int) -> None:
    """Put a connection at the recent end of a list, wherever it was."""
    leave_list(cells, registers, base)
    last = registers[LIST_TAIL + kind]
    cells[base + PREVIOUS] = last
    cells[base + FOLLOWING] = -1
    if last < 0:
        registers[LIST_HEAD + kind] = base
    else:
        cells[last + FOLLOWING] = base
    registers[LIST_TAIL + kind] = base
    cells[base + LIST] = kind
    cells[base + TICK] = registers[CLOCK_TICK]
    registers[LIST_COUNT + kind] += 1


@kernel
def make_ready(state: StreamState, base: int) -> None:
    """Let a connection be looked at before the next packet, in order of connection ids."""
    queue_put(state.ready, state.cells, base + layout.READY, state.cells[base + CONNECTION_ID], 0)


@kernel
def retire(state: StreamState, base: int) -> None:
    """A connection is over and nothing more can come for it: its row may be written."""
    _detach(state, base)
    leave_list(state.cells, state.registers, base)
    for side_no in range(2):
        where = side_at(base, side_no) + layout.TIMER
        queue_remove(state.timers, state.cells, where)
    state.retired[state.registers[layout.RETIRED]] = base
    state.registers[layout.RETIRED] += 1


@kernel
def close_now(state: StreamState, base: int, cause: int) -> None:
    """End a connection whatever it still waits for; a close that was under way keeps its cause."""
    cells = state.cells
    if cells[base + BITS] & CONNECTION_CLOSED:
        retire(state, base)
        return
    _detach(state, base)
    if cells[base + CLOSING] == 0:
        cells[base + CLOSING] = cause + 1
    cells[base + layout.CLOSE_DUE] = -layout.NEVER
    make_ready(state, base)


@kernel
def expire(state: StreamState) -> None:
    """Close what has been silent for too long; at most once per second of capture time."""
    cells = state.cells
    registers = state.registers
    for kind in range(layout.LISTS):
        seconds = registers[layout.IDLE_NS] // _SECOND_NS
        if kind == LIST_SYN_ONLY:
            seconds = min(seconds, _SYN_ONLY_SECONDS)
        elif kind == LIST_LINGERING:
            seconds = min(seconds, _LINGER_SECONDS)
        base = registers[LIST_HEAD + kind]
        while base >= 0 and cells[base + TICK] + seconds < registers[CLOCK_TICK]:
            last = cells[base + layout.LAST_TS]
            if last == NULL or 0 <= registers[CLOCK] - last <= seconds * _SECOND_NS:
                # Its last packet came when the clock did not believe the leap of its time yet, or
                # none of its packets had a time.
                join_list(cells, registers, base, kind)
                base = registers[LIST_HEAD + kind]
                continue
            if kind != LIST_LINGERING:
                leave_list(cells, registers, base)
            close_now(state, base, ENDED_IDLE)
            base = registers[LIST_HEAD + kind]


@kernel
def give_up(state: StreamState, base: int) -> None:
    """End a connection because there are too many."""
    registers = state.registers
    leave_list(state.cells, registers, base)
    registers[layout.GIVEN_UP_CONNECTIONS] += 1
    count = registers[layout.GIVEN_UP_CONNECTIONS]
    # A scan would fill the notices: say it at 1, 2, 4, 8 ... given up.
    if count & (count - 1) == 0:
        note(state, base, _CONNECTION_LIMIT, NULL, NULL, count)
    close_now(state, base, ENDED_IDLE)


@kernel
def _make_room(state: StreamState) -> None:
    """Give up connections until one more fits, the least interesting kind first."""
    registers = state.registers
    brief = registers[layout.BRIEF_LIMIT]
    while registers[LIST_COUNT + LIST_LINGERING] >= brief:
        close_now(state, registers[LIST_HEAD + LIST_LINGERING], ENDED_IDLE)
    while (
        registers[LIST_COUNT + LIST_SYN_ONLY] >= brief
        or registers[layout.LIVE] >= registers[layout.CONNECTION_LIMIT]
    ):
        if registers[LIST_COUNT + LIST_SYN_ONLY] >= brief:
            base = registers[LIST_HEAD + LIST_SYN_ONLY]
        elif registers[LIST_COUNT + LIST_LINGERING] > 0:
            close_now(state, registers[LIST_HEAD + LIST_LINGERING], ENDED_IDLE)
            continue
        elif registers[LIST_COUNT + LIST_SYN_ONLY] > 0:
            base = registers[LIST_HEAD + LIST_SYN_ONLY]
        else:
            base = registers[LIST_HEAD + LIST_OPEN]
        give_up(state, base)


@kernel
def open_connection(state: StreamState, key: Key, segment: Segment) -> int:
    """A row for a new connection, entered everywhere; the caller has seen to a free row.

    The sender becomes side 0, unless it answers (SYN and ACK): then the opener was not captured
    and the sender is side 1.
    """
    _make_room(state)
    cells = state.cells
    registers = state.registers
    base = registers[layout.FREE_ROW]
    registers[layout.FREE_ROW] = cells[base + FOLLOWING]
    registers[layout.FREE_ROWS] -= 1
    for place in range(base, base + layout.ROW_CELLS):
        cells[place] = 0
    cells[base + layout.LOWER_HIGH] = key.lower_high
    cells[base + layout.LOWER_LOW] = key.lower_low
    cells[base + layout.UPPER_HIGH] = key.upper_high
    cells[base + layout.UPPER_LOW] = key.upper_low
    cells[base + layout.PORTS] = key.ports
    for place in range(2):
        cells[base + layout.LOWER_TAG + place] = layout.NO_TAG
        cells[base + layout.LOWER_OTHER_TAG + place] = layout.NO_TAG
    cells[base + KEY_HASH] = key.hash
    cells[base + layout.ADDRESS_SUM] = address_sum(
        key.lower_high, key.lower_low, key.upper_high, key.upper_low
    )
    cells[base + CONNECTION_ID] = registers[layout.NEXT_ID]
    registers[layout.NEXT_ID] += 1
    _clear_connection(cells, base, segment)
    is_answer = (segment.flags & (layout.TCP_SYN | layout.TCP_ACK)) == (
        layout.TCP_SYN | layout.TCP_ACK
    )
    bits = key.is_upper ^ 1 if is_answer else key.is_upper
    if segment.flags & layout.TCP_SYN:
        bits |= layout.CONNECTION_FROM_SYN
    cells[base + BITS] = bits
    is_syn_only = (segment.flags & layout.TCP_SYN) != 0 and not is_answer
    cells[base + layout.ID_HASH] = mix(cells[base + CONNECTION_ID])
    registers[layout.STEPS] += enter(state.index, base, key.hash)
    registers[layout.STEPS] += enter(state.ids, base, cells[base + layout.ID_HASH])
    registers[layout.LIVE] += 1
    join_list(cells, registers, base, LIST_SYN_ONLY if is_syn_only else LIST_OPEN)
    return int(base)


@kernel
def _clear_connection(cells: Int64Array, base: int, segment: Segment) -> None:
    cells[base + layout.SLOW] = layout.SLOW_START
    cells[base + layout.FIRST_TS] = segment.ts_ns
    cells[base + layout.LAST_TS] = segment.ts_ns
    cells[base + layout.FIRST_PACKET] = segment.packet
    cells[base + layout.LAST_PACKET] = segment.packet
    cells[base + layout.CLOSED_FIRST] = -1
    cells[base + layout.OPENER] = -1
    cells[base + layout.SYN_TS] = NULL
    cells[base + layout.HANDSHAKE_RTT] = NULL
    cells[base + LIST] = -1
    for side_no in range(2):
        side = side_at(base, side_no)
        for level in range(layout.LEVELS):
            cells[side + layout.HEAD + level] = -1
            cells[side + layout.TAIL + level] = -1
        cells[side + layout.RANGE_PACKET] = NULL
        cells[side + layout.RANGE_TS] = NULL
        cells[side + layout.LAST_TSVAL] = -1
        cells[side + layout.LAST_IP_ID] = NULL
        cells[side + layout.ISN] = NULL
        cells[side + layout.FIRST_SEQ] = NULL
        cells[side + layout.ZERO_SINCE] = NULL
        cells[side + layout.PROGRESS] = -layout.NEVER
        cells[side + layout.COVERED] = -layout.NEVER


@inlined
def touch(state: StreamState, base: int) -> None:
    """A packet of the connection was seen: move it to the recent end, once per second."""
    if state.cells[base + TICK] != state.registers[CLOCK_TICK]:
        kind = state.cells[base + LIST]
        if kind >= 0:
            join_list(state.cells, state.registers, base, kind)


@inlined
def set_clock(state: StreamState, ts_ns: int, leap_ns: int) -> None:
    """Advance the processing clock: the largest capture time so far.

    One damaged time stamp far in the future would end every wait and every connection at once, so
    a leap of more than `leap_ns` counts only when the next packet confirms it.
    """
    registers = state.registers
    if ts_ns == NULL or ts_ns <= registers[CLOCK]:
        registers[layout.LEAP_TS] = -layout.NEVER
        return
    if registers[CLOCK] != -layout.NEVER and ts_ns > registers[CLOCK] + leap_ns:
        if registers[layout.LEAP_TS] == -layout.NEVER:
            registers[layout.LEAP_TS] = ts_ns
            return
        ts_ns = min(ts_ns, registers[layout.LEAP_TS])
    registers[layout.LEAP_TS] = -layout.NEVER
    registers[CLOCK] = ts_ns
    registers[CLOCK_TICK] = ts_ns // _SECOND_NS
    registers[layout.TICK_END] = (registers[CLOCK_TICK] + 1) * _SECOND_NS


@kernel
def find_slots(state: StreamState, connection_ids: Int64Array, slots: Int64Array) -> None:
    """Write the row numbers of connections to `slots`, -1 for unknown ones."""
    for place in range(len(connection_ids)):
        value = mix(connection_ids[place])
        base = find_value(state.ids, state.cells, layout.ID_HASH, value)
        # Hashes of ids tell those apart that were given, and no negative number was.
        is_known = base >= 0 and connection_ids[place] >= 0
        slots[place] = base // layout.ROW_CELLS if is_known else -1
