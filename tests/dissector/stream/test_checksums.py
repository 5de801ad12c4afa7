"""Damaged segments: who is judged, what their bytes become."""

import struct

import numpy as np
import pytest

from dissector.packet.tcp import address_sum
from dissector.stream.checksums import ChecksumState, checksum_of
from dissector.stream.columns import RangeKind
from dissector.stream.segment import Segment
from dissector.stream.state import StreamOptions
from tests.wire import packets
from tests.wire.packets import FIN, RST, SYN
from tests.wire.segments import FIN_ACK, SMALL, SYN_ACK, Packet, StreamRange, streamed

ADDRESSES = address_sum(0, 0x0A000001, 0, 0x0A000002)


def judged(segment: bytes, captured: int | None = None) -> int:
    """The verdict on a TCP segment of 10.0.0.1 and 10.0.0.2."""
    header = (segment[12] >> 4) * 4
    wire = len(segment) - header
    seen = wire if captured is None else captured
    plain = Segment(1, 0, 0, header, seen, wire, 0, 0, 16, 0, 0, 0, header)
    return checksum_of(ADDRESSES, plain, np.frombuffer(segment, np.uint8).copy())


@pytest.mark.parametrize("payload", [b"", b"a", b"ab", bytes(range(256)) * 200])
@pytest.mark.parametrize("options", [b"", packets.time_stamps(7, 9)])
def test_right_and_wrong_checksums_are_told_apart(payload: bytes, options: bytes) -> None:
    segment = packets.tcp(payload, options=options, sequence=77)
    assert judged(segment) == ChecksumState.RIGHT
    for place in {4, len(segment) - 1}:
        damaged = bytearray(segment)
        damaged[place] ^= 0x10
        assert judged(bytes(damaged)) == ChecksumState.WRONG


def test_checksums_left_to_the_card_say_nothing() -> None:
    segment = packets.tcp(b"payload", addresses=None)
    assert judged(segment) == ChecksumState.UNKNOWN
    pseudo = b"\x0a\x00\x00\x01\x0a\x00\x00\x02\x00\x06"
    for length in (len(segment), 0):
        sum_ = packets.internet_checksum(pseudo + struct.pack(">H", length)) ^ 0xFFFF
        assert (
            judged(segment[:16] + struct.pack(">H", sum_) + segment[18:]) == ChecksumState.UNKNOWN
        )


def test_a_segment_cut_by_the_snap_length_is_not_judged() -> None:
    assert judged(packets.tcp(b"payload", sequence=3), captured=6) == ChecksumState.UNKNOWN


def sound(*parts: Packet) -> list[Packet]:
    """A handshake, and packets, all with right checksums unless they say otherwise."""
    opening = [
        Packet(0, 0, 1000, flags=SYN),
        Packet(1, 1, 5000, b"", 1001, SYN_ACK),
        Packet(2, 0, 1001, b"", 5001),
    ]
    return [each._replace(checksum=each.checksum or "right") for each in [*opening, *parts]]


BAD = Packet(10, 0, 1001, b"abXdef", 5001, checksum="wrong", ip_id=50)
GOOD = Packet(300, 0, 1001, b"abcdef", 5001, ip_id=51)


def test_a_better_copy_takes_the_place_of_damaged_bytes() -> None:
    released = streamed(sound(BAD, Packet(11, 0, 1007, b"ghi", 5001), GOOD))
    assert released.stream_ranges() == [StreamRange("data", 0, 9, b"abcdefghi")]
    assert released.codes() == ["wrong_checksum", "overlap_conflict"]
    assert released.direction()["conflict_bytes"] == 1
    # The time of the bytes is that of the packet that brought them.
    assert [row["packet"] for row in released.ranges if row["kind"] == RangeKind.DATA] == [6, 5]


@pytest.mark.parametrize("overlap", ["first", "last", "linux", "windows"])
def test_a_damaged_copy_never_wins(overlap: str) -> None:
    options = SMALL._replace(overlap=overlap)
    waiting = Packet(10, 0, 1003, b"cdef", 5001)
    bad = Packet(11, 0, 1002, b"bXXXXX", 5001, checksum="wrong")
    released = streamed(sound(waiting, bad, Packet(12, 0, 1001, b"ab", 5001)), options)
    assert released.data()[:6] == b"abcdef"
    assert released.direction()["conflict_bytes"] == 4


def test_a_better_copy_may_have_other_bounds() -> None:
    first = Packet(300, 0, 1001, b"abc", 5001)
    second = Packet(301, 0, 1004, b"defgh", 5001)
    released = streamed(sound(BAD, first, second))
    assert released.stream_ranges() == [StreamRange("data", 0, 8, b"abcdefgh")]


