"""`report --new`: whatever lands in whatever order, in however many steps, is one full report."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

import pyarrow.parquet as pq

from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.schemas import TABLES
from tests.spark_jobs.cutting import land, land_cut, read
from tests.spark_jobs.test_report import differences, reported

# In parts that belong together, and whole; one producer's messages are in several of them.
CUTS = {"java-j24_unload.pcap": (203, 300), "java-j74_corrupt.pcap": (51,)}
WHOLE = ("cpp-c40_killed_Failover.pcap", "java-j23_errors.pcap")


def hand_over(source: Path, target: Path, captures: Iterable[str]) -> None:
    """What landing these captures does to a lake."""
    for name in captures:
        for table in TABLES:
            (target / table).mkdir(parents=True, exist_ok=True)
            shutil.copytree(source / table / f"capture={name}", target / table / f"capture={name}")
        (target / MANIFEST_FOLDER).mkdir(exist_ok=True)
        shutil.copy(source / MANIFEST_FOLDER / f"{name}.json", target / MANIFEST_FOLDER)


def closed_rows(report: Path) -> dict[str, Counter[str]]:
    return {
        folder.name: Counter(
            json.dumps(row, default=str, sort_keys=True)
            for row in pq.read_table(folder).to_pylist()
        )
        for folder in (report / "tables").glob("closed_*")
    }


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("landed")
    for name, places in CUTS.items():
        land_cut(name, places, root / "lake", root)
    for name in WHOLE:
        land(read(name), name.partition(".")[0], root / "lake", root)
    return root / "lake"


def test_any_order_of_landing_gives_the_report_of_all(
    spark: Any, landed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(path.stem for path in (landed / MANIFEST_FOLDER).iterdir())
    chance = random.Random(7)
    chance.shuffle(names)
    lake, told = tmp_path / "lake", []
    for first, last in ((0, 2), (2, 5), (5, len(names))):
        hand_over(landed, lake, names[first:last])
        found = reported(spark, lake, tmp_path / "new", new=True, tell=told.append)
    whole = reported(spark, lake, tmp_path / "whole")
    assert differences(found, whole) == []
    assert whole["closing"]["total"]["captures_joined"] == 5
    assert closed_rows(tmp_path / "new") == closed_rows(tmp_path / "whole")
    assert told[0] == "captures read: 2 of 2" and len(told) == 3
