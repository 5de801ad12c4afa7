"""The command tap: its options, its signals, its last words."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from dissector.cli.main import run
from dissector.cli.tap import Duration, Rotate, RotateOption, Speed
from dissector.lake.reader import open_lake, verify
from tests.dissector.observed import CAPTURES

CAPTURE = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")
TAP = [sys.executable, "-m", "dissector", "tap"]


@pytest.mark.parametrize(
    ("text", "rotate"),
    [
        ("60s", Rotate(60, None)),
        ("256MB", Rotate(None, 256_000_000)),
        ("5m,64KiB", Rotate(300, 65_536)),
        ("1MB,500ms", Rotate(0.5, 1_000_000)),
        ("2m", Rotate(120, None)),
    ],
)
def test_rotations_end_by_time_or_size(text, rotate):
    assert RotateOption().convert(text, None, None) == rotate


@pytest.mark.parametrize("text", ["", "0s", "0", "soon", "60s,x"])
def test_other_rotations_are_refused(text):
    with pytest.raises(click.BadParameter):
        RotateOption().convert(text, None, None)


def test_spans_have_units_and_speeds_names():
    assert Duration().convert("1.5h", None, None) == 5400
    assert [Speed().convert(text, None, None) for text in ("max", "real", "8")] == [0, 1, 8]
    for kind, text in ((Duration(), "5"), (Duration(), "0s"), (Speed(), "fast"), (Speed(), "-1")):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


def test_a_replay_lands_rotations_and_says_so(tmp_path, capsys):
    assert run(["tap", "--replay", CAPTURE, "--lake", str(tmp_path), "--rotate", "20KB"]) == 0
    said = capsys.readouterr().err
    assert "755 packets captured, 0 dropped by kernel, 0 not landed; 13 rotations" in said
    with open_lake(tmp_path) as lake:
        assert len(lake.captures) == 13 and not verify(lake)


def test_without_input_it_is_wrong_usage(capsys):
    assert run(["tap"]) == 1
    assert "give -i IFACE or --replay INPUT" in capsys.readouterr().err
    assert run(["tap", "--replay", "/nowhere.pcap"]) == 2


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
