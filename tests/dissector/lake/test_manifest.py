"""Ids, canonical text, and how an input relates to what is there."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.errors import InputError
from dissector.lake.digest import ChainDigest, Marks
from dissector.lake.manifest import (
    Contained,
    Manifest,
    PartFile,
    capture_id,
    from_json,
    relation,
    tap_capture_id,
    tap_run_of,
    to_json,
)
from dissector.lake.settings import SETTINGS
from dissector.schemas import SCHEMA_VERSION


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("stdin", "c-stdin-0123456789ab"),
        ("Night 1.pcap", "c-night-1-pcap-0123456789ab"),
        ("a_b-C.pcapng.gz", "c-a_b-c-pcapng-0123456789ab"),
        ("x.pcap.ZST", "c-x-pcap-0123456789ab"),
        ("\u00e4/..", "c-a----0123456789ab"),
    ],
)
def test_capture_ids_hold_only_plain_characters(name: str, wanted: str) -> None:
    assert capture_id(name, "0123456789abcdef" * 4) == wanted


def test_rotations_of_a_run_are_known_by_their_ids() -> None:
    run = tap_run_of(tap_capture_id("eth0.5", 17, 3))
    assert run == "c-eth0-5-17" == tap_run_of("c-eth0-5-17-00000")
    for other in ("c-ring-123456789012", "compact-123456789012", "c-a-17-123456"):
        assert tap_run_of(other) == other


def test_tap_ids_name_interface_start_and_rotation() -> None:
    assert tap_capture_id("eth0.7", 1_700_000_000_000_000_001, 3) == (
        "c-eth0-7-1700000000000000001-00003"
    )


def digest_of(data: bytes, files: int = 1, sizes: tuple[int, ...] = ()) -> ChainDigest:
    digest = ChainDigest(sizes)
    step = max(1, -(-len(data) // files))
    for start in range(0, max(len(data), 1), step):
        digest.update(data[start : start + step])
        digest.end_file(f"f{start}")
    return digest


def contained(data: bytes, files: int = 1) -> Contained:
    digest = digest_of(data, files)
    return Contained(
        "c-x",
        "x",
        digest.bytes,
        digest.sha256(),
        digest.marks(),
        tuple(digest.files),
        1,
        None,
    )


@given(st.integers(0, 6000), st.integers(0, 6000), st.integers(1, 4), st.integers(1, 4))
def test_prefixes_are_known_from_what_is_kept(old: int, new: int, m: int, n: int) -> None:
    data = bytes(range(256)) * 24
    there = contained(data[:old], m)
    related = relation(digest_of(data[:new], n, (old,)), there)
    if old == new:
        assert related == "same"
    elif old < new:
        assert related == "grown"
    elif new >= 256 or new in {0, *(k * -(-old // m) for k in range(m + 1))}:
        assert related == ("shorter" if new else "other")
    else:
        assert related == "other"


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 4999), st.integers(1, 3))
def test_inputs_that_differ_are_unrelated(old: int, new: int, flip: int, files: int) -> None:
    data = bytearray(range(256)) * 20
    there = contained(bytes(data[:old]), files)
    flip %= min(old, new)
    data[flip] ^= 1
    related = relation(digest_of(bytes(data[:new]), files, (old,)), there)
    if related == "shorter":  # only what lies behind the last mark can go unnoticed
        assert new < old and flip >= new // 256 * 256
    else:
        assert related == "other"


def test_a_prefix_that_was_not_asked_for_is_known_at_the_ends_of_files() -> None:
    data = bytes(range(256)) * 4
    assert relation(digest_of(data, 4), contained(data[:512])) == "grown"
    assert relation(digest_of(data, 4), contained(data[:500])) == "other"


def made() -> Manifest:
    inside = contained(b"abc" * 300, 2)
    return Manifest(
        capture_id="c-x",
        base_name="x",
        schema_version=SCHEMA_VERSION,
        bytes=900,
        sha256=inside.sha256,
        marks=inside.marks,
        sources=inside.sources,
        first_ts_ns=1,
        last_ts_ns=2,
        files=(
            PartFile("frames", "part-00000.parquet", 5, 100, "aa"),
            PartFile("frames", "part-00001.parquet", 2, 50, "bb"),
        ),
        versions={"dissector": "1"},
        options={"reorder_window_ms": 200, "cluster": None},
        settings=SETTINGS.as_json(),
        replaces=(inside,),
    )


def test_manifests_come_back_and_their_text_is_canonical() -> None:
    manifest = made()
    text = to_json(manifest)
    assert from_json(text, "m") == manifest
    shuffled = json.dumps(dict(reversed(list(json.loads(text).items()))))
    assert to_json(from_json(shuffled, "m")) == text


def test_what_was_read_is_known_by_its_text_until_it_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest, changed = made(), made()._replace(first_ts_ns=2)
    wanted = manifest.digest(), changed.digest()
    read, text = from_json(to_json(manifest), "m"), to_json(manifest)
    assert read == manifest and read._replace(first_ts_ns=2).digest() == wanted[1]
    assert read._replace(landed="x").digest() == "x"
    attempt = from_json(to_json(manifest.of_attempt("0123456789ab")), "m")
    assert attempt.digest() == manifest.of_attempt("0123456789ab").digest()
    # A lake of a thousand captures writes no manifest to know them.
    monkeypatch.setattr("dissector.lake.manifest.to_json", None)
    assert read.digest() == wanted[0] == from_json(text, "m").digest()
    assert json.loads(text)["rows"]["frames"] == 7
    assert manifest.rows()["messages"] == 0


def test_a_capture_stands_for_itself_or_for_what_it_replaces() -> None:
    manifest = made()
    assert manifest.captures() == manifest.replaces
    alone = manifest._replace(replaces=())
    (own,) = alone.captures()
    assert own.capture_id == "c-x" and own.marks == manifest.marks


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{", "not a readable manifest"),
        ("[]", "not a readable manifest"),
        ('{"schema_version": 1}', "not a readable manifest"),
        (json.dumps({"schema_version": SCHEMA_VERSION + 1}), "newer"),
    ],
    ids=["cut", "list", "empty", "newer"],
)
def test_what_cannot_be_read_is_an_input_error(text: str, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        from_json(text, "some/manifest.json")


def test_a_tap_is_unrelated_to_everything() -> None:
    tap = contained(b"")._replace(sha256=None, marks=Marks(1))
    assert relation(digest_of(b"x" * 999), tap) == "other"
