"""The table of connections: a slot for each that is open, found by its id and used again."""

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.framing.state import (
    CHAIN,
    COUNTER_AGAIN,
    HELD,
    ROLE_PROVISIONAL,
    ROLE_UNDECIDED,
    UNDECIDED,
    FramingState,
)
from dissector.stream.columns import DATA
from dissector.tables import (
    ABSENT,
    allocate_row,
    find,
    give_row,
    grown_pool,
    put,
    remove,
    roomy,
)


@inlined
def find_slot(state: FramingState, connection: int) -> int:
    """The slot of a connection, or ABSENT."""
    return find(state.slots, connection, 0, 0, 0)


@kernel
def find_slots(state: FramingState, connections: Int64Array, slots: Int64Array) -> None:
    """Write the slots of connections to `slots`, ABSENT for those without."""
    for index in range(len(connections)):
        slots[index] = find_slot(state, connections[index])


@kernel
def allocate_slot(state: FramingState, connection: int, opener: int, ports: int, limit: int) -> int:
    """A fresh slot for a connection, or ABSENT when all are taken.

    Args:
        opener: the side that sent the SYN, -1 if that was not seen. ports: of side 0 << 16 | of
            side 1. limit: bytes of a frame.
    """
    slot = allocate_row(state.free_slots)
    if slot == ABSENT:
        return ABSENT
    put(state.slots, connection, 0, 0, 0, slot)
    known = state.connections
    known.matrix[:, slot] = 0
    known.connection_id[slot] = connection
    known.protocol[slot] = UNDECIDED
    known.role[slot] = ROLE_PROVISIONAL if opener >= 0 else ROLE_UNDECIDED
    known.is_from_syn[slot] = 1 if opener >= 0 else 0
    known.client_side[slot] = max(opener, 0)
    known.ports[slot] = ports
    flows = state.flows
    for flow in range(2 * slot, 2 * slot + 2):
        flows.matrix[:, flow] = 0
        flows.first_packet[flow] = NULL
        flows.first_ts[flow] = NULL
        flows.last_packet[flow] = NULL
        flows.last_ts[flow] = NULL
        flows.limit[flow] = limit
        flows.is_first[flow] = 1
        flows.buffer[flow] = ABSENT
    return slot


@kernel
def release_slots(state: FramingState, connections: Int64Array) -> None:
    """Free the slots of closed connections; ids without a slot are passed over."""
    for index in range(len(connections)):
        slot = remove(state.slots, connections[index], 0, 0, 0)
        if slot != ABSENT:
            give_row(state.free_slots, slot)


def grown_slots(state: FramingState) -> FramingState:
    """The same state with room for twice the connections."""
    before = len(state.free_slots.rows)
    flows = state.flows.grown(4 * before)
    flows.buffer[2 * before :] = ABSENT
    return state._replace(
        flows=flows,
        connections=state.connections.grown(2 * before),
        slots=roomy(state.slots, 3 * before),  # a quarter full at most
        free_slots=grown_pool(state.free_slots, 2 * before),
    )


@inlined
def _move(state: FramingState, at: int, size: int, fresh: ByteArray, used: int) -> int:
    """Copy bytes of the arena to a fresh one; how many bytes this holds then."""
    for index in range(size):
        fresh[used + index] = state.arena[at + index]
    return used + size


@kernel
def compact_arena(state: FramingState, fresh: ByteArray, fresh_marks: ByteArray) -> int:
    """Copy the bytes that are still needed to a fresh arena: those of unfinished frames and of
    buffers, in order of slots, of ranges that go through the kernel again, and of waiting frames.

    Returns:
        how many bytes it holds then.
    """
    flows, buffers, ranges = state.flows, state.pool.buffers, state.pool.ranges
    used = 0
    for flow in range(len(flows.mode)):
        have = flows.have[flow] if flows.mode[flow] in (CHAIN, HELD) else 0
        at = flows.arena_at[flow]
        flows.arena_at[flow], flows.arena_room[flow] = used, have
        used = _move(state, at, have, fresh, used)
        buffer = flows.buffer[flow]
        if buffer != ABSENT:
            at, size = buffers.at[buffer], buffers.size[buffer]
            for index in range(size):
                fresh_marks[used + index] = state.marks[at + index]
            buffers.at[buffer], buffers.room[buffer] = used, size
            used = _move(state, at, size, fresh, used)
    row = state.counters[COUNTER_AGAIN]
    for _ in range(len(ranges.next)):
        if row == ABSENT:
            break
        at = ranges.at[row]
        ranges.at[row] = used
        used = _move(state, at, ranges.length[row] if ranges.kind[row] == DATA else 0, fresh, used)
        row = ranges.next[row]
    known, frames = state.connections, state.waiting
    for slot in range(len(known.waiting)):
        row = known.first_waiting[slot]
        for _ in range(known.waiting[slot]):
            at = frames.data_offset[row]
            frames.data_offset[row] = used
            used = _move(state, at, frames.data_bytes[row], fresh, used)
            row = frames.next[row]
    return used
