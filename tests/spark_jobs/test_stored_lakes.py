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
from dissector.lake.landing import Landed
from dissector.lake.reader import open_lake, verify
from dissector.sources.rings import chains
from spark_jobs import coverage, land, landing, report
from tests.dissector.joining.cutting import land_cut
from tests.dissector.lake.stored import copy_to_store
from tests.dissector.report.apart import CUTS
from tests.dissector.storage.servers import BUCKET, SECRET, environment, s3_server
from tests.spark_jobs.test_land import NAMES, SAMPLES, landed_here

LAKE = f"s3://{BUCKET}/some/lake"
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
    machines: Machines, disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_to_store(disk, LAKE)
    shutil.rmtree(machines.driver)
    for lake in (str(disk), LAKE):
        output = tmp_path / ("here" if lake != LAKE else "there")
        assert report.main(["--lake", lake, "-o", str(output)]) == 0
        capsys.readouterr()
    texts = [(tmp_path / name / "report.json").read_bytes() for name in ("here", "there")]
    assert texts[0] == texts[1]
    assert LAKE in (tmp_path / "there" / "report.html").read_text()
    # The driver reads what it decides by; all else only tasks.
    assert tables_below(machines.driver) == {"capture_files", "connections"}
    assert tables_below(machines.workers) > {"frames", "messages", "permits"}
    shutil.rmtree(machines.workers)
    assert coverage.main(["--lake", LAKE, "-o", str(tmp_path / "again")]) == 0
    assert not machines.workers.exists()  # sums are kept on the driver's machine
