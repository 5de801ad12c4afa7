"""Keyed hashes: SipHash-1-3 as CPython has it, even places, another secret for other places."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dissector.blocks import Int64Array
from dissector.codecs.keyed_hash import (
    SECRET_WORDS,
    following_secret,
    hash_of_bytes,
    hash_of_five,
    hash_of_row,
    hash_of_words,
    new_secret,
)
from dissector.codecs.siphash import short_siphash
from dissector.jit import compiled, kernel
from dissector.limits import HASH_KEY_BITS, MAX_PROBES

TEXTS = [b"a", b"abcdefg", b"abcdefgh", bytes(range(256)), b"persistent://public/default/t"]


def test_bytes_are_hashed_as_the_interpreter_hashes_them_without_a_seed() -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"for each in {TEXTS!r}: print(hash(each))"],
        env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip(f"the interpreter has {sys.hash_info.algorithm}")
    for text, hashed in zip(TEXTS, told.stdout.split(), strict=True):
        data = np.frombuffer(bytearray(b"??" + text), np.uint8)
        assert short_siphash(0, 0, data, 2, len(data)) == int(hashed)


def test_a_secret_follows_from_its_key_and_so_does_the_next() -> None:
    one, other = new_secret(1), new_secret(1 << (HASH_KEY_BITS - 1))
    assert len(one) == len(other) == SECRET_WORDS
    assert (new_secret(1) == one).all() and not (one == other).any()
    assert (following_secret(one) == following_secret(one.copy())).all()
    assert not (following_secret(one) == one).any()


@pytest.mark.parametrize("key", [0, 1, 7, (1 << 127) + 5])
def test_numbers_that_count_up_fill_places_evenly(key: int) -> None:
    secret = new_secret(key)
    for step in (1, 64, 1 << 32):
        places = [hash_of_words(secret, 4, 0, n * step, 0) & 63 for n in range(640)]
        counts = np.bincount(places, minlength=64)
        assert counts.max() <= 30 and counts.min() >= 0


@kernel
def longest_search(secret: Int64Array, ids: int, step: int, is_taken: Int64Array) -> int:
    """The most slots that one of so many ids passes in a table, which probes linearly."""
    is_taken[:] = 0
    longest = 0
    for number in range(ids):
        slot = hash_of_words(secret, 4, 7, number * step, 3) & (len(is_taken) - 1)
        passed = 0
        while is_taken[slot]:
            slot = (slot + 1) & (len(is_taken) - 1)
            passed += 1
        is_taken[slot] = 1
        longest = max(longest, passed)
    return longest


@pytest.mark.parametrize("step", [1, 2, 1 << 32])
def test_no_secret_crowds_numbers_that_count_up(step: int) -> None:
    """One of 600 did, which a notice told of ordinary captures."""
    is_taken = np.zeros(8192, np.int64)
    secrets = map(new_secret, range(2000 if compiled() else 2))
    assert max(longest_search(secret, 5000, step, is_taken) for secret in secrets) < MAX_PROBES // 2


def test_every_word_and_every_byte_counts() -> None:
    secret = new_secret(3)
    words = [hash_of_words(secret, *(1 << 63 - 63 * (n != k) for n in range(4))) for k in range(4)]
    words += [hash_of_five(secret, *(int(n == k) for n in range(5))) for k in range(5)]
    assert len(set(words)) == 9 and all(0 <= each < 1 << 32 for each in words)
    data = np.zeros(32, np.uint8)
    whole = hash_of_bytes(secret, data, 0, 32)
    for place in (0, 7, 8, 31):
        data[place] = 1
        assert hash_of_bytes(secret, data, 0, 32) != whole
        data[place] = 0
    assert hash_of_bytes(secret, data, 0, 31) != whole
    rows = np.zeros((2, 6), np.int64)
    rows[1, 5] = 1
    assert len({hash_of_row(secret, before, rows, row) for before in (0, 1) for row in (0, 1)}) == 4
