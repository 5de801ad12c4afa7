"""Bad inputs and outputs with every command: exit code, one clear line, nothing half-written."""

import gzip
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_OK, EXIT_OUTPUT, EXIT_PARTIAL
from dissector.limits import MAX_MISSING_SENTENCES
from tests.disks import disk_of
from tests.dissector.cli.conftest import SAMPLES, Command
from tests.wire.captures import Record, pcap

pytestmark = pytest.mark.usefixtures("few_rules")

RECORD = 16  # bytes of a record's header in a pcap file


def record_at(data: bytes, number: int) -> int:
    """Where the record of this number begins."""
    at = 24
    for _ in range(number):
        at += RECORD + struct.unpack_from("<I", data, at + 8)[0]
    return at


def with_number(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def cut_gzip(data: bytes) -> bytes:
    packed = gzip.compress(data, mtime=0)
    return packed[: len(packed) * 3 // 4]


def damaged_gzip(data: bytes) -> bytes:
    packed = bytearray(gzip.compress(data, mtime=0))
    middle = len(packed) // 2
    packed[middle : middle + 200] = bytes(byte ^ 0x5A for byte in packed[middle : middle + 200])
    return bytes(packed)


# What is made of a good capture, the exit code, and words of the line that says what is wrong.
BAD = {
    "missing": (None, EXIT_INPUT, "there is no such file"),
    "empty": (lambda data: b"", EXIT_INPUT, "is empty"),
    "text": (lambda data: b"not a capture at all\n" * 9, EXIT_INPUT, "begins with text"),
    "other bytes": (lambda data: bytes(range(256)) * 9, EXIT_INPUT, "not a capture"),
    "unknown link type": (lambda data: with_number(data, 20, 147), EXIT_INPUT, "link type 147"),
    "cut tail": (lambda data: data[:-7], EXIT_PARTIAL, "ends inside a record at byte"),
    "cut gzip": (cut_gzip, EXIT_PARTIAL, "is cut or corrupt; all before was read"),
    "corrupt gzip": (damaged_gzip, EXIT_PARTIAL, "is cut or corrupt; all before was read"),
    "absurd length": (
        lambda data: with_number(data, record_at(data, 20) + 8, 0x7FFFFFFF),
        EXIT_PARTIAL,
        "is damaged from byte",
    ),
    "only a header": (lambda data: data[:24], EXIT_OK, ""),
}  # fmt: skip
COMMANDS = ("land", "summary", "frames", "connections")


def made(kind: str, nacks: Path, folder: Path) -> Path:
    path = folder / "night.pcap"
    change = BAD[kind][0]
    if change is not None:
        path.write_bytes(change(nacks.read_bytes()))
    return path


def leftovers(lake: Path) -> list[Path]:
    """What is in a lake beside whole captures."""
    if not lake.is_dir():
        return []
    manifests = {path.stem for path in lake.glob("_manifest/*.json")}
    landings = lake.glob("*/day=*/landing=*")
    parts = [path for path in landings if path.name.split("=")[1] not in manifests]
    return [*parts, *lake.glob("_tmp/*"), *lake.glob("_manifest/*.json.*")]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_input_ends_with_its_code_and_a_line(
    command: Command, nacks: Path, tmp_path: Path, kind: str, name: str
) -> None:
    path = made(kind, nacks, tmp_path)
    lake = tmp_path / "lake"
    result = command(name, path, *(["--lake", lake] if name == "land" else []))
    _, code, words = BAD[kind]
    assert result.code == code
    assert "Traceback" not in result.err and "internal error" not in result.err
    if words:
        (line,) = [line for line in result.err.splitlines() if words in line]
        assert line.startswith("dissector: ") and "night.pcap" in line
    if code == EXIT_INPUT:
        assert len(result.err.splitlines()) == 1
        assert name != "land" or not list(lake.glob("_manifest/*"))
    else:
        assert result.err.splitlines()[-1].startswith("dissector: read ")
        assert name != "land" or len(list(lake.glob("_manifest/*.json"))) == 1
    assert leftovers(lake) == []


@pytest.mark.parametrize("kind", [kind for kind, (_, code, _) in BAD.items() if code != EXIT_OK])
def test_with_strict_a_bad_input_writes_nothing(
    command: Command, nacks: Path, tmp_path: Path, kind: str
) -> None:
    path = made(kind, nacks, tmp_path)
    lake = tmp_path / "lake"
    assert command("land", path, "--lake", lake, "--strict").code == EXIT_INPUT
    assert not list(lake.glob("_manifest/*")) and leftovers(lake) == []
    shown = command("frames", path, "--strict")
    assert (shown.code, shown.out) == (EXIT_INPUT, "")
    assert len(shown.err.splitlines()) == 1


def test_what_is_good_of_several_inputs_is_kept(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    bad = [made(kind, nacks, tmp_path / kind) for kind in ("text", "unknown link type")
           if not (tmp_path / kind).mkdir()]  # fmt: skip
    result = command("land", *bad, nacks, tmp_path / "missing.pcap", "--lake", lake)
    assert result.code == EXIT_PARTIAL and len(result.lines) == 1
    assert "parts of the input not read" in result.err.splitlines()[-1]
    assert leftovers(lake) == []


def test_a_bad_input_on_standard_input_is_called_so(process: Command, nacks: Path) -> None:
    result = process("summary", "-", stdin=nacks.read_bytes()[:-7])
    assert result.code == EXIT_PARTIAL
    assert "standard input ends inside a record at byte" in result.err


# -- outputs


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little; only root can make one."""
    with disk_of("400k", tmp_path) as folder:
        yield folder


@pytest.mark.root
def test_a_full_disk_keeps_the_captures_that_are_whole(command: Command, small_disk: Path) -> None:
    lake = small_disk / "lake"
    samples = [SAMPLES / name for name in (
        "java-j12_nack.pcap", "java-j61_txn_abort.pcap", "java-j17_blocked_unacked.pcap",
        "java-j40_slow_consumer.pcap", "java-j24_unload.pcap", "java-j74_corrupt.pcap",
        "java-j23_errors.pcap", "java-j16_dlq_retry.pcap", "java-j07_keys.pcap",
    )]  # fmt: skip
    result = command("land", *samples, "--lake", lake, "-j", "1")
    assert result.code == EXIT_OUTPUT and "No space left on device" in result.err
    kept = sorted(path.stem for path in lake.glob("_manifest/*.json"))
    said = sorted(line.split()[1].rstrip(":") for line in result.err.splitlines()[:-1])
    assert said == kept and 0 < len(kept) < len(samples)
    assert leftovers(lake) == []
    assert command("lake", "verify", lake).code == EXIT_OK


@pytest.mark.root
def test_a_slice_that_does_not_fit_leaves_nothing(command: Command, small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(399_000))
    result = command("frames", SAMPLES / "java-j24_unload.pcap", "-w", small_disk / "part.pcapng")
    assert result.code == EXIT_OUTPUT and f"cannot write {small_disk / 'part.pcapng'}" in result.err
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["land", "SAMPLE", "--lake", "file/lake"],
        ["analyze", "SAMPLE", "-o", "file/out"],
        ["report", "--lake", "lake", "-o", "file/out"],
        ["frames", "SAMPLE", "-w", "file/part.pcapng"],
    ],
    ids=["land", "analyze", "report", "frames -w"],
)
def test_an_output_that_cannot_be_made_is_one_line(
    command: Command, nacks: Path, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    command("land", nacks, "--lake", tmp_path / "lake")
    given = [
        nacks if each == "SAMPLE" else tmp_path / each if "/" in each or each == "lake" else each
        for each in arguments
    ]
    result = command(*given)
    assert result.code == EXIT_OUTPUT and len(result.err.splitlines()) == 1
    assert str(tmp_path / "file") in result.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write(command: Command, nacks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    for arguments in (["land", nacks, "--lake", folder / "lake"],
                      ["frames", nacks, "-w", folder / "part.pcapng"]):  # fmt: skip
        result = command(*arguments)
        assert result.code == EXIT_OUTPUT and len(result.err.splitlines()) == 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["report", "--lake", "LAKE", "-o", "OUT"], ["lake", "list", "LAKE"],
     ["lake", "verify", "LAKE"], ["lake", "rm", "LAKE", "--before", "2030-01-01"],
     ["lake", "compact", "LAKE"], ["land", "SAMPLE", "--lake", "LAKE"]],
    ids=["report", "list", "verify", "rm", "compact", "land"],
)  # fmt: skip
def test_no_command_touches_a_lake_of_a_newer_program(
    command: Command, nacks: Path, tmp_path: Path, arguments: list[str]
) -> None:
    lake = tmp_path / "lake"
    command("land", nacks, "--lake", lake)
    (manifest,) = lake.glob("_manifest/*.json")
    newer = json.loads(manifest.read_text()) | {"schema_version": 99}
    manifest.write_text(json.dumps(newer))
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    places = {"LAKE": lake, "OUT": tmp_path / "out", "SAMPLE": nacks}
    result = command(*(places.get(each, each) for each in arguments))
    assert result.code == EXIT_INPUT and "schema version 99" in result.err
    assert len(result.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "out").exists()


def radiotap(folder: Path, count: int) -> list[Path]:
    """Captures of 802.11 frames, each different."""
    paths = [folder / f"air-{number:02}.pcap" for number in range(count)]
    for number, path in enumerate(paths):
        frame = b"\0\0\x08\0" + bytes(60 + number)
        path.write_bytes(pcap([Record(1, frame)] * (number + 1), link_type=127))
    return paths


def test_each_input_of_a_link_type_that_is_not_read_is_named(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    paths = radiotap(tmp_path, MAX_MISSING_SENTENCES + 5)
    for count in (15, len(paths)):
        result = command("land", *paths[:count], nacks, "--lake", tmp_path / f"lake{count}")
        assert result.code == EXIT_PARTIAL
        for number, path in enumerate(paths[: min(count, MAX_MISSING_SENTENCES)]):
            packets = "1 packet" if number == 0 else f"{number + 1} packets"
            name = "link type 127 (IEEE802_11_RADIOTAP)"
            assert f"dissector: {path}: {name} is not read: {packets}\n" in result.err
        assert ("… and 5 more parts of the input\n" in result.err) == (
            count > MAX_MISSING_SENTENCES
        )
    result = command("summary", *paths[:15])
    assert result.code == EXIT_INPUT
    assert all(f"{path}: link type 127 " in result.err for path in paths[:15])


def test_a_replay_of_link_types_that_are_not_read_lands_nothing(
    command: Command, tmp_path: Path
) -> None:
    (path,) = radiotap(tmp_path, 1)
    lake = tmp_path / "lake"
    assert command("tap", "--replay", path, "--lake", lake).code == EXIT_INPUT
    assert not [*lake.glob("_manifest/*"), *lake.rglob("*.parquet")]


def test_numbers_of_notices_stand_in_the_summary(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "odd.pcap"
    path.write_bytes(pcap([Record(1, bytes(12) + b"\x22\xf3" + bytes(60), 50)] * 3))
    result = command("summary", path)
    said = " ".join(result.out.split())  # lines end where the terminal's does
    assert "ethertype 0x22f3 (TRILL) (3 packets)" in result.out
    assert "unknown_ethertype" not in result.out
    assert "3 packets claim more captured bytes than the wire had" in said
    assert "…" not in result.out
