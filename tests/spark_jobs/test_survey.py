"""`report --new`: whatever lands in whatever order, in however many steps, is one full report."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

import pyarrow.parquet as pq

from dissector.errors import UsageError
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.schemas import TABLES
from tests.spark_jobs.cutting import land, land_cut, read
from tests.spark_jobs.test_report import differences, reported

# In parts that belong together, and whole; one producer's messages are in several of them.
CUTS = {"java-j24_unload.pcap": (203, 300), "java-j74_corrupt.pcap": (51,)}
WHOLE = ("cpp-c40_killed_Failover.pcap", "java-j23_errors.pcap")
SEED = 7


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


def of(name: str) -> str:
    """The sample that a capture is a part of."""
    return name.partition("-part")[0]


def names_of(lake: Path) -> list[str]:
    return sorted(path.stem for path in (lake / MANIFEST_FOLDER).iterdir())


@contextmanager
def out_of_reach(lake: Path, captures: Iterable[str]) -> Iterator[None]:
    """Files of these captures cannot be opened: they are not there."""
    moved = [(lake / table / f"capture={name}", lake / f"{table}-{name}")
             for name in captures for table in TABLES]  # fmt: skip
    for source, target in moved:
        source.rename(target)
    yield
    for source, target in moved:
        target.rename(source)


def test_any_order_of_landing_gives_the_report_of_all(
    spark: Any, landed: Path, tmp_path: Path
) -> None:
    names = names_of(landed)
    random.Random(SEED).shuffle(names)
    lake, told, found = tmp_path / "lake", [], {}
    for first, last in ((0, 2), (2, 5), (5, len(names))):
        fresh = {of(name) for name in names[first:last]}
        known = [name for name in names[:first] if of(name) not in fresh]
        hand_over(landed, lake, names[first:last])
        with out_of_reach(lake, known):
            found = reported(spark, lake, tmp_path / "new", new=True, tell=told.append)
        again = sum(1 for name in names[:first] if of(name) in fresh)
        more = f", {again} of them again" if again else ""
        assert told[-1] == f"captures read: {last - len(known)} of {last}{more}"
    whole = reported(spark, lake, tmp_path / "whole")
    assert differences(found, whole) == []
    assert whole["closing"]["total"]["captures_joined"] == 5
    assert closed_rows(tmp_path / "new") == closed_rows(tmp_path / "whole")
    # Nothing landed: nothing is read, whatever became of the files.
    with out_of_reach(lake, names):
        assert reported(spark, lake, tmp_path / "new", new=True, tell=told.append) == found
    assert told[-1].startswith("nothing landed")


def test_exact_percentiles_do_not_go_with_it(spark: Any, landed: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--exact"):
        reported(spark, landed, tmp_path / "out", new=True, exact=True)
    assert list(tmp_path.iterdir()) == []
