"""LZ4 blocks, held against LZ4's own library: what is opened is opened there, to the same bytes."""

import random

import cramjam
import lz4.block
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.lz4_blocks import PackedEntries, open_blocks

EMPTY = np.zeros(1, np.uint8)
LENGTHS = (0, 1, 3, 4, 5, 8, 12, 14, 15, 16, 17, 40, 269, 270, 271, 600)


def opened(blocks: list[tuple[bytes, int]]) -> list[bytes | None]:
    """What the kernel makes of blocks and announced sizes, all in one call."""
    lengths, sizes = [len(block) for block, _ in blocks], [size for _, size in blocks]
    entries = PackedEntries.new(len(blocks))
    count = slice(0, len(blocks))
    entries.source[count] = 3
    entries.length[count], entries.size[count] = lengths, sizes
    entries.offset[count] = np.cumsum(lengths) - lengths
    entries.at[count] = np.cumsum(sizes) - sizes
    data = np.frombuffer(bytearray(b"".join(block for block, _ in blocks)) or b"\0", np.uint8)
    out, is_open = np.full(sum(sizes), 0xEE, np.uint8), np.zeros(len(blocks), np.int64)
    sources = (EMPTY, EMPTY, EMPTY, data.copy())
    open_blocks(entries, np.arange(len(blocks)), sources, out, is_open)
    places = zip(entries.at[count].tolist(), sizes, is_open.tolist(), strict=True)
    return [out[at : at + size].tobytes() if each else None for at, size, each in places]


def by_library(block: bytes, size: int) -> bytes | None:
    out = np.zeros(size, np.uint8)
    try:
        made = cramjam.lz4.decompress_block_into(bytearray(block), out.data, output_len=size)
    except cramjam.DecompressionError:
        return None
    return out.tobytes() if made == size else None


def length(four_bits: int, value: int) -> bytes:
    """The bytes of a length behind its four bits."""
    return b"" if four_bits < 15 else b"\xff" * ((value - 15) // 255) + bytes([(value - 15) % 255])


def sequence(literals: bytes, back: int | None = None, match: int = 4) -> bytes:
    """One sequence of a block; back: None for the last one, which has no match."""
    own, more = min(len(literals), 15), min(match - 4, 15)
    head = bytes([own << 4 | (0 if back is None else more)]) + length(own, len(literals)) + literals
    return head if back is None else head + back.to_bytes(2, "little") + length(more, match - 4)


def test_blocks_of_every_shape_come_out_beside_each_other() -> None:
    draw = random.Random(1)
    plain = [
        b"",
        *(bytes(draw.choices(b"ab", k=size)) for size in range(1, 40)),
        draw.randbytes(20_000),
        b"\0" * 70_000,
        b"hello world " * 500,
        draw.randbytes(300) + b"x" * 5_000 + draw.randbytes(300),
    ]
    blocks = [(lz4.block.compress(each, store_size=False), len(each)) for each in plain]
    assert opened(blocks) == plain


@st.composite
def made_blocks(draw: st.DrawFn) -> tuple[bytes, int]:
    """A block put together of sequences, most of them allowed, and about its size."""
    block, size = b"", 0
    for _ in range(draw(st.integers(0, 4))):
        count, match = draw(st.sampled_from(LENGTHS)), 4 + draw(st.sampled_from(LENGTHS))
        size += count
        back = draw(st.sampled_from((1, 2, 3, 7, 8, 9, 16, max(size, 1), size + 1)))
        block += sequence(bytes(range(256))[:count].ljust(count, b"x"), back, match)
        size += match
    last = draw(st.integers(0, 20))
    return block + sequence(b"l" * last), max(size + last + draw(st.sampled_from((0, 0, -1, 1))), 1)


@st.composite
def damaged_blocks(draw: st.DrawFn) -> tuple[bytes, int]:
    plain = draw(st.binary(min_size=1, max_size=80)) * draw(st.integers(1, 5))
    block = bytearray(lz4.block.compress(plain, store_size=False))
    for _ in range(draw(st.integers(0, 3))):
        block[draw(st.integers(0, len(block) - 1))] = draw(st.integers(0, 255))
    return bytes(block[: draw(st.integers(1, len(block)))]), len(plain)


@given(blocks=st.lists(made_blocks() | damaged_blocks(), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_what_is_opened_is_what_the_library_opens(blocks: list[tuple[bytes, int]]) -> None:
    """An offset of nought, which no encoder writes, is left to the library, whatever it makes."""
    for (block, size), made in zip(blocks, opened(blocks), strict=True):
        if made is not None:
            assert made == by_library(block, size)


@pytest.mark.parametrize("size", [1, 5, 12, 13, 17, 300])
def test_what_the_library_makes_of_encoded_bytes_is_opened(size: int) -> None:
    for letters in (b"a", b"ab", bytes(range(256))):
        plain = bytes(random.Random(size).choices(letters, k=size))
        block = lz4.block.compress(plain, store_size=False)
        assert opened([(block, size)]) == [by_library(block, size)] == [plain]


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (b"", 1),
        (b"\xf0", 20),
        (b"\xf0" + b"\xff" * 50, 20),
        (b"\x10", 1),
        (b"\x10a\x01", 20),
        (b"\x1fa\x01\x00" + b"\xff" * 50, 20_000),
        (sequence(b"abc", 0, 20) + sequence(b"12345"), 28),
        (sequence(b"abc", 4, 20) + sequence(b"12345"), 28),
        (sequence(b"abc", 1, 20) + sequence(b"1234"), 27),
        (sequence(b"abc", 1, 20) + sequence(b"12345") + b"\0", 28),
        (sequence(b"a" * 30), 29),
        (sequence(b"a" * 30), 31),
    ],
)
def test_what_breaks_the_rules_is_left(block: bytes, size: int) -> None:
    whole = lz4.block.compress(b"beside it", store_size=False), 9
    assert opened([whole, (block, size), whole]) == [b"beside it", None, b"beside it"]
