"""State of the slow path through a packet.

Almost all packets are TCP in IP after a link header, which the pass over a block decodes directly.
For all others (tunnels, labels, fragments, other protocols) the kernels of `unwrap` and `tunnels`
walk header by header and share this state instead of long tuples.
"""

import enum
from typing import Final

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.keyed_hash import hash_of_row, new_secret
from dissector.jit import inlined, kernel
from dissector.limits import MAX_TUNNEL_DEPTH
from dissector.packet.columns import SegmentColumns
from dissector.packet.link import VLAN_COUNT_SHIFT, VLAN_ID_BITS
from dissector.packet.reasons import TUNNEL_DEPTH
from dissector.states import State
from dissector.tables import HashTable


class Layer(enum.IntEnum):
    """What begins at the place that a walk has reached."""

    LINK = 0
    ETHERNET = 1
    TYPE = 2  # an ethertype was read, what it announces begins here
    PPP = 3
    IP = 4  # its first four bits say which version
    PROTOCOL = 5  # behind an IP header


GO_ON: Final = -1  # not a reason: the next layer was found
REACHED_TCP: Final = -2
REACHED_FRAGMENT: Final = -3

# Kinds of tunnels, in the order of their names in tables.
TUNNEL_KINDS: Final = (
    "vxlan", "geneve", "gre", "erspan", "ip", "mpls", "pppoe", "pbb", "gtp", "pptp", "etherip"
)  # fmt: skip
VXLAN_KIND: Final = TUNNEL_KINDS.index("vxlan")
GENEVE_KIND: Final = TUNNEL_KINDS.index("geneve")
GRE_KIND: Final = TUNNEL_KINDS.index("gre")
ERSPAN_KIND: Final = TUNNEL_KINDS.index("erspan")
IP_KIND: Final = TUNNEL_KINDS.index("ip")
MPLS_KIND: Final = TUNNEL_KINDS.index("mpls")
PPPOE_KIND: Final = TUNNEL_KINDS.index("pppoe")
PBB_KIND: Final = TUNNEL_KINDS.index("pbb")
GTP_KIND: Final = TUNNEL_KINDS.index("gtp")
PPTP_KIND: Final = TUNNEL_KINDS.index("pptp")
ETHERIP_KIND: Final = TUNNEL_KINDS.index("etherip")
NO_KIND: Final = -1  # of what lies behind the innermost tunnel of a stack
NO_ID: Final = -1  # of a tunnel that its addresses identify
NO_END: Final = (1 << 62) - 1
# Mirrors send through these, and shorten frames: then an inner length is right that is longer.
_MIRROR_KINDS: Final = (VXLAN_KIND, GENEVE_KIND, GRE_KIND, ERSPAN_KIND)


class Position(Records):
    """Where a walk stands: records of one row.

    layer: AT_*, what begins at offset.
    end: after the last captured byte of this layer.
    wire_end: after its last byte on the wire.
    packet_end: likewise, of the whole packet.
    stated_end: after the last byte that the headers around it state, NO_END: they state none.
    kind: AT_LINK: link type, AT_TYPE: ethertype, AT_PROTOCOL: protocol of IP.
    detail: the kind that is not read, see `unread`.
    source, packet, ts_ns, vlans: as in SegmentColumns. ip_version to hop_limit: of the innermost IP
        header so far.
    depth: tunnels around it.
    tunnel_hash: of these.
    """

    layer: Int64Array
    offset: Int64Array
    end: Int64Array
    wire_end: Int64Array
    packet_end: Int64Array
    stated_end: Int64Array
    kind: Int64Array
    detail: Int64Array
    source: Int64Array
    packet: Int64Array
    ts_ns: Int64Array
    vlans: Int64Array
    ip_version: Int64Array
    source_high: Int64Array
    source_low: Int64Array
    destination_high: Int64Array
    destination_low: Int64Array
    ip_id: Int64Array
    hop_limit: Int64Array
    depth: Int64Array
    tunnel_hash: Int64Array


class TunnelStack(Records):
    """Tunnels around a packet, outermost first, in MAX_TUNNEL_DEPTH rows; those behind the
    innermost have NO_KIND. number: its id, or NO_ID and the addresses, the lower one first."""

    kind: Int64Array
    number: Int64Array
    lower_high: Int64Array
    lower_low: Int64Array
    upper_high: Int64Array
    upper_low: Int64Array


class HeaderWalk(State):
    """The walk through one packet. secret: of the hash of its tunnels."""

    position: Position
    tunnels: TunnelStack
    secret: Int64Array


