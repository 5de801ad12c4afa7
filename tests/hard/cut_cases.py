"""Captures whose packets are cut or grown: fragments, extension headers, offload, snap lengths."""

import random
import struct
from collections.abc import Callable
from typing import Any

from tests.hard.cases import case
from tests.hard.link_cases import SIX, VXLAN, conversation, framed
from tests.hard.tape import Packet, Tape, capture, talk
from tests.wire import tunnels
from tests.wire.captures import Record
from tests.wire.fragments import fragments
from tests.wire.packets import ethernet, extension, ipv4, ipv6, tcp


def in_fragments(tape: Tape, order: Callable[[list[bytes]], list[bytes]], size: int) -> bytes:
    """Every packet with data in fragments of at most `size` bytes; others as they are."""
    records: list[Record] = []
    for number, (each, record) in enumerate(zip(tape.packets, tape.records(), strict=True)):
        packet = record.data[14:]
        pieces = [packet]
        if each.payload:
            head = 20 if packet[0] >> 4 == 4 else 40
            cuts = range(size, len(packet) - head, size)
            pieces = fragments(packet, list(cuts), 1000 + number)
        if len(pieces) > 1:
            pieces = order(pieces)
        for place, piece in enumerate(pieces):
            records.append(Record(record.ts_ns + 1000 * place, framed(piece)))
    return capture(records)


def shuffled(pieces: list[bytes]) -> list[bytes]:
    """In an order that is the same each time."""
    random.Random(len(pieces[0])).shuffle(pieces)
    return pieces


ORDERS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "in_order": list,
    "reversed": lambda pieces: pieces[::-1],
    "last_first": lambda pieces: [pieces[-1], *pieces[:-1]],
    "doubled": lambda pieces: [each for piece in pieces for each in (piece, piece)],
    "drawn": shuffled,
}
for _words, _order in ORDERS.items():

    def _fragmented(order: Callable[[list[bytes]], list[bytes]] = _order) -> bytes:
        return in_fragments(conversation(), order, 256)

    _fragmented.__name__ = f"fragments_{_words}"
    case("B15")(_fragmented)


@case("B15")
def fragments_in_a_tunnel() -> bytes:
    """The outer packet is cut, as where a tunnel makes packets too long."""
    tape = conversation()
    records = []
    for number, record in enumerate(tape.records(lambda p, _: VXLAN["port_4789"].wrap(p))):
        for piece in fragments(record.data[14:], [1400], number):
            records.append(Record(record.ts_ns, framed(piece)))
    return capture(records)


@case("B16")
def first_fragment_shorter_than_its_header() -> bytes:
    """Eight bytes of TCP header in the first fragment."""
    return in_fragments(conversation(), list, 8)


def with_extension(packet: bytes, before: bytes, first: int) -> bytes:
    """An IPv6 packet with headers before its TCP header."""
    size = len(packet) - 40 + len(before)
    return packet[:4] + struct.pack(">HB", size, first) + packet[7:40] + before + packet[40:]


EXTENSIONS = {
    "hop_by_hop": (0, extension(6, b"")),
    "routing": (43, extension(6, b"", 2)),
    "destination": (60, extension(6, b"")),
    "authentication": (51, b"\x06\x04" + bytes(22)),
    "authentication_of_no_length": (51, b"\x06\0" + bytes(6)),
    "atomic_fragment": (44, b"\x06\0\0\0\0\0\0\x09"),
    "several": (0, extension(60, extension(43, extension(6, b"", 1)))),
}
for _words, (_first, _before) in EXTENSIONS.items():

    def _extended(first: int = _first, before: bytes = _before) -> bytes:
        tape = conversation(**SIX)
        return capture(tape.records(lambda p, _: framed(with_extension(p, before, first))))

    _extended.__name__ = f"extension_{_words}"
    case("B17")(_extended)


@case("B17")
def fragments_of_ipv6() -> bytes:
    """Every packet with data in fragments, drawn."""
    return in_fragments(conversation(**SIX), shuffled, 256)


GIANT = 200_000


def giants(is_v6: bool = False) -> Tape:
    """Messages in single segments of up to a fifth of a megabyte, as before the card cuts them."""
    fields: dict[str, Any] = SIX if is_v6 else {}
    return talk(4, seed=8, sizes=(GIANT, 60_000, 9_000), mss=1 << 20, **fields)


