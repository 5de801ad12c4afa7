"""Floods in the packets are what they say, and what is kept of them is bounded."""

import pytest

from dissector.limits import MAX_FRAGMENTED_PACKETS
from tests.dissector.capture.reading import read_capture
from tests.hard.packet_floods import PACKET_FLOODS

SEGMENTS = {"tiny fragments": 2, "completed fragments": 250, "tunnel ids": 500}


@pytest.mark.parametrize("name", PACKET_FLOODS)
def test_each_packet_of_a_flood_is_counted(name: str) -> None:
    reading = read_capture([PACKET_FLOODS[name](500)])
    ((used, ignored),) = reading.counts
    assert used == SEGMENTS.get(name, 0)
    assert ignored == ({"ip_fragment": 500 - used} if used < 500 else {})
    if name == "tunnel ids":
        assert len({each.tunnel for each in reading.segments}) == 500


@pytest.mark.parametrize("name", [name for name in PACKET_FLOODS if name.startswith("endless")])
def test_only_so_many_packets_wait_for_their_fragments(name: str) -> None:
    reading = read_capture([PACKET_FLOODS[name](MAX_FRAGMENTED_PACKETS + 300)])
    codes = {notice.code: notice.value for notice in reading.notices}
    assert codes == {"fragments_limit": 300, "fragments_missing": MAX_FRAGMENTED_PACKETS}
