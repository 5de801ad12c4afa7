"""The table of connections: a slot for each that is open, found by its id and used again."""

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.framing.state import (
    CHAIN,
    HELD,
    ROLE_PROVISIONAL,
    ROLE_UNDECIDED,
    UNDECIDED,
    FramingState,
)
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
def allocate_slot(state: FramingState, connection: int, opener: int, limit: int) -> int:
    """A fresh slot for a connection, or ABSENT when all are taken.

    Args:
        opener: the side that sent the SYN, -1 if that was not seen. limit: bytes of a frame.
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
    flows = state.flows
    for flow in range(2 * slot, 2 * slot + 2):
        flows.matrix[:, flow] = 0
        flows.first_packet[flow] = NULL
        flows.first_ts[flow] = NULL
        flows.last_packet[flow] = NULL
        flows.last_ts[flow] = NULL
        flows.limit[flow] = limit
        flows.is_first[flow] = 1
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
    return state._replace(
        flows=state.flows.grown(4 * before),
        connections=state.connections.grown(2 * before),
        slots=roomy(state.slots, 3 * before),  # a quarter full at most
        free_slots=grown_pool(state.free_slots, 2 * before),
    )


@kernel
def compact_arena(state: FramingState, fresh: ByteArray) -> int:
    """Copy the bytes of unfinished frames and openings to a fresh arena, in order of slots.

    Returns:
        how many bytes it holds then.
    """
    used = 0
    flows = state.flows
    for flow in range(len(flows.mode)):
        have = flows.have[flow]
        is_needed = flows.mode[flow] in (CHAIN, HELD) or flows.opening[flow] != 0
        if is_needed and have > 0:
            at = flows.arena_at[flow]
            for index in range(have):
                fresh[used + index] = state.arena[at + index]
            flows.arena_at[flow] = used
            flows.arena_room[flow] = have
            used += have
        else:
            flows.arena_room[flow] = 0
    return used