class BlockPass(Records):
    """The pass over a block: records of one row.

    row: next packet of `rows`.
    segments: how many so far.
    first_packet: number of row 0.
    verify: 1: segments with a wrong checksum are not used.
    fragments: rows of FoundFragments.
    offloaded: packets captured before their checksum was put in, first_offloaded: number of the
        first of them.
    shortened, first_shortened: likewise, of packets that are shorter than IP says.
    shortened_bytes: by so many in all.
    """

    row: Int64Array
    rows: Int64Array
    segments: Int64Array
    first_packet: Int64Array
    verify: Int64Array
    fragments: Int64Array
    offloaded: Int64Array
    first_offloaded: Int64Array
    shortened: Int64Array
    first_shortened: Int64Array
    shortened_bytes: Int64Array


class FoundFragments(Records):
    """Fragments of a block one after the other, with no segment between them. row: of the packet;
    else as in `fragments.Place`."""

    row: Int64Array
    offset: Int64Array
    end: Int64Array
    wire_end: Int64Array
    tunnels: Int64Array
    ts_ns: Int64Array
    packet: Int64Array
    source: Int64Array


class PacketState(State):
    """What the packet pass works on and remembers.

    tunnels: numbers of tunnels, from 0, by tunnel_hash.
    stacks: by number the rows of one stack.
    segments, reasons: output, by segment and by packet.
    fragments: output, for the caller.
    """

    block_pass: BlockPass
    walk: HeaderWalk
    tunnels: HashTable
    stacks: TunnelStack
    segments: SegmentColumns
    reasons: Int64Array
    fragments: FoundFragments


def new_walk(key: int = 0) -> HeaderWalk:
    """A walk that has not begun. key: of the hash of tunnels."""
    return HeaderWalk(
        position=Position.new(1),
        tunnels=TunnelStack.new(MAX_TUNNEL_DEPTH),
        secret=new_secret(key),
    )


@inlined
def step(walk: HeaderWalk, layer: int, offset: int) -> int:
    """Say that the next layer begins at offset."""
    position = walk.position
    position.layer[0] = layer
    position.offset[0] = offset
    return GO_ON


@inlined
def step_type(walk: HeaderWalk, ethertype: int, offset: int) -> int:
    """Say that at offset begins what an ethertype announces."""
    position = walk.position
    position.kind[0] = ethertype
    position.layer[0] = Layer.TYPE
    position.offset[0] = offset
    return GO_ON


@inlined
def state_length(walk: HeaderWalk, offset: int, length: int) -> None:
    """A header states how many bytes it carries from offset on: of several ends the nearest
    counts. Nothing is no length: a packet that its network card has yet to cut may say 0."""
    position = walk.position
    if length > 0:
        position.stated_end[0] = min(position.stated_end[0], offset + length)


@kernel
def add_vlans(walk: HeaderWalk, vlans: int) -> None:
    """Append the VLAN ids of an inner frame; what is more than four is left out."""
    position = walk.position
    count = position.vlans[0] >> VLAN_COUNT_SHIFT
    ids = position.vlans[0] & ((1 << VLAN_COUNT_SHIFT) - 1)
    for index in range(vlans >> VLAN_COUNT_SHIFT):
        if count < 4:
            ids |= ((vlans >> (VLAN_ID_BITS * index)) & 0xFFF) << (VLAN_ID_BITS * count)
            count += 1
    position.vlans[0] = ids | (count << VLAN_COUNT_SHIFT)


@kernel
def enter(walk: HeaderWalk, kind: int, number: int) -> int:
    """Enter a tunnel. number: its id, or NO_ID: the addresses around it say which it is.

    Returns:
        GO_ON or TUNNEL_DEPTH.
    """
    position = walk.position
    tunnels = walk.tunnels
    depth = position.depth[0]
    if depth == MAX_TUNNEL_DEPTH:
        return TUNNEL_DEPTH
    high, low = position.source_high[0], position.source_low[0]
    other_high, other_low = position.destination_high[0], position.destination_low[0]
    # The same for both directions: the lower address first.
    if high > other_high or (high == other_high and low > other_low):
        high, low, other_high, other_low = other_high, other_low, high, low
    if number != NO_ID:
        high, low, other_high, other_low = 0, 0, 0, 0
    tunnels.kind[depth] = kind
    tunnels.number[depth] = number
    tunnels.lower_high[depth] = high
    tunnels.lower_low[depth] = low
    tunnels.upper_high[depth] = other_high
    tunnels.upper_low[depth] = other_low
    before = position.tunnel_hash[0]
    position.tunnel_hash[0] = hash_of_row(walk.secret, before, tunnels.matrix, depth)
    position.depth[0] = depth + 1
    if kind in _MIRROR_KINDS:
        position.stated_end[0] = NO_END
    return GO_ON
