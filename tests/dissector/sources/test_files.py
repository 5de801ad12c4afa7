"""Chains of files as buffers: every byte once, tails kept, digests, problems."""

import gzip
import hashlib
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.capture.reader import CaptureReader
from dissector.errors import InputError
from dissector.sources import files
from dissector.sources.files import (
    Buffer,
    ChainReader,
    FileEnd,
    FileStart,
    raise_if_nothing,
)
from tests.wire.captures import Record, pcap, pcapng


def records(count, size=50):
    return [Record(number + 1, bytes([number % 256]) * size) for number in range(count)]


def read(paths, digest=None):
    """Packets as bytes, events by file, and the reader, of a chain."""
    capture = CaptureReader(64)
    packets, events = [], []
    with ChainReader(map(str, paths), digest) as source:
        for event in source:
            if isinstance(event, FileStart):
                capture.start_file()
                events.append(event)
            elif isinstance(event, FileEnd):
                events.append((event, capture.finish_file()))
            else:
                packets += take(capture, event)
    return packets, events, source


def take(capture, buffer):
    found = []
    position = buffer.start
    while True:
        scan = capture.feed(buffer.data, position, buffer.end, buffer.is_last)
        for row in range(scan.rows):
            offset = int(capture.packets.offset[row])
            size = int(capture.packets.captured_bytes[row])
            found.append(buffer.data[offset : offset + size].tobytes())
        position = scan.consumed
        if not scan.is_more:
            buffer.consumed = position
            return found


@pytest.fixture(params=[64, 1000, 4 << 20], ids=["tiny", "small", "usual"])
def buffer_bytes(request, monkeypatch):
    monkeypatch.setattr(files, "READ_BUFFER_BYTES", request.param)


def write(folder, **contents):
    paths = []
    for name, data in contents.items():
        path = folder / name
        path.write_bytes(data)
        paths.append(path)
    return paths


@pytest.mark.usefixtures("buffer_bytes")
def test_files_of_a_chain_come_in_order_with_their_digests(tmp_path):
    one, two = pcap(records(30)), pcapng(records(20, 333))
    paths = write(tmp_path, a=one, b=gzip.compress(two), c=pcap([]))
    packets, events, source = read(paths)
    assert packets == [r.data for r in records(30)] + [r.data for r in records(20, 333)]
    starts, ends = events[::2], [end for end, _ in events[1::2]]
    assert [(s.name, s.file_index, s.compressed) for s in starts] == [
        ("a", 0, None),
        ("b", 1, "gzip"),
        ("c", 2, None),
    ]
    assert [end.start for end in ends] == starts
    assert [end.file_bytes for end in ends] == [len(one), len(two), 24]
    assert ends[1].sha256 == hashlib.sha256(two).hexdigest()
    assert source.problems == [] and source.files_read == 3
    assert source.stored_bytes == sum(path.stat().st_size for path in paths)
    assert source.total_bytes == source.stored_bytes


class Recorder:
    def __init__(self):
        self.told = [b""]

    def update(self, data):
        self.told[-1] += bytes(data)

    def end_file(self, file_name):
        self.told += [file_name, b""]
        return f"digest of {file_name}"


@pytest.mark.usefixtures("buffer_bytes")
def test_a_digest_is_told_the_bytes_of_files_that_are_read(tmp_path):
    one, two = pcap(records(30)), pcapng(records(20, 333))
    paths = write(tmp_path, a=one, text=b"this is no capture" * 99, b=gzip.compress(two))
    digest = Recorder()
    _, events, _ = read(paths, digest)
    assert digest.told == [one, "a", two, "b", b""]
    assert [end.sha256 for end, _ in events[1::2]] == ["digest of a", "digest of b"]


@pytest.mark.usefixtures("buffer_bytes")
def test_a_record_longer_than_a_buffer_arrives_whole(tmp_path):
    found = [Record(1, b"a" * 5), Record(2, bytes(range(256)) * 40), Record(3, b"b")]
    packets, _, _ = read(write(tmp_path, a=pcap(found)))
    assert packets == [record.data for record in found]


