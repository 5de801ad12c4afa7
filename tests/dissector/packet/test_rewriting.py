"""Addresses and payloads in packets: found wherever they are, changed with their sums."""

import io
import random

import dpkt
import numpy as np
import pytest

from dissector.codecs.siphash import SipHashKey, siphash_of_row
from dissector.packet import header_offsets as offsets
from dissector.packet import rewriting
from dissector.packet.link import ETHERNET
from dissector.packet.walk import new_walk
from tests.dissector.evidence.copies import anonymous
from tests.dissector.evidence.sameness import assert_same
from tests.hard.tape import Tape, capture, dissected
from tests.wire import packets, tunnels
from tests.wire.captures import Record


def tape() -> Tape:
    made = Tape()
    made.open()
    made.connect()
    made.publish(1, b"payload of a message")
    made.publish(2, b"odd payload")
    made.close()
    return made


def packets_of(data: bytes) -> list[dpkt.ethernet.Ethernet]:
    return [dpkt.ethernet.Ethernet(each) for _, each in dpkt.pcapng.Reader(io.BytesIO(data))]


def is_right(packet: dpkt.ethernet.Ethernet) -> bool:
    ip = packet.data
    whole = bytes(ip)
    header = packets.internet_checksum(whole[: ip.hl * 4])
    pseudo = ip.src + ip.dst + b"\0\6" + len(bytes(ip.data)).to_bytes(2, "big")
    return header == 0 and packets.internet_checksum(pseudo + bytes(ip.data)) == 0


def test_right_sums_are_right_again_and_nothing_of_before_is_there() -> None:
    raw = capture(tape().records())
    made = packets_of(anonymous(raw))
    before = [dpkt.ethernet.Ethernet(each) for _, each in dpkt.pcap.Reader(io.BytesIO(raw))]
    assert [is_right(each) for each in before] == [is_right(each) for each in made]
    assert all(map(is_right, made))
    for old, new in zip(before, made, strict=True):
        assert old.src != new.src and old.dst != new.dst
        assert old.data.src != new.data.src and old.data.dst != new.data.dst
        assert (old.data.data.sport, old.data.data.dport) == (
            new.data.data.sport,
            new.data.data.dport,
        )
        assert len(bytes(old)) == len(bytes(new))


def test_options_that_name_somebody_go_and_those_that_count_stay() -> None:
    """A load balancer writes the client's address into an option of TCP, Linux' home addresses and
    routes into headers of IPv6."""
    stamps = b"\1\1\x08\x0a" + bytes(range(8))
    named = b"\xfe\x08\x1f\x90" + bytes((10, 77, 66, 55))
    made = tape()
    made.packets[3] = made.packets[3]._replace(options=stamps + named)
    # Options that say no size that can be, and what is behind the last one.
    for number, odd in enumerate((b"\x08\1", b"\x08\x30", b"\0\0", b"\xfe\0"), 4):
        made.packets[number] = made.packets[number]._replace(options=odd + named[4:])
    raw = capture(made.records())
    copy = anonymous(raw)
    assert named in raw and named[4:] not in copy and stamps in copy
    assert all(map(is_right, packets_of(copy)))
    assert named in anonymous(raw, addresses=True)
    assert_same(dissected(raw), dissected(copy))
    route = bytes((253, 7)) * 8
    routing = bytes((60, 2, 4, 1, 0, 0, 0, 0)) + route
    home = bytes((6, 2, 1, 2, 0, 0, 0xC9, 16)) + route
    segment = packets.tcp(b"a payload", source_port=1, destination_port=6650)
    over = packets.ipv6(routing + home + segment, next_header=43)
    last = made.records()[-1]
    raw = capture([*made.records(), last._replace(data=packets.ethernet(over, 0x86DD))])
    assert raw.count(route) == 2 and route not in anonymous(raw)
    assert anonymous(raw, addresses=True).count(route) == 2


def test_a_wrong_sum_is_wrong_again() -> None:
    records = tape().records()
    data = bytearray(records[5].data)
    data[14 + 20 + 16] ^= 0x40
    records[5] = records[5]._replace(data=bytes(data))
    made = packets_of(anonymous(capture(records)))
    assert [number for number, each in enumerate(made) if not is_right(each)] == [5]


def test_a_sum_that_a_card_was_to_put_in_is_left_to_it() -> None:
    records = tape().records()
    data = bytearray(records[5].data)
    data[14 + 20 + 16 : 14 + 20 + 18] = b"\0\0"
    records[5] = records[5]._replace(data=bytes(data))
    assert packets_of(anonymous(capture(records)))[5].data.data.sum == 0


