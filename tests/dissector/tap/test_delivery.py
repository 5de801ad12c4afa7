"""Rotations of a tap whose lake lies in a store: nothing is lost while it is silent."""

import errno
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.errors import InputError, OutputError
from dissector.lake.install import ready_stages
from dissector.lake.log import Change, encoded
from dissector.lake.mirror import folder_of
from dissector.schemas import SCHEMA_VERSION
from dissector.tap import delivery
from dissector.tap.health import Health, Losses
from dissector.tap.rotations import Rotations
from tests.dissector.lake.conftest import server
from tests.dissector.lake.stored import Machines, machines
from tests.dissector.lake.test_stored_lake import CAPTURES, LAKE, bucket, use
from tests.dissector.tap.test_rotations import files, permits

__all__ = ["bucket", "machines", "server"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is silent is asked again soon."""
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "_FIRST_SECONDS", 30.0)


def opened(lake: Path, run_ns: int = 77, may_wait: bool = False) -> Rotations:
    rotations = Rotations(lake, "eth0", {}, may_wait)
    rotations.begin_run(run_ns)
    return rotations


def rotate(rotations: Rotations) -> None:
    rotations.write(files(time.time_ns()))
    rotations.write(permits(5))
    rotations.end(10)


def silence(what: str, name: str) -> None:
    raise OSError(errno.EIO, "the store does not answer: 503 Slow Down")


def listen(what: str, name: str) -> None:
    """The store answers."""


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_rotations_wait_on_disk_and_get_there_by_themselves(machines: Machines) -> None:
    with machines.on("tap") as lake:
        rotations = opened(lake)
        rotate(rotations)
        until(lambda: machines.store.files and not ready_stages(lake))
        assert rotations.delivery.sentence() is None
        machines.store.before = silence
        for _ in range(3):
            rotate(rotations)
        until(lambda: rotations.delivery.waiting == 3)
        said = rotations.delivery.sentence()
        assert said is not None and said.startswith("3 rotations on this disk, not in the store: ")
        assert "s3://bucket/some/lake: the store does not answer: 503 Slow Down" in said
        assert sum("/_log/0/" in name for name in machines.store.files) == 1
        machines.store.before = listen
        until(lambda: rotations.delivery.waiting == 0)
        assert rotations.delivery.sentence() is None
        fates = rotations.close()
        assert [fate.problem for fate in fates] == [None] * 4 and rotations.lost == 0
    assert machines.seen("reader") == ["eth0"] * 4


def test_they_wait_beyond_the_end_of_the_tap(machines: Machines) -> None:
    with machines.on("tap") as lake:
        machines.store.before = silence
        rotations = opened(lake)
        rotate(rotations)
        rotate(rotations)
        assert [fate.problem for fate in rotations.close()] == [None, None]
        assert rotations.delivery.waiting == 2 and len(ready_stages(lake)) == 2
        machines.store.before = listen
        again = opened(lake, 78)
        until(lambda: not ready_stages(lake))
        again.close()
    assert machines.seen("reader") == ["eth0"] * 2


def test_a_replay_ends_where_the_store_is_silent(machines: Machines) -> None:
    with machines.on("tap") as lake:
        rotations = opened(lake, may_wait=True)
        machines.store.before = silence
        rotate(rotations)
        with pytest.raises(OutputError, match=r"s3://bucket/some/lake: .*503"):
            rotations.close()


@pytest.mark.parametrize("code", [errno.ENXIO, errno.EACCES])
def test_a_store_that_cannot_be_is_said_at_once(machines: Machines, code: int) -> None:
    def refuse(what: str, name: str) -> None:
        raise OSError(code, "there is none")

    machines.store.before = refuse
    with machines.on("tap") as lake, pytest.raises(OutputError, match="there is none"):
        opened(lake)


def test_a_newer_lake_is_refused_at_once(machines: Machines) -> None:
    newer = Change(frozenset(), {}, SCHEMA_VERSION + 1, "x")
    machines.store.files["some/lake/_log/0/000000000000.zst"] = encoded(newer), 0.0
    with machines.on("tap") as lake, pytest.raises(InputError, match="has schema version"):
        opened(lake)


def test_status_says_what_waits_and_nothing_is_lost() -> None:
    health = Health(is_live=True)
    health.lost(Losses(0, 0, (), None, "2 rotations on this disk"), 0, 0)
    report = health.report()
    assert report["complete"] and report["status"] == "degraded"
    assert "2 rotations on this disk" in report["reasons"]


def test_a_replay_lands_in_a_bucket_with_upkeep(
    bucket: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("DISSECTOR_LAKES", str(tmp_path / "first"))  # for the upkeep, too
    command = ["tap", "--replay", CAPTURES[0], "--lake", LAKE, "--rotate", "60kB"]
    assert run(command) == 0
    said = capsys.readouterr()[1]
    assert "rotations in the lake" in said and "waits" not in said
    assert run(["lake", "verify", LAKE]) == 0
    assert run(["lake", "list", LAKE, "--json"]) == 0
    count = len(capsys.readouterr()[0].splitlines())
    assert count > 2
    assert run(command) == 0
    assert run(["lake", "list", LAKE, "--json"]) == 0
    assert len(capsys.readouterr()[0].splitlines()) == count, "the same rotations"
    newer = Rotations(folder_of(LAKE), "eth0", {}, True, keep_days=2)
    newer.begin_run(77)
    rotate(newer)
    newer.close()
    assert newer.upkeep_problem is None
    assert run(["lake", "list", LAKE, "--json"]) == 0
    (left,) = capsys.readouterr()[0].splitlines()
    assert json.loads(left)["captures"][0].startswith("c-eth0-77-")


TAP = """
import sys, time
from pathlib import Path
from dissector.lake import mirror
from tests.dissector.tap.test_delivery import opened, rotate
base, address, run_ns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
mirror._base = lambda: base / "lakes"
rotations = opened(mirror.folder_of(address), run_ns)
print("began", flush=True)
for number in range(1000):
    rotate(rotations)
    while rotations.landed <= number:
        rotations.fates()
    print("on disk", flush=True)
"""


def test_a_tap_that_is_killed_has_landed_all_that_was_on_disk(
    bucket: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    killed_taps(LAKE, tmp_path, monkeypatch, capsys)


def killed_taps(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Taps into a lake are killed; it has all that was on their disk, once."""
    chance = random.Random(1)
    where, on_disk = str(tmp_path / "tap"), 0
    for round_no in range(3):
        command = [sys.executable, "-c", TAP, where, address, str(round_no + 1)]
        tap = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
        assert tap.stdout is not None and tap.stdout.readline() == b"began\n"
        for _ in range(chance.randrange(2, 8)):
            assert tap.stdout.readline() == b"on disk\n"
            on_disk += 1
        time.sleep(chance.uniform(0, 0.1))  # it takes a few hundredths of a second to land one
        tap.kill()
        on_disk += tap.communicate()[0].count(b"on disk")
    use(tmp_path / "tap", monkeypatch)
    last = opened(folder_of(address), 9)
    last.close()
    assert last.delivery.waiting == 0 and not ready_stages(folder_of(address))
    use(tmp_path / "reader", monkeypatch)
    assert run(["lake", "verify", address]) == 0
    capsys.readouterr()
    assert run(["lake", "list", address, "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr()[0].splitlines()]
    inside = [name for each in listed for name in each["captures"]]
    assert len(inside) == len(set(inside))
    # One may have been complete before it was said.
    assert on_disk <= len(inside) <= on_disk + 3 and on_disk > 3
