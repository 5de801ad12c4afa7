"""Numbers and keys that are not sure, and how much they cost."""

from dissector import limits
from dissector.tls.ciphers import TrafficSecret
from dissector.tls.direction import Direction
from dissector.tls.records import StreamRange
from dissector.tls.suites import SUITES
from tests.wire import tls

KIND = tls.KINDS["TLS_AES_128_GCM_SHA256"]


def direction() -> tuple[Direction, tls.Writer13]:
    side = Direction(0)
    side.use([TrafficSecret(SUITES[KIND.number], bytes(32))])
    side.is_proved = True
    return side, tls.Writer13(KIND, bytes(32))


def test_records_are_found_behind_as_many_as_the_bytes_allow() -> None:
    side, writer = direction()
    lost = b"".join(writer.record(b"x" * 10) for _ in range(30))
    kept = writer.record(b"here")
    side.is_lost, side.lost_from = True, 0
    side.stream.begin_search(len(lost))
    side.stream.add(StreamRange(len(lost), len(lost) + len(kept), 1, 1, 0), memoryview(kept))
    found = side.find_record()
    assert found is not None and bytes(found.content)[:-1] == b"here"
    assert found.lost_records == 30 and side.sequence == 31


def test_a_key_update_in_a_hole_is_followed() -> None:
    side, writer = direction()
    lost = writer.record(b"x") + writer.update() + writer.record(b"y")
    kept = writer.record(b"here")
    side.is_lost, side.lost_from = True, 0
    side.stream.begin_search(len(lost))
    side.stream.add(StreamRange(len(lost), len(lost) + len(kept), 1, 1, 0), memoryview(kept))
    assert side.find_record() is not None and side.sequence == 2


def test_noise_costs_no_more_than_its_bound() -> None:
    side, _ = direction()
    side.is_lost, side.lost_from = True, 0
    side.stream.begin_search(1 << 40)  # as if so much was lost
    record = tls.record(23, bytes(17))
    at = 1 << 40
    for _ in range(40):
        data = record * 20
        side.stream.add(StreamRange(at, at + len(data), 1, 1, 0), memoryview(data))
        at += len(data)
        assert side.find_record() is None
    assert side.tried_bytes <= limits.MAX_TLS_TRIED_BYTES + 20 * (1 << 15)
    assert len(side.stream.data) < 1000
