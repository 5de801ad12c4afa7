"""Cut in-order stream ranges into length-prefixed frames.

Theory. A direction is in one of four modes (framing_state). CHAIN is the rule: where a frame ends
the next begins. A frame that lies in one range is taken where it lies; one that straddles ranges is
put together in the arena, which grows with the bytes that arrive, never by the length announced.
A gap inside a frame whose length is known leaves the chain intact: the frame's end is known in
sequence space, the frame comes out with what is known of it, and the next header is checked
strictly. A gap over a header, or a header that cannot be one, ends the chain: SEARCH. What is rare
(the first bytes of a connection, SEARCH, frames that wait for the role) is not done here: the
kernel returns ATTENTION or ROLE_WAIT and `protocols.assembly` does it.

A protocol takes part with four callbacks, see `protocols.interface`.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import MAX_FRAME_BYTES_HARD, NULL
from dissector.protocols.columns import (
    COMPLETE,
    CUT_BY_END,
    CUT_BY_GAP,
    CUT_BY_SNAPLEN,
    EVENT_CLOSE,
    EVENT_FIN,
    EVENT_GAP,
    FrameColumns,
)
from dissector.protocols.framing_state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    COUNTER_ARENA_USED,
    COUNTER_ARENA_WANTED,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_FRAME_NO,
    COUNTER_POSITION,
    DONE,
    FULL,
    HEAD,
    OPAQUE,
    ROLE_BY_COMMAND,
    ROLE_DECIDED,
    ROLE_PROVISIONAL,
    ROLE_WAIT,
    SEARCH,
    SLOTS_FULL,
    UNDECIDED,
    FramingState,
)
from dissector.protocols.slots import find_slot, take_slot
from dissector.stream.columns import (
    CLOSE,
    DATA,
    FIN,
    GAP_CUT,
    OPEN,
    RETRANSMITTED,
    RangeColumns,
)

# Bytes that are gathered before a header that straddles ranges is looked at again; no protocol
# needs more to tell a header.
HEADER_WINDOW = 64
ARENA_STEP = 4096

SOURCE_ARENA = 3


class Callbacks(NamedTuple):
    """The compiled callbacks of all protocols, each a tuple with one entry per place.

    check: (data, offset, end, direction, limit, is_strict) -> frame bytes, 0 more needed, -1 no;
    one_way: (data, offset, end) -> 0 to_broker, 1 to_client, 2 either; limit: (data, offset,
    length) -> frame limit that this frame announces, 0 none.
    """

    check: tuple  # type: ignore[type-arg]
    one_way: tuple  # type: ignore[type-arg]
    limit: tuple  # type: ignore[type-arg]


class Step(NamedTuple):
    """How far a helper came: bytes of the range taken, rows filled, status."""

    position: int
    filled: int
    status: int


@inlined
def direction_of(state: FramingState, slot: int, side: int) -> int:
    """0 to_broker, 1 to_client, 2 while the role is open."""
    if state.connections.role[slot] != ROLE_DECIDED:
        return 2
    return 0 if state.connections.client_side[slot] == side else 1


@inlined
def _start_frame(
    state: FramingState, way: int, ranges: RangeColumns, index: int, position: int
) -> None:
    ways = state.directions
    ways.frame_start[way] = ranges.stream_offset[index] + position
    ways.first_packet[way] = ranges.packet[index]
    ways.first_ts[way] = ranges.ts_ns[index]
    ways.last_packet[way] = ranges.packet[index]
    ways.last_ts[way] = ranges.ts_ns[index]
    ways.retransmitted[way] = ranges.flags[index] & RETRANSMITTED


@inlined
def _touch(state: FramingState, way: int, ranges: RangeColumns, index: int) -> None:
    ways = state.directions
    if ranges.packet[index] >= ways.last_packet[way]:
        ways.last_packet[way] = ranges.packet[index]
        ways.last_ts[way] = ranges.ts_ns[index]
    ways.retransmitted[way] |= ranges.flags[index] & RETRANSMITTED


@inlined
def _emit_event(
    state: FramingState,
    out: FrameColumns,
    row: int,
    slot: int,
    ranges: RangeColumns,
    index: int,
    command: int,
) -> None:
    side = ranges.side[index]
    out.connection_id[row] = ranges.connection[index]
    out.side[row] = side
    out.direction[row] = direction_of(state, slot, side)
    out.protocol[row] = state.connections.protocol[slot]
    out.command[row] = command
    out.first_ts_ns[row] = ranges.ts_ns[index]
    out.last_ts_ns[row] = ranges.ts_ns[index]
    out.first_packet[row] = ranges.packet[index]
    out.last_packet[row] = ranges.packet[index]
    out.release_packet[row] = ranges.release_packet[index]
    out.stream_offset[row] = ranges.stream_offset[index]
    out.frame_bytes[row] = ranges.length[index]
    out.status[row] = ranges.cause[index]
    out.retransmitted[row] = 0
    out.frame_no[row] = NULL
    out.source[row] = 0
    out.data_offset[row] = 0
    out.data_bytes[row] = 0


@inlined
def _emit(
    state: FramingState,
    out: FrameColumns,
    row: int,
    way: int,
    frame_bytes: int,
    status: int,
    release_packet: int,
) -> None:
    """Write the row of a frame; place and bytes of the data are set by the caller."""
    ways = state.directions
    slot = way >> 1
    side = way & 1
    state.counters[COUNTER_FRAME_NO] += 1
    out.connection_id[row] = state.connections.connection_id[slot]
    out.side[row] = side
    out.direction[row] = direction_of(state, slot, side)
    out.protocol[row] = state.connections.protocol[slot]
    out.command[row] = NULL
    out.first_ts_ns[row] = ways.first_ts[way]
    out.last_ts_ns[row] = ways.last_ts[way]
    out.first_packet[row] = ways.first_packet[way]
    out.last_packet[row] = ways.last_packet[way]
    out.release_packet[row] = release_packet
    out.stream_offset[row] = ways.frame_start[way]
    out.frame_bytes[row] = frame_bytes
    out.status[row] = status
    out.retransmitted[row] = ways.retransmitted[way]
    out.frame_no[row] = state.counters[COUNTER_FRAME_NO]
    ways.frames[way] += 1
    ways.is_first[way] = 0
    if status == COMPLETE:
        ways.decoded_bytes[way] += frame_bytes


@inlined
def _settle_role(
    state: FramingState, way: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> int:
    """Let a frame decide the role; DONE, or ROLE_WAIT if its row (or rows before it) must wait."""
    known = state.connections
    slot = way >> 1
    if known.role[slot] == ROLE_DECIDED:
        return DONE
    way_of_frame = calls.one_way[known.protocol[slot]](data, at, end)
    if way_of_frame == 2:
        return ROLE_WAIT
    client_side = (way & 1) if way_of_frame == 0 else 1 - (way & 1)
    if known.role[slot] == ROLE_PROVISIONAL and client_side == known.client_side[slot]:
        known.role[slot] = ROLE_DECIDED
        return ROLE_WAIT if known.waiting[slot] > 0 else DONE
    was_provisional = known.role[slot] == ROLE_PROVISIONAL
    known.role[slot] = ROLE_DECIDED
    known.client_side[slot] = client_side
    known.role_source[slot] = ROLE_BY_COMMAND
    # A contradiction of the SYN is a notice, which the slow path writes.
    return ROLE_WAIT if was_provisional or known.waiting[slot] > 0 else DONE


@inlined
def _learn_limit(
    state: FramingState, way: int, data: ByteArray, at: int, length: int, calls: Callbacks
) -> None:
    """Take over the frame limit that a broker announces; only looked for in its first frames."""
    ways = state.directions
    if ways.frames[way] > 8:
        return
    announced = calls.limit[state.connections.protocol[way >> 1]](data, at, length)
    if announced > 0:
        for each in range(way & ~1, (way & ~1) + 2):
            ways.limit[each] = min(max(announced, ways.limit[each]), MAX_FRAME_BYTES_HARD)


@inlined
def _finish(
    state: FramingState,
    out: FrameColumns,
    row: int,
    way: int,
    status: int,
    release_packet: int,
    calls: Callbacks,
) -> int:
    """Emit the unfinished frame of the arena as it is and make the direction ready for the next.

    Returns DONE or ROLE_WAIT.
    """
    ways = state.directions
    at = ways.arena_at[way]
    have = ways.have[way]
    total = ways.total[way]
    _emit(state, out, row, way, total, status, release_packet)
    out.source[row] = SOURCE_ARENA
    out.data_offset[row] = at
    out.data_bytes[row] = have
    settled = _settle_role(state, way, state.arena, at, at + have, calls)
    out.direction[row] = direction_of(state, way >> 1, way & 1)
    if status == COMPLETE:
        _learn_limit(state, way, state.arena, at, have, calls)
        ways.verify[way] = 0
    else:
        ways.verify[way] = 1
    ways.total[way] = 0
    ways.have[way] = 0
    ways.arena_room[way] = 0
    ways.broken[way] = 0
    ways.skip[way] = 0
    return settled


@inlined
def _make_room(state: FramingState, way: int, wanted: int) -> bool:
    """Room for so many bytes of the unfinished frame in the arena; False if the arena is full."""
    ways = state.directions
    if ways.arena_room[way] >= wanted:
        return True
    have = ways.have[way]
    room = max(wanted, min(2 * have, have + (1 << 20)), HEADER_WINDOW)
    used = state.counters[COUNTER_ARENA_USED]
    if used + room > len(state.arena):
        state.counters[COUNTER_ARENA_WANTED] = room
        return False
    if have > 0 and ways.arena_at[way] + ways.arena_room[way] == used:
        # The last piece of the arena grows where it is.
        used = ways.arena_at[way]
        if used + room > len(state.arena):
            state.counters[COUNTER_ARENA_WANTED] = room
            return False
    else:
        at = ways.arena_at[way]
        for index in range(have):
            state.arena[used + index] = state.arena[at + index]
    ways.arena_at[way] = used
    ways.arena_room[way] = room
    state.counters[COUNTER_ARENA_USED] = used + room
    return True


@inlined
def _append(state: FramingState, way: int, data: ByteArray, at: int, count: int) -> None:
    ways = state.directions
    target = ways.arena_at[way] + ways.have[way]
    for index in range(count):
        state.arena[target + index] = data[at + index]
    ways.have[way] += count


@kernel
def _take_data(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    position: int,
    data: ByteArray,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """Take the bytes of one DATA range of a direction in CHAIN, from a position on."""
    ways = state.directions
    slot = find_slot(state, ranges.connection[index])
    way = 2 * slot + ranges.side[index]
    length = ranges.length[index]
    base = ranges.offset[index]
    release = ranges.release_packet[index]
    protocol = state.connections.protocol[slot]
    check = calls.check[protocol]
    while position < length:
        if filled >= len(out.command):
            return Step(position, filled, FULL)
        left = length - position
        settled = DONE
        if ways.skip[way] > 0:
            count = min(left, ways.skip[way])
            ways.skip[way] -= count
            _touch(state, way, ranges, index)
            position += count
            if ways.skip[way] == 0:
                settled = _finish(state, out, filled, way, ways.broken[way], release, calls)
                filled += 1
        elif ways.have[way] > 0:
            had = ways.have[way]
            total = ways.total[way]
            count = min(left, HEADER_WINDOW - had if total == 0 else total - had)
            if not _make_room(state, way, had + count):
                return Step(position, filled, ARENA_FULL)
            _append(state, way, data, base + position, count)
            _touch(state, way, ranges, index)
            if total == 0:
                at = ways.arena_at[way]
                total = check(
                    state.arena,
                    at,
                    at + had + count,
                    direction_of(state, slot, way & 1),
                    ways.limit[way],
                    ways.verify[way],
                )
                if total < 0 or (total == 0 and had + count >= HEADER_WINDOW):
                    ways.have[way] = had
                    return Step(position, filled, ATTENTION)
                ways.total[way] = total
                if 0 < total < had + count:
                    count = total - had
                    ways.have[way] = total
            position += count
            if total > 0 and ways.have[way] == total:
                settled = _finish(state, out, filled, way, COMPLETE, release, calls)
                filled += 1
        else:
            total = check(
                data,
                base + position,
                base + length,
                direction_of(state, slot, way & 1),
                ways.limit[way],
                ways.verify[way],
            )
            if total < 0 or (total == 0 and left >= HEADER_WINDOW):
                return Step(position, filled, ATTENTION)
            _start_frame(state, way, ranges, index, position)
            if 0 < total <= left:
                _emit(state, out, filled, way, total, COMPLETE, release)
                source = ranges.source[index]
                out.source[filled] = source
                out.data_offset[filled] = base + position
                out.data_bytes[filled] = total
                if state.connections.role[slot] != ROLE_DECIDED:
                    settled = _settle_role(
                        state, way, data, base + position, base + position + total, calls
                    )
                    out.direction[filled] = direction_of(state, slot, way & 1)
                if ways.frames[way] <= 8:
                    _learn_limit(state, way, data, base + position, total, calls)
                ways.verify[way] = 0
                filled += 1
                position += total
            else:
                if not _make_room(state, way, left):
                    return Step(position, filled, ARENA_FULL)
                _append(state, way, data, base + position, left)
                ways.total[way] = total
                position = length
        if settled == ROLE_WAIT:
            return Step(position, filled, ROLE_WAIT)
    return Step(position, filled, DONE)


@inlined
def _announced_total(state: FramingState, way: int) -> int:
    """The length of an unfinished frame by its first four bytes, 0 if they are not there or odd."""
    ways = state.directions
    if ways.total[way] > 0 or ways.have[way] < 4:
        return ways.total[way]
    at = ways.arena_at[way]
    announced = 0
    for index in range(4):
        announced = announced * 256 + state.arena[at + index]
    if announced < 4 or announced + 4 > ways.limit[way]:
        return 0
    return announced + 4


@kernel
def _take_gap(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """Take a gap in a direction in CHAIN: an event row, and at most one cut frame before it."""
    ways = state.directions
    slot = find_slot(state, ranges.connection[index])
    way = 2 * slot + ranges.side[index]
    length = ranges.length[index]
    is_cut = ranges.kind[index] == GAP_CUT
    status = CUT_BY_SNAPLEN if is_cut else CUT_BY_GAP
    settled = DONE
    if ways.have[way] == 0 and ways.skip[way] == 0:
        ways.mode[way] = SEARCH
    else:
        if ways.broken[way] == 0:
            ways.total[way] = _announced_total(state, way)
            ways.broken[way] = status
            ways.skip[way] = ways.total[way] - ways.have[way]
        if ways.total[way] == 0:
            # One to three bytes of a header, or no header: no frame, only bytes.
            ways.have[way] = 0
            ways.broken[way] = 0
            ways.skip[way] = 0
            ways.mode[way] = SEARCH
        else:
            if is_cut:
                _touch(state, way, ranges, index)
            remaining = ways.skip[way]
            if length < remaining:
                ways.skip[way] = remaining - length
            else:
                settled = _finish(
                    state, out, filled, way, ways.broken[way], ranges.release_packet[index], calls
                )
                filled += 1
                if length > remaining:
                    ways.mode[way] = SEARCH
    if settled == ROLE_WAIT:
        # The gap's own event comes when the kernel is called again for this range.
        return Step(-1, filled, ROLE_WAIT)
    return Step(0, filled, DONE)


@kernel
def _take_close(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """End a connection: its unfinished frames as cut_by_end, then the event."""
    ways = state.directions
    slot = find_slot(state, ranges.connection[index])
    first = state.connections.client_side[slot]
    for turn in range(2):
        way = 2 * slot + (first if turn == 0 else 1 - first)
        if ways.mode[way] == CHAIN and ways.have[way] > 0:
            total = _announced_total(state, way)
            status = ways.broken[way] if ways.broken[way] > 0 else CUT_BY_END
            ways.mode[way] = OPAQUE
            if total > 0:
                ways.total[way] = total
                settled = _finish(
                    state, out, filled, way, status, ranges.release_packet[index], calls
                )
                filled += 1
                if settled == ROLE_WAIT:
                    return Step(-1, filled, ROLE_WAIT)
    if state.connections.waiting[slot] > 0:
        return Step(-1, filled, ATTENTION)
    _emit_event(state, out, filled, slot, ranges, index, EVENT_CLOSE)
    return Step(0, filled + 1, DONE)


@inlined
def _begin_chain(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    data: ByteArray,
    slot: int,
    way: int,
    calls: Callbacks,
) -> bool:
    """Whether the first bytes of a direction start a chain at once: no doubt, no slow path.

    So it is where the connection was seen from its SYN and its first bytes are a strict header.
    """
    known = state.connections
    ways = state.directions
    if known.is_from_syn[slot] == 0 or ranges.stream_offset[index] != 0 or known.is_slow[slot]:
        return False
    base = ranges.offset[index]
    end = base + ranges.length[index]
    protocol = known.protocol[slot]
    if protocol >= len(calls.check):
        return False
    if protocol != UNDECIDED:
        return calls.check[protocol](data, base, end, 2, ways.limit[way], 1) > 0
    for place in range(len(calls.check)):
        if calls.check[place](data, base, end, 2, ways.limit[way], 1) > 0:
            known.protocol[slot] = place
            return True
    return False


@kernel
def split(
    state: FramingState,
    ranges: RangeColumns,
    rows: int,
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray],
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> tuple[int, int]:
    """Turn ranges into frames from the cursor on (state.counters).

    Args:
        sources: input buffer, stream heap, side buffer, arena; chosen by ranges.source.
        out: rows from `filled` on are written.

    Returns:
        rows filled in all, and a status: DONE, FULL, ARENA_FULL, SLOTS_FULL, ATTENTION, ROLE_WAIT.
    """
    index = state.counters[COUNTER_CURSOR]
    position = state.counters[COUNTER_POSITION]
    status = DONE
    limit = len(out.command) - 4
    while index < rows and status == DONE:
        if filled >= limit:
            status = FULL
            break
        kind = ranges.kind[index]
        slot = find_slot(state, ranges.connection[index])
        if slot < 0:
            slot = take_slot(
                state, ranges.connection[index], ranges.cause[index] & 1, state.counters[COUNTER_FRAME_LIMIT]
            )
            if slot < 0:
                status = SLOTS_FULL
                break
        if kind == OPEN:
            index += 1
            continue
        way = 2 * slot + ranges.side[index]
        mode = state.directions.mode[way]
        if kind == CLOSE:
            if state.connections.is_slow[slot]:
                status = ATTENTION
                break
            step = _take_close(state, ranges, index, out, filled, calls)
        elif kind == FIN:
            _emit_event(state, out, filled, slot, ranges, index, EVENT_FIN)
            step = Step(0, filled + 1, DONE)
        elif mode == OPAQUE:
            step = Step(0, filled, DONE)
        elif kind == DATA:
            data = sources[ranges.source[index]]
            state.directions.is_seen[way] = 1
            if mode == HEAD and _begin_chain(state, ranges, index, data, slot, way, calls):
                state.directions.mode[way] = CHAIN
                mode = CHAIN
            if mode != CHAIN:
                status = ATTENTION
                break
            step = _take_data(state, ranges, index, position, data, out, filled, calls)
            if step.status == DONE:
                position = 0
        elif mode == CHAIN:
            step = Step(0, filled, DONE)
            if position == 0:
                step = _take_gap(state, ranges, index, out, filled, calls)
            if step.status == DONE:
                _emit_event(state, out, step.filled, slot, ranges, index, EVENT_GAP)
                step = Step(0, step.filled + 1, DONE)
        else:
            status = ATTENTION
            break
        filled = step.filled
        status = step.status
        position = step.position
        if status == DONE:
            position = 0
            index += 1
    state.counters[COUNTER_CURSOR] = index
    state.counters[COUNTER_POSITION] = position
    return filled, status
