"""TCP headers, options, cuts, checksums."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dissector.packet.tcp import time_stamps
from tests.dissector.capture.reading import read_capture
from tests.dissector.codecs.test_integers import as_array
from tests.dissector.packet.decoding import decode
from tests.wire.captures import RAW, Record, pcap
from tests.wire.packets import internet_checksum, ipv4, ipv6, tcp
from tests.wire.packets import time_stamps as stamp_option

WORD = st.integers(0, (1 << 32) - 1)


@given(
    sequence=WORD, acknowledgement=WORD, flags=st.integers(0, 0x1FF), window=st.integers(0, 65535)
)
def test_header_fields(sequence, acknowledgement, flags, window):
    segment = decode(
        ipv4(
            tcp(
                b"abc",
                source_port=65535,
                destination_port=1,
                sequence=sequence,
                acknowledgement=acknowledgement,
                flags=flags,
                window=window,
            )
        ),
        RAW,
    )
    assert (segment.source_port, segment.destination_port) == (65535, 1)
    assert (segment.sequence, segment.acknowledgement) == (sequence, acknowledgement)
    assert (segment.flags, segment.window, segment.payload) == (flags, window, b"abc")
    assert (segment.tsval, segment.tsecr) == (-1, -1)


OPTIONS = {
    "aligned": stamp_option(5, 0xFFFFFFFF),
    "first": stamp_option(5, 0xFFFFFFFF)[2:],
    "after others": b"\x02\x04\x05\xb4\x04\x02" + stamp_option(5, 0xFFFFFFFF)[2:],
    "after unknown": b"\xfd\x06abcd" + stamp_option(5, 0xFFFFFFFF)[2:],
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_time_stamps_are_found_wherever_they_stand(options):
    segment = decode(ipv4(tcp(b"abc", options=options)), RAW)
    assert (segment.tsval, segment.tsecr, segment.payload) == (5, 0xFFFFFFFF, b"abc")


NO_STAMPS = {
    "none": b"",
    "after the end": b"\x00" + stamp_option(5, 6)[2:],
    "length 0": b"\x05\x00" + stamp_option(5, 6)[2:],
    "length 1": b"\x05\x01" + stamp_option(5, 6)[2:],
    "length beyond": b"\x05\xff" + stamp_option(5, 6)[2:],
    "wrong length": b"\x08\x09" + bytes(8),
}


@pytest.mark.parametrize("options", NO_STAMPS.values(), ids=NO_STAMPS.keys())
def test_odd_options_give_no_time_stamps(options):
    segment = decode(ipv4(tcp(b"abc", options=options)), RAW)
    assert (segment.tsval, segment.tsecr, segment.payload) == (-1, -1, b"abc")


@given(options=st.binary(max_size=40))
def test_no_option_bytes_do_harm(options):
    assert time_stamps(as_array(options), 0, len(options)).value >= -1


def test_a_header_cut_in_its_options_still_has_its_place():
    whole = ipv4(tcp(b"payload", sequence=77, options=stamp_option(5, 6)))
    for captured in range(20 + 16, 20 + 32):
        segment = decode(whole, RAW, captured=captured)
        assert (segment.sequence, segment.payload, segment.wire_bytes) == (77, b"", 7)
        assert segment.tsval == -1
    assert decode(whole, RAW, captured=20 + 32).tsval == 5
    assert decode(whole, RAW, captured=20 + 34).payload == b"pa"
    for captured in range(20, 20 + 16):
        assert decode(whole, RAW, captured=captured) == "tcp_header_cut"


def test_malformed_headers_are_counted():
    good = tcp(b"payload")
    for header_words in (0, 4, 15):
        odd = good[:12] + bytes([header_words << 4]) + good[13:]
        assert decode(ipv4(odd), RAW) == "tcp_malformed"
    assert decode(ipv4(good[:19]), RAW) == "tcp_malformed"
    assert decode(ipv4(good[:19]) + bytes(30), RAW) == "tcp_malformed"


def left_to_the_card(addresses: tuple[str, str], size: int) -> set[int]:
    """What stands in the place of a checksum that the network card has yet to put in: nothing, or
    the sum of the pseudo header with or without the segment's length."""
    packed = b"".join(ip_address(address).packed for address in addresses)
    sums = (packed + struct.pack(">HH", 6, length) for length in (0, size))
    return {0, *(0xFFFF - internet_checksum(each) for each in sums)}


@given(payload=st.binary(max_size=9), place=st.integers(0, 28), bit=st.integers(0, 7))
@example(payload=bytes.fromhex("7a599aa0bfc34864b4"), place=0, bit=0)  # its sum is that of a card
def test_only_verification_refuses_a_wrong_checksum(payload, place, bit):
    for build, addresses in ((ipv4, ("10.0.0.1", "10.0.0.2")), (ipv6, ("fd00::1", "fd00::2"))):
        good = tcp(payload, sequence=99, addresses=addresses)
        assert decode(build(good), RAW, verify=True).payload == payload
        damaged = bytearray(good)
        place %= len(good)
        damaged[place] ^= 1 << bit
        if place == 12 and bit >= 4:
            continue  # another header length: malformed before it is wrong
        if int.from_bytes(damaged[16:18], "big") in left_to_the_card(addresses, len(damaged)):
            assert decode(build(bytes(damaged)), RAW, verify=True).sequence >= 0
            continue
        assert decode(build(bytes(damaged)), RAW, verify=True) == "bad_tcp_checksum"
        assert decode(build(bytes(damaged)), RAW).sequence >= 0


def test_a_cut_segment_is_not_judged():
    good = tcp(b"payload")
    wrong = good[:16] + b"\x12\x34" + good[18:]
    assert decode(ipv4(wrong), RAW, verify=True) == "bad_tcp_checksum"
    assert decode(ipv4(wrong), RAW, captured=45, verify=True).payload == b"paylo"


PSEUDO = [0x0A00, 0x0001, 0x0A00, 0x0002, 6]


@pytest.mark.parametrize("with_length", [True, False])
def test_a_sum_left_to_the_network_card_is_no_damage(with_length):
    good = tcp(b"payload" * 9, flags=2)
    value = sum(PSEUDO) + len(good) * with_length
    for stored in (value, 0):
        whole = ipv4(good[:16] + stored.to_bytes(2, "big") + good[18:])
        reading = read_capture([pcap([Record(1, whole)] * 3, link_type=RAW)], verify=True)
        assert reading.counts == [(3, {})]
        assert [(n.code, n.packet, n.value) for n in reading.notices] == [
            ("checksum_offload", 1, 3)
        ]


def test_sums_of_opening_packets_are_looked_at_without_being_asked():
    packets = []
    for number in range(6):
        good = tcp(b"", flags=(0x02, 0x12, 0x10)[number % 3])
        packets.append(Record(number, ipv4(good[:16] + b"\0\0" + good[18:])))
    reading = read_capture([pcap(packets, link_type=RAW)])
    assert reading.counts == [(6, {})]
    assert [(n.code, n.packet, n.value) for n in reading.notices] == [("checksum_offload", 1, 4)]
