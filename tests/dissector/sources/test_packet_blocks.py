"""The packets of a chain, each once and in order, though several files hold them."""

import io
from pathlib import Path

import pytest

from dissector.sources.packet_blocks import PacketWriter, packet_blocks
from dissector.sources.rings import Chain
from tests.wire.captures import Record, pcap
from tests.wire.packets import BROKER, BROKER_PORT, CLIENT, CLIENT_PORT, segment

START_NS = 1_700_000_000_000_000_000
PAYLOADS = [b"payload %d" % number for number in range(1, 41)]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """Two files of twenty packets each."""
    paths = []
    for first in (0, 20):
        records = [
            Record(
                START_NS + number,
                segment(
                    PAYLOADS[number],
                    client=(CLIENT, CLIENT_PORT),
                    broker=(BROKER, BROKER_PORT),
                    sequence=number,
                ),
            )
            for number in range(first, first + 20)
        ]
        path = tmp_path / f"part-{first:02}.pcap"
        path.write_bytes(pcap(records))
        paths.append(str(path))
    return Chain(tuple(paths), "part")


def test_packets_come_once_in_order_with_their_segments(chain: Chain) -> None:
    numbers: list[int] = []
    payloads: list[bytes] = []
    stored: list[int] = []
    for block in packet_blocks(chain, stored.append):
        numbers += range(block.first_packet, block.first_packet + block.rows)
        assert len(block.reasons) == block.rows
        segments = block.segments
        for row in range(block.segment_count):
            start, size = int(segments.offset[row]), int(segments.captured_bytes[row])
            payloads.append(block.data[start : start + size].tobytes())
    assert numbers == list(range(1, 41))
    assert payloads == PAYLOADS
    assert stored == sorted(stored) and stored[-1] == sum(
        Path(name).stat().st_size for name in chain.files
    )


def test_packets_are_written_as_they_were_all_of_a_block_or_one_by_one(chain: Chain) -> None:
    written = []
    for is_whole in (True, False):
        sink = io.BytesIO()
        writer = PacketWriter(sink)
        for block in packet_blocks(chain):
            if is_whole:
                writer.whole(block)
                continue
            for row in range(block.rows):
                writer.packet(block, row, ())
        writer.finish()
        assert writer.packets == len(PAYLOADS)
        written.append(sink.getvalue())
    assert written[0] == written[1] and all(payload in written[0] for payload in PAYLOADS)
