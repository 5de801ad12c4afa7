"""The columns of reassembled stream ranges and of connection events."""

import enum
from typing import Final

from dissector.blocks import Int64Array
from dissector.bundles import Bundle
from dissector.schemas.enums import ENDED


class RangeKind(enum.IntEnum):
    """Kinds of a range. DATA has bytes; the gaps have a length and no bytes; FIN and CLOSE are
    events between bytes and have length 0."""

    DATA = 0
    GAP_LOST = 1  # never captured, given up
    GAP_CUT = 2  # captured short (snap length)
    FIN = 3  # this side ended its stream; all its bytes are out
    CLOSE = 4  # the connection is over; `cause` tells how; last row of the connection


# Causes of a CLOSE, as in `connections.ended`.
ENDED_NAMES: Final = tuple(ENDED)
ENDED_FIN: Final = ENDED_NAMES.index("fin")
ENDED_RST: Final = ENDED_NAMES.index("rst")
ENDED_REUSED: Final = ENDED_NAMES.index("reused")
ENDED_IDLE: Final = ENDED_NAMES.index("idle")
ENDED_CAPTURE_END: Final = ENDED_NAMES.index("capture_end")

# Bits of `flags`.
RETRANSMITTED: Final = 1  # some byte was sent again or came out of order (no tap copies)
STARTS_PACKET: Final = 2  # the first byte of this range is the first payload byte of its packet
ENDS_PACKET: Final = 4  # the last byte of this range is the last payload byte of its packet
GOES_ON: Final = 8  # of a hole: more is missing, how much a later range of its direction says
TWO_WAY: Final = 16  # packets of both directions were captured by then

# Hashes of endpoints, keyed; they do not depend on how a capture is split over threads.
ENDPOINT_BITS: Final = 31
ENDPOINT_MASK: Final = (1 << ENDPOINT_BITS) - 1


class RangeSource(enum.IntEnum):
    """Where the bytes of DATA lie."""

    BLOCK = 0  # the input buffer
    HEAP = 1  # the heap of the streams
    SIDE = 2  # the side buffer of the packets


class RangeColumns(Bundle):
    """In-order pieces of streams, in the order in which they are released; int64[rows] each.

    connection: connection_id.
    endpoint_index: 0 (opened it, or seen first) or 1.
    kind: see above.
    stream_offset: first byte.
    length: bytes.
    source: a RangeSource.
    offset: first byte there.
    packet, ts_ns: the packet that first brought these bytes, its number and capture time (a gap:
        those of the range before it in its direction; GAP_CUT: the packet that was cut).
    flags: bits above.
    cause: of a CLOSE.
    opener: the side whose SYN opened the connection, -1 if no SYN was seen.
    ports: of side 0 << 16 | of side 1.
    endpoint_hashes: of the address and port of side 0 << ENDPOINT_BITS | of side 1.
    release_packet: number of the packet whose arrival let this range out (it, or a later one that
        filled or gave up a hole).
    """

    connection: Int64Array
    endpoint_index: Int64Array
    kind: Int64Array
    stream_offset: Int64Array
    length: Int64Array
    source: Int64Array
    offset: Int64Array
    packet: Int64Array
    ts_ns: Int64Array
    flags: Int64Array
    cause: Int64Array
    opener: Int64Array
    ports: Int64Array
    endpoint_hashes: Int64Array
    release_packet: Int64Array
