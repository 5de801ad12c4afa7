"""Jobs over lakes in a store, with machines of tasks that share no folder with the driver."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.dissection import Options
from dissector.lake import mirror
from dissector.lake.compact import compact
from dissector.lake.reader import open_lake, verify
from dissector.report.pipeline import Scope
from dissector.sources.rings import chains
from spark_jobs import job, land, landing, latency, report
from tests.dissector.joining.cutting import land_cut
from tests.dissector.lake.landed import tree
from tests.dissector.lake.stored import copy_to_store
from tests.dissector.report.apart import CUTS
from tests.dissector.storage.servers import BUCKET, SECRET, failing_server, forget, s3_server
from tests.reports import SOME_RULES, reported
from tests.spark_jobs.test_land import NAMES, SAMPLES, landed_here

LAKE = f"s3://{BUCKET}/by-spark/lake"  # what others left in the bucket stays
VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL")


class Machines(NamedTuple):
    """endpoint: of the store. driver, workers: folders below which they keep copies."""

    endpoint: str
    driver: Path
    workers: Path


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def machines(spark: Any, server: str, tmp_path: Path) -> Iterator[Machines]:
    """Tasks have the variables of their machines, and a folder for copies that is their own."""
    found = Machines(server, tmp_path / "driver", tmp_path / "workers")
    variables: dict[str, str] = spark.sparkContext.environment
    before = dict(variables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(mirror.BASE, str(found.driver))
        variables.update({name: os.environ[name] for name in VARIABLES})
        variables[mirror.BASE] = str(found.workers)
        yield found
    variables.clear()
    variables.update(before)


def tables_below(folder: Path) -> set[str]:
    """The tables of which copies are there."""
    (lake,) = (folder / "lakes").iterdir()
    return {path.relative_to(lake).parts[0] for path in lake.rglob("*.parquet")} - {"_sums"}


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with captures that are joined, and a group."""
    folder = tmp_path_factory.mktemp("disk")
    landed_here(folder / "lake")
    for name in ("java-j74_corrupt.pcap", "java-j24_unload.pcap"):
        land_cut(name, CUTS[name], folder / "lake", folder)
    assert len(compact(folder / "lake", ["c-java-j12*", "c-java-j24_unload-at*part0*"]).groups) > 0
    return folder / "lake"


def test_a_report_is_that_of_a_disk(
    machines: Machines, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "Scope", partial(Scope, rules=SOME_RULES))
    copy_to_store(disk, LAKE)
    shutil.rmtree(machines.driver)
    found = reported(disk, tmp_path / "here", rules=SOME_RULES)
    assert found["closing"]["total"]["captures_joined"] == 5
    assert latency.main(["--lake", LAKE, "-o", str(tmp_path / "numbers")]) == 0
    # The driver reads what tells which captures belong together, tasks read all else.
    surveyed = {"capture_files", "connections", "exchanges", "deliveries"}
    assert tables_below(machines.driver) == surveyed
    assert tables_below(machines.workers) > {*surveyed, "frames", "messages", "permits"}
    shutil.rmtree(machines.workers)
    assert report.main(["--lake", LAKE, "-o", str(tmp_path / "there")]) == 0
    assert not machines.workers.exists()  # what queries gave is kept on the driver's machine
    texts = [(tmp_path / name / "report.json").read_bytes() for name in ("here", "there")]
    assert texts[0] == texts[1]
    assert (tmp_path / "there" / "report.html").exists()


def tasks(*names: str) -> list[landing.Task]:
    """Tasks that land samples."""
    found = chains([str(SAMPLES / name) for name in names], "auto").chains
    return landing.tasks_of(found, mirror.folder_of(f"{LAKE}/landed"), Options(), None)


def test_a_capture_lands_once_whatever_runs_twice_or_is_killed(
    spark: Any, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The first attempt at each place is killed: with all files in the store, and when the lake has
    the capture. Then two attempts run at once, as by speculation."""
    lake = f"{LAKE}/landed"
    for moment, there in (("commit", 0), ("keep", 1)):
        monkeypatch.setattr(landing, "land_task", partial(killed, moment, str(tmp_path / moment)))
        (outcome,) = landing.land_on(spark, tasks(NAMES[0]))
        assert "failed on the cluster" in str(outcome.error)
        assert (tmp_path / moment).exists()
        assert len(seen(lake)) == there
    monkeypatch.undo()
    monkeypatch.setenv(mirror.BASE, str(machines.driver))
    each = tasks(*NAMES)
    outcomes = list(landing.land_on(spark, [*each, *each]))
    assert [outcome.error for outcome in outcomes] == [None] * 6
    found = [outcome.landed.outcome for outcome in outcomes if outcome.landed]
    assert sorted(found) == [*["installed"] * 2, *["unchanged"] * 4]
    assert land.main([*(str(SAMPLES / name) for name in NAMES), "--lake", lake]) == 0
    ids = capsys.readouterr().out.split()
    here = tmp_path / "here"
    landed_here(here)
    with open_lake(here) as opened:
        digests = {capture.capture_id: capture.digest() for capture in opened.captures}
    assert seen(lake) == digests and sorted(ids) == sorted(digests)


def killed(moment: str, mark: str, task: landing.Task) -> Any:
    """Stands for land_task on a machine that is switched off at a moment."""
    patch = pytest.MonkeyPatch()

    def die(*_: object) -> None:
        Path(mark).touch()
        os._exit(9)

    patch.setattr(mirror.Mirror, moment, die)
    return landing.land_task(task)


def seen(lake: str) -> dict[str, str]:
    """The captures of a lake, whose files are all whole, and digests of their manifests."""
    folder = mirror.folder_of(lake)
    mirror.refresh(folder)
    if not any((folder / "_manifest").iterdir()):
        return {}
    with open_lake(folder) as opened:
        assert verify(opened) == []
        return {capture.capture_id: capture.digest() for capture in opened.captures}


def test_what_is_wrong_with_a_store_is_one_line(
    spark: Any, machines: Machines, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def said(lake: str, *, of_report: str, of_land: str) -> None:
        """What both jobs say, who end as nothing can be read, and as nothing can be written."""
        for main, arguments, text, code in (
            (latency.main, ["-o", str(tmp_path / "out")], of_report, 2),
            (land.main, [str(SAMPLES / NAMES[0]), "-q"], of_land, 4),
        ):
            assert main([*arguments, "--lake", lake]) == code
            out, err = capsys.readouterr()
            assert text in err and err.count("\n") == 1, err
            assert out == "" and SECRET not in err

    missing = "s3://none/lake: there is no such bucket"
    said("s3://none/lake", of_report=f"cannot read {missing}", of_land=f"the lake {missing}")
    refused = "the store refuses access: Odd; set AWS_ACCESS_KEY_ID"
    with failing_server(b"") as server:
        server.failures[:] = [403] * 1000
        refusing = os.environ["AWS_ENDPOINT_URL"]
        said(LAKE, of_report=f"cannot read {LAKE}: {refused}", of_land=f"{LAKE}: {refused}")
        # The driver's machine is let in, those of tasks are not.
        monkeypatch.setenv("AWS_ENDPOINT_URL", machines.endpoint)
        forget()
        copy_to_store(disk, f"{LAKE}/other")
        spark.sparkContext.environment["AWS_ENDPOINT_URL"] = refusing
        said(f"{LAKE}/other", of_report=f"{LAKE}/other: {refused}", of_land=f"other: {refused}")
    monkeypatch.undo()
    assert not any(SECRET.encode() in data for data in tree(tmp_path).values())
