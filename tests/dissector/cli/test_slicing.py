"""frames -w: the file holds the packets behind the selected frames, and reads as these frames."""

import subprocess
import sys
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OK, EXIT_OUTPUT, EXIT_USAGE
from tests.dissector.cli.conftest import SAMPLES, Command

CHOSEN = ("-T", "fields", "-e", "command,sequence_id,payload_bytes,crc32c_computed,last_ts_ns")


@pytest.mark.parametrize(
    ("sample", "condition"),
    [
        ("java-j74_corrupt.pcap", 'checksum == "mismatch"'),
        ("java-j12_nack.pcap", 'command == "SEND" and sequence_id in (3, 4)'),
        ("java-j24_unload.pcap", 'command == "SEND" and last_packet > first_packet'),
    ],
    ids=["mismatch", "two sends", "frames of many packets"],
)
def test_a_slice_reads_as_the_frames_that_were_selected(
    command: Command, tmp_path: Path, sample: str, condition: str
) -> None:
    part = tmp_path / "part.pcapng"
    whole = command("frames", SAMPLES / sample, "-Y", condition, "-w", part, *CHOSEN)
    assert whole.code == EXIT_OK and whole.lines and "written to" in whole.err
    again = command("frames", part, "-d", "6650=pulsar", *CHOSEN)
    assert set(whole.lines) <= set(again.lines)
    assert part.stat().st_size < (SAMPLES / sample).stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["part.pcapng"]


def test_a_slice_of_standard_input_is_the_same(
    command: Command, process: Command, nacks: Path, tmp_path: Path
) -> None:
    asked = ("-Y", "frame_no < 9", "-c", "2", "-w")
    for result in (
        command("frames", nacks, *asked, tmp_path / "a"),
        process("frames", "-", *asked, tmp_path / "b", stdin=nacks.read_bytes()),
    ):
        assert result.code == EXIT_OK, result.err
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_frames_of_several_captures_are_refused(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part.pcapng"
    other = SAMPLES / "java-j61_txn_abort.pcap"
    result = command("frames", nacks, other, "-w", part)
    assert result.code == EXIT_USAGE and "one capture" in result.err and not part.exists()
    both = command("frames", nacks, other, "-w", part, "-Y", 'command == "END_TXN"')
    assert both.code == EXIT_OK and part.exists()


def test_nothing_is_left_where_nothing_can_be_written(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    result = command("frames", nacks, "-w", tmp_path / "no" / "part.pcapng")
    assert result.code == EXIT_OUTPUT and result.out == ""
    nothing = command("frames", nacks, "-Y", "frame_no < 0", "-w", tmp_path / "part.pcapng")
    assert nothing.code == EXIT_USAGE and not list(tmp_path.iterdir())


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "forced"])
@pytest.mark.parametrize("kind", ["own name", "symlink", "hard link", "folder", "standard input"])
def test_a_slice_is_never_written_over_its_input(
    command: Command, nacks: Path, tmp_path: Path, kind: str, force: tuple[str, ...]
) -> None:
    own = tmp_path / "own.pcap"
    own.write_bytes(nacks.read_bytes())
    (tmp_path / "soft.pcap").symlink_to(own)
    (tmp_path / "hard.pcap").hardlink_to(own)
    source: object = {"folder": tmp_path, "standard input": "-"}.get(kind, own)
    target = {"symlink": tmp_path / "soft.pcap", "hard link": tmp_path / "hard.pcap"}.get(kind, own)
    if source == "-":
        with own.open("rb") as file:
            done = subprocess.run(
                [sys.executable, "-m", "dissector", "frames", "-", "-w", str(own), *force],
                stdin=file, capture_output=True, text=True, check=False,
            )  # fmt: skip
        code, told, out = done.returncode, done.stderr, done.stdout
    else:
        code, out, told = command("frames", source, "-w", target, *force)
    assert code == EXIT_OUTPUT and "is an input" in told and told.count("\n") == 1 and out == ""
    assert own.read_bytes() == nacks.read_bytes() and (tmp_path / "soft.pcap").is_symlink()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_that_is_there_needs_force(command: Command, nacks: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.pcapng"
    part.write_bytes(b"mine")
    arguments = ("frames", nacks, "-Y", "frame_no < 9", "-w", part)
    refused = command(*arguments)
    assert refused.code == EXIT_OUTPUT and "exists: --force" in refused.err and refused.out == ""
    assert part.read_bytes() == b"mine"
    assert command(*arguments, "--force").code == EXIT_OK and part.read_bytes() != b"mine"
    null = command("frames", nacks, "-w", "/dev/null", "--force")
    assert null.code == EXIT_OUTPUT and not Path("/dev/null").is_file()