@given(sizes=st.lists(st.integers(0, 300), max_size=20), step=st.integers(30, 400))
@settings(max_examples=25)
def test_any_buffer_size_gives_every_packet_once(tmp_path_factory, sizes, step):
    records = [Record(number + 1, bytes([number]) * size) for number, size in enumerate(sizes)]
    paths = write(tmp_path_factory.mktemp("chain"), a=pcap(records), b=pcapng(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "READ_BUFFER_BYTES", step)
        packets, _, _ = read(paths)
    assert packets == [record.data for record in records] * 2


UNREADABLE = {
    "empty": (b"", "is empty"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "text": (b"hello, this is no capture", "begins with text ('hello, this is n'"),
    "html": (b"<html>\n<body>", "begins with text"),
    "noise": (b"\x00\x01\x02\xff" * 9, "begins with the bytes 00 01 02 ff"),
    "zip": (b"PK\x03\x04" + bytes(99), "a zip archive"),
    "cut header": (pcap([])[:11], "ends inside its own header"),
    "cut gzip": (gzip.compress(pcap([]))[:12], "the gzip data is cut"),
    "gzip twice": (gzip.compress(gzip.compress(pcap([]))), "gzip data inside; decompress it once"),
}


@pytest.mark.parametrize(("data", "text"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_file_is_a_problem_and_the_others_are_read(tmp_path, data, text):
    paths = write(tmp_path, a=pcap(records(1)), b=data, c=pcap(records(2)))
    packets, events, source = read(paths)
    assert len(packets) == 3
    assert [event.file_index for event in events[::2]] == [0, 1]
    [problem] = source.problems
    assert problem.path == str(paths[1]) and problem.is_fatal
    assert problem.text.startswith(f"{paths[1]}: ") and text in problem.text
    raise_if_nothing(source.problems, source.files_read)


def test_missing_and_forbidden_files_are_problems(tmp_path, monkeypatch):
    _, events, source = read([tmp_path / "missing", tmp_path])
    assert events == []
    assert "there is no such file" in source.problems[0].text
    assert "cannot be read" in source.problems[1].text
    with pytest.raises(InputError, match="no such file") as error:
        raise_if_nothing(source.problems, source.files_read)
    assert error.value.exit_code == 2


@pytest.mark.usefixtures("buffer_bytes")
def test_of_a_cut_compressed_file_the_good_part_is_read(tmp_path):
    noise = random.Random(1)
    found = [Record(i + 1, noise.randbytes(100)) for i in range(500)]
    whole = gzip.compress(pcap(found))
    paths = write(tmp_path, a=whole[: len(whole) // 2], b=pcap(records(1)))
    packets, events, source = read(paths)
    assert 200 < len(packets) < 300
    assert packets[:-1] == [record.data for record in found[: len(packets) - 1]]
    [problem] = source.problems
    assert not problem.is_fatal and "the gzip data is cut after" in problem.text
    end, facts = events[1]
    assert end.problem == "the gzip data is cut"
    assert facts.is_truncated


def test_the_bytes_of_a_buffer_stay_until_the_next_one_has_been_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "READ_BUFFER_BYTES", 4000)
    one = write(tmp_path, a=pcap(records(300)), b=pcap(records(200, 70)))
    before = None
    with ChainReader([str(path) for path in one]) as source:
        capture = None
        for event in source:
            if isinstance(event, FileStart):
                capture = CaptureReader()
                capture.start_file()
            if not isinstance(event, Buffer):
                before = None
                continue
            if before is not None:
                time.sleep(0.002)  # the thread could fill whatever is free
                buffer, held = before
                assert buffer.data[buffer.start : buffer.consumed].tobytes() == held
            take(capture, event)
            before = event, event.data[event.start : event.consumed].tobytes()


def test_the_reader_stops_when_it_is_left_early(tmp_path):
    paths = write(tmp_path, a=pcap(records(300_000)))
    with ChainReader([str(paths[0])]) as source:
        events = iter(source)
        assert isinstance(next(events), FileStart)
        assert isinstance(next(events), Buffer)
    assert source._thread is not None and not source._thread.is_alive()


def test_a_failure_of_the_thread_reaches_the_consumer(tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(files, "capture_format", fail)
    with pytest.raises(MemoryError), ChainReader(map(str, write(tmp_path, a=pcap([])))) as source:
        list(source)


def test_standard_input_reads_like_a_file(tmp_path):
    [path] = write(tmp_path, a=gzip.compress(pcap(records(1000))))
    code = (
        "from tests.dissector.sources.test_files import read\n"
        "packets, events, source = read(['-'])\n"
        "print(len(packets), events[0].name, events[0].compressed, source.total_bytes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=path.read_bytes(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().split() == ["1000", "stdin", "gzip", "None"]


def written_slowly(path, pieces, may_go_on):
    """Write pieces into a pipe, each when the last one has been taken; stays open at the end."""
    os.mkfifo(path)

    def run():
        with suppress(BrokenPipeError), open(path, "wb", buffering=0) as pipe:
            for piece in pieces:
                pipe.write(piece)
                may_go_on.acquire(timeout=60)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.usefixtures("buffer_bytes")
@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
def test_what_comes_through_a_pipe_is_handed_on_before_more_is_written(tmp_path, is_packed):
    """The writer goes on when the packet that it wrote came out, so waiting for more hangs."""
    whole = pcap(records(30))
    step = 16 + 50
    plain = [whole[:24], *(whole[at : at + step] for at in range(24, len(whole), step))]
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in plain]
    packed[-1] += packer.flush()
    # A second member, and its end, are one more thing that may be waited for.
    packed[-1] += gzip.compress(b"")
    may_go_on = threading.Semaphore(1)  # the header holds no packet
    writer = written_slowly(tmp_path / "pipe", packed if is_packed else plain, may_go_on)
    capture, packets, early = CaptureReader(64), [], 0
    with ChainReader([str(tmp_path / "pipe")]) as source:
        for event in source:
            if isinstance(event, FileStart):
                capture.start_file()
            elif isinstance(event, Buffer):
                early += event.is_early
                for packet in take(capture, event):
                    packets.append(packet)
                    may_go_on.release()
            else:
                end = event
    writer.join(60)
    expected, events, _ = read(write(tmp_path, a=whole))
    assert packets == expected
    assert end[1:] == events[1][0][1:]
    assert early


def test_where_reading_ends_does_not_depend_on_how_a_pipe_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "READ_BUFFER_BYTES", 1000)
    whole = pcap(records(200))

    def size_read(path):
        capture = CaptureReader()
        with ChainReader([str(path)]) as source:
            seen = 0
            for event in source:
                if isinstance(event, FileStart):
                    capture.start_file()
                elif isinstance(event, Buffer):
                    take(capture, event)
                    seen += event.consumed - event.start
                    event.is_enough = seen >= 1500
                    may_go_on.release()
                else:
                    return event.file_bytes, event.sha256
        raise AssertionError("no end")

    may_go_on = threading.Semaphore(0)
    expected = size_read(*write(tmp_path, a=whole))
    assert expected[0] == 3000
    for size in (70, 333, 1000, 5000):
        pipe = tmp_path / f"pipe{size}"
        may_go_on = threading.Semaphore(1)
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        written_slowly(pipe, pieces, may_go_on)
        assert size_read(pipe) == expected, size


def test_the_reader_of_a_pipe_stops_while_it_waits(tmp_path):
    written_slowly(tmp_path / "pipe", [pcap(records(10))], threading.Semaphore(0))
    with ChainReader([str(tmp_path / "pipe")]) as source:
        events = iter(source)
        assert isinstance(next(events), FileStart)
        assert isinstance(next(events), Buffer)
    assert source._thread is not None and not source._thread.is_alive()
