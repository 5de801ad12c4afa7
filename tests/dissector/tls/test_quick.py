"""The short way takes what it can, and leaves everything else as it was."""

from typing import Any

from dissector.tls.ciphers import TrafficSecret
from dissector.tls.direction import Direction
from dissector.tls.quick import read_quickly
from dissector.tls.records import StreamRange
from dissector.tls.suites import SUITES
from tests.wire import tls

KIND = tls.KINDS["TLS_CHACHA20_POLY1305_SHA256"]


class Sink:
    may_wait = False

    def __init__(self) -> None:
        self.plain = b""

    def data(self, endpoint_index: int, offset: int, content: Any, spans: Any) -> None:
        assert offset == len(self.plain)
        self.plain += bytes(content)[: sum(size for size, *_ in spans)]

    def gap(self, *_: Any) -> None:
        raise AssertionError("nothing is missing")

    def note(self, *_: Any, **__: int) -> None:
        raise AssertionError("nothing is odd")


def test_it_takes_records_of_data_and_stops_at_others() -> None:
    side, sink = Direction(0), Sink()
    side.use([TrafficSecret(SUITES[KIND.number], bytes(32))])
    writer = tls.Writer13(KIND, bytes(32))
    data = writer.record(b"one") + writer.record(b"two") + writer.record(b"", 22)
    piece = StreamRange(0, len(data), 1, 1, 0)
    assert read_quickly(side, True, memoryview(data), piece, sink) == 0  # nothing is proved
    side.is_proved = True
    taken = read_quickly(side, True, memoryview(data), piece, sink)
    assert sink.plain == b"onetwo" and taken == len(data) - 22
    assert side.sequence == 2 and side.overhead == taken - 6


def test_a_record_over_many_ranges_is_put_together() -> None:
    side, sink = Direction(0), Sink()
    side.use([TrafficSecret(SUITES[KIND.number], bytes(32))])
    side.is_proved = True
    data = tls.Writer13(KIND, bytes(32)).record(b"z" * 500)
    for at in range(0, len(data), 100):
        part = data[at : at + 100]
        piece = StreamRange(at, at + len(part), at, at, 0)
        assert read_quickly(side, True, memoryview(part), piece, sink) == len(part)
    assert sink.plain == b"z" * 500
