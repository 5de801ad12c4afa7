"""Landing on a cluster: the same bytes as landing here, whatever runs twice or fails."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.cli.main import run
from dissector.dissection import Options
from dissector.errors import OutputError
from dissector.lake.land import Outcome
from dissector.sources.rings import Chain, chains
from spark_jobs import land, landing
from tests.dissector.lake.landed import tree

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "captures" / "pulsar-apache"
NAMES = ("java-j12_nack.pcap", "java-j24_unload.pcap", "java-j74_corrupt.pcap")


def landed_here(lake: Path) -> dict[str, bytes]:
    """What `dissector land` writes about the samples."""
    assert run(["land", *(str(SAMPLES / name) for name in NAMES), "--lake", str(lake), "-q"]) == 0
    return tree(lake)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return landed_here(tmp_path_factory.mktemp("here") / "lake")


def tasks(lake: Path, *names: str) -> list[landing.Task]:
    found = chains([str(SAMPLES / name) for name in names], "auto").chains
    return landing.tasks_of(found, lake, Options(), None)


def test_the_lake_has_the_same_bytes_as_one_landed_here(
    spark: Any, here: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = [str(SAMPLES / name) for name in NAMES]
    assert land.main([*inputs, "--lake", str(tmp_path / "lake"), "-q"]) == 0
    assert tree(tmp_path / "lake") == here
    assert len(capsys.readouterr().out.split()) == len(NAMES)
    assert land.main([*inputs, "--lake", str(tmp_path / "lake"), "-q"]) == 0
    assert tree(tmp_path / "lake") == here


def test_a_task_that_runs_twice_at_once_changes_nothing(
    spark: Any, here: dict[str, bytes], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    each = tasks(lake, *NAMES)
    found = list(landing.land_on(spark, [*each, *each]))
    assert len(found) == 6 and all(outcome.landed is not None for outcome in found)
    assert sorted(outcome.landed.outcome for outcome in found if outcome.landed) == [
        *["installed"] * 3, *["unchanged"] * 3,
    ]  # fmt: skip
    assert tree(lake) == here


def test_the_largest_chain_goes_first_and_files_have_full_names(tmp_path: Path) -> None:
    sizes = [(tmp_path / name, size) for name, size in (("a", 10), ("b", 30), ("c", 20))]
    for path, size in sizes:
        path.write_bytes(bytes(size))
    given = [Chain((os.path.relpath(path),), path.name) for path, _ in sizes]
    found = landing.tasks_of(given, tmp_path, Options(), "east")
    assert [task.number for task in found] == [1, 2, 0]
    assert found[0].chain.files == (str(tmp_path / "b"),) and found[0].cluster == "east"


def test_failures_are_listed_and_the_rest_is_landed(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"\xd4\xc3\xb2\xa1" + bytes(3))
    good = SAMPLES / NAMES[0]
    assert land.main([str(bad), str(good), "--lake", str(tmp_path / "lake")]) == 3
    said = capsys.readouterr()
    assert "bad.pcap" in said.err and said.out.startswith("c-java-j12_nack")
    assert land.main([str(bad), "--lake", str(tmp_path / "other")]) == 2


def test_a_task_that_dies_takes_no_other_along(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tasks(tmp_path / "lake", *NAMES[:2])
    monkeypatch.setattr(landing, "land_task", dying)
    found = {outcome.number: outcome for outcome in landing.land_on(spark, [first, second])}
    assert found[0].error is None
    assert found[1].error is not None and "failed on the cluster" in str(found[1].error)


def dying(task: landing.Task) -> Outcome:
    """Stands for land_task on a worker that is killed by one of the captures."""
    if task.number == 1:
        os._exit(9)
    return Outcome(task.number, landing.Account(), None, None)


def test_a_lake_that_cannot_be_written_ends_the_run(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError):
        list(landing.land_on(spark, tasks(tmp_path / "file", NAMES[0])))
