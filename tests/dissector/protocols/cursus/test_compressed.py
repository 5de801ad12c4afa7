"""Compressed bodies: each codec opened, broken and greedy ones not."""

import gzip

import cramjam
import lz4.frame
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.compression import Budget
from dissector.limits import MAX_CURSUS_BODY_BYTES, MAX_GZIP_RATIO
from dissector.protocols.cursus.body_starts import shape_of
from dissector.protocols.cursus.compressed import CODEC_NAMES, open_body, room_for
from tests.wire import cursus

BODY = cursus.batch_body(cursus.records(40, payload=b"some payload " * 3))


def xerial(body: bytes, block: int = 500) -> bytes:
    made = b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
    for at in range(0, len(body), block):
        part = bytes(cramjam.snappy.compress_raw(body[at : at + block]))
        made += len(part).to_bytes(4, "big") + part
    return made


PACKED = {
    "GZIP": gzip.compress(BODY),
    "LZ4": lz4.frame.compress(BODY),
    "SNAPPY": bytes(cramjam.snappy.compress_raw(BODY)),
    "SNAPPY xerial": xerial(BODY),
}


def opened(data: bytes, budget: Budget | None = None):
    array = np.frombuffer(bytearray(data), np.uint8)
    return open_body(array, int(shape_of(array, 0, len(array))), budget or Budget())


def test_all_bodies_together_unpack_to_a_bounded_ratio():
    budget = Budget(free=3 * len(BODY) + 9, ratio=0)
    found = [opened(PACKED["GZIP"], budget) for _ in range(5)]
    assert [each is not None for each in found] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("name", PACKED)
def test_each_codec_is_opened(name):
    codec, plain = opened(PACKED[name])
    assert plain == BODY and CODEC_NAMES[codec] == name.split()[0]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("cut", [1, 7, 30])
def test_broken_bodies_are_not_opened(name, cut):
    assert opened(PACKED[name][:-cut]) is None


def test_a_bare_block_counts_only_if_a_body_comes_out():
    assert opened(bytes(cramjam.snappy.compress_raw(b"\xff\xfe\xfd nothing of ours"))) is None
    assert opened(b"just a text") is None


def test_bombs_are_not_opened():
    assert room_for(10) == 10 * MAX_GZIP_RATIO and room_for(1 << 30) == MAX_CURSUS_BODY_BYTES
    huge = b"\xba\x7c" + bytes(80 << 20)
    assert opened(gzip.compress(huge, 1)) is None
    assert opened(lz4.frame.compress(huge)) is None
    assert opened(b"\xff\xff\xff\xff\x0f" + b"\x04\xba\x7c") is None


@given(
    st.binary(max_size=60), st.sampled_from([b"\x1f\x8b\x08", b"\x04\x22\x4d\x18", b"\x82SNAPPY\0"])
)
def test_any_bytes_behind_a_mark_are_survived(noise, mark):
    opened(mark + noise)
