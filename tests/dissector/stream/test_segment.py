"""A packet as plain numbers."""

import pytest

from dissector.stream.segment import segment_at
from tests.wire.segments import Packet, columns_of


@pytest.mark.parametrize("flags", range(0, 512, 37))
def test_only_the_flags_that_matter_are_kept(flags: int) -> None:
    segments, _ = columns_of([Packet(0, 0, 1, flags=flags)])
    assert segment_at(segments, 0).flags == flags & (1 | 2 | 4 | 16 | 32)


def test_a_row_is_read_as_it_is() -> None:
    packet = Packet(2.5, 1, 77, b"abcdef", 88, captured=4, window=9, ip_id=6, tsval=5)
    segments, buffers = columns_of([Packet(0, 0, 1), packet])
    segment = segment_at(segments, 1)
    assert (segment.packet, segment.sequence, segment.acknowledgement, segment.window) == (
        2,
        77,
        88,
        9,
    )
    assert (segment.captured_bytes, segment.wire_bytes) == (4, 6)
    assert (segment.ip_id, segment.tsval) == (6, 5)
    data = buffers.block[segment.offset : segment.offset + segment.captured_bytes]
    assert data.tobytes() == b"abcd"


def test_the_length_of_the_header_stands_with_the_flags() -> None:
    segments, _ = columns_of([Packet(0, 0, 1, flags=0x10 | 8 << 12)])
    segment = segment_at(segments, 0)
    assert (segment.flags, segment.header_bytes) == (0x10, 32)


def test_a_packet_never_has_more_bytes_than_it_says() -> None:
    """Offloading leaves a length of 0 in the IP header of giant packets."""
    segments, _ = columns_of([Packet(0, 0, 1, b"abcdef")])
    segments.wire_bytes[0] = 0
    assert segment_at(segments, 0).wire_bytes == 6
