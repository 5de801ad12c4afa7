"""No upkeep of a lake changes a key of its report, whatever is kept of it."""

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector.joining.files import digests
from dissector.lake.cache import Cache, CachePartition
from dissector.lake.compact import compact
from dissector.lake.install import SUMS_FOLDER
from dissector.lake.reader import open_lake
from dissector.lake.retention import keep
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import pipeline
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.joining.cutting import land_cut
from tests.dissector.lake.older_versions import as_version_1, as_version_2, as_version_3
from tests.dissector.lake.samples import SAMPLES, landed
from tests.dissector.observed import CAPTURES
from tests.dissector.report.apart import Apart
from tests.dissector.tap.test_service import rotated
from tests.reports import EVERY_RULE, SOME_RULES, differences, reported

pytestmark = pytest.mark.usefixtures("joined_once")

UNLOAD = str(CAPTURES / "pulsar-apache" / "java-j24_unload.pcap")


def rotations(lake: Path, _: Path) -> None:
    rotated(lake, UNLOAD, rotate_bytes=60_000)


def everything(lake: Path, folder: Path) -> None:
    """Of all kinds, in two groups and some that stay alone."""
    landed(lake)
    land_cut("java-j74_corrupt.pcap", (51,), lake, folder)
    compact(lake, ("c-java-j12*", "c-java-j74*"))
    rotations(lake, folder)


JOINED = "joined"  # as in `apart`
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "alone": lambda lake, _: landed(lake),
    "rotations": rotations,
    "everything": everything,
}


class Landed(NamedTuple):
    """A lake before it is compacted, and the folder of its report."""

    lake: Path
    report: Path


def rules_of(kind: str) -> frozenset[str]:
    """Findings are asked where captures of all kinds are: the queries of rules take a third."""
    return EVERY_RULE if kind == "everything" else SOME_RULES


@pytest.fixture(scope="module")
def landed_as(apart: Apart, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Landed]:
    """Gives the lake of a kind with its report, made once; tests work on copies of it."""

    @cache
    def make(kind: str) -> Landed:
        if kind == JOINED:
            return Landed(apart.lake, apart.folder)
        folder = tmp_path_factory.mktemp(kind)
        KINDS[kind](folder / "lake", folder)
        reported(folder / "lake", folder / "before", rules=rules_of(kind))
        return Landed(folder / "lake", folder / "before")

    return make


def unkept(lake: Path, work: Path, rules: frozenset[str]) -> dict[str, Any]:
    """A report beside which nothing is kept."""
    work.mkdir()
    scope = pipeline.ALL._replace(rules=rules)
    with open_lake(lake) as opened:
        engine = partial(DuckdbEngine, threads=1)
        return pipeline.make_report(opened, work, engine, scope, has_memory=False).report


WHOLE, HALF = ("*",), ("*[02468ace]",)
# Everything is compacted in part as it is, and has captures of all kinds in one group.
WAYS = [("everything", WHOLE), (JOINED, HALF), ("rotations", HALF)]
if LOOKS_AT_ALL:
    WAYS += [("alone", HALF), *((kind, WHOLE) for kind in (JOINED, *KINDS) if kind != "everything")]


@pytest.mark.parametrize(
    ("kind", "patterns"), WAYS, ids=lambda value: {WHOLE: "all", HALF: "half"}.get(value, value)
)
def test_a_report_says_the_same_before_and_after(
    kind: str, patterns: Sequence[str], landed_as: Callable[[str], Landed], tmp_path: Path
) -> None:
    landed, lake, rules = landed_as(kind), tmp_path / "lake", rules_of(kind)
    shutil.copytree(landed.lake, lake)
    assert compact(lake, patterns).groups
    after = {
        "with what was kept before": reported(lake, tmp_path / "kept", rules=rules),
        "with what was kept after": reported(lake, tmp_path / "again", rules=rules),
        "with nothing kept": unkept(lake, tmp_path / "work", rules),
    }
    shutil.rmtree(lake / SUMS_FOLDER)
    after["with all made again"] = reported(lake, tmp_path / "new", rules=rules)
    before = json.loads((landed.report / "report.json").read_text("utf-8"))
    for name, found in after.items():
        assert differences(found, before) == [], name
    folders = (landed.report, tmp_path / "kept", tmp_path / "new")
    whole = [(folder / "report.json").read_bytes() for folder in folders]
    assert whole[0] == whole[1] == whole[2]
    assert before["coverage"]["total"]["captures"] > 0


