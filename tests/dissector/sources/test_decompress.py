"""Plain and compressed inputs: any number of members, cut, damaged, hostile."""

import gzip
import lzma
import os
import random
import struct
import zlib

import lz4.frame
import pytest
import zstandard

from dissector import limits
from dissector.sources.decompress import InputBytes, codec_of

DATA = bytes(random.Random(1).choices(range(64), k=300_000))


def zstd(data):
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def lz4_frame(data):
    return lz4.frame.compress(data, content_checksum=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)


CODECS = {"gzip": gzip.compress, "zstd": zstd, "lz4": lz4_frame, "xz": lzma.compress}
codecs = pytest.mark.parametrize("codec", CODECS)


def read(path, step=70_000):
    source = InputBytes(str(path))
    view = memoryview(bytearray(step))
    out = []
    while count := source.read_into(view):
        out.append(bytes(view[:count]))
    assert source.read_into(view) == 0
    source.close()
    return b"".join(out), source


@pytest.fixture
def stored(tmp_path):
    def store(data):
        path = tmp_path / "file"
        path.write_bytes(data)
        return path

    return store


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7, 65_536, 300_000])
def test_plain_bytes_come_as_they_are(stored, size):
    data, source = read(stored(DATA[:size]))
    assert data == DATA[:size]
    assert (source.codec, source.problem, source.stored_bytes) == (None, None, size)


@codecs
@pytest.mark.parametrize("step", [1 << 20, 1000], ids=["at once", "in steps"])
def test_members_one_after_the_other_are_one_stream(stored, codec, step):
    compress = CODECS[codec]
    whole = compress(DATA) + compress(b"") + compress(b"more")
    data, source = read(stored(whole), step)
    assert data == DATA + b"more"
    assert (source.codec, source.problem, source.stored_bytes) == (codec, None, len(whole))
    assert codec_of(whole[:6]) == codec


@codecs
def test_zeros_behind_a_member_are_padding(stored, codec):
    compress = CODECS[codec]
    data, source = read(stored(compress(b"one") + bytes(512) + compress(b"two") + bytes(100_000)))
    assert data == b"onetwo"
    assert source.problem is None


@codecs
def test_other_bytes_behind_a_member_are_a_problem(stored, codec):
    data, source = read(stored(CODECS[codec](b"one") + b"something"))
    assert data == b"one"
    assert source.problem == f"the {codec} data is followed by something else"


@codecs
def test_a_cut_file_gives_what_is_before_the_cut(stored, codec):
    whole = CODECS[codec](DATA)
    lengths = []
    for part in (7, 40, len(whole) // 2, len(whole) - 1):
        data, source = read(stored(whole[:part]))
        assert DATA.startswith(data)
        assert source.problem == f"the {codec} data is cut"
        lengths.append(len(data))
    assert lengths == sorted(lengths) and lengths[2] > 0 and lengths[3] > 0.7 * len(DATA)


@codecs
def test_damage_is_told_and_ends_the_stream(stored, codec):
    whole = CODECS[codec](DATA)
    places = random.Random(2)
    good = 0
    for _ in range(25):
        damaged = bytearray(whole)
        damaged[places.randrange(len(whole) // 2, len(whole))] ^= 1 << places.randrange(8)
        data, source = read(stored(damaged))
        assert source.problem is not None
        good += len(data) > len(DATA) // 3
    assert good == 25


def test_everything_before_damage_in_gzip_is_kept(stored):
    member = gzip.compress(DATA)
    data, source = read(stored(member + member[:10] + b"\xff" * 50))
    assert data == DATA
    assert source.problem == "the gzip data is damaged"


def test_skippable_zstd_frames_are_skipped(stored):
    data, source = read(stored(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd(b"x")))
    assert (data, source.codec, source.problem) == (b"x", "zstd", None)


@codecs
def test_a_small_file_that_grows_a_thousandfold_is_read_in_steps(stored, codec):
    path = stored(CODECS[codec](bytes(50 << 20)))
    source = InputBytes(str(path))
    view = memoryview(bytearray(1 << 20))
    total = 0
    while count := source.read_into(view):
        assert len(source._ready) <= 33 << 20
        total += count
    source.close()
    assert total == 50 << 20
    assert os.path.getsize(path) < 1 << 20


def zstd_of_a_wide_window():
    parameters = zstandard.ZstdCompressionParameters(window_log=31, compression_level=1)
    inner = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return inner.compress(DATA) + inner.flush()


def xz_of_a_huge_dictionary():
    """Its header says 4 GB."""
    data = bytearray(lzma.compress(DATA))
    data[data.index(b"\x21\x01", 12) + 2] = 40
    end = 12 + 4 * (data[12] + 1)
    data[end - 4 : end] = struct.pack("<I", zlib.crc32(data[12 : end - 4]))
    return bytes(data)


@pytest.mark.parametrize("make", [zstd_of_a_wide_window, xz_of_a_huge_dictionary])
def test_what_needs_gigabytes_to_decompress_is_told_from_damage(stored, make):
    data, source = read(stored(make()))
    assert data == b"" and "needs too much memory (decompress it first)" in source.problem


@codecs
def test_members_without_a_byte_end_at_a_bound(stored, codec, monkeypatch):
    """A million of them are 9 MB of zstd, and would hold a command for minutes."""
    monkeypatch.setattr(limits, "MAX_FRUITLESS_BYTES", 1 << 20)
    empty = CODECS[codec](b"")
    few, many = 2_000 * empty, 6_000 * empty
    data, source = read(stored(few + CODECS[codec](b"x") + few + CODECS[codec](b"y")))
    assert (data, source.problem) == (b"xy", None)
    data, source = read(stored(CODECS[codec](b"x") + many + CODECS[codec](b"y")))
    assert data == b"x" and "(the rest of the file is not read)" in source.problem
