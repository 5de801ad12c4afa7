"""Connections: find them by address pair, open, age, close and reuse them.

The key of a connection is the IP version and both endpoints with the lower one first. Where the
same key is in use behind several tags (VLANs, tunnels), tags.py tells the connections apart.

Every connection is in one list of least recent use: SYN only (nothing but unanswered SYNs, given up
early and first, so that a scan stays cheap), open, or lingering (closed, still owning late packets
of its addresses). A list is sorted by the second of the last packet: a busy connection moves
once per second and not once per packet; time-outs therefore count whole seconds.
"""

from typing import Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.codecs.keyed_hash import hash_of_five, hash_of_words
from dissector.codecs.wrapping import product
from dissector.jit import inlined, kernel
from dissector.limits import LINGER_MS, MAX_PROBES, NULL, SYN_ONLY_TIMEOUT_MS
from dissector.notices import NOTICE_NUMBER
from dissector.packet.columns import SegmentColumns
from dissector.packet.tcp import address_sum
from dissector.stream import records
from dissector.stream.columns import ENDED_IDLE, ENDPOINT_BITS, ENDPOINT_MASK
from dissector.stream.index import enter, find_row, leave
from dissector.stream.output import note
from dissector.stream.queue import queue_put, queue_remove
from dissector.stream.records import Connections, Counters
from dissector.stream.segment import Segment
from dissector.stream.sequence import sequence_at
from dissector.stream.state import StreamState, hash_of_id
from dissector.tables import allocate_row, list_append, list_unlink

_CONNECTION_LIMIT: Final = NOTICE_NUMBER["connection_limit"]
_TUNNEL: Final = 0x510E_527F_ADE6_82D1
_TAG_MASK: Final = (1 << 62) - 1
_SECOND_NS: Final = 1_000_000_000
_SYN_ONLY_SECONDS: Final = SYN_ONLY_TIMEOUT_MS // 1000
_LINGER_SECONDS: Final = LINGER_MS // 1000
NO_TAG: Final = -1  # of a side without packets


class ConnectionKey(NamedTuple):
    """An address pair, lower endpoint first, and what was around the packet.

    tag: of tunnel and vlans together.
    is_upper: 1 if the source is the upper endpoint.
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
def key_at(segments: SegmentColumns, row: int, secret: Int64Array) -> ConnectionKey:
    """The key of a segment's connection. secret: of its hash."""
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
    return ConnectionKey(
        high,
        low,
        other_high,
        other_low,
        ports,
        tunnel,
        vlans,
        (vlans ^ product(tunnel, _TUNNEL)) & _TAG_MASK,
        hash_of_five(secret, low, other_low, ports, high, other_high),
        is_upper,
    )


@inlined
def has_key(connections: Connections, row: int, key: ConnectionKey) -> bool:
    """Whether a connection is between the endpoints of a key."""
    return bool(
        connections.lower_low[row] == key.lower_low
        and connections.upper_low[row] == key.upper_low
        and connections.ports[row] == key.ports
        and connections.lower_high[row] == key.lower_high
        and connections.upper_high[row] == key.upper_high
    )


@inlined
def direction_of(connections: Connections, row: int, is_upper: int) -> int:
    """The row of the side of one endpoint of a connection."""
    return records.direction_at(row, is_upper ^ connections.endpoint0_is_upper[row])


@inlined
def find_connection(state: StreamState, key: ConnectionKey) -> int:
    """The row of the connection whose last packet from this endpoint had the same tag, or -1."""
    connections = state.connections
    index = state.index
    mask = len(index) - 1
    for steps in range(mask + 1):
        row = index[(key.hash + steps) & mask]
        if row < 0 or (
            has_key(connections, row, key)
            and state.directions.tag[direction_of(connections, row, key.is_upper)] == key.tag
        ):
            if steps > 0:
                note_steps(state, steps)
            return int(row)
    return -1


@inlined
def note_steps(state: StreamState, steps: int) -> None:
    """Count a search's slots in the index behind the first one."""
    state.counters.steps[0] += steps
    if steps >= MAX_PROBES:
        state.counters.crowded[0] += 1


@kernel
def _detach(state: StreamState, connection: int) -> None:
    """Remove a connection from the index: the next packet of its addresses opens another."""
    connections = state.connections
    if connections.is_detached[connection]:
        return
    connections.is_detached[connection] = 1
    state.counters.live[0] -= 1
    state.counters.steps[0] += leave(state.index, connections.key_hash, connection)


@kernel
def leave_list(state: StreamState, connection: int) -> None:
    """Remove a connection from its list of least recent use."""
    connections = state.connections
    if connections.lru_list[connection] >= 0:
        list_unlink(state.lru, connections, connections.lru_list[connection], connection)
        connections.lru_list[connection] = -1


@kernel
def join_list(state: StreamState, connection: int, kind: int) -> None:
    """Move a connection to the recent end of a list, from whatever list it was in."""
    connections = state.connections
    leave_list(state, connection)
    list_append(state.lru, connections, kind, connection)
    connections.lru_list[connection] = kind
    connections.last_second[connection] = state.counters.second[0]


