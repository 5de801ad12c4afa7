"""The records of connections, of their two sides and of waiting segments.

A connection has a row in `Connections` and two in `Directions`: those of row n are 2n and 2n + 1.
Row numbers begin at 0, do not change when the tables grow, and are reused.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.jit import inlined, kernel
from dissector.schemas.connections import TcpColumns


class Connections(Records):
    """Connections that packets can find, or whose rows are not written yet; int64[rows] each.

    lower_*, upper_*: the addresses, the lower endpoint first.
    ports: IP version << 32 | port of the lower endpoint << 16 | of the upper one.
    key_hash: of all these.
    endpoint_hashes: of the lower endpoint's address and port << ENDPOINT_BITS | of the upper's.
    id_hash: of connection_id.
    address_sum: the addresses' part of every TCP checksum.
    endpoint0_is_upper: 1 if side 0 is the upper endpoint.
    is_slow: 0 if the fast path may handle the next packet.
    vlans, tunnel: of the first packet that had some.
    is_native: a packet was seen outside any tunnel.
    next, previous: in its list of least recent use (`connections.py`).
    lru_list: which, -1 none.
    last_second: of the last packet that moved it in the list.
    ready_position: position in the queue of connections with work, 0 none.
    history, history_more: twelve letters each, five bits a letter.
    history_seen: one bit per letter and side.
    opener: side of the SYN, -1 if none was captured.
    closed_first: side of the first FIN or RST, -1 unknown.
    rtt_pending: SYN and SYN-ACK were seen, the opener's ACK not yet.
    closing: ENDED_*, -1 while open.
    close_due: clock at which everything missing is given up.
    ended_packet: at which the CLOSE left, NULL before.
    is_detached: it is not in the index, so no packet finds it.
    has_copies: the tap has shown a packet with data twice.
    has_two_clocks: copies far apart in time were noted.
    copy_of, twin: connection_id of the connection of which it is a copy, and of one that is a copy
        of it; NULL none (`translations.py`).
    looks: first packets, up to LOOKS, which are compared with those of other connections.
    candidate, matches: connection_id with which the first one agreed, and how many of them do.
    """

    key_hash: Int64Array
    lower_high: Int64Array
    lower_low: Int64Array
    upper_high: Int64Array
    upper_low: Int64Array
    ports: Int64Array
    endpoint_hashes: Int64Array
    endpoint0_is_upper: Int64Array
    is_slow: Int64Array
    connection_id: Int64Array
    address_sum: Int64Array
    last_second: Int64Array
    last_ts_ns: Int64Array
    last_packet: Int64Array
    history_seen: Int64Array
    history: Int64Array
    history_more: Int64Array
    history_length: Int64Array
    lru_list: Int64Array
    previous: Int64Array
    next: Int64Array
    ready_position: Int64Array
    ended_packet: Int64Array
    is_detached: Int64Array
    closing: Int64Array
    close_due: Int64Array
    closed_first: Int64Array
    opener: Int64Array
    syn_ts_ns: Int64Array
    rtt_pending: Int64Array
    handshake_rtt_ns: Int64Array
    has_copies: Int64Array
    has_two_clocks: Int64Array
    copy_of: Int64Array
    twin: Int64Array
    looks: Int64Array
    candidate: Int64Array
    matches: Int64Array
    first_ts_ns: Int64Array
    vlans: Int64Array
    tunnel: Int64Array
    is_native: Int64Array
    id_hash: Int64Array


class Directions(TcpColumns, Records):
    """Sides of connections: the stream of bytes that each sent; int64[rows] each.

    Beside what is declared here, the columns that TCP fills (`schemas/connections.TcpColumns`):
    stream_bytes = data + gap_bytes + snaplen_cut_bytes, all of what left; payload_bytes: of all
    packets, copies included; isn, first_seq: NULL before; last_seq: set by `retire`.

    origin: sequence number of stream offset 0, if has_origin.
    released: offset after the last byte or gap that left.
    highest: after the highest byte seen or given up.
    acked: highest offset that the peer acknowledged (without an origin: the sequence number itself,
        if has_raw_ack).
    released_packet: largest packet number that left.
    range_packet, range_ts_ns: of the last range.
    has_released: a byte or a gap has left.
    tag, previous_tag: last two of its packets (`tags.py`).
    pending, held_bytes: segments that wait, and bytes charged for them.
    timer_position: position in the queue of timers, 0 none. Clocks: acked_since, the peer has
        acknowledged bytes beyond `highest`; progress_at, data came at `released`; covered_at, an
        acknowledgement covered the first hole; start_since, the start is open; zero_window_since.
    start_is_open: earlier bytes may still come, nothing leaves yet.
    started_empty: the first packet had at most one byte, maybe a keep-alive.
    gives_up: the first hole is given up at the next release, for memory.
    gap_start, gap_end: the last gap.
    scale: of the windows that it announces, as its SYN says (-1: it scales none), NULL before.
    other_isn: an initial number that it has shown beside `isn`, or NULL.
    is_isn_acked: its peer acknowledged the SYN of number `isn`.
    shift: by how much numbers of its second numbering are higher, 0 if it has none
        (`numbering.py`).
    sent: highest offset that a packet of its own names, with or without data.
    denied_at: clock at which it last went on below `acked`.
    fin_offset: of its FIN, if fin_seen.
    fin_packet: with which the FIN left, NULL before.
    reset_offset: of its RST.
    last_ip_id, last_tsval: of its last packet.
    ip_ids_repeat: two packets that are no copies had one IP identification.
    right_checksums, wrong_checksums: of packets whose checksum was read.
    late_*: data after the end of its stream.
    stray_packets: far outside the stream, an old SYN, an RST outside the window; what they carried
        is in dropped_bytes.
    has_urgent: its urgent data was noted.
    """

    origin: Int64Array
    has_origin: Int64Array
    released: Int64Array
    highest: Int64Array
    acked: Int64Array
    released_packet: Int64Array
    has_released: Int64Array
    tag: Int64Array
    range_packet: Int64Array
    range_ts_ns: Int64Array
    acked_since: Int64Array
    timer_position: Int64Array
    last_tsval: Int64Array
    last_ip_id: Int64Array
    ip_ids_repeat: Int64Array
    right_checksums: Int64Array
    wrong_checksums: Int64Array
    previous_tag: Int64Array
    has_raw_ack: Int64Array
    start_is_open: Int64Array
    start_since: Int64Array
    started_empty: Int64Array
    pending: Int64Array
    held_bytes: Int64Array
    progress_at: Int64Array
    covered_at: Int64Array
    gives_up: Int64Array
    gap_start: Int64Array
    gap_end: Int64Array
    scale: Int64Array
    other_isn: Int64Array
    is_isn_acked: Int64Array
    shift: Int64Array
    sent: Int64Array
    denied_at: Int64Array
    fin_offset: Int64Array
    fin_seen: Int64Array
    fin_packet: Int64Array
    reset_offset: Int64Array
    zero_window_since: Int64Array
    late_packets: Int64Array
    late_bytes: Int64Array
    stray_packets: Int64Array
    has_urgent: Int64Array


class WaitingRanges(Records):
    """Runs of bytes that wait (`out_of_order.py`); int64[rows] each.

    offset, length: in the stream.
    heap_at: first byte in the heap.
    kind: DATA, GAP_CUT or FIN, NODE_FREE where unused.
    flags: as in RangeColumns.
    arrived, opened: clock at which it came, and at which the hole before it opened.
    segment_start, segment_end: bounds of the segment whose bytes it has.
    is_damaged: 1 if that has a wrong checksum.
    answers: offset up to which that acknowledges its peer's stream, -NEVER unknown.
    levels: how many of its lists it is in.
    """

    offset: Int64Array
    length: Int64Array
    heap_at: Int64Array
    kind: Int64Array
    packet: Int64Array
    ts_ns: Int64Array
    flags: Int64Array
    arrived: Int64Array
    opened: Int64Array
    segment_start: Int64Array
    segment_end: Int64Array
    is_damaged: Int64Array
    answers: Int64Array
    levels: Int64Array


class Counters(Records):
    """Single numbers of the whole state: records of one row.

    clock: largest capture time so far, ns.
    second: of the clock.
    second_end: clock at which the next one begins.
    leap_ts_ns: a time far ahead that the next packet has to confirm.
    packet: number of the one being processed.
    hop_limit: of that one, on the slow path.
    row: of the segments, the next one.
    ranges: rows of output.
    next_id: next connection_id.
    live: connections that packets can find.
    retired: connections whose rows may be written.
    given_up: connections of which there were too many.
    right_checksums, wrong_checksums: of packets that were looked at one by one.
    nodes_made: nodes linked so far.
    level_seed: random, so that no sender can predict which nodes rise a level.
    heap_used, heap_live: bytes of the heap.
    held_bytes: of all sides.
    is_damaged: 1 if the segment being processed is.
    answers: offset up to which that acknowledges its peer's stream, -NEVER unknown.
    conflict_at: offset where it first differs from one that waits, or NULL.
    steps: taken along lists whose length an input decides: tests hold the cost with it.
    """

    clock: Int64Array
    second: Int64Array
    second_end: Int64Array
    leap_ts_ns: Int64Array
    packet: Int64Array
    hop_limit: Int64Array
    row: Int64Array
    ranges: Int64Array
    next_id: Int64Array
    live: Int64Array
    retired: Int64Array
    given_up: Int64Array
    right_checksums: Int64Array
    wrong_checksums: Int64Array
    nodes_made: Int64Array
    level_seed: Int64Array
    heap_used: Int64Array
    heap_live: Int64Array
    held_bytes: Int64Array
    is_damaged: Int64Array
    answers: Int64Array
    conflict_at: Int64Array
    steps: Int64Array
    crowded: Int64Array
    crowded_before: Int64Array


class StreamSettings(Records):
    """StreamOptions for kernels: records of one row; times in ns, overlap: OVERLAP_*."""

    reorder_window_ns: Int64Array
    unacked_hole_ns: Int64Array
    idle_timeout_ns: Int64Array
    held_bytes: Int64Array
    held_bytes_per_connection: Int64Array
    connections: Int64Array
    brief_connections: Int64Array
    overlap: Int64Array
    vlan_in_key: Int64Array
    notes_places: Int64Array


NODE_FREE: Final = -1
LEVELS: Final = 6  # of the lists of nodes
NEVER: Final = 1 << 62  # a clock

# Lists of least recent use.
LRU_SYN_ONLY: Final = 0
LRU_OPEN: Final = 1
LRU_LINGERING: Final = 2
LRU_LISTS: Final = 3

OVERLAP_NAMES: Final = ("first", "last", "linux", "windows")
OVERLAP_FIRST: Final = OVERLAP_NAMES.index("first")
OVERLAP_LAST: Final = OVERLAP_NAMES.index("last")
OVERLAP_LINUX: Final = OVERLAP_NAMES.index("linux")

TCP_FIN: Final = 1
TCP_SYN: Final = 2
TCP_RST: Final = 4
TCP_ACK: Final = 16
TCP_URG: Final = 32


@inlined
def direction_at(connection: int, endpoint_index: int) -> int:
    """The row of a side of a connection."""
    return 2 * connection + endpoint_index


@kernel
def clear_connection(connections: Connections, directions: Directions, row: int) -> None:
    """Set everything of a connection and its sides to 0."""
    for field in range(connections.matrix.shape[1]):
        connections.matrix[row, field] = 0
    for direction_index in range(2 * row, 2 * row + 2):
        for field in range(directions.matrix.shape[1]):
            directions.matrix[direction_index, field] = 0