def test_a_report_says_the_same_of_a_lake_that_moves_to_days(
    landed_as: Callable[[str], Landed], tmp_path: Path
) -> None:
    """Nothing is made again of captures that were only moved, put together or landed again."""
    landed, lake, rules = landed_as("alone"), tmp_path / "lake", rules_of("alone")
    before = json.loads((landed.report / "report.json").read_text("utf-8"))
    shutil.copytree(landed.lake, lake)
    as_version_3(lake)
    assert differences(reported(lake, tmp_path / "old", rules=rules), before) == []
    batches = set((lake / SUMS_FOLDER).iterdir())
    compact(lake)
    assert not list(lake.glob("frames/landing=*"))
    assert differences(reported(lake, tmp_path / "moved", rules=rules), before) == []
    assert set((lake / SUMS_FOLDER).iterdir()) == batches, "all was found"
    KINDS["alone"](lake, tmp_path)
    keep(lake, 0)
    assert differences(reported(lake, tmp_path / "again", rules=rules), before) == []
    assert set((lake / SUMS_FOLDER).iterdir()) == batches


def publish_it(lake: Path) -> None:
    from tests.dissector.lake.published import READERS, published  # skips without the extra

    for reader in READERS.values():
        assert published(lake, reader)["capture_files"].files


STEPS: dict[str, Callable[[Path], object]] = {
    "published": publish_it,
    "nothing removed": lambda lake: keep(lake, 0),
    "landed again": landed,
    "compacted": compact,
    "published again": publish_it,
}


LAYOUTS: list[Callable[[Path], Path] | None] = [None, as_version_2]
if LOOKS_AT_ALL:
    LAYOUTS += [as_version_3, as_version_1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_report_says_the_same_behind_each_step_of_upkeep(
    layout: Callable[[Path], Path] | None, landed_as: Callable[[str], Landed], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(landed_as("alone").lake, lake)
    if layout:
        layout(lake)
        shutil.rmtree(lake / SUMS_FOLDER)
    steps = dict(STEPS)
    if layout in (as_version_1, as_version_2):
        del steps["landed again"]  # their columns are more then, and the report knows more
    if layout is as_version_1:
        del steps["published"]  # its files name no capture, and are in no table
    before = reported(lake, tmp_path / "before", rules=SOME_RULES)
    whole = (tmp_path / "before" / "report.json").read_bytes()
    for name, step in steps.items():
        step(lake)
        after = reported(lake, tmp_path / name, rules=SOME_RULES)
        assert differences(after, before) == [], name
        assert (tmp_path / name / "report.json").read_bytes() == whole, name
    assert before["coverage"]["total"]["captures"] == len(SAMPLES)


def test_captures_of_one_group_have_digests_of_their_own(tmp_path: Path) -> None:
    lake = landed(tmp_path / "lake")
    compact(lake)
    with open_lake(lake) as opened:
        digest = digests(opened.captures)
    assert len(digest) == len(set(digest.values())) == 6


def test_two_units_of_one_digest_are_refused(tmp_path: Path) -> None:
    """Whichever was found would stand for both."""
    cache_partitions = [CachePartition("d", ("c-one",)), CachePartition("d", ("c-other",))]
    with pytest.raises(ValueError, match="c-one and c-other have one digest"):
        Cache(tmp_path, tmp_path).sources("sends", "query", cache_partitions)
    with pytest.raises(ValueError, match="c-one and c-other have one digest"):
        Cache(tmp_path, tmp_path).add(tmp_path, cache_partitions, {})
