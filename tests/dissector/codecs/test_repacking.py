"""Compressed bytes of a given length with other content."""

import gzip
import random

import cramjam
import lz4.frame
import numpy as np
import pytest

from dissector.codecs import repacking
from dissector.codecs.compression import Codec, Decompressor, UnpackResult

SIZE = 6000


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes as a batch has them: every sixty bytes twelve that must stay, text between."""
    chance = random.Random(seed)
    text = bytes(chance.choices(b"some words of a message, said again ", k=SIZE))
    data = np.frombuffer(bytearray(text), np.uint8)
    after = np.frombuffer(bytearray(chance.randbytes(SIZE)), np.uint8)
    for at in range(0, SIZE, 60):
        after[at : at + 12] = data[at : at + 12]
    return data, after


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZLIB, Codec.ZSTD, Codec.SNAPPY])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_content_has_the_same_length(codec: int, seed: int) -> None:
    before, after = batch(seed)
    packed = repacking._PACKERS[codec][0](before.tobytes())
    made = repacking.repacked(codec, before, after, len(packed))
    assert made is not None and len(made) == len(packed) and made != packed
    opened = Decompressor().open(codec, np.frombuffer(bytearray(made), np.uint8), SIZE)
    assert opened.problem == UnpackResult.OPENED
    same = before == after
    assert (opened.data[:SIZE][same] == after[same]).all()
    assert b"message" not in opened.data[:SIZE].tobytes()


@pytest.mark.parametrize(
    ("codec", "open_"),
    [
        (repacking.GZIP, gzip.decompress),
        (repacking.FRAME_LZ4, lz4.frame.decompress),
        (repacking.FRAME_SNAPPY, lambda data: bytes(cramjam.snappy.decompress_raw(data))),
    ],
    ids=["gzip", "lz4", "snappy"],
)
def test_whole_bodies_too(codec: int, open_) -> None:  # type: ignore[no-untyped-def]
    before, after = batch(4)
    size = len(repacking._PACKERS[codec][0](before.tobytes()))
    made = repacking.repacked(codec, before, after, size)
    assert made is not None and len(made) == size and len(open_(made)) == SIZE


def test_there_is_none_where_what_must_stay_does_not_fit() -> None:
    before = np.zeros(SIZE, np.uint8)
    after = np.frombuffer(bytearray(random.Random(5).randbytes(SIZE)), np.uint8).copy()
    before[100:] = after[100:]
    assert repacking.repacked(Codec.LZ4, before, after, 50) is None
    assert repacking.repacked(99, before, after, 50) is None
