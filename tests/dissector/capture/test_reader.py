"""Files of a chain: numbers go on, facts stay with their file."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.capture import reader
from dissector.capture.reader import HEAD_BYTES, CaptureReader, capture_format
from tests.dissector.capture.reading import read_capture, whole
from tests.wire.captures import (
    IXIA_HARDWARE,
    MICROSECONDS,
    Record,
    block,
    enhanced_packet,
    interface,
    pcap,
    pcapng,
    section,
)


def some(*times):
    return [Record(time, b"%d" % time) for time in times]


def test_numbers_and_interfaces_go_on_from_file_to_file():
    reading = read_capture([pcap(some(1, 2)), pcapng(some(3)), pcap(some(4), link_type=113)])
    assert [(p.number, p.ts_ns, p.interface) for p in reading.packets] == [
        (1, 1, 0),
        (2, 2, 0),
        (3, 3, 1),
        (4, 4, 2),
    ]
    assert [(f.format, f.packets, f.first_packet, f.link_types) for f in reading.facts] == [
        ("pcap", 2, 1, (1,)),
        ("pcapng", 1, 3, (1,)),
        ("pcap", 1, 4, (113,)),
    ]


def test_steps_back_are_counted_across_files_and_told_once():
    reading = read_capture([pcap(some(100, 90, 95)), pcap(some(50, 60))])
    assert [facts.clock_steps for facts in reading.facts] == [1, 1]
    assert [(f.first_ts_ns, f.last_ts_ns) for f in reading.facts] == [(90, 100), (50, 60)]
    notices = [(n.code, n.packet, n.ts_ns, n.value, n.value2) for n in reading.notices]
    assert notices == [("clock_step", 4, 50, 45, 2)]


@given(times=st.lists(st.integers(1, 9), min_size=1, max_size=12), data=st.data())
@settings(max_examples=50)
def test_a_capture_in_several_files_tells_the_same(times, data):
    whole = read_capture([pcap(some(*times))])
    parts = data.draw(st.lists(st.integers(0, len(times)), max_size=4).map(sorted))
    bounds = [0, *parts, len(times)]
    files = [pcap(some(*times[a:b])) for a, b in itertools.pairwise(bounds)]
    split = read_capture(files, block_rows=2)
    assert [p[:4] for p in split.packets] == [p[:4] for p in whole.packets]
    assert split.notices == whole.notices
    assert sum(f.clock_steps for f in split.facts) == whole.facts[0].clock_steps


def test_a_header_without_packets_is_fine():
    for file in (pcap([]), pcapng([]), section()):
        reading = read_capture([file])
        assert reading.packets == [] and reading.facts[0].problems == ()
        assert reading.facts[0].first_ts_ns is None


def test_a_cut_header_is_a_cut_tail():
    for file in (pcap([])[:23], pcapng([])[:20]):
        facts = read_capture([file]).facts[0]
        assert [problem.code for problem in facts.problems] == ["truncated_tail"]


def test_problems_name_their_file():
    reading = read_capture([pcap(some(1)), pcap(some(2))[:-1], pcap(some(3))])
    assert [p.ts_ns for p in reading.packets] == [1, 3]
    notice = reading.notices[0]
    assert (notice.code, notice.value, notice.value2) == ("truncated_tail", 24, 1)


@pytest.mark.parametrize(
    "more",
    [{}, {"order": ">"}, {"magic": MICROSECONDS}, {"magic": IXIA_HARDWARE}, {"link_type": 113}],
    ids=["same", "byte_order", "unit", "ixia", "link_type"],
)
@pytest.mark.parametrize("cuts", [whole, lambda size: range(1, size)], ids=["whole", "bytewise"])
def test_files_that_were_appended_to_each_other_are_read_one_after_the_other(more, cuts):
    """As `cat a.pcap b.pcap` makes them, where `mergecap` was meant."""
    first, second = pcap(some(1000, 2000)), pcap(some(3000, 4000), **more)
    reading = read_capture([first + second + pcap([])], cuts=cuts)
    assert [packet.ts_ns for packet in reading.packets] == [1000, 2000, 3000, 4000]
    assert [packet.interface for packet in reading.packets] == [0, 0, 1, 1]
    assert reading.facts[0].problems == () and reading.notices == []


def test_an_appended_header_that_is_cut_is_a_cut_tail():
    reading = read_capture([pcap(some(1)) + pcap([])[:20]])
    assert [packet.ts_ns for packet in reading.packets] == [1]
    assert [problem.code for problem in reading.facts[0].problems] == ["truncated_tail"]


@given(noise=st.binary(max_size=200))
def test_noise_is_no_capture_and_does_no_harm(noise):
    if capture_format(noise[:HEAD_BYTES]) is None:
        reading = read_capture([noise])
        assert reading.packets == []


FORMATS = {
    "pcap": pcap([]),
    "pcap big": pcap([], order=">"),
    "pcapng": pcapng([]),
    "pcapng big": pcapng([], order=">"),
}


@pytest.mark.parametrize("file", FORMATS.values(), ids=FORMATS.keys())
def test_the_first_bytes_tell_the_format(file):
    expected = "pcapng" if file[:1] == b"\n" else "pcap"
    assert capture_format(file[:HEAD_BYTES]) == expected


@pytest.mark.parametrize("head", [b"", b"\xa1\xb2\xc3", b"<html>\n", b"\n\r\r\n" + bytes(8)])
def test_other_beginnings_are_no_capture(head):
    assert capture_format(head) is None


def test_a_block_of_packets_ends_exactly_at_the_file():
    # FULL at the last record must not hide that nothing follows.
    for count in (7, 8, 9, 16):
        file = section() + interface() + b"".join(enhanced_packet(i, b"x") for i in range(count))
        assert len(read_capture([file], block_rows=8).packets) == count
        assert len(read_capture([pcap(some(*range(1, count)))], block_rows=8).packets) == count - 1


def outcome_of(data: bytes, step: int) -> tuple[int, bool, list[tuple[str, int]]]:
    """Packets, whether reading ended early, and problems of a file that comes in steps."""
    found, array = CaptureReader(), np.frombuffer(bytearray(data), np.uint8)
    found.start_file()
    start = 0
    for end in [*range(step, len(data), step), len(data)]:
        while True:
            scan = found.feed(array, start, end, end == len(data))
            start = scan.consumed
            if not scan.is_more:
                break
    is_over = found.is_over
    facts = found.finish_file()
    return facts.packets, is_over, [(problem.code, problem.offset) for problem in facts.problems]


@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"\1"])
@pytest.mark.parametrize("step", [61, 997, 1 << 20])
def test_reading_ends_where_no_packet_comes_for_long(monkeypatch, filling, step):
    """A bomb is zeros behind a header; what is damaged for less is searched to its end."""
    monkeypatch.setattr(reader, "MAX_PACKETLESS_BYTES", 5000)
    times = [1_700_000_000_000_000_000 + number for number in range(8)]
    head, tail = pcap(some(*times[:3])), pcap(some(*times[3:]))[24:]
    near, far = (head + filling * size + tail for size in (4000, 6000))
    packets, is_over, problems = outcome_of(near, step)
    assert (packets, is_over) == (8, False)
    assert [code for code, _ in problems] == ["corrupt_record", "skipped_section"]
    packets, is_over, problems = outcome_of(far, step)
    assert (packets, is_over) == (3, True)
    assert [code for code, _ in problems] == ["corrupt_record", "packetless_limit"]


@pytest.mark.parametrize("step", [61, 997])
def test_blocks_that_hold_no_packet_do_not_go_on_for_ever(monkeypatch, step):
    """Whole blocks of a kind that nobody knows are no damage, and no packets either."""
    monkeypatch.setattr(reader, "MAX_PACKETLESS_BYTES", 5000)
    head = section() + interface() + enhanced_packet(1, b"x" * 20)
    unknown, last = block(0x0BAD, b"y" * 20), enhanced_packet(2, b"x" * 20)
    few, many = (head + unknown * count + last for count in (5000 // 32 - 2, 5000 // 32 + 2))
    assert outcome_of(few, step) == (2, False, [])
    packets, is_over, problems = outcome_of(many, step)
    assert (packets, is_over) == (1, True)
    assert [code for code, _ in problems] == ["packetless_limit"]
