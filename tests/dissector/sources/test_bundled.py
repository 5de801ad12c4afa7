"""A bundle as an input: its packets are read where they lie, and what is damaged is one line."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from dissector.errors import InputError
from dissector.sources.bundled import FORMAT, MANIFEST, PACKETS, open_packets, read_manifest
from dissector.sources.decompress import InputBytes
from tests.hard.tape import Tape, capture

TOLD = {"format": FORMAT, "format_version": 1}


def raw() -> bytes:
    tape = Tape()
    tape.open()
    tape.connect()
    return capture(tape.records())


def bundle(path: Path, told: object = TOLD, **parts: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, told if isinstance(told, str) else json.dumps(told))
        for name, data in {PACKETS: raw(), **parts}.items():
            archive.writestr(name, data)
    return path


def read(path: Path) -> tuple[bytes, str | None, str | None]:
    source = InputBytes(str(path))
    out = bytearray()
    view = bytearray(100)
    while count := source.read_into(memoryview(view)):
        out += view[:count]
    source.close()
    return bytes(out), source.codec, source.problem


def test_packets_of_a_bundle_are_its_bytes(tmp_path: Path) -> None:
    assert read(bundle(tmp_path / "b.zip")) == (raw(), "zip", None)


def test_another_archive_is_no_input(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("night.pcap", raw())
    assert open_packets(str(tmp_path / "x.zip")) is None
    assert read(tmp_path / "x.zip")[1] is None


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({**TOLD, "format_version": 2}, "newer program"),
        ({**TOLD, "format_version": "x"}, "newer program"),
        ({"format": "other"}, "damaged"),
        ("[" * 100_000, "damaged"),
        ("\xff{", "damaged"),
        ([], "damaged"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(tmp_path: Path, told: object, sentence: str) -> None:
    path = bundle(tmp_path / "b.zip", told)
    with pytest.raises(InputError, match=sentence):
        open_packets(str(path))
    data, _, problem = read(path)
    assert data == b"" and problem is not None and sentence in problem


@pytest.mark.parametrize("name", ["../up", "/root", "a/b", "..\\up", ".hidden"])
def test_names_with_folders_are_refused(tmp_path: Path, name: str) -> None:
    path = bundle(tmp_path / "b.zip", **{name: b"x"})
    with zipfile.ZipFile(path) as archive, pytest.raises(InputError, match="folders"):
        read_manifest(archive)
    assert list(tmp_path.iterdir()) == [path]


def test_parts_twice_or_too_many_are_refused(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.zip", **{f"part{n}": b"" for n in range(80)})
    with zipfile.ZipFile(path) as archive, pytest.raises(InputError, match="too many"):
        read_manifest(archive)


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_damaged_bytes_are_a_problem_and_no_trace(tmp_path: Path, place: float) -> None:
    path = bundle(tmp_path / "b.zip", more=bytes(range(256)) * 40)
    data = bytearray(path.read_bytes())
    at = int(len(data) * place)
    data[at : at + 8] = b"\xa5" * 8
    path.write_bytes(data)
    try:
        read(path)
    except OSError as error:
        assert "damaged" in str(error)


def test_a_cut_archive_is_damaged(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.zip")
    path.write_bytes(path.read_bytes()[:-40])
    assert "damaged" in str(read(path)[2])


def test_what_is_in_a_member_is_read_piece_by_piece(tmp_path: Path) -> None:
    zeros = io.BytesIO()
    zeros.write(raw() + bytes(50 << 20))
    path = bundle(tmp_path / "b.zip", **{PACKETS: zeros.getvalue()})
    assert path.stat().st_size < 1 << 20
    source = InputBytes(str(path))
    assert source.read_into(memoryview(bytearray(1 << 16))) <= 1 << 16
    source.close()
