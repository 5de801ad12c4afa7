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
UDP: Final = 16
ICMP: Final = 17
OTHER_TRANSPORT: Final = 18
GRE: Final = 19
IP_IN_IP: Final = 20
VXLAN: Final = 21
GENEVE: Final = 22
GTP: Final = 23
ESP: Final = 24
TCP_CUT: Final = 25
TCP_MALFORMED: Final = 26
BAD_TCP_CHECKSUM: Final = 27

# The name of reason n is IGNORED_REASONS[n]; the first stands for packets that are used.
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
    "udp",
    "icmp",
    "other_transport",
    "gre",
    "ip_in_ip",
    "vxlan",
    "geneve",
    "gtp",
    "esp",
    "tcp_header_cut",
    "tcp_malformed",
    "bad_tcp_checksum",
)
