"""Codecs: what real clients write is opened, what lies about its size or is damaged is not."""

import zlib

import cramjam
import lz4.block
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.compression import Budget, Codec, Decompressor, UnpackResult
from dissector.codecs.lz4_blocks import PackedEntries

PLAIN = b"".join(b"message %d of an entry, " % k for k in range(200))


def unfinished_zlib(plain: bytes) -> bytes:
    """What Java writes: flushed, never finished."""
    stream = zlib.compressobj()
    return stream.compress(plain) + stream.flush(zlib.Z_SYNC_FLUSH)


def literal_only_lz4(plain: bytes) -> bytes:
    """What Go writes for bytes that do not shrink: one run of literals."""
    assert len(plain) < 15 + 255
    head = bytes([0xF0, len(plain) - 15]) if len(plain) >= 15 else bytes([len(plain) << 4])
    return head + plain


WAYS = {
    "lz4": (Codec.LZ4, lambda plain: lz4.block.compress(plain, store_size=False)),
    "zlib": (Codec.ZLIB, zlib.compress),
    "zlib_unfinished": (Codec.ZLIB, unfinished_zlib),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd_without_size": (
        Codec.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ),
    "snappy": (Codec.SNAPPY, lambda plain: bytes(cramjam.snappy.compress_raw(plain))),
}
EVERY = pytest.mark.parametrize("way", WAYS)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data), np.uint8)


@EVERY
def test_what_was_packed_comes_out(way: str) -> None:
    codec, pack = WAYS[way]
    opener = Decompressor()
    for plain in (PLAIN, b"x", PLAIN * 100, b"\0" * 70_000):
        opened = opener.open(codec, array(pack(plain)), len(plain))
        assert opened.problem == UnpackResult.OPENED
        assert opened.data[: opened.size].tobytes() == plain


@EVERY
@pytest.mark.parametrize("wrong_by", [-1, 1, 1000], ids=["shorter", "longer", "much_longer"])
def test_a_wrong_announced_size_is_noticed(way: str, wrong_by: int) -> None:
    codec, pack = WAYS[way]
    opened = Decompressor().open(codec, array(pack(PLAIN)), len(PLAIN) + wrong_by)
    assert opened.problem in (UnpackResult.WRONG_SIZE, UnpackResult.CORRUPT)
    assert opened.size == 0


def test_a_block_of_literals_is_valid_lz4() -> None:
    plain = bytes(range(100))
    opened = Decompressor().open(Codec.LZ4, array(literal_only_lz4(plain)), 100)
    assert opened.data[: opened.size].tobytes() == plain


def test_bombs_and_unknown_codecs_are_refused_before_any_memory_is_taken() -> None:
    opener = Decompressor(max_bytes=1 << 20)
    for size in (-1, (1 << 20) + 1, 1 << 62):
        assert opener.open(Codec.LZ4, array(b"abc"), size).problem == UnpackResult.TOO_LARGE
    for codec in (Codec.NONE, 5, -1):
        assert opener.open(codec, array(b"abc"), 3).problem == UnpackResult.UNKNOWN_CODEC
    # The frame's own header announces 8 MiB, the metadata ten bytes.
    bomb = array(zstandard.ZstdCompressor().compress(b"\0" * (8 << 20)))
    assert opener.open(Codec.ZSTD, bomb, 10).problem == UnpackResult.WRONG_SIZE


@EVERY
def test_what_was_broken_leaves_nothing_behind(way: str) -> None:
    """What opens an entry opens the next one, too."""
    codec, pack = WAYS[way]
    opener, whole = Decompressor(), pack(PLAIN)
    for block in (whole[:-20], whole, whole[:9] + b"\xff" * 30, whole):
        opened = opener.open(codec, array(block), len(PLAIN))
        is_whole = block is whole
        assert (opened.problem == UnpackResult.OPENED) == is_whole
        assert not is_whole or opened.data[: opened.size].tobytes() == PLAIN


def test_nothing_announced_is_nothing() -> None:
    opened = Decompressor().open(Codec.ZLIB, array(b""), 0)
    assert (opened.size, opened.problem) == (0, UnpackResult.OPENED)


@EVERY
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_bytes_are_a_result(way: str, data: st.DataObject) -> None:
    codec, pack = WAYS[way]
    packed = bytearray(pack(PLAIN[:500]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    opened = Decompressor().open(codec, array(packed), 500)
    assert (opened.size == 500) == (opened.problem == UnpackResult.OPENED)


def test_all_entries_together_unpack_to_a_bounded_ratio() -> None:
    """Each entry is within its own bound; a capture full of them is not."""
    plain = bytes(1 << 20)
    packed = np.frombuffer(bytearray(zstandard.compress(plain)), np.uint8)
    opener = Decompressor(budget=Budget(free=4 << 20, ratio=10))
    problems = [opener.open(Codec.ZSTD, packed, len(plain)).problem for _ in range(8)]
    assert problems == [UnpackResult.OPENED] * 4 + [UnpackResult.OVER_BUDGET] * 4
    # What takes room on the wire earns it.
    noise = np.random.default_rng(1).integers(0, 256, 200_000, np.uint8)
    honest = np.frombuffer(bytearray(zstandard.compress(noise.tobytes())), np.uint8)
    assert opener.open(Codec.ZSTD, honest, len(noise)).problem == UnpackResult.OPENED
    assert opener.open(Codec.ZSTD, packed, len(plain)).problem == UnpackResult.OPENED


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_many_at_once_are_what_they_are_one_by_one(data: st.DataObject) -> None:
    """Their bytes, why some are not opened, and what the ones before leave of the budget."""
    draw = data.draw
    packed: list[tuple[int, bytes, int]] = []
    for _ in range(draw(st.integers(1, 12))):
        codec, pack = WAYS[draw(st.sampled_from([*WAYS]))]
        plain = draw(st.sampled_from((PLAIN, b"x", b"\0" * 90_000, bytes(range(256)) * 2)))
        size = len(plain) + draw(st.sampled_from((0, 0, 0, 0, 1, -1, -len(plain), 1 << 40)))
        chosen = draw(st.sampled_from((codec, codec, codec, codec, 0, 5, -(1 << 62))))
        packed.append((chosen, pack(plain)[: draw(st.sampled_from((None, None, None, 9)))], size))
    one, many = (Decompressor(budget=Budget(free=100_000, ratio=20)) for _ in range(2))
    expected: list[bytes | UnpackResult] = []
    for codec, block, size in packed:
        opened = one.open(codec, array(block), size)
        is_open = opened.problem == UnpackResult.OPENED
        expected.append(opened.data[:size].tobytes() if is_open else opened.problem)
    entries, count = PackedEntries.new(len(packed)), slice(0, len(packed))
    entries.codec[count] = [codec for codec, _, _ in packed]
    entries.size[count] = [size for _, _, size in packed]
    entries.length[count] = lengths = [len(block) for _, block, _ in packed]
    entries.offset[count] = np.cumsum(lengths) - lengths
    many.reserve(sum(size for _, _, size in packed if size < 1 << 40))
    joined, empty = array(b"".join(block for _, block, _ in packed)), array(b"\0")
    problems = dict(many.open_each(entries, len(packed), (joined, empty, empty, empty)))
    assert [at < 0 for at in entries.at[count].tolist()] == [
        n in problems for n in range(len(packed))
    ]
    places = zip(entries.at[count].tolist(), (size for *_, size in packed), strict=True)
    found = [many.buffer[at : at + size].tobytes() if at >= 0 else None for at, size in places]
    assert [problems.get(n, text) for n, text in enumerate(found)] == expected