def whole_giant(packet: Packet, tape: Tape) -> bytes:
    """The IP packet of a segment of any size."""
    ends = (tape.client, tape.broker) if packet.to_broker else (tape.broker, tape.client)
    inner = tcp(
        packet.payload,
        source_port=ends[0][1],
        destination_port=ends[1][1],
        sequence=packet.sequence,
        acknowledgement=packet.acknowledgement,
        flags=packet.flags,
        addresses=None,
    )
    names: dict[str, Any] = {"source": ends[0][0], "destination": ends[1][0]}
    if ":" in ends[0][0]:
        size = len(inner) if len(inner) <= 65_535 else 0
        return ipv6(inner, payload_bytes=size, **names)
    size = 20 + len(inner) if len(inner) < 65_516 else 0
    return ipv4(inner, total_bytes=size, identification=packet.identification, **names)


GIANTS: dict[str, tuple[bool, Callable[[bytes], bytes]]] = {
    "ipv4": (False, framed),
    "ipv6": (True, framed),
    "ipv6_option": (True, lambda packet: framed(jumbo_option(packet))),
    "ipv4_in_vxlan": (False, lambda packet: giant_tunnel(packet)),
    "ipv6_in_vxlan": (True, lambda packet: giant_tunnel(packet)),
}


def jumbo_option(packet: bytes) -> bytes:
    """With the jumbo payload option where the length field says nothing."""
    if packet[4:6] != b"\0\0":
        return packet
    option = b"\x06\0\xc2\x04" + struct.pack(">I", len(packet) - 40 + 8)
    return packet[:6] + b"\0" + packet[7:40] + option + packet[40:]


def giant_tunnel(packet: bytes) -> bytes:
    """Inside VXLAN whose own lengths say nothing either."""
    head = struct.pack(">HHHH", 54321, 4789, 0, 0) + tunnels.vxlan(framed(packet))
    size = 20 + len(head) if len(head) < 65_516 else 0
    return framed(ipv4(head, protocol=17, total_bytes=size))


for _words, (_is_v6, _wrap) in GIANTS.items():

    def _giant(is_v6: bool = _is_v6, wrap: Callable[[bytes], bytes] = _wrap) -> bytes:
        tape = giants(is_v6)
        return capture(
            [Record(each.ts_ns, wrap(whole_giant(each, tape))) for each in tape.packets],
            snaplen=1 << 20,
        )

    _giant.__name__ = f"giant_{_words}"
    case("B23")(_giant)


@case("B24")
def checksums_left_to_the_card() -> bytes:
    """Packets of the client's host are captured before their checksum is put in."""

    def unfinished(packet: bytes, each: Packet) -> bytes:
        if not each.to_broker:
            return ethernet(packet)
        pseudo = packet[12:20] + struct.pack(">HH", 6, len(packet) - 20)
        value = sum(struct.unpack(">6H", pseudo))
        value = (value & 0xFFFF) + (value >> 16)
        return ethernet(packet[:36] + struct.pack(">H", value) + packet[38:])

    return capture(conversation().records(unfinished))


@case("B24")
def damaged_copy_before_the_right_one() -> bytes:
    """One packet is captured with a wrong byte, and comes again, right, later."""
    tape = conversation()
    records = tape.records()
    place = next(n for n, each in enumerate(tape.packets) if len(each.payload) > 300)
    data = bytearray(records[place].data)
    data[-9] ^= 0x55
    records.insert(place, records[place]._replace(data=bytes(data)))
    return capture(records)


SNAPLEN = 14 + 20 + 20 + 40


@case("B26")
def cut_in_payloads() -> bytes:
    """40 bytes of each payload are captured."""
    return capture(_cut(SNAPLEN, b""), snaplen=SNAPLEN)


@case("B26")
def cut_in_tcp_options() -> bytes:
    """The cut lies in the time stamps."""
    return capture(_cut(14 + 20 + 20 + 5, b"\x01\x01\x08\x0a" + bytes(8)), snaplen=SNAPLEN)


@case("B26")
def cut_in_ip_headers() -> bytes:
    """The cut lies in the addresses."""
    return capture(_cut(14 + 15, b""), snaplen=SNAPLEN)


@case("B26")
def cut_by_a_mirror() -> bytes:
    """The cloud's mirror shortens packets before it puts them into VXLAN: nothing else is cut."""
    tape = conversation()
    return capture(tape.records(lambda packet, _: VXLAN["port_4789"].wrap(packet[: SNAPLEN - 14])))


def _cut(captured: int, options: bytes) -> list[Record]:
    tape = conversation()
    tape.packets = [each._replace(options=options) for each in tape.packets]
    return [Record(each.ts_ns, each.data[:captured], len(each.data)) for each in tape.records()]
