"""One packet through the compiled pass."""

from tests.dissector.capture.reading import Segment, read_capture
from tests.wire.captures import ETHERNET, Record, pcap

TS_NS = 1_700_000_000_000_000_001


def decode(
    data: bytes,
    link_type: int = ETHERNET,
    *,
    captured: int | None = None,
    verify: bool = False,
) -> Segment | str:
    """The segment in a packet, or the reason why there is none.

    Args:
        captured: how many bytes a snap length leaves, None = all.
    """
    record = Record(TS_NS, data[:captured], len(data))
    reading = read_capture([pcap([record], link_type=link_type)], verify=verify)
    counts = reading.counts[0]
    if reading.segments:
        assert reading.reasons == ["used"] and counts == (1, {})
        return reading.segments[0]
    assert counts == (0, {reading.reasons[0]: 1})
    return reading.reasons[0]
