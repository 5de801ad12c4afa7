"""Packets behind frames: the right ones, as they were, readable by another program."""

import io
from pathlib import Path

import dpkt
import numpy as np
import pytest

from dissector.capture.reader import PCAPNG, capture_format
from dissector.endpoints import Endpoint, FlowKey
from dissector.packet.columns import SegmentColumns
from dissector.sources.rings import chains
from dissector.sources.slice import FlowSpan, PacketSelection, write_slice
from tests.wire.captures import Record, pcap
from tests.wire.packets import BROKER, BROKER_PORT, CLIENT, CLIENT_PORT, segment

OTHER_PORT = CLIENT_PORT + 1
START_NS = 1_700_000_000_123_456_789
TO_BROKER = FlowKey.between(Endpoint.of(CLIENT, CLIENT_PORT), Endpoint.of(BROKER, BROKER_PORT))


def packet(number: int) -> bytes:
    """Packets by number from 1: two connections take turns, every third one is an answer."""
    other = number % 2 == 0
    return segment(
        b"" if number == 5 else b"payload %d" % number,
        to_broker=number % 3 != 0,
        client=(CLIENT, OTHER_PORT if other else CLIENT_PORT),
        broker=(BROKER, BROKER_PORT),
        sequence=number,
    )


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "made.pcap"
    records = [
        Record(START_NS + number, packet(number), len(packet(number)) + (number == 7))
        for number in range(1, 31)
    ]
    path.write_bytes(pcap(records))
    return path


def sliced(capture: Path, wanted: PacketSelection) -> list[tuple[float, bytes]]:
    sink = io.BytesIO()
    (chain,) = chains([str(capture)], "none").chains
    count = write_slice(chain, wanted, sink)
    sink.seek(0)
    found = list(dpkt.pcapng.Reader(sink))
    assert len(found) == count
    return found


def numbers(found: list[tuple[float, bytes]]) -> list[int]:
    return [next(n for n in range(1, 31) if packet(n) == data) for _, data in found]


def test_a_slice_holds_the_packets_of_one_direction_with_payload(capture: Path) -> None:
    wanted = PacketSelection()
    wanted.add(TO_BROKER, 1, 13)
    # Odd numbers are this connection's, multiples of 3 the other direction, 5 has no payload.
    assert numbers(sliced(capture, wanted)) == [1, 7, 11, 13]


def test_ranges_may_overlap_and_come_in_any_order(capture: Path) -> None:
    wanted = PacketSelection()
    for first, last in ((23, 25), (1, 1), (7, 7), (5, 11), (24, 24), (29, 100)):
        wanted.add(TO_BROKER, first, last)
    wanted.add(TO_BROKER.mirrored(), 9, 9)
    other = FlowKey.between(Endpoint.of(CLIENT, OTHER_PORT), Endpoint.of(BROKER, BROKER_PORT))
    wanted.add(other, 2, 2)
    assert numbers(sliced(capture, wanted)) == [1, 2, 7, 9, 11, 23, 25, 29]


def test_packets_keep_time_and_wire_length(capture: Path) -> None:
    wanted = PacketSelection()
    wanted.add(TO_BROKER, 7, 7)
    sink = io.BytesIO()
    (chain,) = chains([str(capture)], "none").chains
    assert write_slice(chain, wanted, sink) == 1
    content = sink.getvalue()
    ts_ns = START_NS + 7
    stamp = (ts_ns >> 32).to_bytes(4, "little") + (ts_ns & 0xFFFF_FFFF).to_bytes(4, "little")
    size = len(packet(7))
    lengths = size.to_bytes(4, "little") + (size + 1).to_bytes(4, "little")
    assert stamp + lengths + packet(7) in content
    assert b"packet 7" in content


def test_nothing_wanted_is_an_empty_capture(capture: Path) -> None:
    sink = io.BytesIO()
    (chain,) = chains([str(capture)], "none").chains
    assert write_slice(chain, PacketSelection(), sink) == 0
    assert capture_format(sink.getvalue()) == PCAPNG


@pytest.mark.parametrize("is_cut", [False, True], ids=["one block", "a block each"])
def test_what_ends_a_handshake_is_taken_along(is_cut: bool) -> None:
    syn, ack, push = 2, 16, 24
    steps = ((True, syn), (False, syn | ack), (True, ack), (True, ack), (False, ack), (True, push))
    columns = SegmentColumns.new(len(steps), 0)
    for row, (to_broker, flag) in enumerate(steps):
        flow = TO_BROKER if to_broker else TO_BROKER.mirrored()
        for name, value in {**flow._asdict(), "flags": flag, "packet": row + 1}.items():
            getattr(columns, name)[row] = value
    wanted = PacketSelection()
    wanted.spans += [FlowSpan(each, 0, 9, True) for each in (TO_BROKER, TO_BROKER.mirrored())]
    size = 1 if is_cut else len(steps)
    taken = [
        start + row
        for start in range(0, len(steps), size)
        for row in wanted.rows(
            SegmentColumns(np.ascontiguousarray(columns.matrix[:, start : start + size])), size
        ).tolist()
    ]
    assert taken == [0, 1, 2]
