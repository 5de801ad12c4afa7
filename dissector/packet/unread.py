"""Names the kinds of unsupported packets that may carry other packets.

A kind is a link type, an ethertype or an encapsulation. The number of an encapsulation includes its
carrier: a port of UDP, or a protocol of IP or PPP with IN_IP or IN_PPP added.
"""

import re
from typing import Final

from dissector.packet.link import PPP_TYPES, link_type_name

IN_IP: Final = 1 << 16
IN_PPP: Final = PPP_TYPES

# By the code of their notice.
LINK_TYPE: Final = "unknown_link_type"
ETHERTYPE: Final = "unknown_ethertype"
ENCAPSULATION: Final = "unread_encapsulation"
UNREAD_CODES: Final = (LINK_TYPE, ETHERTYPE, ENCAPSULATION)

_ETHERTYPES: Final = {
    0x00FE: "OSI",
    0x2000: "CDP",
    0x2001: "NHRP",
    0x22F0: "AVTP",
    0x22F3: "TRILL",
    0x22F4: "IS-IS",
    0x4305: "batman-adv",
    0x6559: "frame relay",
    0x8870: "jumbo LLC",
    0x8874: "Broadcom switch tag",
    0x8899: "Realtek switch tag",
    0x88B5: "local experiment",
    0x88B6: "local experiment",
    0x88B8: "GOOSE",
    0x88BA: "sampled values",
    0x88C7: "802.11i pre-authentication",
    0x88DC: "WSMP",
    0x890D: "802.11 encapsulation",
    0xDADA: "switch tag (DSA)",
}
# What controllers of access points send 802.11 frames as, in GRE.
_ARUBA: Final = range(0x8200, 0x8400, 0x10)
UDP_PORTS: Final = {
    1194: "OpenVPN",
    1701: "L2TP",
    3544: "Teredo",
    4341: "LISP",
    4500: "IPsec in UDP",
    4755: "GRE in DTLS",
    5246: "CAPWAP, control",
    5247: "CAPWAP",
    6080: "GUE",
    6636: "MPLS in DTLS",
    12222: "LWAPP",
    37008: "TZSP",
    51820: "WireGuard",
}
IP_PROTOCOLS: Final = {
    55: "minimal encapsulation",
    94: "IP in IP of KA9Q",
    98: "encapsulation header",
    108: "IPComp",
    115: "L2TP version 3",
}
PPP_PROTOCOLS: Final = {
    0x002D: "compressed TCP headers",
    0x002F: "compressed TCP headers",
    0x003D: "multilink PPP",
    0x0053: "encrypted PPP",
    0x00FB: "compressed PPP",
    0x00FD: "compressed or encrypted PPP",
}
_UNKNOWN: Final = "an encapsulation"
_TEXT: Final = re.compile(r"(.+) is not read: (\d+) packets?")


def _with_name(text: str, name: str | None) -> str:
    return f"{text} ({name})" if name else text


def unread_name(code: str, number: int) -> str:
    """Such as `link type 127 (IEEE802_11_RADIOTAP)` or `L2TP (UDP port 1701)`."""
    if code == LINK_TYPE:
        name = link_type_name(number)
        return _with_name(f"link type {number}", None if name.endswith(f"_{number}") else name)
    if code == ETHERTYPE:
        name = "802.11 in GRE" if number in _ARUBA else _ETHERTYPES.get(number, "")
        return _with_name(f"ethertype 0x{number:04x}", name)
    place, kind = number & ~0xFFFF, number & 0xFFFF
    if place == IN_IP:
        return f"{IP_PROTOCOLS.get(kind, _UNKNOWN)} (IP protocol {kind})"
    if place == IN_PPP:
        return f"{PPP_PROTOCOLS.get(kind, _UNKNOWN)} (PPP protocol 0x{kind:04x})"
    return f"{UDP_PORTS.get(kind, _UNKNOWN)} (UDP port {kind})"


def unread_text(code: str, number: int, packets: int) -> str:
    """Return the sentence of a notice."""
    noun = "packet" if packets == 1 else "packets"
    return f"{unread_name(code, number)} is not read: {packets} {noun}"


def unread_of(text: str) -> tuple[str, int] | None:
    """The name and the number of packets in such a sentence; None if it is none."""
    match = _TEXT.fullmatch(text)
    return None if match is None else (match[1], int(match[2]))
