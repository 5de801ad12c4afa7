"""Copies by the tap: what they have in common, how long they are remembered."""

import numpy as np
import pytest

from dissector.limits import DUPLICATE_WINDOW_MS, NULL
from dissector.stream.duplicates import (
    SIGNATURES,
    Signatures,
    remember,
    remembered,
    signature,
)
from dissector.stream.segment import Segment
from tests.wire.segments import MS, Packet, handshake, streamed

ONE = Segment(5, 1000, 0, 0, 20, 20, 1001, 5001, 16, 500, 77, 123, 0)
DATA = np.arange(64, dtype=np.uint8)
COPY = Packet(10, 0, 1001, b"abcdefghij", 5001, ip_id=9, tsval=50, window=700)


def test_copies_have_one_signature_wherever_their_bytes_lie() -> None:
    other = np.concatenate([np.zeros(5, np.uint8), DATA])
    moved = ONE._replace(packet=9, ts_ns=2000, offset=5)
    assert signature(ONE, 3, DATA) == signature(moved, 3, other) != 0


@pytest.mark.parametrize(
    "change",
    [{"sequence": 1002}, {"acknowledgement": 5002}, {"flags": 17}, {"window": 501}, {"ip_id": 78},
     {"tsval": 124}, {"wire_bytes": 21}, {"offset": 1}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_anything_else_is_another_packet(change: dict[str, int]) -> None:
    assert signature(ONE, 3, DATA) != signature(ONE._replace(**change), 3, DATA)
    assert signature(ONE, 3, DATA) != signature(ONE, 2, DATA)


def test_a_signature_is_remembered_with_its_time() -> None:
    signatures = Signatures.new(SIGNATURES)
    value = signature(ONE, 3, DATA)
    assert remembered(signatures, value, 1000) == NULL
    remember(signatures, value, 5000)
    apart = [remembered(signatures, value, ts_ns) for ts_ns in (4000, 5000, 9000)]
    assert apart == [1000, 0, 4000]
    remember(signatures, value, 8000)
    assert remembered(signatures, value, 9000) == 1000


def test_a_bucket_keeps_the_last_four() -> None:
    signatures = Signatures.new(SIGNATURES)
    same_bucket = [1 + number for number in range(5)]
    for value in same_bucket:
        remember(signatures, value, 1000)
    assert [remembered(signatures, value, 1000) for value in same_bucket] == [NULL] + [0] * 4


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({"ms": 10.5}, {"duplicate": 1}),
        ({"ms": 10 + DUPLICATE_WINDOW_MS}, {"duplicate": 1}),
        ({"ip_id": 10}, {"retransmitted": 1}),
        ({"tsval": 51}, {"retransmitted": 1}),
        ({"window": 701}, {"retransmitted": 1}),
        ({"payload": b"abcdefghiX"}, {"retransmitted": 1}),
    ],
    ids=["at once", "in the window", "IP id", "time stamp", "window", "content"],
)
def test_copies_and_retransmissions_are_counted_apart(change: dict, counted: dict) -> None:
    released = streamed([*handshake(), COPY, COPY._replace(**change)])
    assert released.counted() == counted
    assert released.data() == b"abcdefghij"
    assert ("T" in released.connections[0]["history"]) == ("retransmitted" in counted)


@pytest.mark.parametrize(("first", "second"), [(None, 3), (9, 3), (3, None), (3, 9), (0, 3)])
def test_a_copy_may_be_cut_elsewhere(first: int | None, second: int | None) -> None:
    """As a tunnel's packet is, whose outer headers the snap length counts, too."""
    packets = [COPY._replace(captured=first), COPY._replace(captured=second, ms=10.1)]
    released = streamed([*handshake(), *packets])
    assert released.counted() == {"duplicate": 1}
    assert "T" not in released.connections[0]["history"]


def test_a_cut_packet_with_another_header_was_sent_again() -> None:
    cut = COPY._replace(captured=3)
    assert streamed([*handshake(), cut, cut._replace(ip_id=10)]).counted() == {"retransmitted": 1}


LATER_MS = 11 + DUPLICATE_WINDOW_MS


def test_a_late_packet_that_shows_its_age_is_a_copy() -> None:
    """Every other packet of the sender has an IP identification of its own."""
    released = streamed([*handshake(), COPY, COPY._replace(ms=LATER_MS)])
    assert released.counted() == {"duplicate": 1}
    assert released.codes() == ["two_clocks"]
    assert released.notices[0]["value"] == (LATER_MS - 10) * MS


def test_a_sender_that_repeats_its_identifications_sends_again() -> None:
    before = [packet._replace(ip_id=9) for packet in handshake()]
    assert streamed([*before, COPY, COPY._replace(ms=LATER_MS)]).counted() == {"retransmitted": 1}


@pytest.mark.parametrize(("tsval", "counted"), [(50, "retransmitted"), (51, "duplicate")])
def test_a_time_stamp_older_than_the_senders_last_shows_age(tsval: int, counted: str) -> None:
    packets = [*handshake(), COPY._replace(ip_id=0)]
    packets.append(Packet(20, 0, 1011, b"k", 5001, ip_id=0, tsval=tsval))
    packets.append(COPY._replace(ip_id=0, ms=LATER_MS))
    assert streamed(packets).counted() == {counted: 1}


def test_without_an_ip_id_repeated_acknowledgements_are_no_copies() -> None:
    acks = [Packet(10 + n, 1, 5001, b"", 1001, ip_id=0) for n in range(3)]
    assert streamed([*handshake(), *acks]).counted(0, 1) == {}


def test_where_copies_were_seen_acknowledgements_may_be_copies_too() -> None:
    packets = [*handshake(), COPY._replace(ip_id=0), COPY._replace(ms=10.1, ip_id=0)]
    packets += [Packet(20 + n, 1, 5001, b"", 1011, ip_id=0) for n in range(2)]
    released = streamed(packets)
    assert released.counted(0, 0) == {"duplicate": 1}
    assert released.counted(0, 1) == {"duplicate": 1}


def test_a_whole_capture_seen_twice_changes_counters_only() -> None:
    once = [*handshake()]
    for number in range(30):
        once.append(Packet(10 + number, 0, 1001 + 10 * number, bytes([number]) * 10, 5001))
        once.append(Packet(10.5 + number, 1, 5001 + 5 * number, b"reply", 1011 + 10 * number))
    once = [packet._replace(ip_id=number + 1) for number, packet in enumerate(once)]
    twice = [each for packet in once for each in (packet, packet._replace(ms=packet.ms + 0.01))]
    single, double = streamed(once), streamed(twice)
    for endpoint_index in (0, 1):
        assert double.stream_ranges(0, endpoint_index) == single.stream_ranges(0, endpoint_index)
        assert double.counted(0, endpoint_index) == {
            "duplicate": single.direction(0, endpoint_index)["packets"]
        }
    assert double.connections[0]["history"] == single.connections[0]["history"]
    assert double.connections[0]["handshake_rtt_ns"] == single.connections[0]["handshake_rtt_ns"]
