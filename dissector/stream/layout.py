"""Where the state of streams lies: the places of values in rows of int64 cells.

One connection is one row of ROW_CELLS cells: what it shares, then its side 0, then its side 1. A
kernel holds the address of a row (`base`) or of a side in it (`side`), and adds the place of the
value: `cells[side + NEXT]`. One array instead of eighty keeps what one packet touches in a few
cache lines and the signatures of kernels short. Addresses stay valid when the array grows.
"""

from typing import Final

# -- a connection: the key first (the lower endpoint, the upper one, the rest)
LOWER_HIGH: Final = 0
LOWER_LOW: Final = 1
UPPER_HIGH: Final = 2
UPPER_LOW: Final = 3
PORTS: Final = 4  # IP version << 32 | lower endpoint's port << 16 | upper endpoint's port
LOWER_TAG: Final = 5  # tag (see tags.py) of the last packet from the lower endpoint, NO_TAG
UPPER_TAG: Final = 6  # and from the upper one
KEY_HASH: Final = 7
CONNECTION_ID: Final = 8
SLOW: Final = 9  # bits SLOW_*; 0: the fast path may take its packets
BITS: Final = 10  # bits CONNECTION_*
TICK: Final = 11  # second of its last packet, as far as its list knows
FIRST_TS: Final = 12
LAST_TS: Final = 13
FIRST_PACKET: Final = 14
LAST_PACKET: Final = 15
HISTORY_SEEN: Final = 16  # one bit per letter and side
HISTORY: Final = 17  # two cells of twelve letters, five bits each
HISTORY_LENGTH: Final = 19
VLANS: Final = 20
CLOSING: Final = 21  # 0, or cause + 1
CLOSE_DUE: Final = 22  # processing clock at which everything left is given up
CLOSED_FIRST: Final = 23  # side of the first FIN or RST, -1 none
OPENER: Final = 24  # side of the SYN, -1 unknown
SYN_TS: Final = 25
HANDSHAKE_RTT: Final = 26
LIST: Final = 27  # which list of least recent use it is in, -1 none
PREVIOUS: Final = 28
FOLLOWING: Final = 29  # in its list, or the next free row
READY: Final = 30  # place in the queue of connections with work, 0 none
CAP_NOTICED: Final = 31
LOWER_OTHER_TAG: Final = 32  # the tag before LOWER_TAG, NO_TAG
UPPER_OTHER_TAG: Final = 33
TUNNEL: Final = 34  # number of the first tunnel around a packet, 0 none
CONNECTION_CELLS: Final = 40

# -- a side: bytes that this side sent
ORIGIN: Final = 0  # sequence number of stream offset 0
NEXT: Final = 1  # offset after the last byte or gap that left
TOP: Final = 2  # offset after the highest byte seen or given up
ACKED: Final = 3  # highest offset the peer acknowledged (before ORIGIN is known: raw)
TURN: Final = 4  # highest packet number that left
RANGE_PACKET: Final = 5  # packet and time of the last range that left
RANGE_TS: Final = 6
PACKETS: Final = 7
PAYLOAD_BYTES: Final = 8
STREAM_BYTES: Final = 9
ACK_SINCE: Final = 10  # clock since which the peer acknowledges bytes beyond TOP
SIDE_BITS: Final = 11  # bits SIDE_*
TIMER: Final = 12  # place in the queue of timers, 0 none
LAST_TSVAL: Final = 13
HEAD: Final = 14  # first pending node, one per level
TAIL: Final = 18
NODES: Final = 22
HELD: Final = 23  # bytes charged for pending nodes
PROGRESS: Final = 24  # clock of the last data that came at NEXT
COVERED: Final = 25  # clock of the acknowledgement that covered the first hole
START_SINCE: Final = 26
FIN_OFFSET: Final = 27
GAP_START: Final = 28  # the last gap that was given up
GAP_END: Final = 29
FAR_NEXT: Final = 30  # sequence number that would continue the last segment far away
FAR_COUNT: Final = 31
ISN: Final = 32
FIRST_SEQ: Final = 33
ZERO_SINCE: Final = 34
ZERO_WINDOW_NS: Final = 35
RETRANSMITTED_PACKETS: Final = 36
DUPLICATE_PACKETS: Final = 37
OUT_OF_ORDER_PACKETS: Final = 38
KEEPALIVE_PACKETS: Final = 39
GAPS: Final = 40
GAP_BYTES: Final = 41
SNAPLEN_CUT_BYTES: Final = 42
CONFLICT_BYTES: Final = 43
LATE_PACKETS: Final = 44  # data after the end of its stream
LATE_BYTES: Final = 45
STRAY_PACKETS: Final = 46  # far outside the stream, an old SYN, an RST outside the window
RESET_OFFSET: Final = 47
SIDE_CELLS: Final = 48

ROW_CELLS: Final = CONNECTION_CELLS + 2 * SIDE_CELLS

# Reasons for the slow path.
SLOW_PENDING: Final = 1  # data of a side waits
SLOW_START: Final = 2  # a side's start is open, or nothing of the connection was seen but SYNs
SLOW_ENDING: Final = 4  # a FIN or RST was seen
SLOW_CLOSED: Final = 8
SLOW_ZERO_WINDOW: Final = 16

