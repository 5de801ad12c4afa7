"""First and last times without reading a file into memory."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.sources import file_times
from dissector.sources.file_times import last_ts_ns, look
from tests.wire.captures import (
    MICROSECONDS,
    MODIFIED,
    NANOSECONDS,
    Record,
    block,
    enhanced_packet,
    interface,
    pcap,
    pcapng,
    section,
    simple_packet,
)

SECOND = 10**9


def stored(folder, data, name="x.pcap"):
    path = folder / name
    path.write_bytes(data)
    return str(path)


def test_times_of_small_files(tmp_path):
    records = [Record(SECOND * number, bytes(number)) for number in (7, 5, 9, 8)]
    for data in (pcap(records), pcapng(records), gzip.compress(pcap(records, order=">"))):
        path = stored(tmp_path, data)
        assert look(path)[:3] == (path, 7 * SECOND, None)
        assert last_ts_ns(path) == 8 * SECOND


def test_a_file_without_packets_has_no_times(tmp_path):
    for data in (pcap([]), pcapng([]), section()):
        path = stored(tmp_path, data)
        assert look(path)[:3] == (path, None, None)
        assert last_ts_ns(path) is None


def test_the_first_packet_may_come_late_in_a_file(tmp_path):
    names = block(4, bytes(300_000))
    path = stored(tmp_path, section() + names + interface() + names + enhanced_packet(5, b"x"))
    assert look(path).first_ts_ns == 5000


def test_a_file_that_is_no_capture_says_why(tmp_path):
    for data in (b"", b"text", gzip.compress(b"text of some length")):
        seen = look(stored(tmp_path, data))
        assert seen.first_ts_ns is None and seen.problem is not None and seen.problem.is_fatal
    assert "no such file" in look(str(tmp_path / "missing")).problem.text


BIG = [(magic, order) for magic in (MICROSECONDS, NANOSECONDS, MODIFIED) for order in ("<", ">")]


@pytest.mark.parametrize(("magic", "order"), BIG)
def test_the_last_time_of_a_large_file_comes_from_its_end(tmp_path, monkeypatch, magic, order):
    random = np.random.default_rng(3)
    start = 1_700_000_000 * SECOND
    records = [
        Record(start + number * 1000, random.bytes(int(size)))
        for number, size in enumerate(random.integers(0, 1500, 2000))
    ]
    path = stored(tmp_path, pcap(records, magic=magic, order=order))
    monkeypatch.setattr(file_times, "CaptureReader", None)
    assert last_ts_ns(path) == records[-1].ts_ns


def test_a_large_file_whose_end_is_cut_is_read_through(tmp_path):
    records = [Record(SECOND * (number + 1), bytes(1000)) for number in range(1200)]
    assert last_ts_ns(stored(tmp_path, pcap(records)[:-1])) == 1199 * SECOND
    assert last_ts_ns(stored(tmp_path, pcap(records) + bytes(30))) == 1200 * SECOND


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    inner=st.booleans(),
    step=st.integers(60, 300),
)
@settings(max_examples=80)
def test_the_end_alone_never_gives_a_wrong_time(tmp_path_factory, sizes, inner, step):
    # Payloads that are captures themselves are the nastiest: their records look real.
    nested = pcap([Record(77 * SECOND, b"")] * 3)[24:]
    records = [
        Record(
            (number + 5) * SECOND,
            (nested * 3)[:size] if inner else bytes(size),
        )
        for number, size in enumerate(sizes)
    ]
    path = stored(tmp_path_factory.mktemp("look"), pcap(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_times, "_TAIL_BYTES", step)
        assert last_ts_ns(path) == records[-1].ts_ns


def test_packets_without_time_do_not_matter(tmp_path):
    data = section() + interface() + enhanced_packet(5, b"x") + simple_packet(b"y")
    assert last_ts_ns(stored(tmp_path, data)) == 5000
