"""The first ranges of connections that began before the capture, while they decide nothing.

A tap on a busy port sees many connections from within, and a few ranges of each direction until a
chain of frames can be believed. The splitting kernel keeps these ranges: bytes in the arena, and a
row of a pool for each. With each further range all of them are searched from the beginning, which
is cheap as long as they are few and the steps of all searches are bounded, so that no search must
be kept. Where a chain is believed, the ranges of the connection go through the kernel once more
(`take_openings`), as soon as that of the other direction is believed if it has begun. Where
anything else may be decided, they become runs (`unsynchronised`), as they would have been from the
first one on: what comes out is the same.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import (
    MAX_HEAD_BYTES,
    MOST_OPENING_BYTES,
    MOST_OPENING_RANGES,
    MOST_OPENING_STEPS,
)
from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.first_bytes import IN_A_ROW, MAY_BE_OTHER, NEXT, follow_records
from dissector.protocols.framing.gathering import DROPPED_BYTES
from dissector.protocols.framing.replays import PIECE_BYTES, Pieces, Replay
from dissector.protocols.framing.resync import (
    AT,
    BEGAN_AT,
    CONFIRMED_AT,
    HOLD_NS,
    PIECES,
    RESUME,
    SIZE,
    STEPS,
    SURE_FRAMES,
    Rule,
    Searched,
    find_chain,
    has_some,
    is_believed,
    is_confirmed_by_packets,
)
from dissector.protocols.framing.row_output import (
    SOURCE_ARENA,
    Splitting,
    append_bytes,
    direction_of,
    make_room,
)
from dissector.protocols.framing.state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    CHAIN_FOUND,
    CONFIRMED,
    COUNTER_ARRIVALS,
    COUNTER_IS_ASKED,
    COUNTER_OPENING_BYTES,
    COUNTER_OPENING_LIMIT,
    DONE,
    FOUND,
    HELD,
    KEPT,
    NO_OPENING,
    NOT_CONFIRMED,
    OPAQUE,
    OPENINGS_FULL,
    UNDECIDED,
    WAITING,
    FramingState,
)
from dissector.stream.columns import STARTS_PACKET, RangeColumns
from dissector.tables import allocate_row, give_row

_NONE: Final = -1  # no protocol

# Bytes before a chain are dropped from longer runs only (`gathering.is_worth_dropping`).
assert 2 * MOST_OPENING_BYTES <= DROPPED_BYTES


class _Found(NamedTuple):
    """What a search of a direction found.

    protocol: whose chain is believed, or _NONE; searched: that was searched last; at: where its
    chain begins; resume: bytes before it start no frame of any protocol; is_live: there is a chain;
    is_sure: and it has some frames; is_confirmed: packets confirm what is believed.
    """

    protocol: int
    searched: int
    at: int
    resume: int
    is_live: bool
    is_sure: bool
    is_confirmed: bool


@inlined
def _has_openings(state: FramingState, flow: int) -> bool:
    """Whether first ranges of a direction or of the other one are kept."""
    opening = state.flows.opening
    return bool(opening[flow] != NO_OPENING or opening[flow ^ 1] != NO_OPENING)


@inlined
def _waits_too_long(state: FramingState, flow: int, ts_ns: int) -> bool:
    """Whether a direction has waited for the other one's chain as long as it may, by time."""
    return bool(ts_ns - state.openings.pieces.ts_ns[state.flows.first_row[flow]] > HOLD_NS)


