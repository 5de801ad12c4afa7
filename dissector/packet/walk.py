"""Where the slow way through a packet is: the places of its numbers in one int64 array.

Almost all packets are TCP in IP behind a link header, and the pass over a block reads them in one
go. What is anything else (a tunnel, a label, a fragment, another protocol) is walked header by
header by the kernels of `unwrap` and `tunnels`, which share this array instead of long tuples.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.codecs.wrapping import product, total
from dissector.jit import inlined, kernel
from dissector.limits import MAX_TUNNEL_DEPTH
from dissector.packet.columns import SegmentColumns
from dissector.packet.link import VLAN_COUNT_SHIFT, VLAN_ID_BITS
from dissector.packet.reasons import TUNNEL_DEPTH
from dissector.states import State

# -- the pass over a block
ROW: Final = 0  # next packet
ROWS: Final = 1
FOUND: Final = 2  # segments so far
FIRST_PACKET: Final = 3  # number of row 0
VERIFY: Final = 4  # 1: segments with a wrong checksum are not used
TUNNELS: Final = 5  # how many are known
OFFLOADED: Final = 6  # packets captured before their checksum was
FIRST_OFFLOADED: Final = 7  # number of the first of them
# -- the packet being walked
LAYER: Final = 8  # what comes at OFFSET: AT_*
OFFSET: Final = 9
END: Final = 10  # after the last captured byte of this layer
WIRE_END: Final = 11  # after the last byte of this layer as it was on the wire
TYPE: Final = 12  # AT_LINK: link type; AT_TYPE: ethertype; AT_PROTOCOL: of IP
VLANS: Final = 13  # as in SegmentColumns
DETAIL: Final = 14  # the ethertype or link type that is not read
SOURCE: Final = 15  # which array is walked, as in SegmentColumns
PACKET: Final = 16
TS_NS: Final = 17
# -- the innermost IP header so far
IP_VERSION: Final = 18
ADDRESSES: Final = 19  # source high, low, destination high, low
IP_ID: Final = 23
HOP_LIMIT: Final = 24
# -- the tunnels around it
DEPTH: Final = 25
HASH: Final = 26
STACK: Final = 27  # STACK_CELLS for each, outermost first
STACK_CELLS: Final = 6  # kind, id, lower address (high, low), upper address
WALK_CELLS: Final = STACK + STACK_CELLS * MAX_TUNNEL_DEPTH

AT_LINK: Final = 0
AT_ETHERNET: Final = 1
AT_TYPE: Final = 2  # an ethertype was read, what it announces begins here
AT_PPP: Final = 3
AT_IP: Final = 4  # its first four bits say which version
AT_PROTOCOL: Final = 5  # behind an IP header

GO_ON: Final = -1  # not a reason: the next layer was found
FOUND_TCP: Final = -2
FOUND_FRAGMENT: Final = -3

# Kinds of tunnels. The id of an entry with addresses is NO_ID.
VXLAN_KIND: Final = 0
GENEVE_KIND: Final = 1
GRE_KIND: Final = 2
ERSPAN_KIND: Final = 3
IP_KIND: Final = 4
MPLS_KIND: Final = 5
PPPOE_KIND: Final = 6
PBB_KIND: Final = 7
GTP_KIND: Final = 8
PPTP_KIND: Final = 9
ETHERIP_KIND: Final = 10
NO_ID: Final = -1

_FACTOR: Final = 0x2545_F491_4F6C_DD1D


class PacketState(State):
    """What the packet pass works on and remembers.

    walk: see above; tunnels: hash table, pairs of hash (0: free) and number; stacks: by number - 1
    a row of depth and stack. segments, reasons: output, by segment and by packet.
    """

    walk: Int64Array
    tunnels: Int64Array
    stacks: Int64Array
    segments: SegmentColumns
    reasons: Int64Array


@inlined
def step(walk: Int64Array, layer: int, offset: int) -> int:
    """The next layer begins at offset."""
    walk[LAYER] = layer
    walk[OFFSET] = offset
    return GO_ON


@inlined
def step_type(walk: Int64Array, ethertype: int, offset: int) -> int:
    """At offset begins what an ethertype announces."""
    walk[TYPE] = ethertype
    walk[LAYER] = AT_TYPE
    walk[OFFSET] = offset
    return GO_ON


@kernel
def add_vlans(walk: Int64Array, vlans: int) -> None:
    """Append the VLAN ids of an inner frame; what is more than four is left out."""
    count = walk[VLANS] >> VLAN_COUNT_SHIFT
    ids = walk[VLANS] & ((1 << VLAN_COUNT_SHIFT) - 1)
    for place in range(vlans >> VLAN_COUNT_SHIFT):
        if count < 4:
            ids |= ((vlans >> (VLAN_ID_BITS * place)) & 0xFFF) << (VLAN_ID_BITS * count)
            count += 1
    walk[VLANS] = ids | (count << VLAN_COUNT_SHIFT)


@kernel
def enter(walk: Int64Array, kind: int, number: int) -> int:
    """A tunnel begins. number: its id; NO_ID: the addresses around it say which it is.

    Returns:
        GO_ON or TUNNEL_DEPTH.
    """
    depth = walk[DEPTH]
    if depth == MAX_TUNNEL_DEPTH:
        return TUNNEL_DEPTH
    at = STACK + STACK_CELLS * depth
    walk[at] = kind
    walk[at + 1] = number
    # The same for both directions: the lower address first.
    swap = 0
    if walk[ADDRESSES] > walk[ADDRESSES + 2] or (
        walk[ADDRESSES] == walk[ADDRESSES + 2] and walk[ADDRESSES + 1] > walk[ADDRESSES + 3]
    ):
        swap = 2
    for place in range(4):
        walk[at + 2 + place] = walk[ADDRESSES + (place ^ swap)] if number == NO_ID else 0
    value = walk[HASH]
    for place in range(STACK_CELLS):
        value = product(total(value ^ walk[at + place], _FACTOR), _FACTOR)
        value ^= value >> 29
    walk[HASH] = value
    walk[DEPTH] = depth + 1
    return GO_ON
