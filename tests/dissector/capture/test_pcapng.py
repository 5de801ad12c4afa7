"""pcapng: sections, interfaces, time resolutions, all kinds of blocks, damage."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.capture.columns import INTERFACE_LIMIT, NO_INTERFACE
from dissector.capture.interfaces import Interfaces
from dissector.capture.pcapng import time_ns
from dissector.limits import MAX_INTERFACES, MAX_RECORD_BYTES, NULL
from tests.dissector.capture.reading import read_capture
from tests.wire import captures
from tests.wire.captures import (
    block,
    enhanced_packet,
    interface,
    old_packet,
    option,
    section,
    simple_packet,
    statistics,
)

orders = pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
LARGEST = 1 << 62  # ns, of a time that is used


def problems(reading):
    return [tuple(problem) for problem in reading.facts[0].problems]


@given(units=st.integers(0, (1 << 64) - 1), exponent=st.integers(0, 27))
@settings(max_examples=300)
def test_decimal_resolutions_are_exact(units, exponent):
    check_time(units, exponent, units * 10**9 // 10**exponent)


@given(units=st.integers(0, (1 << 64) - 1), exponent=st.integers(0, 63))
@settings(max_examples=300)
def test_binary_resolutions_are_exact(units, exponent):
    check_time(units, 0x80 | exponent, units * 10**9 >> exponent)


def check_time(units, resolution, exact):
    interfaces = Interfaces()
    number = interfaces.add(1, 0, resolution)
    found = time_ns(units >> 32, units & 0xFFFFFFFF, interfaces.columns, number)
    if units >= 1 << 63 or exact > LARGEST:
        assert found == NULL
    else:
        assert found == exact


@orders
def test_packets_of_interfaces_with_their_own_clocks(order):
    reading = read_capture(
        [
            section(order)
            + interface(order=order)
            + enhanced_packet(5_000_001, b"us", order=order)
            + interface(link_type=101, snaplen=96, resolution=0x8A, offset_seconds=100, order=order)
            + enhanced_packet(3 << 9, b"binary", interface_id=1, wire_bytes=99, order=order)
            + interface(resolution=9, offset_seconds=-1, order=order)
            + enhanced_packet(10**9 + 7, b"ns", interface_id=2, order=order)
        ]
    )
    assert [packet[1:] for packet in reading.packets] == [
        (5_000_001_000, b"us", 2, 0),
        (101_500_000_000, b"binary", 99, 1),
        (7, b"ns", 2, 2),
    ]
    assert reading.facts[0].link_types == (1, 101)
    assert reading.facts[0].snaplen == 96
    assert reading.facts[0].clock_steps == 1


def test_a_section_starts_its_interfaces_and_byte_order_anew():
    reading = read_capture(
        [
            section("<")
            + interface(link_type=1)
            + enhanced_packet(1, b"a")
            + section(">")
            + interface(link_type=113, order=">")
            + enhanced_packet(2, b"b", order=">")
            + enhanced_packet(3, b"c", interface_id=1, order=">")
        ]
    )
    assert [(p.data, p.interface) for p in reading.packets] == [
        (b"a", 0),
        (b"b", 1),
        (b"c", NO_INTERFACE),
    ]
    assert reading.reasons[2] == "unknown_interface"


def test_a_simple_packet_stands_at_the_last_time_and_is_cut_by_the_snap_length():
    reading = read_capture(
        [
            section()
            + interface(snaplen=4)
            + simple_packet(b"none")
            + enhanced_packet(9, b"x")
            + simple_packet(b"abcd", wire_bytes=11)
        ]
    )
    assert [(p.ts_ns, p.data, p.wire_bytes) for p in reading.packets] == [
        (NULL, b"none", 4),
        (9000, b"x", 1),
        (9000, b"abcd", 11),
    ]


def test_old_packet_blocks_and_their_drops():
    reading = read_capture(
        [
            section()
            + interface()
            + old_packet(4, b"abc", drops=3)
            + old_packet(5, b"", drops=0xFFFF)
        ]
    )
    assert [(p.ts_ns, p.data) for p in reading.packets] == [(4000, b"abc"), (5000, b"")]
    assert reading.facts[0].dropped_by_interface == 3


def test_the_last_statistics_of_each_interface_count():
    reading = read_capture(
        [
            section()
            + interface()
            + interface()
            + statistics(interface_id=0, dropped=5)
            + statistics(interface_id=0, dropped=7, os_dropped=2)
            + statistics(interface_id=1, dropped=(1 << 64) - 1, os_dropped=1)
        ]
    )
    assert reading.facts[0].dropped_by_interface == 10
    assert [(n.code, n.value) for n in reading.notices] == [("interface_drops", 10)]


@orders
def test_blocks_without_packets_are_passed_over(order):
    secrets = block(10, b"TLSK" + b"secret " * 9, order)
    names = block(4, bytes(8), order)
    custom = block(0xBAD, b"\x01\x02\x03\x04anything", order)
    unknown = block(0x0BADF00D, b"", order)
    reading = read_capture(
        [
            section(order, options=option(1, b"comment", order))
            + secrets
            + interface(order=order)
            + names
            + custom
            + unknown
            + enhanced_packet(1, b"a", options=option(1, b"hello", order), order=order)
        ]
    )
    assert [p.data for p in reading.packets] == [b"a"]
    assert problems(reading) == []


def test_a_section_of_an_unknown_version_is_skipped():
    skipped = section(major=2) + interface() + enhanced_packet(1, b"unknown")
    reading = read_capture([skipped + section() + interface() + enhanced_packet(2, b"known")])
    assert [p.data for p in reading.packets] == [b"known"]
    assert problems(reading) == [("skipped_section", 0)]
    assert not reading.facts[0].is_truncated


DAMAGED = {
    "length of zero": bytes(12),
    "length not a multiple of four": b"\x06\0\0\0\x21\0\0\0" + bytes(40),
    "absurd length": b"\x06\0\0\0" + (MAX_RECORD_BYTES + 4).to_bytes(4, "little") + bytes(40),
    "lengths that differ": b"\x06\0\0\0\x20\0\0\0" + bytes(20) + b"\x24\0\0\0",
    "packet longer than its block": enhanced_packet(1, b"abcd")[:20]
    + b"\xff\0\0\0"
    + enhanced_packet(1, b"abcd")[24:],
    "packet block too short": block(6, bytes(8)),
    "interface too short": block(1, bytes(4)),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_after_damage_reading_goes_on_at_the_next_section(damage):
    before = section() + interface() + enhanced_packet(1, b"before")
    false_mark = b"\n\r\r\n" + b"no section header"
    after = section(">") + interface(order=">") + enhanced_packet(2, b"after", order=">")
    whole = before + damage + false_mark + after
    reading = read_capture([whole])
    assert [p.data for p in reading.packets] == [b"before", b"after"]
    assert problems(reading) == [
        ("corrupt_record", len(before)),
        ("skipped_section", len(before)),
    ]
    assert reading.notices[1].bytes == len(damage) + len(false_mark)
    for size in (1, 2, 3, 7):
        cut = read_capture([whole], lambda total, size=size: range(size, total, size))
        assert cut == reading


def test_damage_without_a_further_section_ends_the_file():
    before = section() + interface() + enhanced_packet(1, b"before")
    reading = read_capture([before + bytes(100)])
    assert [p.data for p in reading.packets] == [b"before"]
    assert problems(reading) == [("corrupt_record", len(before))]


def test_files_put_behind_a_cut_file_are_still_found():
    whole = section() + interface() + enhanced_packet(1, b"a") + enhanced_packet(2, b"b" * 400)
    reading = read_capture([whole[:-100] + whole])
    assert [p.data[:1] for p in reading.packets] == [b"a", b"a", b"b"]


@given(data=st.data())
@settings(max_examples=60)
def test_cuts_into_buffers_change_nothing(data):
    packets = st.builds(
        enhanced_packet, st.integers(0, 1 << 40), st.binary(max_size=30), interface_id=st.just(0)
    )
    others = st.sampled_from(
        [simple_packet(b"simple"), old_packet(3, b"old"), statistics(dropped=1), block(77, b"?")]
    )
    blocks = data.draw(st.lists(packets | others, max_size=8))
    whole = section() + interface() + b"".join(blocks)
    tail = data.draw(st.integers(0, 40))
    whole = whole[: len(whole) - tail]
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    in_pieces = read_capture([whole], lambda size: cuts, block_rows=3)
    assert in_pieces == read_capture([whole])
    assert read_capture([whole], lambda size: range(1, size)) == in_pieces


@given(data=st.data())
@settings(max_examples=150)
def test_no_damage_raises_and_every_packet_is_counted(data):
    good = (
        section()
        + interface()
        + b"".join(enhanced_packet(i, bytes(range(i, i + 20))) for i in range(4))
        + statistics(dropped=2)
    )
    damaged = bytearray(good)
    changes = st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255))
    for place, value in data.draw(st.lists(changes, max_size=5)):
        damaged[place] = value
    damaged = damaged[: data.draw(st.integers(0, len(good)))]
    cuts = data.draw(st.lists(st.integers(0, len(damaged)), max_size=3))
    reading = read_capture([bytes(damaged)], lambda size: cuts)
    assert reading.facts[0].packets == len(reading.packets) == len(reading.reasons)
    assert reading.counts[0].used + sum(reading.counts[0].ignored.values()) == len(reading.packets)


def test_interfaces_beyond_the_limit_are_counted():
    interfaces = interface() * MAX_INTERFACES
    reading = read_capture(
        [
            section()
            + interfaces
            + interface()
            + enhanced_packet(1, b"last", interface_id=MAX_INTERFACES - 1)
            + enhanced_packet(2, b"beyond", interface_id=MAX_INTERFACES)
        ]
    )
    assert [p.interface for p in reading.packets] == [MAX_INTERFACES - 1, INTERFACE_LIMIT]
    assert reading.reasons[1] == "interface_limit"


def test_a_real_file_of_dumpcap():
    file = Path("captures/pulsar/var-dumpcap.pcapng").read_bytes()
    reading = read_capture([file])
    facts = reading.facts[0]
    assert (facts.format, facts.packets, facts.dropped_by_interface) == ("pcapng", 103, 0)
    assert facts.first_ts_ns == 1795229759599422280
    assert captures.pcapng([])[:4] == file[:4]