@inlined
def _may_be_kept(work: Splitting, index: int, flow: int, data: ByteArray) -> bool:
    """Whether a range, the first of a direction or behind others that are kept, may be kept."""
    state, ranges = work.state, work.ranges
    flows, known, counters = state.flows, state.connections, state.counters
    slot, length, have = flow >> 1, ranges.length[index], flows.have[flow]
    opening, other = flows.opening[flow], flows.opening[flow ^ 1]
    is_open = known.protocol[slot] == UNDECIDED
    if known.is_from_syn[slot] or counters[COUNTER_IS_ASKED]:
        return False
    if not is_open and opening != WAITING and other != WAITING:
        return False
    if known.is_slow[slot] and opening == NO_OPENING and other == NO_OPENING:
        return False
    if opening == WAITING and _waits_too_long(state, flow, ranges.ts_ns[index]):
        return False
    held = counters[COUNTER_OPENING_BYTES] + length + PIECE_BYTES
    if held > counters[COUNTER_OPENING_LIMIT] or have + length > MOST_OPENING_BYTES:
        return False
    if length == 0 or flows.opening_ranges[flow] >= MOST_OPENING_RANGES:
        return False
    if opening == KEPT and flows.opening_steps[flow] > MOST_OPENING_STEPS:
        return False
    first = state.arena[flows.arena_at[flow]] if have > 0 else data[ranges.offset[index]]
    return bool(not is_open or MAY_BE_OTHER[first] == 0)


@inlined
def _append_row(work: Splitting, index: int, flow: int) -> None:
    """Add a range to those of a direction; its bytes are appended already."""
    ranges, openings, flows = work.ranges, work.state.openings, work.state.flows
    row, pieces = allocate_row(openings.free), openings.pieces
    pieces.matrix[row, :] = 0
    pieces.stream_offset[row] = ranges.stream_offset[index]
    pieces.length[row] = ranges.length[index]
    pieces.packet[row] = ranges.packet[index]
    pieces.ts_ns[row] = ranges.ts_ns[index]
    pieces.flags[row] = ranges.flags[index]
    pieces.order[row] = work.state.counters[COUNTER_ARRIVALS] + 1
    if flows.opening_ranges[flow] == 0:
        flows.first_row[flow] = row
    else:
        openings.next_row[flows.last_row[flow]] = row
    flows.last_row[flow] = row
    flows.opening_ranges[flow] += 1


@inlined
def _searched(state: FramingState, flow: int) -> Searched:
    """What is kept of a direction, as a search sees it; its marks are cleared."""
    flows, openings = state.flows, state.openings
    size, at, row = flows.have[flow], flows.arena_at[flow], flows.first_row[flow]
    for piece in range(flows.opening_ranges[flow]):
        for cell in range(openings.row_pieces.matrix.shape[1]):
            openings.row_pieces.matrix[piece, cell] = openings.pieces.matrix[row, cell]
        row = openings.next_row[row]
    for index in range(size):
        openings.marks[index] = 0
    data = state.arena[at : at + size]
    return Searched(data, openings.marks, openings.cells, openings.holes, openings.row_pieces)


@kernel
def _search(
    work: Splitting, flow: int, protocols: tuple[int, int], ts_ns: int, is_final: int
) -> _Found:
    """Search what is kept of a direction.

    Args:
        protocols: the first, and the one behind the last; ts_ns: now; is_final: no byte follows.
    """
    state, calls = work.state, work.calls
    flows = state.flows
    run = _searched(state, flow)
    cells = run.search
    way = direction_of(state, flow >> 1, flow & 1)
    is_live = is_sure = False
    is_open = int(protocols[0] == 0 and protocols[1] == len(calls.check))
    at, resume = -1, flows.have[flow]
    for protocol in range(protocols[0], protocols[1]):
        cells[:] = 0
        cells[AT] = cells[BEGAN_AT] = cells[CONFIRMED_AT] = -1
        cells[SIZE] = flows.have[flow]
        cells[PIECES] = flows.opening_ranges[flow]
        limit, skipped = flows.limit[flow], flows.skipped[flow]
        rule = Rule(calls.check, calls.prove, protocol, way, limit, is_final, is_open, skipped)
        is_it = is_believed(run, rule, find_chain(run, rule), ts_ns)
        flows.opening_steps[flow] += cells[STEPS]
        at, resume = cells[AT], min(resume, cells[RESUME])
        if is_it:
            is_confirmed = is_confirmed_by_packets(run)
            return _Found(protocol, protocol, at, resume, True, True, is_confirmed)
        is_live |= at >= 0
        is_sure |= has_some(run, SURE_FRAMES)
    return _Found(_NONE, protocols[1] - 1, at, resume, is_live, is_sure, False)