def test_bytes_that_their_receiver_took_are_used() -> None:
    taken = Packet(12, 1, 5001, b"", 1007)
    released = streamed(sound(BAD, taken, Packet(13, 0, 1007, b"ghi", 5001)))
    assert released.data() == b"abXdefghi"
    assert released.times(RangeKind.DATA)[0] == 5


@pytest.mark.parametrize(("one_way", "ms"), [(True, 220), (False, 60_020)])
def test_without_a_better_copy_they_are_used_as_late_as_a_hole(one_way: bool, ms: int) -> None:
    probes = [Packet(at, 0, 1007, b"", 5001, ip_id=at) for at in range(20, 61_000, 20)]
    made = [each for each in sound(BAD, *probes) if not (one_way and each.endpoint_index)]
    output = streamed(made)
    assert output.data() == b"abXdef"
    released = output.times(RangeKind.DATA)[0]
    assert made[released - 1].ms == pytest.approx(ms, abs=20)


def test_nothing_else_of_a_damaged_packet_counts() -> None:
    bad = [
        Packet(10, 1, 5001, b"", 1500, checksum="wrong"),
        Packet(11, 0, 1001, b"", 5001, RST, checksum="wrong"),
        Packet(12, 0, 1001, b"", 5001, FIN_ACK, checksum="wrong"),
        Packet(13, 0, 9_000_000, b"far", 5001, checksum="wrong"),
    ]
    many = [
        Packet(
            3 + n / 100,
            endpoint_index,
            (1001, 5001)[endpoint_index],
            b"",
            (5001, 1001)[endpoint_index],
        )
        for n in range(60)
        for endpoint_index in (0, 1)
    ]
    released = streamed(sound(*many, *bad, Packet(20, 0, 1001, b"abc", 5001)))
    assert released.data() == b"abc"
    assert released.connections[0]["ended"] == "capture_end"
    assert released.counted(0, 1)["stray"] == 1
    assert released.counted(0, 0)["stray"] == 3


def test_where_many_checksums_are_wrong_none_means_anything() -> None:
    packets_ = [Packet(10 + n, 0, 1001 + 3 * n, b"abc", 5001, checksum="wrong") for n in range(9)]
    released = streamed(sound(*packets_, Packet(30, 1, 5001, b"", 1028)))
    assert released.data() == b"abc" * 9
    assert released.codes() == ["wrong_checksum"]


def test_pressure_lets_damaged_bytes_out() -> None:
    options = StreamOptions(block_rows=64, held_bytes_per_connection=2000)
    rest = [Packet(11 + n, 0, 1007 + 100 * n, bytes(100), 5001) for n in range(40)]
    released = streamed(sound(BAD, *rest), options)
    assert released.data() == b"abXdef" + bytes(4000)
    assert released.direction()["gap_bytes"] == 0
    assert "held_bytes_limit" in released.codes()


@pytest.mark.parametrize("flags", [SYN | RST | FIN, SYN, RST, FIN, SYN | FIN, SYN | RST])
@pytest.mark.parametrize("endpoint_index", [0, 1])
@pytest.mark.parametrize("sequence", [0, 1000, 777_777_777])
def test_flags_of_a_damaged_packet_open_reset_and_end_nothing(
    flags: int, endpoint_index: int, sequence: int
) -> None:
    bad = Packet(
        10, endpoint_index, (1001, 5001)[endpoint_index] + sequence, b"", 1, flags, checksum="wrong"
    )
    released = streamed(sound(bad, GOOD, Packet(301, 1, 5001, b"xyz", 1007)))
    assert (released.data(0, 0), released.data(0, 1)) == (b"abcdef", b"xyz")
    assert [row["ended"] for row in released.connections.values()] == ["capture_end"]


@pytest.mark.parametrize("flags", [SYN | RST | FIN, SYN, RST])
def test_a_first_packet_is_judged_by_all_others_of_the_capture(flags: int) -> None:
    others = [
        each._replace(port=41000 + n)
        for n in range(5)
        for each in sound(Packet(3, 0, 1001, b"abc", 5001))
    ]
    bad = Packet(4, 0, 999_999, b"", 1, flags, checksum="wrong")
    mine = [each._replace(ms=each.ms + 5) for each in sound(GOOD)]
    released = streamed([*others, bad, *mine])
    assert released.data(5, 0) == b"abcdef"
    assert len(released.connections) == 6


def test_payload_of_a_damaged_packet_far_away_opens_no_stream() -> None:
    bad = Packet(10, 0, 1001 + (1 << 31), b"abc", 5001, checksum="wrong")
    released = streamed(sound(bad, GOOD))
    assert len(released.connections) == 1
    assert released.data() == b"abcdef"
    assert released.direction()["dropped_bytes"] == 3
