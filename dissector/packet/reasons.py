"""Why a packet is not a segment: one number and one stable name for each reason."""

from typing import Final

USED: Final = 0  # not a reason: the packet is a segment
UNKNOWN_LINK_TYPE: Final = 1
NO_INTERFACE: Final = 2
INTERFACE_LIMIT: Final = 3
LINK_CUT: Final = 4
VLAN_DEPTH: Final = 5
LLC: Final = 6
NOT_IP: Final = 7
MPLS: Final = 8
PPPOE: Final = 9
MACSEC: Final = 10
UNSUPPORTED_L2: Final = 11
IP_CUT: Final = 12
IP_MALFORMED: Final = 13
EXTENSION_DEPTH: Final = 14
FRAGMENT: Final = 15
FRAGMENT_CONFLICT: Final = 16
FRAGMENT_MALFORMED: Final = 17
UDP: Final = 18
ICMP: Final = 19
OTHER_TRANSPORT: Final = 20
GRE: Final = 21
VXLAN: Final = 22
GENEVE: Final = 23
GTP: Final = 24
ESP: Final = 25
NSH: Final = 26
TUNNEL_CUT: Final = 27
TUNNEL_DEPTH: Final = 28
TCP_CUT: Final = 29
TCP_MALFORMED: Final = 30
BAD_TCP_CHECKSUM: Final = 31

# The name of reason n is IGNORED_REASONS[n]; the first stands for packets that are used. A tunnel's
# name stands for packets of its kind in which nothing to read was found.
IGNORED_REASONS: Final = (
    "used",
    "unknown_link_type",
    "unknown_interface",
    "interface_limit",
    "link_header_cut",
    "vlan_depth",
    "llc",
    "not_ip",
    "mpls",
    "pppoe",
    "macsec",
    "unsupported_l2",
    "ip_header_cut",
    "ip_malformed",
    "extension_depth",
    "ip_fragment",
    "fragment_conflict",
    "fragment_malformed",
    "udp",
    "icmp",
    "other_transport",
    "gre",
    "vxlan",
    "geneve",
    "gtp",
    "esp",
    "nsh",
    "tunnel_header_cut",
    "tunnel_depth",
    "tcp_header_cut",
    "tcp_malformed",
    "bad_tcp_checksum",
)

LOOK_CLOSER: Final = 255  # not a reason: the short way does not know the packet
DETAIL_SHIFT: Final = 8  # above a reason: the ethertype or link type that is not read
REASON_MASK: Final = (1 << DETAIL_SHIFT) - 1
