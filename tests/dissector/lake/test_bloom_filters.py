"""Bloom filters by the format's own words: tests of readers are in test_skipping."""

import numpy as np
import xxhash

from dissector.lake.bloom_filters import bloom_filter

SALTS = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip


def held(blocks: "np.ndarray[tuple[int, int], np.dtype[np.uint32]]", text: bytes) -> bool:
    number = xxhash.xxh64_intdigest(text)
    block = blocks[((number >> 32) * len(blocks)) >> 32]
    low = number & 0xFFFFFFFF
    bits = [(low * salt & 0xFFFFFFFF) >> 27 for salt in SALTS]
    return all(int(word) >> bit & 1 for word, bit in zip(block, bits, strict=True))


def test_a_filter_holds_its_texts_in_blocks_that_are_a_power_of_two() -> None:
    for count in (1, 25, 26, 1000, 5000):
        texts = [b"topic-%d" % number for number in range(count)]
        data = bloom_filter(texts)
        size = len(data) & ~31
        header, blocks = data[:-size], np.frombuffer(data[-size:], "<u4").reshape(-1, 8)
        assert len(header) < 32 and len(blocks) & (len(blocks) - 1) == 0
        assert all(held(blocks, text) for text in texts)
        others = sum(held(blocks, b"other-%d" % number) for number in range(2000))
        assert others <= 40
        assert len(blocks) * 256 < max(count * 24, 257)
