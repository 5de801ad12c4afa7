"""Records and blocks behind damage are found again, however the bytes are cut."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.capture.pcap import read_header
from dissector.capture.search import HERE, NOT_HERE, UNDECIDED, find_blocks, find_records
from dissector.limits import NULL
from tests.dissector.capture.reading import read_capture
from tests.wire.captures import (
    IXIA_HARDWARE,
    MODIFIED,
    NANOSECONDS,
    Record,
    block,
    enhanced_packet,
    interface,
    pcap,
    pcap_header,
    pcap_record,
    section,
)

START_NS = 1_700_000_000 * 10**9
orders = pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])


def records(count, size=90):
    chance = random.Random(count)
    return [Record(START_NS + n * 10**6, chance.randbytes(size)) for n in range(count)]


def as_array(data):
    return np.frombuffer(bytearray(data), np.uint8)


@orders
@pytest.mark.parametrize("magic", [NANOSECONDS, MODIFIED, IXIA_HARDWARE])
def test_behind_garbage_the_next_record_is_found(magic, order):
    found = records(9)
    parts = [pcap_record(each, magic=magic, order=order) for each in found]
    garbage = random.Random(1).randbytes(500)
    head = pcap_header(magic=magic, order=order)
    whole = head + b"".join(parts[:3]) + b"\xff" * 20 + garbage + b"".join(parts[4:])
    reading = read_capture([whole])
    assert [p.data for p in reading.packets] == [r.data for r in found[:3] + found[4:]]
    damaged_at = len(head + b"".join(parts[:3]))
    assert [tuple(each) for each in reading.facts[0].problems] == [
        ("corrupt_record", damaged_at),
        ("skipped_section", damaged_at),
    ]
    assert reading.notices[1].bytes == 520
    for size in (1, 7, 100):
        assert read_capture([whole], lambda total, size=size: range(size, total, size)) == reading


def test_a_length_that_swallows_the_end_is_not_a_cut_tail():
    found = records(6)
    parts = [pcap_record(each) for each in found]
    parts[2] = parts[2][:8] + (5000).to_bytes(4, "little") * 2 + parts[2][16:]
    reading = read_capture([pcap_header() + b"".join(parts)])
    assert [p.data for p in reading.packets] == [r.data for r in found[:2] + found[3:]]
    assert [each.code for each in reading.facts[0].problems] == [
        "corrupt_record",
        "skipped_section",
    ]


@orders
def test_blocks_of_a_damaged_section_go_on(order):
    packets = [enhanced_packet(n, bytes([n]) * 30, order=order) for n in range(6)]
    packets[2] = packets[2][:-4] + b"\x01\x02\x03\x04"
    whole = section(order) + interface(order=order) + b"".join(packets)
    reading = read_capture([whole])
    assert [p.data[0] for p in reading.packets] == [0, 1, 3, 4, 5]
    assert [p.interface for p in reading.packets] == [0] * 5
    for size in (1, 7, 100):
        assert read_capture([whole], lambda total, size=size: range(size, total, size)) == reading


def test_an_interface_described_behind_damage_has_no_number_that_could_be_trusted():
    packets = [enhanced_packet(n, bytes([n]) * 30) for n in range(4)]
    late = interface(link_type=113) + enhanced_packet(9, b"?", interface_id=1)
    anew = section() + interface() + enhanced_packet(10, b"!")
    whole = section() + interface() + packets[0] + bytes(50) + b"".join(packets[1:]) + late + anew
    reading = read_capture([whole])
    assert [p.data[0] for p in reading.packets] == [0, 1, 2, 3, ord("!")]
    assert [each.code for each in reading.facts[0].problems] == [
        "corrupt_record",
        "skipped_section",
        "skipped_section",
    ]


def test_without_a_time_before_one_record_alone_is_not_believed():
    layout = read_header(pcap_header()).layout
    one = as_array(b"?" + pcap_record(records(1)[0]))
    assert find_records(one, (0, len(one)), layout, NULL, 1).answer == NOT_HERE
    assert find_records(one, (0, len(one)), layout, 1_700_000_000, 1) == (1, HERE)
    assert find_records(one, (0, len(one)), layout, 1_600_000_000, 1).answer == NOT_HERE
    assert find_records(one, (0, len(one)), layout, 1_700_000_000, 0) == (1, UNDECIDED)


def test_without_a_section_only_a_section_header_counts():
    data = as_array(b"??" + enhanced_packet(1, b"a") * 5 + section() + block(6, bytes(20)))
    at = len(b"??" + enhanced_packet(1, b"a") * 5)
    assert find_blocks(data, (0, len(data)), -1, 1) == (at, HERE)
    assert find_blocks(data, (0, len(data)), 0, 1) == (2, HERE)


@given(data=st.data())
@settings(max_examples=60)
def test_cuts_change_nothing_whatever_is_damaged(data):
    whole = bytearray(data.draw(st.sampled_from([
        pcap(records(7, 30)),
        section() + interface() + b"".join(enhanced_packet(n, b"abc" * n) for n in range(7)),
    ])))  # fmt: skip
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(24, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
    reading = read_capture([bytes(whole)])
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    assert read_capture([bytes(whole)], lambda size: cuts) == reading
    assert read_capture([bytes(whole)], lambda size: range(1, size)) == reading


@pytest.mark.parametrize("major", [1, 2], ids=["read", "skipped"])
def test_damage_behind_blocks_that_are_passed_over_is_where_it_is(major):
    passed = block(0xBAD, bytes(40)) * 3
    head = section(major=major) + interface() + passed
    whole = head + bytes(40) + section() + interface() + enhanced_packet(1, b"a")
    reading = read_capture([whole])
    assert reading.facts[0].problems[-2:] == (
        ("corrupt_record", len(head)),
        ("skipped_section", len(head)),
    )
    for size in (1, 7, 100):
        assert read_capture([whole], lambda total, size=size: range(size, total, size)) == reading
