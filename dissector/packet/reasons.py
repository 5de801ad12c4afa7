"""Reasons why a packet gives no segment: a number and a stable name for each."""

from typing import Final

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
USED: Final = IGNORED_REASONS.index("used")  # not a reason: the packet is a segment
UNKNOWN_LINK_TYPE: Final = IGNORED_REASONS.index("unknown_link_type")
NO_INTERFACE: Final = IGNORED_REASONS.index("unknown_interface")
INTERFACE_LIMIT: Final = IGNORED_REASONS.index("interface_limit")
LINK_CUT: Final = IGNORED_REASONS.index("link_header_cut")
VLAN_DEPTH: Final = IGNORED_REASONS.index("vlan_depth")
LLC: Final = IGNORED_REASONS.index("llc")
NOT_IP: Final = IGNORED_REASONS.index("not_ip")
MPLS: Final = IGNORED_REASONS.index("mpls")
PPPOE: Final = IGNORED_REASONS.index("pppoe")
MACSEC: Final = IGNORED_REASONS.index("macsec")
UNSUPPORTED_L2: Final = IGNORED_REASONS.index("unsupported_l2")
IP_CUT: Final = IGNORED_REASONS.index("ip_header_cut")
IP_MALFORMED: Final = IGNORED_REASONS.index("ip_malformed")
EXTENSION_DEPTH: Final = IGNORED_REASONS.index("extension_depth")
FRAGMENT: Final = IGNORED_REASONS.index("ip_fragment")
FRAGMENT_CONFLICT: Final = IGNORED_REASONS.index("fragment_conflict")
FRAGMENT_MALFORMED: Final = IGNORED_REASONS.index("fragment_malformed")
UDP: Final = IGNORED_REASONS.index("udp")
ICMP: Final = IGNORED_REASONS.index("icmp")
OTHER_TRANSPORT: Final = IGNORED_REASONS.index("other_transport")
GRE: Final = IGNORED_REASONS.index("gre")
VXLAN: Final = IGNORED_REASONS.index("vxlan")
GENEVE: Final = IGNORED_REASONS.index("geneve")
GTP: Final = IGNORED_REASONS.index("gtp")
ESP: Final = IGNORED_REASONS.index("esp")
NSH: Final = IGNORED_REASONS.index("nsh")
TUNNEL_CUT: Final = IGNORED_REASONS.index("tunnel_header_cut")
TUNNEL_DEPTH: Final = IGNORED_REASONS.index("tunnel_depth")
TCP_CUT: Final = IGNORED_REASONS.index("tcp_header_cut")
TCP_MALFORMED: Final = IGNORED_REASONS.index("tcp_malformed")
BAD_TCP_CHECKSUM: Final = IGNORED_REASONS.index("bad_tcp_checksum")

LOOK_CLOSER: Final = 255  # not a reason: the short way does not know the packet
DETAIL_SHIFT: Final = 8  # above a reason: the kind that is not read, see `unread`
REASON_MASK: Final = (1 << DETAIL_SHIFT) - 1
