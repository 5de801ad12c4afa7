"""The pass as a whole: real captures against another decoder, hostile packets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.packet.columns import PacketColumns
from dissector.packet.link import LINK_TYPE_NAMES
from dissector.packet.reader import PacketReader
from dissector.packet.reasons import IGNORED_REASONS, USED
from tests.dissector.capture.reading import read_capture
from tests.naive.packets import segments
from tests.wire.packets import extension, ipv6, linux_sll2, segment, tcp

REAL = [
    "captures/pulsar/var-any-sll1.pcap",
    "captures/pulsar/var-dumpcap.pcapng",
    "captures/pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap",
    "captures/pulsar-apache/java-j12_nack.pcap",
]


@pytest.mark.parametrize("path", REAL)
def test_real_captures_read_as_another_decoder_reads_them(path):
    with open(path, "rb") as file:
        reading = read_capture([file.read()])
    expected = segments(path)
    assert len(reading.segments) == len(expected) > 50
    for ours, theirs in zip(reading.segments, expected, strict=True):
        assert ours.packet == theirs.packet
        assert (ours.source, ours.destination) == (theirs.source, theirs.destination)
        assert (ours.source_port, ours.destination_port) == (
            theirs.source_port,
            theirs.destination_port,
        )
        assert (ours.sequence, ours.acknowledgement) == (theirs.sequence, theirs.acknowledgement)
        assert (ours.flags, ours.window, ours.tsval) == (theirs.flags, theirs.window, theirs.tsval)
        assert (ours.payload, ours.wire_bytes) == (theirs.payload, theirs.wire_bytes)
        assert abs(ours.ts_ns - theirs.ts_us * 1000) < 1000


def place(packets: list[bytes], filler: int) -> tuple[np.ndarray, PacketColumns]:
    """Packets in one buffer, each between bytes that are none of its own."""
    columns = PacketColumns.new(len(packets))
    data = bytes([filler]) * 3
    for row, packet in enumerate(packets):
        columns.offset[row] = len(data)
        columns.captured_bytes[row] = columns.wire_bytes[row] = len(packet)
        columns.ts_ns[row] = row
        columns.interface[row] = 0
        data += packet + bytes([filler]) * 3
    return np.frombuffer(bytearray(data), np.uint8), columns


SEEDS = [
    segment(b"payload", vlans=[1, 2]),
    segment(b"payload", client=("fd00::1", 1), broker=("fd00::2", 2)),
    linux_sll2(ipv6(extension(6, tcp(b"x", addresses=None)), next_header=0)),
]
changes = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4)


@given(
    base=st.sampled_from(SEEDS) | st.binary(max_size=90),
    change=changes,
    size=st.integers(0, 120),
    link_type=st.sampled_from(sorted(LINK_TYPE_NAMES)),
    verify=st.integers(0, 1),
)
@settings(max_examples=400)
def test_no_packet_does_harm_or_is_read_beyond_its_end(base, change, size, link_type, verify):
    damaged = bytearray(base)
    for where, value in change:
        if where < len(damaged):
            damaged[where] = value
    packet = bytes(damaged[:size])
    results = []
    for filler in (0, 0xFF):
        data, columns = place([packet], filler)
        reader = PacketReader(bool(verify), 1)
        segments, count = reader.read(data, columns, 1, 7, np.array([link_type]))
        reasons = reader.reasons
        assert 0 <= reasons[0] < len(IGNORED_REASONS)
        assert count == (reasons[0] == USED)
        row = [int(column[0]) for column in segments] if count else []
        if count:
            assert segments.packet[0] == 7
            assert 0 <= segments.captured_bytes[0] <= segments.wire_bytes[0]
            assert 3 <= segments.offset[0] <= segments.offset[0] + segments.captured_bytes[0]
            assert segments.offset[0] + segments.captured_bytes[0] <= 3 + len(packet)
        results.append((int(reasons[0]), row))
    assert results[0] == results[1]


def test_blocks_may_grow_beyond_all_before_and_beyond_what_usually_comes():
    reader = PacketReader(block_rows=2000)
    for rows in (3, 1032, 1100, 1999, 2008, 2500, 1):  # arrays are some rows longer than asked
        packets = [segment(b"x", sequence=number) for number in range(rows)]
        data, columns = place(packets, 1)
        segments, count = reader.read(data, columns, rows, 1, np.array([1]))
        assert count == rows and len(reader.reasons) >= rows
        assert segments.sequence[:count].tolist() == list(range(rows))


def test_segments_follow_the_order_of_their_packets():
    packets = [segment(bytes([i]), sequence=i) if i % 3 else b"noise" for i in range(50)]
    data, columns = place(packets, 1)
    found, count = PacketReader(block_rows=50).read(data, columns, 50, 100, np.array([1]))
    expected = [i for i in range(50) if i % 3]
    assert found.packet[:count].tolist() == [100 + i for i in expected]
    assert found.sequence[:count].tolist() == expected
    assert found.ts_ns[:count].tolist() == expected
