"""Compacting a lake changes no key of its report, whatever is kept of it."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dissector.joining.files import digests
from dissector.lake.cache import Cache, CachePartition
from dissector.lake.compact import compact
from dissector.lake.install import SUMS_FOLDER
from dissector.lake.reader import open_lake
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import pipeline
from tests.dissector.joining.cutting import land_cut
from tests.dissector.lake.samples import landed
from tests.dissector.observed import CAPTURES
from tests.dissector.report.apart import land_apart
from tests.dissector.tap.test_service import rotated
from tests.reports import differences, reported

UNLOAD = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")


def rotations(lake: Path, _: Path) -> None:
    rotated(lake, UNLOAD, rotate_bytes=60_000)


def everything(lake: Path, folder: Path) -> None:
    """Of all kinds, in two groups and some that stay alone."""
    landed(lake)
    land_cut("java-j74_corrupt.pcap", (51,), lake, folder)
    compact(lake, ("c-java-j12*", "c-java-j74*"))
    rotations(lake, folder)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "alone": lambda lake, _: landed(lake),
    "joined": land_apart,
    "rotations": rotations,
    "everything": everything,
}


def unkept(lake: Path, work: Path) -> dict[str, Any]:
    """A report beside which nothing is kept."""
    work.mkdir()
    with open_lake(lake) as opened:
        engine = partial(DuckdbEngine, threads=1)
        return pipeline.make_report(opened, work, engine, pipeline.ALL, has_memory=False).report


@pytest.mark.parametrize("patterns", [("*",), ("*[02468ace]",)], ids=["all", "half"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_says_the_same_before_and_after(
    kind: str, patterns: Sequence[str], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    KINDS[kind](lake, tmp_path)
    if kind == "everything" and patterns != ("*",):
        pytest.skip("it is compacted in part as it is")
    before = reported(lake, tmp_path / "before")
    assert compact(lake, patterns).group is not None
    after = {
        "with what was kept before": reported(lake, tmp_path / "kept"),
        "with what was kept after": reported(lake, tmp_path / "again"),
        "with nothing kept": unkept(lake, tmp_path / "work"),
    }
    shutil.rmtree(lake / SUMS_FOLDER)
    after["with all made again"] = reported(lake, tmp_path / "new")
    for name, found in after.items():
        assert differences(found, before) == [], name
    whole = [(tmp_path / name / "report.json").read_bytes() for name in ("before", "kept", "new")]
    assert whole[0] == whole[1] == whole[2]
    assert before["coverage"]["total"]["captures"] > 0


def test_captures_of_one_group_have_digests_of_their_own(tmp_path: Path) -> None:
    lake = landed(tmp_path / "lake")
    compact(lake)
    with open_lake(lake) as opened:
        found = digests(opened.captures)
    assert len(found) == len(set(found.values())) == 6


def test_two_units_of_one_digest_are_refused(tmp_path: Path) -> None:
    """Whichever was found would stand for both."""
    cache_partitions = [CachePartition("d", ("c-one",)), CachePartition("d", ("c-other",))]
    with pytest.raises(ValueError, match="c-one and c-other have one digest"):
        Cache(tmp_path, tmp_path).sources("sends", "query", cache_partitions)
    with pytest.raises(ValueError, match="c-one and c-other have one digest"):
        Cache(tmp_path, tmp_path).add(tmp_path, cache_partitions, {})