@kernel
def make_ready(state: StreamState, connection: int) -> None:
    """Queue a connection for release before the next packet, in order of connection ids."""
    connections = state.connections
    connection_id = connections.connection_id[connection]
    queue_put(state.ready, connections.ready_position, connection, connection_id, 0)


@kernel
def retire(state: StreamState, connection: int) -> None:
    """Retire a connection, so that its row is written: it is closed and no packet can find it."""
    _detach(state, connection)
    leave_list(state, connection)
    directions = state.directions
    for endpoint_index in range(2):
        direction_index = records.direction_at(connection, endpoint_index)
        queue_remove(state.timers, directions.timer_position, direction_index)
        is_known = directions.has_origin[direction_index]
        last_seq = (
            sequence_at(directions.origin[direction_index], directions.released[direction_index])
            if is_known
            else NULL
        )
        directions.last_seq[direction_index] = last_seq
    state.retired[state.counters.retired[0]] = connection
    state.counters.retired[0] += 1


@kernel
def close_now(state: StreamState, connection: int, cause: int) -> None:
    """End a connection at once, without waiting; a close that has begun keeps its cause."""
    connections = state.connections
    if connections.ended_packet[connection] != NULL:
        retire(state, connection)
        return
    _detach(state, connection)
    if connections.closing[connection] < 0:
        connections.closing[connection] = cause
    connections.close_due[connection] = -records.NEVER
    make_ready(state, connection)


@kernel
def expire(state: StreamState) -> None:
    """Close connections that were silent for too long; at most once per second of capture time."""
    connections = state.connections
    clock = state.counters.clock[0]
    for kind in range(records.LRU_LISTS):
        seconds = state.settings.idle_timeout_ns[0] // _SECOND_NS
        if kind == records.LRU_SYN_ONLY:
            seconds = min(seconds, _SYN_ONLY_SECONDS)
        elif kind == records.LRU_LINGERING:
            seconds = min(seconds, _LINGER_SECONDS)
        for _ in range(state.lru.length[kind]):
            row = state.lru.first[kind]
            if connections.last_second[row] + seconds >= state.counters.second[0]:
                break
            last = connections.last_ts_ns[row]
            if last == NULL or abs(clock - last) <= seconds * _SECOND_NS:
                # Its last packet came when the clock did not believe the leap of its time yet, or
                # none of its packets had a time.
                join_list(state, row, kind)
            else:
                if kind != records.LRU_LINGERING:
                    leave_list(state, row)
                close_now(state, row, ENDED_IDLE)


@kernel
def evict(state: StreamState, connection: int) -> None:
    """End a connection because there are too many live ones."""
    counters = state.counters
    leave_list(state, connection)
    counters.given_up[0] += 1
    count = counters.given_up[0]
    # A scan would fill the notices: say it at 1, 2, 4, 8 ... given up.
    if count & (count - 1) == 0:
        note(state, connection, _CONNECTION_LIMIT, NULL, NULL, count)
    close_now(state, connection, ENDED_IDLE)


@kernel
def _reserve(state: StreamState) -> None:
    """End connections until one more fits, SYN-only and lingering ones first."""
    lru = state.lru
    most_brief = state.settings.brief_connections[0]
    most = state.settings.connections[0]
    for _ in range(lru.length[records.LRU_LINGERING] - most_brief + 1):
        close_now(state, lru.first[records.LRU_LINGERING], ENDED_IDLE)
    for _ in range(len(state.connections.connection_id)):
        if lru.length[records.LRU_SYN_ONLY] < most_brief and state.counters.live[0] < most:
            return
        if lru.length[records.LRU_SYN_ONLY] >= most_brief:
            evict(state, lru.first[records.LRU_SYN_ONLY])
        elif lru.length[records.LRU_LINGERING] > 0:
            close_now(state, lru.first[records.LRU_LINGERING], ENDED_IDLE)
        elif lru.length[records.LRU_SYN_ONLY] > 0:
            evict(state, lru.first[records.LRU_SYN_ONLY])
        else:
            evict(state, lru.first[records.LRU_OPEN])


@inlined
def _endpoint_hashes(secret: Int64Array, key: ConnectionKey) -> int:
    """The hashes of both endpoints of a key, as in `Connections`."""
    port, other_port = key.ports >> 16 & 0xFFFF, key.ports & 0xFFFF
    lower = hash_of_words(secret, key.lower_high, key.lower_low, port, 0)
    upper = hash_of_words(secret, key.upper_high, key.upper_low, other_port, 0)
    return (lower & ENDPOINT_MASK) << ENDPOINT_BITS | upper & ENDPOINT_MASK


