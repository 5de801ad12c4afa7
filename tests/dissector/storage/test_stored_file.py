"""Bytes of a file in a store are those of the file, however they are read."""

import errno
import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.limits import STORE_RANGE_BYTES, STORE_RANGES_AHEAD
from dissector.storage import stored_file, stores
from dissector.storage.store import Entry
from dissector.storage.stored_file import StoredFile

DATA = bytes(range(251)) * 40_000
LARGEST = 1 << 18


class _Memory:
    """A store of one file; `asked` are the ranges that were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def entry(self, name: str) -> Entry:
        return Entry(f"s3://b/{name}", len(self.data), 0.0, "1")

    def entries(self, folder: str) -> Iterator[Entry]:
        yield self.entry("x")

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(self.data)
        self.asked.append((start, end))
        return self.data[start:end]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> _Memory:
    store = _Memory(DATA)
    monkeypatch.setattr(stored_file, "store_of", lambda _: store)
    monkeypatch.setattr(stores, "store_of", lambda _: store)
    monkeypatch.setattr(stored_file, "STORE_RANGE_BYTES", LARGEST)
    monkeypatch.setattr(stores, "_seen", {})
    return store


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(1, 600_000)),
            st.tuples(st.just("seek"), st.integers(0, len(DATA) + 10)),
        ),
        max_size=12,
    )
)
def test_any_reads_and_seeks_are_those_of_the_file(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        store = _Memory(DATA)
        patch.setattr(stored_file, "store_of", lambda _: store)
        patch.setattr(stores, "store_of", lambda _: store)
        patch.setattr(stored_file, "STORE_RANGE_BYTES", LARGEST)
        patch.setattr(stores, "_seen", {})
        file, truth = io.BufferedReader(StoredFile("s3://b/x"), 1 << 12), io.BytesIO(DATA)
        for what, number in steps:
            if what == "seek":
                assert file.seek(number) == truth.seek(number)
            else:
                assert file.read(number) == truth.read(number)
        file.close()


def test_ranges_grow_and_no_byte_is_asked_for_twice(memory: _Memory) -> None:
    file = StoredFile("s3://b/x")
    assert b"".join(iter(lambda: file.read(50_000), b"")) == DATA
    asked = sorted(memory.asked)
    sizes = [end - start for start, end in asked]
    assert sizes[:2] == [1 << 16, 1 << 18] and max(sizes) == LARGEST
    assert [start for start, _ in asked[1:]] == [end for _, end in asked[:-1]]
    assert asked[0][0] == 0 and asked[-1][1] == len(DATA)


def test_the_beginning_of_a_large_file_costs_one_small_range(memory: _Memory) -> None:
    assert StoredFile("s3://b/x").read(24) == DATA[:24]
    assert memory.asked == [(0, 1 << 16)]


def test_memory_of_a_file_is_bounded() -> None:
    assert (STORE_RANGES_AHEAD + 1) * STORE_RANGE_BYTES <= 32 << 20


def test_an_error_comes_out_where_the_bytes_would(
    memory: _Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = memory.read

    def fail(entry: Entry, start: int, end: int) -> bytes:
        if start <= 1_000_000 < end:
            raise OSError(errno.EIO, "the store does not answer: 503")
        return read(entry, start, end)

    monkeypatch.setattr(memory, "read", fail)
    file = StoredFile("s3://b/x")
    got = b""
    with pytest.raises(OSError, match="503"):
        while piece := file.read(100_000):
            got += piece
    assert DATA.startswith(got) and 1_000_000 - LARGEST < len(got) <= 1_000_000
