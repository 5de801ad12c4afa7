"""Find connections that the tap shows twice, with other addresses: on both sides of a NAT.

A node's capture of all interfaces shows packets before and behind the translation of an address (of
a service, of a gateway). Nothing but addresses, ports and hop limit changes, so these are copies as
in `duplicates.py`, but on two connections. The connection whose first packets are copies of another
one's is its copy, and its frames are the original's once more.

A SYN with a time stamp, or two of a connection's first packets with SYN or payload, must be copies
of packets of one other connection, whose addresses are not the same: by the fields of
`duplicates.py`, by their payload, and with another hop limit, as what is translated is forwarded.
Traffic that a program has made, or a recording that stands side by side with itself, has packets
with equal hop limits; and numbers of a generator may be constants, so they must be as hosts draw
them, from 32 bits. While a connection's first packets are compared, they take the slow path.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import le64
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.stream.duplicates import BUCKET_ROWS, WINDOW_NS, bucket_start, signature
from dissector.stream.index import find_row
from dissector.stream.output import note
from dissector.stream.records import TCP_ACK, TCP_SYN, Connections
from dissector.stream.segment import Segment
from dissector.stream.sequence import mix
from dissector.stream.state import StreamState, hash_of_id

LOOKS: Final = 16
_MATCHES: Final = 2
_LEAST_DRAWN: Final = 1 << 16  # constants of generators are mostly below, one number of 65,536 is
_HASHED_BYTES: Final = 2048
_TRANSLATED_COPY: Final = NOTICE_NUMBER["translated_copy"]


@kernel
def look_for_original(
    state: StreamState, connection: int, segment: Segment, data: ByteArray
) -> None:
    """Compare one of a connection's first packets with those of others, and keep it for them.

    The caller ensures room for a notice.
    """
    connections = state.connections
    connections.looks[connection] += 1
    if segment.wire_bytes == 0 and not segment.flags & TCP_SYN:
        return
    is_answer = segment.flags & TCP_ACK != 0
    if segment.sequence < _LEAST_DRAWN or (is_answer and segment.acknowledgement < _LEAST_DRAWN):
        connections.looks[connection] = LOOKS
        return
    own = connections.connection_id[connection]
    value = _content(segment, data)
    other = _sender_of(state, value, segment.ts_ns, own)
    _keep(state, value, segment.ts_ns, own)
    if other == NULL:
        return
    if connections.matches[connection] == 0:
        connections.candidate[connection] = other
    elif connections.candidate[connection] != other:
        return  # of three views, the middle one is second to another one in each direction
    # A time stamp and a SYN's number are drawn anew for each connection.
    is_telling = segment.flags & TCP_SYN != 0 and segment.tsval > 0
    connections.matches[connection] += _MATCHES if is_telling else 1
    if connections.matches[connection] >= _MATCHES and connections.copy_of[connection] == NULL:
        _note_copy(state, connection, other)


@inlined
def _content(segment: Segment, data: ByteArray) -> int:
    """A hash of what copies have in common, with the payload's first bytes."""
    value = signature(segment, 0, data)
    end = segment.offset + min(segment.captured_bytes, _HASHED_BYTES)
    for offset in range(segment.offset, end - 7, 8):
        value = mix(value ^ le64(data, offset))
    return value if value != 0 else 1


@inlined
def _sender_of(state: StreamState, value: int, ts_ns: int, own: int) -> int:
    """The connection_id on which a packet was seen last, a hop or more away; NULL."""
    packets = state.first_packets
    start = bucket_start(value, len(packets.matrix) // BUCKET_ROWS)
    for row in range(start, start + BUCKET_ROWS):
        is_near = abs(ts_ns - packets.ts_ns[row]) <= WINDOW_NS
        is_forwarded = packets.hop_limit[row] != state.counters.hop_limit[0]
        is_other = packets.hash[row] == value and packets.connection_id[row] != own
        if is_other and is_near and is_forwarded:
            return int(packets.connection_id[row])
    return NULL


@inlined
def _keep(state: StreamState, value: int, ts_ns: int, own: int) -> None:
    """Store a packet; it replaces the oldest one of its bucket."""
    packets = state.first_packets
    start = bucket_start(value, len(packets.matrix) // BUCKET_ROWS)
    for row in range(start + BUCKET_ROWS - 1, start, -1):
        for field in range(packets.matrix.shape[1]):
            packets.matrix[row, field] = packets.matrix[row - 1, field]
    packets.hash[start] = value
    packets.ts_ns[start] = ts_ns
    packets.connection_id[start] = own
    packets.hop_limit[start] = state.counters.hop_limit[0]


@inlined
def _row_of(state: StreamState, connection_id: int) -> int:
    """The row of a connection, or -1 if it is not known any more."""
    place = hash_of_id(state.secret, connection_id)
    return find_row(state.ids, state.connections.connection_id, place, connection_id)


@inlined
def _has_same_addresses(connections: Connections, row: int, other: int) -> bool:
    return bool(
        connections.lower_low[row] == connections.lower_low[other]
        and connections.upper_low[row] == connections.upper_low[other]
        and connections.lower_high[row] == connections.lower_high[other]
        and connections.upper_high[row] == connections.upper_high[other]
    )


@kernel
def _note_copy(state: StreamState, connection: int, other: int) -> None:
    """Note that a connection is a copy of another one, or of the one of which that is a copy."""
    connections = state.connections
    row = _row_of(state, other)
    if row >= 0 and connections.copy_of[row] != NULL:
        row = _row_of(state, connections.copy_of[row])
    if row < 0 or row == connection or _has_same_addresses(connections, row, connection):
        return
    original = connections.connection_id[row]
    connections.copy_of[connection] = original
    connections.looks[connection] = LOOKS
    if connections.twin[row] == NULL:
        connections.twin[row] = connections.connection_id[connection]
    note(state, connection, _TRANSLATED_COPY, NULL, NULL, original)