@kernel
def keep_opening(work: Splitting, index: int, flow: int, data: ByteArray) -> int:
    """Keep a range of a direction in HEAD, or in HELD if it is an opening that waits.

    Returns:
        DONE; CHAIN_FOUND if there are frames to go out (`take_openings`), or something to be noted;
        or why it is not kept, and nothing has changed: ARENA_FULL, OPENINGS_FULL, ATTENTION if it
        may decide something else, or belongs to no opening.
    """
    state, ranges = work.state, work.ranges
    flows, openings, counters = state.flows, state.openings, state.counters
    if not _may_be_kept(work, index, flow, data):
        return ATTENTION
    length, offset = ranges.length[index], ranges.stream_offset[index]
    if openings.free.free[0] == 0:
        return OPENINGS_FULL
    if not make_room(state, flow, flows.have[flow] + length):
        return ARENA_FULL
    if flows.opening[flow] == NO_OPENING:
        flows.is_at_start[flow] = offset == 0
        flows.next_record[flow] = -1
        flows.records_in_a_row[flow] = 0
        flows.opening_steps[flow] = 0
    openings.records[NEXT] = flows.next_record[flow]
    openings.records[IN_A_ROW] = flows.records_in_a_row[flow]
    starts_packet = ranges.flags[index] & STARTS_PACKET != 0
    found = follow_records(
        openings.records, data, ranges.offset[index], length, offset, starts_packet
    )
    if found.is_tls and state.connections.protocol[flow >> 1] == UNDECIDED:
        return ATTENTION
    last = flows.last_row[flow]
    append_bytes(state, flow, data, ranges.offset[index], length)
    _append_row(work, index, flow)
    status = DONE
    if flows.opening[flow] != WAITING:
        status = _decide(work, flow, ranges.ts_ns[index])
    if status == ATTENTION:
        flows.have[flow] -= length
        flows.opening_ranges[flow] -= 1
        give_row(openings.free, flows.last_row[flow])
        flows.last_row[flow] = last
        return ATTENTION
    flows.next_record[flow] = found.next
    flows.records_in_a_row[flow] = found.in_a_row
    counters[COUNTER_ARRIVALS] += 1
    counters[COUNTER_OPENING_BYTES] += length + PIECE_BYTES
    if flows.opening[flow] == NO_OPENING:
        flows.opening[flow] = KEPT
    state.connections.is_slow[flow >> 1] = flows.opening[flow] != FOUND
    return status


@inlined
def _decide(work: Splitting, flow: int, ts_ns: int) -> int:
    """What the last range of a direction decides: DONE if nothing, CHAIN_FOUND, or ATTENTION."""
    flows, protocol = work.state.flows, work.state.connections.protocol[flow >> 1]
    if protocol != UNDECIDED:  # the other direction waits
        found = _search(work, flow, (protocol, protocol + 1), ts_ns, 0)
        if found.protocol == _NONE:
            return DONE if found.is_live else ATTENTION
        _begin_chain(work.state, flow, found)
        _let_out(work.state, flow)
        _let_out(work.state, flow ^ 1)
        return CHAIN_FOUND
    found = _search(work, flow, (0, len(work.calls.check)), ts_ns, 0)
    if found.protocol != _NONE:
        return _find_chains(work, flow, found, ts_ns)
    if found.is_live:
        return DONE
    if flows.skipped[flow] + flows.have[flow] > MAX_HEAD_BYTES:
        return ATTENTION
    if found.resume > 0:
        _skip(work.state, flow, found.resume)
    return DONE


