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
ADDRESS_SUM: Final = 31  # its addresses' part of every TCP checksum
LOWER_OTHER_TAG: Final = 32  # the tag before LOWER_TAG, NO_TAG
UPPER_OTHER_TAG: Final = 33
ID_HASH: Final = 35  # the connection id, mixed; ids have hashes of their own
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
TAIL: Final = 20
NODES: Final = 26
HELD: Final = 27  # bytes charged for pending nodes
PROGRESS: Final = 28  # clock of the last data that came at NEXT
COVERED: Final = 29  # clock of the acknowledgement that covered the first hole
START_SINCE: Final = 30
FIN_OFFSET: Final = 31
GAP_START: Final = 32  # the last gap that was given up
GAP_END: Final = 33
FAR_NEXT: Final = 34  # sequence number that would continue the last segment far away
FAR_COUNT: Final = 35
ISN: Final = 36
FIRST_SEQ: Final = 37
ZERO_SINCE: Final = 38
ZERO_WINDOW_NS: Final = 39
RETRANSMITTED_PACKETS: Final = 40
DUPLICATE_PACKETS: Final = 41
OUT_OF_ORDER_PACKETS: Final = 42
KEEPALIVE_PACKETS: Final = 43
GAPS: Final = 44
GAP_BYTES: Final = 45
SNAPLEN_CUT_BYTES: Final = 46
CONFLICT_BYTES: Final = 47
LATE_PACKETS: Final = 48  # data after the end of its stream
LATE_BYTES: Final = 49
STRAY_PACKETS: Final = 50  # far outside the stream, an old SYN, an RST outside the window
RESET_OFFSET: Final = 51
LAST_IP_ID: Final = 52  # of its last packet
GOOD_CHECKSUMS: Final = 53  # packets whose checksum was looked at and right
BAD_CHECKSUMS: Final = 54
SIDE_CELLS: Final = 56

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
CONNECTION_TWO_CLOCKS: Final = 512  # copies far apart in time were said
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
SIDE_IDS_REPEAT: Final = 512  # two packets that are no copies had one IP identification
SIDE_URGENT: Final = 1024  # its urgent data was said

# -- a pending node
NODE_OFFSET: Final = 0
NODE_LENGTH: Final = 1
NODE_AT: Final = 2  # first byte in the heap
NODE_KIND: Final = 3  # DATA, GAP_CUT, FIN; NODE_FREE
NODE_PACKET: Final = 4
NODE_TS: Final = 5
NODE_FLAGS: Final = 6
NODE_OPENED: Final = 7  # clock at which the hole before this node opened
NODE_FROM: Final = 8  # bounds of the segment whose copy this is
NODE_TO: Final = 9
NODE_DOUBTFUL: Final = 10  # 1: its checksum was wrong; a better copy, or proof, is waited for
NODE_LEVELS: Final = 11
NODE_NEXT: Final = 12  # one per level
NODE_CELLS: Final = 18
NODE_FREE: Final = -1
LEVELS: Final = 6

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
LIST_HEAD: Final = 18  # one per list
LIST_TAIL: Final = 21
LIST_COUNT: Final = 24
GIVEN_UP_CONNECTIONS: Final = 27
VERDICT: Final = 28  # on the SYN being processed
STEPS: Final = 29  # taken along lists whose length an input decides: tests hold the cost with it
LEVEL_SEED: Final = 47  # so that nobody knows beforehand which nodes rise a level
# options
WINDOW_NS: Final = 31
UNACKED_NS: Final = 32
IDLE_NS: Final = 33
HELD_LIMIT: Final = 34
HELD_LIMIT_CONNECTION: Final = 35
CONNECTION_LIMIT: Final = 36
BRIEF_LIMIT: Final = 37
OVERLAP: Final = 38
VLAN_IN_KEY: Final = 39
TICK_END: Final = 40  # clock at which the next second begins
BEFORE: Final = 41  # LEVELS cells: the nodes before the place last searched
DOUBTFUL: Final = 48  # 1: the packet being processed is doubtful (doubt.py)
CONFLICT_AT: Final = 49  # where the segment being processed first differs from a waiting one
REGISTERS: Final = 50

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
TCP_URG: Final = 32

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