CONNECTION_SIDE0_IS_UPPER: Final = 1
CONNECTION_OPENED: Final = 2  # its OPEN row is out
CONNECTION_CLOSED: Final = 4  # its CLOSE row is out
CONNECTION_DETACHED: Final = 8  # no packet can find it any more
CONNECTION_FROM_SYN: Final = 16
CONNECTION_HAS_COPIES: Final = 32  # a copy by the tap was seen beyond doubt
CONNECTION_NATIVE: Final = 256  # a packet was seen outside any tunnel
CONNECTION_FREE: Final = 128  # the row belongs to no connection
CONNECTION_RTT_PENDING: Final = 64  # SYN and SYN-ACK were seen, the opener's ACK not yet

SIDE_HAS_ORIGIN: Final = 1
SIDE_START_OPEN: Final = 2  # earlier bytes may still come: nothing leaves yet
SIDE_HAS_RAW_ACK: Final = 4
SIDE_FIN_SEEN: Final = 8
SIDE_FIN_OUT: Final = 16
SIDE_RELEASED: Final = 32  # a byte or a gap has left
SIDE_GIVE_UP: Final = 64  # give the first hole up now: memory
SIDE_STARTED_EMPTY: Final = 128  # the first packet had at most one byte: maybe a keep-alive
SIDE_RESYNC: Final = 256  # the stream goes on far away: give up every hole before it

# -- a pending node
NODE_OFFSET: Final = 0
NODE_LENGTH: Final = 1
NODE_AT: Final = 2  # first byte in the heap
NODE_KIND: Final = 3  # DATA, GAP_CUT, FIN; NODE_FREE
NODE_PACKET: Final = 4
NODE_TS: Final = 5
NODE_FLAGS: Final = 6
NODE_OPENED: Final = 7  # clock at which the hole before this node opened
NODE_LEVELS: Final = 8
NODE_NEXT: Final = 9  # one per level
NODE_CELLS: Final = 13
NODE_FREE: Final = -1
LEVELS: Final = 4

# -- registers: single numbers of the whole state
CLOCK: Final = 0  # largest capture time so far, ns
CLOCK_TICK: Final = 1
LEAP_TS: Final = 2
PACKET: Final = 3  # the packet being processed
ROW: Final = 4  # next row of the segments
ROWS_OUT: Final = 5
NOTICES_OUT: Final = 6
NEXT_ID: Final = 7
FREE_ROW: Final = 8  # first free row's address, -1 none
FREE_ROWS: Final = 9
LIVE: Final = 10  # connections that packets can find
RETIRED: Final = 11
FREE_NODE: Final = 12
FREE_NODES: Final = 13
NODE_SERIAL: Final = 14
HEAP_USED: Final = 15
HEAP_LIVE: Final = 16
HELD_TOTAL: Final = 17
BEFORE: Final = 18  # LEVELS cells: the nodes before the place last searched
LIST_HEAD: Final = 22  # one per list
LIST_TAIL: Final = 25
LIST_COUNT: Final = 28
GIVEN_UP_CONNECTIONS: Final = 31
VERDICT: Final = 32  # on the SYN being processed
# options
WINDOW_NS: Final = 33
UNACKED_NS: Final = 34
IDLE_NS: Final = 35
HELD_LIMIT: Final = 36
HELD_LIMIT_CONNECTION: Final = 37
CONNECTION_LIMIT: Final = 38
BRIEF_LIMIT: Final = 39
OVERLAP: Final = 40
VLAN_IN_KEY: Final = 41
TICK_END: Final = 42  # clock at which the next second begins
REGISTERS: Final = 44

# Lists of least recent use, least recent first.
LIST_SYN_ONLY: Final = 0
LIST_OPEN: Final = 1
LIST_LINGERING: Final = 2
LISTS: Final = 3

# What stops a kernel.
DONE: Final = 0
FULL: Final = 1  # ranges or notices must be taken away first
NEED_HEAP: Final = 2
NEED_NODES: Final = 3
NEED_ROWS: Final = 4

# Overlap policies, in the order of OVERLAP_NAMES.
OVERLAP_FIRST: Final = 0
OVERLAP_LAST: Final = 1
OVERLAP_LINUX: Final = 2
OVERLAP_WINDOWS: Final = 3
OVERLAP_NAMES: Final = ("first", "last", "linux", "windows")

# TCP flags.
TCP_FIN: Final = 1
TCP_SYN: Final = 2
TCP_RST: Final = 4
TCP_ACK: Final = 16

LETTERS: Final = "shadfrgtw"  # upper case for side 0
LETTER_SYN: Final = 0
LETTER_SYN_ACK: Final = 1
LETTER_ACK: Final = 2
LETTER_DATA: Final = 3
LETTER_FIN: Final = 4
LETTER_RST: Final = 5
LETTER_GAP: Final = 6
LETTER_RETRANSMISSION: Final = 7
LETTER_ZERO_WINDOW: Final = 8

NO_TAG: Final = -1
NEVER: Final = 1 << 62
