"""pcap files of every variant, damaged and cut ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.capture.pcap import LengthOrder, header_bytes, is_pcap, read_header
from dissector.limits import MAX_RECORD_BYTES
from tests.dissector.capture.reading import read_capture
from tests.wire import captures
from tests.wire.captures import (
    IXIA_HARDWARE,
    IXIA_SOFTWARE,
    MICROSECONDS,
    MODIFIED,
    NANOSECONDS,
    OF_NANOSECONDS,
    Record,
)

NAMES = {
    MICROSECONDS: "us",
    NANOSECONDS: "ns",
    MODIFIED: "modified",
    IXIA_HARDWARE: "Ixia ns",
    IXIA_SOFTWARE: "Ixia us",
}
VARIANTS = [(magic, order) for magic in NAMES for order in ("<", ">")]
variants = pytest.mark.parametrize(
    ("magic", "order"), VARIANTS, ids=[f"{NAMES[m]}{o}" for m, o in VARIANTS]
)

records = st.lists(
    st.builds(
        Record,
        st.integers(1, (1 << 32) * 10**9 - 1),
        st.binary(max_size=40),
        st.none(),
    ),
    max_size=8,
)


def rows(reading):
    return [(packet.ts_ns, packet.data, packet.wire_bytes) for packet in reading.packets]


def expected(found, magic):
    unit = 1 if magic in OF_NANOSECONDS else 1000
    return [(r.ts_ns // unit * unit, r.data, r.wire_bytes or len(r.data)) for r in found]


@variants
@given(found=records)
@settings(max_examples=30)
def test_every_variant_gives_the_records(magic, order, found):
    # A record header of zeros is damage by definition: no time, no bytes.
    found = [record for record in found if record.ts_ns >= 1000 or record.data]
    reading = read_capture([captures.pcap(found, magic=magic, order=order, snaplen=77)])
    assert rows(reading) == expected(found, magic)
    assert reading.facts[0].format == "pcap"
    assert reading.facts[0].snaplen == 77
    assert reading.facts[0].problems == ()


@given(found=records, data=st.data())
@settings(max_examples=60)
def test_cuts_into_buffers_change_nothing(found, data):
    whole = captures.pcap(found)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    in_pieces = read_capture([whole], lambda size: cuts, block_rows=3)
    assert in_pieces == read_capture([whole])
    assert read_capture([whole], lambda size: range(1, size)) == in_pieces


@given(found=records.filter(bool), data=st.data())
def test_a_cut_tail_keeps_what_is_before_it(found, data):
    whole = captures.pcap(found)
    bounds = [24]
    for record in found:
        bounds.append(bounds[-1] + 16 + len(record.data))
    size = data.draw(st.integers(24, len(whole) - 1))
    reading = read_capture([whole[:size]])
    complete = sum(bound <= size for bound in bounds[1:])
    assert len(reading.packets) == complete
    if size in bounds:
        assert reading.facts[0].problems == ()
    else:
        assert reading.facts[0].problems == (("truncated_tail", bounds[complete]),)
        assert reading.facts[0].is_truncated


def test_a_record_of_absurd_length_with_nothing_behind_it_ends_the_file_there():
    good = captures.pcap([Record(10**18, b"abc")])
    head = np.array([1, 2, MAX_RECORD_BYTES + 1, 5], "<u4").tobytes()
    reading = read_capture([good + head + b"x" * 1000])
    assert [packet.data for packet in reading.packets] == [b"abc"]
    assert reading.facts[0].problems == (("corrupt_record", len(good)),)
    notice = reading.notices[0]
    assert (notice.code, notice.packet, notice.value, notice.value2) == (
        "corrupt_record",
        1,
        len(good),
        0,
    )


def test_a_tail_of_zeros_is_damage_and_not_a_flood_of_empty_packets():
    good = captures.pcap([Record(10**18, b"abc")])
    reading = read_capture([good + bytes(4096)])
    assert len(reading.packets) == 1
    assert reading.facts[0].problems == (("corrupt_record", len(good)),)


def test_more_captured_than_on_the_wire_counts_as_captured():
    reading = read_capture([captures.pcap([Record(10**18, b"abcdef", wire_bytes=2)])])
    assert rows(reading) == [(10**18, b"abcdef", 6)]


def test_fractions_of_a_second_and_more_are_added():
    record = captures.pcap_header() + np.array([7, 1_500_000_000, 0, 0], "<u4").tobytes()
    assert read_capture([record]).packets[0].ts_ns == 8_500_000_000


def test_a_packet_longer_than_the_snap_length_is_read_up_to_a_mebibyte():
    data = bytes(1 << 20)
    assert len(read_capture([captures.pcap([Record(1, data)], snaplen=96)]).packets) == 1
    longer = captures.pcap([Record(1, data + b"x")], snaplen=96)
    assert read_capture([longer]).facts[0].problems == (("corrupt_record", 24),)
    unlimited = captures.pcap([Record(1, data + b"x")], snaplen=0)
    assert len(read_capture([unlimited]).packets) == 1


@variants
def test_layout_follows_the_magic_number(magic, order):
    first = int.from_bytes(captures.pcap_header(magic=magic, order=order)[:4], "big")
    assert is_pcap(first) and not is_pcap(first ^ 0x100)
    head = read_header(captures.pcap_header(magic=magic, order=order, snaplen=0, link_type=113))
    assert (head.link_type, head.snaplen) == (113, 0)
    assert header_bytes(first) == (28 if magic in (IXIA_HARDWARE, IXIA_SOFTWARE) else 24)
    layout = head.layout
    assert layout.is_big_endian == (order == ">")
    assert layout.unit_ns == (1 if magic in OF_NANOSECONDS else 1000)
    assert layout.record_header_bytes == (24 if magic == MODIFIED else 16)
    assert layout.longest_bytes == MAX_RECORD_BYTES
    assert layout.lengths == LengthOrder.IN_ORDER


@pytest.mark.parametrize("version", [(2, 0), (2, 2), (543, 0)])
def test_the_first_versions_had_the_lengths_the_other_way_round(version):
    assert read_header(captures.pcap_header(version=version)).layout.lengths == LengthOrder.SWAPPED


def test_of_version_2_3_the_lesser_length_is_that_of_the_captured_bytes():
    record = Record(10**18, b"abc", wire_bytes=9)
    head = captures.pcap_header(version=(2, 3))
    swapped = captures.pcap_record(record, version=(2, 2))
    reading = read_capture([head + captures.pcap_record(record) + swapped])
    assert rows(reading) == [(10**18, b"abc", 9)] * 2
