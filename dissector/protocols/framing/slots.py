"""The slots of connections: find, take and give back, as kernels.

Linear probing, and removal shifts the cluster back, so that no tombstones pile up during a tap of
weeks. Connection ids rise by one: as they are they would lie in one cluster, walked at each
removal, so they are mixed. What the tables of connections cost is counted in steps.
"""

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.framing.state import (
    CHAIN,
    COUNTER_FREE_SLOTS,
    COUNTER_SLOT_STEPS,
    EMPTY_KEY,
    HEAD,
    HELD,
    ROLE_BY_SYN,
    ROLE_PROVISIONAL,
    ROLE_UNDECIDED,
    UNDECIDED,
    FramingState,
    new_state,
)
from dissector.stream.sequence import mix


@inlined
def find_slot(state: FramingState, connection: int) -> int:
    """The slot of a connection, or -1."""
    keys = state.slot_keys
    mask = len(keys) - 1
    at = mix(connection) & mask
    while keys[at] != EMPTY_KEY:
        if keys[at] == connection:
            return int(state.slot_values[at])
        at = (at + 1) & mask
    return -1


@kernel
def find_slots(state: FramingState, connections: Int64Array, slots: Int64Array) -> None:
    """Write the slots of connections to `slots`, -1 for those without."""
    for place in range(len(connections)):
        slots[place] = find_slot(state, connections[place])


@kernel
def take_slot(state: FramingState, connection: int, is_from_syn: int, limit: int) -> int:
    """A fresh slot for a connection, or -1 when all are taken. limit: bytes of a frame."""
    free = state.counters[COUNTER_FREE_SLOTS]
    if free == 0:
        return -1
    slot = state.free_slots[free - 1]
    state.counters[COUNTER_FREE_SLOTS] = free - 1
    keys = state.slot_keys
    mask = len(keys) - 1
    at = mix(connection) & mask
    state.counters[COUNTER_SLOT_STEPS] += 1
    while keys[at] != EMPTY_KEY:
        at = (at + 1) & mask
        state.counters[COUNTER_SLOT_STEPS] += 1
    keys[at] = connection
    state.slot_values[at] = slot
    _clear(state, slot, connection, is_from_syn, limit)
    return int(slot)


@inlined
def _clear(state: FramingState, slot: int, connection: int, is_from_syn: int, limit: int) -> None:
    known = state.connections
    known.connection_id[slot] = connection
    known.protocol[slot] = UNDECIDED
    known.role[slot] = ROLE_PROVISIONAL if is_from_syn else ROLE_UNDECIDED
    known.client_side[slot] = 0
    known.role_source[slot] = ROLE_BY_SYN
    known.waiting[slot] = 0
    known.is_from_syn[slot] = is_from_syn
    known.is_slow[slot] = 0
    ways = state.directions
    for way in range(2 * slot, 2 * slot + 2):
        ways.mode[way] = HEAD
        ways.total[way] = 0
        ways.have[way] = 0
        ways.arena_at[way] = 0
        ways.arena_room[way] = 0
        ways.broken[way] = 0
        ways.skip[way] = 0
        ways.frame_start[way] = 0
        ways.first_packet[way] = NULL
        ways.first_ts[way] = NULL
        ways.last_packet[way] = NULL
        ways.last_ts[way] = NULL
        ways.retransmitted[way] = 0
        ways.verify[way] = 0
        ways.limit[way] = limit
        ways.skipped[way] = 0
        ways.frames[way] = 0
        ways.decoded_bytes[way] = 0
        ways.is_seen[way] = 0
        ways.is_first[way] = 1


@kernel
def give_back_slots(state: FramingState, connections: Int64Array) -> None:
    """Free the slots of closed connections; ids without a slot are passed over."""
    keys = state.slot_keys
    mask = len(keys) - 1
    for index in range(len(connections)):
        at = mix(connections[index]) & mask
        while keys[at] != EMPTY_KEY and keys[at] != connections[index]:
            at = (at + 1) & mask
        if keys[at] == EMPTY_KEY:
            continue
        free = state.counters[COUNTER_FREE_SLOTS]
        state.free_slots[free] = state.slot_values[at]
        state.counters[COUNTER_FREE_SLOTS] = free + 1
        hole = at
        following = (at + 1) & mask
        while keys[following] != EMPTY_KEY:
            home = mix(keys[following]) & mask
            state.counters[COUNTER_SLOT_STEPS] += 1
            # The entry may move into the hole unless its home lies cyclically behind the hole.
            if ((following - home) & mask) >= ((following - hole) & mask):
                keys[hole] = keys[following]
                state.slot_values[hole] = state.slot_values[following]
                hole = following
            following = (following + 1) & mask
        keys[hole] = EMPTY_KEY


def grown_slots(state: FramingState) -> FramingState:
    """The same state with room for twice the connections."""
    old = len(state.free_slots)
    fresh = new_state(2 * old, 0, 0)
    fresh.directions.matrix[:, : 2 * old] = state.directions.matrix[:, : 2 * old]
    fresh.connections.matrix[:, :old] = state.connections.matrix[:, :old]
    free = int(state.counters[COUNTER_FREE_SLOTS])
    fresh.free_slots[:old] = np.arange(2 * old - 1, old - 1, -1, dtype=np.int64)
    fresh.free_slots[old : old + free] = state.free_slots[:free]
    state.counters[COUNTER_FREE_SLOTS] = old + free
    _enter_all(state.slot_keys, state.slot_values, fresh.slot_keys, fresh.slot_values)
    return fresh._replace(counters=state.counters, arena=state.arena, notices=state.notices)


@kernel
def _enter_all(
    keys: Int64Array, values: Int64Array, fresh_keys: Int64Array, fresh_values: Int64Array
) -> None:
    """Enter everything of one table into another, which is empty."""
    mask = len(fresh_keys) - 1
    for place in range(len(keys)):
        if keys[place] == EMPTY_KEY:
            continue
        at = mix(keys[place]) & mask
        while fresh_keys[at] != EMPTY_KEY:
            at = (at + 1) & mask
        fresh_keys[at] = keys[place]
        fresh_values[at] = values[place]


@kernel
def compact_arena(state: FramingState, fresh: ByteArray) -> int:
    """Copy the bytes of unfinished frames to a fresh arena, in order of slots; returns its use."""
    used = 0
    ways = state.directions
    for way in range(len(ways.mode)):
        have = ways.have[way]
        if (ways.mode[way] == CHAIN or ways.mode[way] == HELD) and have > 0:
            at = ways.arena_at[way]
            for index in range(have):
                fresh[used + index] = state.arena[at + index]
            ways.arena_at[way] = used
            ways.arena_room[way] = have
            used += have
        else:
            ways.arena_room[way] = 0
    return used