@inlined
def _find_chains(work: Splitting, flow: int, found: _Found, ts_ns: int) -> int:
    """A chain of a direction is believed: it goes out, with what the other one has, or waits.

    Returns:
        CHAIN_FOUND; DONE if it waits; ATTENTION, and nothing has changed, where neither is plain.
    """
    state, flows, known = work.state, work.state.flows, work.state.connections
    other, protocol = flow ^ 1, found.protocol
    if flows.mode[other] == OPAQUE:
        return ATTENTION
    is_alone = flows.opening[other] == NO_OPENING
    second = found
    if not is_alone:
        second = _search(work, other, (protocol, protocol + 1), ts_ns, 0)
        if not second.is_sure and not _may_wait(work, flow, other, second, found.at):
            return ATTENTION
    known.protocol[flow >> 1] = protocol
    _begin_chain(state, flow, found)
    if not is_alone and second.is_sure:
        _begin_chain(state, other, second)
        _let_out(state, other)
    if is_alone or second.is_sure:
        _let_out(state, flow)
        return CHAIN_FOUND
    flows.opening[flow] = WAITING
    flows.mode[flow] = HELD
    return CHAIN_FOUND if flows.to_note[flow] else DONE


@kernel
def _may_wait(work: Splitting, flow: int, other: int, second: _Found, at: int) -> bool:
    """Whether a direction waits for the other one's chain, which is not believed yet.

    Args:
        second: what the other one has of the protocol; at: where the frames of this one begin.
    """
    flows, pieces = work.state.flows, work.state.openings.pieces
    if not second.is_live:
        return False
    for protocol in range(len(work.calls.check)):
        is_other = protocol != second.searched
        if is_other and _search(work, other, (protocol, protocol + 1), 0, 0).is_live:
            return False
    row = first = flows.first_row[flow]
    for _ in range(flows.opening_ranges[flow]):
        if at >= pieces.length[row]:
            at -= pieces.length[row]
            first = work.state.openings.next_row[row]
        elif pieces.ts_ns[row] - pieces.ts_ns[first] > HOLD_NS:
            return False
        else:
            at = 0
        row = work.state.openings.next_row[row]
    return True


@inlined
def _begin_chain(state: FramingState, flow: int, found: _Found) -> None:
    """What is kept of a direction begins with a frame, behind what is skipped."""
    flows = state.flows
    if found.at > 0:
        _skip(state, flow, found.at)
    flows.frame_start[flow] = state.openings.pieces.stream_offset[flows.first_row[flow]]
    if not found.is_confirmed:
        flows.to_note[flow] = NOT_CONFIRMED
    elif flows.skipped[flow]:
        flows.to_note[flow] = CONFIRMED


@inlined
def _let_out(state: FramingState, flow: int) -> None:
    """What is kept of a direction goes through the kernel once more."""
    state.flows.opening[flow] = FOUND
    state.flows.mode[flow] = CHAIN
    state.flows.verify[flow] = 1


@inlined
def _skip(state: FramingState, flow: int, count: int) -> None:
    """The first bytes that are kept of a direction belong to no frame."""
    state.flows.skipped[flow] += count
    state.flows.is_at_start[flow] = 0
    drop_first(state, flow, count)


@kernel
def drop_first(state: FramingState, flow: int, count: int) -> None:
    """Forget the first bytes that are kept of a direction, and their ranges."""
    flows, openings, counters = state.flows, state.openings, state.counters
    pieces = openings.pieces
    flows.have[flow] -= count
    flows.arena_at[flow] += count
    flows.arena_room[flow] -= count
    counters[COUNTER_OPENING_BYTES] -= count
    row = flows.first_row[flow]
    while flows.opening_ranges[flow] > 0 and count >= pieces.length[row]:
        count -= pieces.length[row]
        give_row(openings.free, row)
        row = openings.next_row[row]
        flows.opening_ranges[flow] -= 1
        counters[COUNTER_OPENING_BYTES] -= PIECE_BYTES
    flows.first_row[flow] = row
    if count > 0:
        pieces.stream_offset[row] += count
        pieces.length[row] -= count
        pieces.flags[row] &= ~STARTS_PACKET


