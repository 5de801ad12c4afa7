"""The command tap: its options, its signals, its last words."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OUTPUT, EXIT_USAGE
from dissector.cli.main import run
from dissector.lake.reader import open_lake, verify
from tests.dissector.cli.conftest import Command
from tests.dissector.observed import CAPTURES

CAPTURE = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")
TAP = [sys.executable, "-m", "dissector", "tap"]


def test_a_replay_lands_rotations_and_says_so(tmp_path, capsys):
    assert run(["tap", "--replay", CAPTURE, "--lake", str(tmp_path), "--rotate", "20KB"]) == 0
    said = capsys.readouterr().err
    assert "755 packets captured, 0 dropped by kernel, 0 not landed; 13 rotations" in said
    with open_lake(tmp_path) as lake:
        assert len(lake.captures) == 13 and not verify(lake)


def test_a_replay_names_the_file_that_is_cut(tmp_path, capsys):
    cut = tmp_path / "x.pcap"
    cut.write_bytes(Path(CAPTURE).read_bytes()[:50_000])
    assert run(["tap", "--replay", str(cut)]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"dissector: {cut} ends inside a record at byte 49626"
    assert "232 packets captured" in said[-1]


def test_inputs_that_cannot_be_read_are_said_and_make_it_partial(tmp_path, capsys):
    junk = tmp_path / "junk"
    junk.write_bytes(b"no capture at all" * 9)
    lake = tmp_path / "lake"
    arguments = ["tap", "--replay", CAPTURE, "--replay", str(junk), "--lake", str(lake)]
    assert run([*arguments, "--strict"]) == 2
    assert "--strict: nothing written" in capsys.readouterr().err
    assert not lake.exists()
    assert run(arguments) == 3
    said = capsys.readouterr().err
    assert f"{junk}: not a capture" in said and "read 755 packets in 1 file: " in said


def test_a_ring_that_the_system_has_no_memory_for_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("dissector.tap.memory.available_bytes", lambda: 100_000_000)
    assert run(["tap", "-i", "lo", "--ring", "51MB"]) == 1
    assert "--ring 51.00 MB is more than half of the 100.00 MB" in capsys.readouterr().err


def test_quiet_says_only_what_is_missing(capsys):
    assert run(["tap", "--replay", CAPTURE, "-q"]) == 0
    assert not capsys.readouterr().err


def test_the_last_words_stay_on_a_terminal_that_showed_topics():
    ours, terminal = os.openpty()
    with subprocess.Popen([*TAP, "--replay", CAPTURE, "--top"], stdout=terminal, stderr=terminal):
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal's other end was closed
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    assert b"sends/s" in shown and b"755 packets captured" in shown
    assert shown.rfind(b"\x1b[1A") < shown.index(b"dissector: read 755 packets")


def test_where_metrics_are_is_said(capsys):
    assert run(["tap", "--replay", CAPTURE, "--metrics", "0"]) == 0
    said = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(r"dissector: metrics at http://127\.0\.0\.1:[1-9]\d*/metrics", said)


def test_without_input_it_is_wrong_usage(capsys):
    assert run(["tap"]) == 1
    assert "give -i IFACE or --replay INPUT; interfaces that are up: " in capsys.readouterr().err
    assert run(["tap", "--replay", CAPTURE, "-i", "lo"]) == 1
    assert run(["tap", "--replay", "/nowhere.pcap"]) == 2


@pytest.mark.parametrize(
    ("idle", "needed"),
    [
        (["--bpf", "tcp"], "--bpf does nothing without -i IFACE"),
        (["--trigger", "error"], "--trigger does nothing without --record DIR"),
        (["--trigger-latency", "1s"], "--trigger-latency does nothing without --record DIR"),
    ],
)
def test_options_that_would_do_nothing_are_refused(idle, needed, capsys):
    assert run(["tap", "--replay", CAPTURE, *idle]) == 1
    assert needed in capsys.readouterr().err


def test_a_lake_that_cannot_be_written_is_said_at_once(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    lake = str(tmp_path / "file" / "lake")
    assert run(["tap", "--replay", CAPTURE, "--lake", lake]) == 4
    assert "cannot write to the lake" in capsys.readouterr().err


def started(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*TAP, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_all_written(tmp_path, number):
    tap = started("--replay", CAPTURE, "--speed", "real", "--rotate", "1s", "--lake", str(tmp_path))
    wait_for(lambda: list(tmp_path.glob("_manifest/*.json")))
    tap.send_signal(number)
    _, said = tap.communicate(timeout=30)
    assert tap.returncode == 0, said
    assert "captured, 0 dropped by kernel" in said
    with open_lake(tmp_path) as lake:
        files = lake.table("capture_files").to_pylist()
        assert not verify(lake)
    packets = int(said.split(" packets captured")[0].split()[-1].replace(",", ""))
    assert 0 < sum(row["packets"] for row in files) == packets < 755
    assert not (tmp_path / "_tmp").exists()


def test_a_hangup_begins_a_new_rotation(tmp_path):
    tap = started("--replay", CAPTURE, "--speed", "real", "--rotate", "1h", "--lake", str(tmp_path))

    def landed() -> int:
        if tap.poll() is None:
            tap.send_signal(signal.SIGHUP)
        return len(list(Path(tmp_path).glob("_manifest/*.json")))

    wait_for(lambda: (tmp_path / "_lock").exists())
    wait_for(lambda: landed() >= 2)
    tap.terminate()
    _, said = tap.communicate(timeout=30)
    assert tap.returncode == 0, said


def test_an_input_without_an_option_is_told_which_one_it_needs(capsys):
    assert run(["tap", "night.pcap"]) == 1
    words = capsys.readouterr().err
    assert "--replay night.pcap" in words and "-i night.pcap" in words


def test_recordings_are_not_written_among_what_is_replayed(
    command: Command, nacks: Path, tmp_path: Path
) -> None:
    """The oldest of them are deleted to make room."""
    own = tmp_path / "tap-1-error-all.pcapng"
    own.write_bytes(nacks.read_bytes())
    for given in (own, tmp_path):
        result = command("tap", "--replay", given, "--record", tmp_path, "--keep", "1kB")
        assert result.code == EXIT_OUTPUT and "is an input and lies in" in result.err
    assert own.read_bytes() == nacks.read_bytes()


def test_a_host_name_without_metrics_is_refused(command: Command, nacks: Path) -> None:
    result = command("tap", "--replay", nacks, "--metrics-host", "tap.example")
    assert result.code == EXIT_USAGE and "--metrics-host does nothing without" in result.err
