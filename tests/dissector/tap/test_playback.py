"""Replaying files: pieces that end at cuts, and time that passes."""

import time

import pytest

from dissector.dissection import Dissection, Options
from dissector.sources.rings import chains
from dissector.tap.packet_batches import Cuts, Idle, PacketBatch, Part
from dissector.tap.playback import FilePlayback
from tests.dissector.observed import CAPTURES, tables_of

PATH = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")


def replay(speed: float = 0.0) -> FilePlayback:
    (chain,) = chains([PATH]).chains
    return FilePlayback(chain, speed)


def test_pieces_end_before_the_cut_and_lose_nothing():
    source, dissection, cuts = replay(), Dissection(Options()), Cuts()
    (file,) = tables_of(PATH)["capture_files"]
    step = (file["last_ts_ns"] - file["first_ts_ns"]) // 10
    cuts.until_ns = file["first_ts_ns"] + step
    boundaries = packets = 0
    for packet_batch in source.packet_batches(dissection, cuts):
        if isinstance(packet_batch, Part):
            assert packet_batch.facts.packets == packets == file["packets"]
            continue
        assert isinstance(packet_batch, PacketBatch)
        if packet_batch.is_boundary:
            assert packet_batch.rows == 0 and packet_batch.packets.ts_ns[0] >= cuts.until_ns
            boundaries += 1
            while cuts.until_ns <= packet_batch.packets.ts_ns[0]:
                cuts.until_ns += step
        else:
            assert (packet_batch.packets.ts_ns[: packet_batch.rows] < cuts.until_ns).all()
            packets += packet_batch.rows
            packet_batch.feed(dissection)
    assert 5 <= boundaries <= 10 and packets == file["packets"]


def test_room_in_bytes_cuts_but_lets_one_packet_pass():
    source, dissection, cuts = replay(), Dissection(Options()), Cuts()
    cuts.room_bytes = 1
    packet_batches = [
        packet_batch for packet_batch in _fed(source, dissection, cuts) if packet_batch.rows
    ]
    assert (
        all(packet_batch.rows == 1 for packet_batch in packet_batches)
        and len(packet_batches) == 755
    )


def _fed(source, dissection, cuts):
    for packet_batch in source.packet_batches(dissection, cuts):
        if isinstance(packet_batch, PacketBatch):
            yield packet_batch
            packet_batch.feed(dissection)


def test_time_passes_at_the_speed_that_was_asked_for():
    (file,) = tables_of(PATH)["capture_files"]
    seconds = (file["last_ts_ns"] - file["first_ts_ns"]) / 1e9
    source, dissection = replay(speed=seconds / 0.6), Dissection(Options())
    began = time.monotonic()
    for _ in _fed(source, dissection, Cuts()):
        pass
    assert 0.5 <= time.monotonic() - began < 6


@pytest.mark.parametrize("speed", [0.0, 1e-3])
def test_stop_ends_it_soon_also_while_it_waits(speed):
    source, dissection = replay(speed), Dissection(Options())
    seen = 0
    for packet_batch in source.packet_batches(dissection, Cuts()):
        if isinstance(packet_batch, PacketBatch):
            packet_batch.feed(dissection)
        seen += 1
        if isinstance(packet_batch, Idle) or seen == 3:
            source.stop()
    assert seen <= 4
