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
from tests.spark_jobs.conftest import Apart
from tests.spark_jobs.test_report import differences, reported

SEED = 7


def hand_over(source: Path, target: Path, captures: Iterable[str]) -> None:
    """What landing these captures does to a lake."""
    for name in captures:
        for table in TABLES:
            (target / table).mkdir(parents=True, exist_ok=True)
            shutil.copytree(source / table / f"landing={name}", target / table / f"landing={name}")
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


def of(name: str) -> str:
    """The sample that a capture is a part of."""
    return name.partition("-part")[0]


def names_of(lake: Path) -> list[str]:
    return sorted(path.stem for path in (lake / MANIFEST_FOLDER).iterdir())


@contextmanager
def out_of_reach(lake: Path, captures: Iterable[str]) -> Iterator[None]:
    """Files of these captures cannot be opened: they are not there."""
    moved = [(lake / table / f"landing={name}", lake / f"{table}-{name}")
             for name in captures for table in TABLES]  # fmt: skip
    for source, target in moved:
        source.rename(target)
    yield
    for source, target in moved:
        target.rename(source)


def test_any_order_of_landing_gives_the_report_of_all(
    spark: Any, apart: Apart, tmp_path: Path
) -> None:
    names = names_of(apart.lake)
    random.Random(SEED).shuffle(names)
    lake, told, found = tmp_path / "lake", [], {}
    for first, last in ((0, 2), (2, 5), (5, len(names))):
        fresh = {of(name) for name in names[first:last]}
        known = [name for name in names[:first] if of(name) not in fresh]
        hand_over(apart.lake, lake, names[first:last])
        with out_of_reach(lake, known):
            found = reported(spark, lake, tmp_path / "new", new=True, tell=told.append)
        again = sum(1 for name in names[:first] if of(name) in fresh)
        more = f", {again} of them again" if again else ""
        assert told[-1] == f"captures read: {last - len(known)} of {last}{more}"
    assert differences(found, apart.report) == []
    assert closed_rows(tmp_path / "new") == closed_rows(apart.folder)
    # Nothing landed: nothing is read, whatever became of the files.
    with out_of_reach(lake, names):
        assert reported(spark, lake, tmp_path / "new", new=True, tell=told.append) == found
    assert told[-1].startswith("nothing landed")


def test_exact_percentiles_do_not_go_with_it(spark: Any, apart: Apart, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--exact"):
        reported(spark, apart.lake, tmp_path / "out", new=True, exact=True)
    assert list(tmp_path.iterdir()) == []