@pytest.mark.parametrize("wrap", ["vxlan", "gre", "vlan", "ipip"])
def test_addresses_go_in_tunnels_too(wrap: str) -> None:
    inner = tape().records()
    made = {
        "vxlan": lambda ip: packets.ethernet(
            tunnels.over_udp(tunnels.vxlan(packets.ethernet(ip)), 4789)
        ),
        "gre": lambda ip: packets.ethernet(tunnels.over_ip(tunnels.gre(ip, 0x0800), 47)),
        "vlan": lambda ip: packets.ethernet(ip, vlans=(3, 9)),
        "ipip": lambda ip: packets.ethernet(tunnels.over_ip(ip, 4)),
    }[wrap]
    data = anonymous(capture([Record(each.ts_ns, made(each.data[14:])) for each in inner]))
    for address in (inner[0].data[26:30], inner[0].data[30:34]):
        assert address not in data


def test_what_is_no_segment_is_emptied_behind_its_headers() -> None:
    secret = b"a name that DNS asks for"
    udp = packets.ethernet(packets.ipv4(packets.udp(secret, 5353, 5353), protocol=17))
    arp = packets.ethernet(b"\0\1\x08\0\6\4\0\1" + secret, 0x0806)
    padded = tape().records()[0]
    padded = padded._replace(data=padded.data + secret, wire_bytes=len(padded.data) + len(secret))
    data = anonymous(capture([Record(1, udp), Record(2, arp), padded]))
    assert secret[:8] not in data and len(packets_of(data)) == 3


def test_headers_are_found_in_the_order_of_the_headers() -> None:
    packet = packets.ethernet(tunnels.over_udp(tunnels.vxlan(tape().records()[0].data), 4789))
    data = np.frombuffer(bytearray(packet), np.uint8)
    from dissector.packet.columns import PacketColumns

    columns = PacketColumns.new(1)
    columns.offset[0], columns.captured_bytes[0], columns.wire_bytes[0] = 0, len(data), len(data)
    columns.ts_ns[0], columns.interface[0] = 0, 0
    headers = offsets.Headers.new(2 * offsets.HEADERS_OF_PACKET)
    left = offsets.PacketsLeft.all_of(1)
    count = offsets.find_headers(data, columns, left, np.array([ETHERNET]), new_walk(), headers)
    assert headers.kind[:count].tolist() == [
        offsets.MACS, offsets.IP4, offsets.UDP_HEADER, offsets.MACS, offsets.IP4, offsets.SEGMENT,
    ]  # fmt: skip
    assert headers.offset[:count].tolist() == [0, 14, 34, 50, 64, 84]
    assert left.row[0] == 1


def bits(address: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in address)


def common(one: bytes, other: bytes) -> int:
    pairs = zip(bits(one), bits(other), strict=True)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), 8 * len(one))


@pytest.mark.parametrize("size", [4, 16])
def test_addresses_share_as_many_bits_as_before(size: int) -> None:
    chance = random.Random(size)
    first = chance.randbytes(size)
    others = []
    for _ in range(60):
        kept = chance.randrange(8 * size + 1)
        number = int.from_bytes(first, "big") ^ chance.getrandbits(8 * size) >> kept
        others.append(number.to_bytes(size, "big"))
    state = rewriting.new_rewriting(SipHashKey(1, 2), SipHashKey(3, 4))
    made, *rest = (rewriting.other_address(state, each) for each in [first, *others])
    assert [common(made, each) for each in rest] == [common(first, each) for each in others]
    assert made != first
    # What is remembered of an address says what the key says.
    state = rewriting.new_rewriting(SipHashKey(1, 2), SipHashKey(3, 4))
    assert [rewriting.other_address(state, each) for each in reversed(others)] == rest[::-1]
    other = rewriting.new_rewriting(SipHashKey(1, 3), SipHashKey(3, 4))
    assert rewriting.other_address(other, first) != made


def test_each_bit_is_turned_by_a_hash_of_those_before_it() -> None:
    """Of IPv4, said once more by the bits of a text."""
    key = SipHashKey(5, -6)
    state = rewriting.new_rewriting(key, key)
    made = rewriting.other_address(state, bytes([10, 99, 0, 1]))
    before = bits(bytes([10, 99, 0, 1]))
    for place in range(32):
        prefix = int(before[:place].ljust(32, "0"), 2)
        words = b"".join(each.to_bytes(8, "little") for each in (0, prefix, 96 + place))
        # A row is hashed without a length behind it.
        row = np.frombuffer(words, np.int64).reshape(1, 3)
        turned = siphash_of_row(key.low, key.high, row, 0) & 1
        assert int(bits(made)[place]) == int(before[place]) ^ turned
