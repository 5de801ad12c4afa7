"""Digests of chains of files, in any pieces."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.lake.digest import ChainDigest
from dissector.limits import DIGEST_MARKS


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def data_of(size: int) -> bytes:
    return bytes((n * 7 + n // 251) % 256 for n in range(size))


def digested(data: bytes, ends: list[int], cuts: list[int], sizes: list[int]) -> ChainDigest:
    digest = ChainDigest(sizes)
    start = 0
    for number, end in enumerate(ends):
        for cut in sorted({c for c in cuts if start < c < end} | {end}):
            digest.update(memoryview(data)[start:cut])
            start = cut
        digest.end_file(f"file{number}")
    return digest


@given(
    st.integers(0, 3000),
    st.lists(st.integers(0, 3000), max_size=3),
    st.lists(st.integers(0, 3000), max_size=8),
    st.lists(st.integers(0, 3500), max_size=4),
)
def test_digests_do_not_depend_on_the_pieces(
    size: int, ends: list[int], cuts: list[int], sizes: list[int]
) -> None:
    data = data_of(size)
    bounds = [*sorted(min(end, size) for end in ends), size]
    digest = digested(data, bounds, cuts, sizes)
    assert digest.bytes == size and digest.sha256() == sha(data)
    start = 0
    for source, end in zip(digest.files, bounds, strict=True):
        assert source.bytes == end - start
        assert source.sha256 == sha(data[start:end])
        assert source.chain_sha256 == sha(data[:end])
        assert digest.at(end) == sha(data[:end])
        start = end
    for asked in sizes:
        assert digest.at(asked) == (sha(data[:asked]) if asked <= size else None)
    marks = digest.marks()
    assert marks.step == 256
    assert list(marks.digests) == [sha(data[: n * 256])[:16] for n in range(1, size // 256 + 1)]


def test_marks_stay_few_and_the_step_doubles() -> None:
    size = DIGEST_MARKS * 256 * 5
    data = data_of(size)
    digest = ChainDigest()
    digest.update(data)
    marks = digest.marks()
    assert DIGEST_MARKS // 2 <= len(marks.digests) < DIGEST_MARKS
    assert marks.step == 256 * 8
    for number in (1, 2, 17, len(marks.digests)):
        assert marks.digests[number - 1] == sha(data[: number * marks.step])[:16]
    assert marks.coarser(marks.step * 4)[2] == sha(data[: 12 * marks.step])[:16]


@pytest.mark.parametrize("pieces", [1, 3, 4096])
def test_large_chains_give_the_same_marks_in_any_pieces(pieces: int) -> None:
    data = data_of(700_001)
    digest = ChainDigest()
    for start in range(0, len(data), len(data) // pieces + 1):
        digest.update(data[start : start + len(data) // pieces + 1])
    whole = ChainDigest()
    whole.update(data)
    assert digest.marks() == whole.marks() and digest.sha256() == sha(data)