@kernel
def take_openings(
    state: FramingState, slot: int, at: int, ranges: RangeColumns, pieces: Pieces
) -> None:
    """Write the ranges of a connection in which frames were found, in order of arrival.

    Args:
        at: where the arena has room for their bytes; ranges, pieces: are filled, see `Replay`.
    """
    flows, kept = state.flows, state.openings.pieces
    begin = 2 * slot
    for row in range(len(pieces.kind)):
        side = 0
        for each in range(2):
            mine, others = begin + each, begin + 1 - each
            has_mine = flows.opening[mine] == FOUND and flows.opening_ranges[mine] > 0
            has_others = flows.opening[others] == FOUND and flows.opening_ranges[others] > 0
            mine, others = flows.first_row[mine], flows.first_row[others]
            if has_mine and (not has_others or kept.order[mine] < kept.order[others]):
                side = each
        flow = begin + side
        first, start = flows.first_row[flow], flows.arena_at[flow]
        length = kept.length[first]
        for cell in range(pieces.matrix.shape[1]):
            pieces.matrix[row, cell] = kept.matrix[first, cell]
        for index in range(length):
            state.arena[at + index] = state.arena[start + index]
        ranges.connection[row] = state.connections.connection_id[slot]
        ranges.side[row] = side
        ranges.stream_offset[row] = kept.stream_offset[first]
        ranges.length[row] = length
        ranges.source[row] = SOURCE_ARENA
        ranges.offset[row] = at
        ranges.packet[row] = kept.packet[first]
        ranges.ts_ns[row] = kept.ts_ns[first]
        ranges.flags[row] = kept.flags[first]
        at += length
        drop_first(state, flow, length)
    for flow in range(begin, begin + 2):
        if flows.opening[flow] == FOUND:
            flows.opening[flow] = NO_OPENING


@inlined
def _may_hold_frame(work: Splitting, flow: int) -> bool:
    """Whether what is kept of a direction, the last of it, may hold a frame."""
    flows = work.state.flows
    if flows.opening[flow] == NO_OPENING or flows.have[flow] == 0:
        return False
    if MAY_BE_OTHER[work.state.arena[flows.arena_at[flow]]]:
        return True
    protocols = (0, len(work.calls.check))
    if _search(work, flow, protocols, 0, 0).is_live:
        return True  # the other direction may tell the protocol
    return _search(work, flow, protocols, 0, 1).protocol != _NONE


@kernel
def end_openings(work: Splitting, first: int, stop: int, mode: int) -> bool:
    """End the openings of directions of one connection, of which no byte follows.

    Args:
        first, stop: the directions; mode: what they have then.

    Returns:
        False, and nothing changes, if one may hold a frame or the connection has no opening.
    """
    state = work.state
    flows = state.flows
    if not _has_openings(state, first):
        return False
    if state.connections.protocol[first >> 1] != UNDECIDED:  # one waits for the other
        return False
    for flow in range(first, stop):
        if _may_hold_frame(work, flow):
            return False
    for flow in range(first, stop):
        if flows.opening[flow] == KEPT:
            _skip(state, flow, flows.have[flow])
            flows.opening[flow] = NO_OPENING
            flows.mode[flow] = mode
    state.connections.is_slow[first >> 1] = _has_openings(state, first)
    return True


def rows_of_opening(state: FramingState, flow: int) -> list[int]:
    """The rows of the pool that a direction has, in order."""
    rows: list[int] = []
    row = int(state.flows.first_row[flow])
    for _ in range(int(state.flows.opening_ranges[flow])):
        rows.append(row)
        row = int(state.openings.next_row[row])
    return rows


def replay_of_openings(output: FrameOutput, slot: int, release_packet: int) -> Replay:
    """The ranges of a connection in which frames were found, to go through the kernel."""
    flows = output.state.flows
    found = [flow for flow in (2 * slot, 2 * slot + 1) if flows.opening[flow] == FOUND]
    rows = sum(int(flows.opening_ranges[flow]) for flow in found)
    size = sum(int(flows.have[flow]) for flow in found)
    at = output.room_for(size)
    ranges, pieces = RangeColumns.new(rows), Pieces.new(rows)
    take_openings(output.for_kernel()[0], slot, at, ranges, pieces)
    ranges.release_packet[:] = release_packet
    return Replay(ranges, rows, at, size, pieces)