@kernel
def open_connection(state: StreamState, key: ConnectionKey, segment: Segment) -> int:
    """Allocate and index a new connection; returns its row. The caller ensures a free row.

    The sender becomes side 0, unless it answers (SYN and ACK): then the opener was not captured
    and the sender is side 1.
    """
    _reserve(state)
    connections = state.connections
    counters = state.counters
    row = allocate_row(state.free_connections)
    connection_id = counters.next_id[0]
    counters.next_id[0] += 1
    _set_up(state, row, segment)
    connections.lower_high[row] = key.lower_high
    connections.lower_low[row] = key.lower_low
    connections.upper_high[row] = key.upper_high
    connections.upper_low[row] = key.upper_low
    connections.ports[row] = key.ports
    connections.endpoint_hashes[row] = _endpoint_hashes(state.endpoint_secret, key)
    connections.key_hash[row] = key.hash
    connections.address_sum[row] = address_sum(
        key.lower_high, key.lower_low, key.upper_high, key.upper_low
    )
    connections.connection_id[row] = connection_id
    connections.id_hash[row] = hash_of_id(state.secret, connection_id)
    is_syn = segment.flags & records.TCP_SYN != 0
    is_answer = is_syn and segment.flags & records.TCP_ACK != 0
    connections.endpoint0_is_upper[row] = key.is_upper ^ 1 if is_answer else key.is_upper
    counters.steps[0] += enter(state.index, connections.key_hash, row)
    counters.steps[0] += enter(state.ids, connections.id_hash, row)
    counters.live[0] += 1
    join_list(state, row, records.LRU_SYN_ONLY if is_syn and not is_answer else records.LRU_OPEN)
    return row


@kernel
def _set_up(state: StreamState, row: int, segment: Segment) -> None:
    """Reset all fields of a connection to their values before its first packet."""
    connections = state.connections
    directions = state.directions
    records.clear_connection(connections, directions, row)
    connections.is_slow[row] = 1
    connections.first_ts_ns[row] = segment.ts_ns
    connections.last_ts_ns[row] = segment.ts_ns
    connections.last_packet[row] = segment.packet
    connections.closing[row] = -1
    connections.ended_packet[row] = NULL
    connections.closed_first[row] = -1
    connections.opener[row] = -1
    connections.syn_ts_ns[row] = NULL
    connections.handshake_rtt_ns[row] = NULL
    connections.lru_list[row] = -1
    connections.copy_of[row] = NULL
    connections.twin[row] = NULL
    for endpoint_index in range(2):
        direction_index = records.direction_at(row, endpoint_index)
        for level in range(state.heads.shape[1]):
            state.heads[direction_index, level] = -1
            state.tails[direction_index, level] = -1
        directions.tag[direction_index] = NO_TAG
        directions.previous_tag[direction_index] = NO_TAG
        directions.range_packet[direction_index] = NULL
        directions.range_ts_ns[direction_index] = NULL
        directions.last_tsval[direction_index] = -1
        directions.last_ip_id[direction_index] = NULL
        directions.isn[direction_index] = NULL
        directions.fin_packet[direction_index] = NULL
        directions.first_seq[direction_index] = NULL
        directions.zero_window_since[direction_index] = NULL
        directions.scale[direction_index] = NULL
        directions.other_isn[direction_index] = NULL
        directions.denied_at[direction_index] = -records.NEVER
        directions.progress_at[direction_index] = -records.NEVER
        directions.covered_at[direction_index] = -records.NEVER


@inlined
def touch(state: StreamState, connection: int) -> None:
    """Move a connection whose packet was seen to the recent end, once per second."""
    connections = state.connections
    kind = connections.lru_list[connection]
    if connections.last_second[connection] != state.counters.second[0] and kind >= 0:
        join_list(state, connection, kind)


@inlined
def set_clock(counters: Counters, ts_ns: int, leap_ns: int) -> None:
    """Advance the processing clock: the largest capture time so far.

    One damaged time stamp far in the future would end every wait and every connection at once, so
    a leap of more than `leap_ns` counts only when the next packet confirms it.
    """
    if ts_ns == NULL or ts_ns <= counters.clock[0]:
        counters.leap_ts_ns[0] = -records.NEVER
        return
    if counters.clock[0] != -records.NEVER and ts_ns > counters.clock[0] + leap_ns:
        if counters.leap_ts_ns[0] == -records.NEVER:
            counters.leap_ts_ns[0] = ts_ns
            return
        ts_ns = min(ts_ns, counters.leap_ts_ns[0])
    counters.leap_ts_ns[0] = -records.NEVER
    counters.clock[0] = ts_ns
    counters.second[0] = ts_ns // _SECOND_NS
    counters.second_end[0] = (counters.second[0] + 1) * _SECOND_NS


@kernel
def find_rows(state: StreamState, connection_ids: Int64Array, rows: Int64Array) -> None:
    """Write the row of each connection to `rows`, -1 for an unknown one."""
    known = state.connections.connection_id
    for number, connection_id in enumerate(connection_ids):
        place = hash_of_id(state.secret, connection_id)
        rows[number] = find_row(state.ids, known, place, connection_id)
