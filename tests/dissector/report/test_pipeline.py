"""A report reads what is new and remembers the rest: however a lake came to be, it is the same."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dissector.lake.cache import CachedRows
from dissector.lake.install import SUMS_FOLDER as SUMS
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.queries import catalogue as queries
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report.aggregation_cache import select_sources
from dissector.schemas import TABLES
from dissector.schemas.small_tables import NUMBER, TEXT, small_table
from tests import reports
from tests.dissector.lake.landed import folder_of
from tests.dissector.report.apart import Apart
from tests.reports import SOME_RULES, differences

pytestmark = pytest.mark.usefixtures("joined_once")

# As that of the fixture.
reported = partial(reports.reported, rules=SOME_RULES)
SEED = 7


def hand_over(source: Path, target: Path, captures: Iterable[str]) -> None:
    """What landing these captures does to a lake."""
    for name in captures:
        for table in TABLES:
            folder = folder_of(source, table, name)
            shutil.copytree(folder, target / folder.relative_to(source))
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


def kept_rows(lake: Path) -> list[Path]:
    """What is kept of captures, but for whole reports."""
    return sorted(path for path in (lake / SUMS).rglob("*") if "reports" not in path.parts)


@contextmanager
def out_of_reach(lake: Path, captures: Iterable[str]) -> Iterator[None]:
    """Files of these captures cannot be opened: they are not there."""
    moved = [(folder_of(lake, table, name), lake / f"{table}-{name}")
             for name in captures for table in TABLES]  # fmt: skip
    for source, target in moved:
        source.rename(target)
    try:
        yield
    finally:
        for source, target in moved:
            target.rename(source)


def test_any_order_of_landing_gives_the_report_of_all(apart: Apart, tmp_path: Path) -> None:
    names = names_of(apart.lake)
    random.Random(SEED).shuffle(names)
    lake, told = tmp_path / "lake", []
    found: dict[str, Any] = {}
    for first, last in ((0, 2), (2, 5), (5, len(names))):
        fresh = {of(name) for name in names[first:last]}
        known = [name for name in names[:first] if of(name) not in fresh]
        hand_over(apart.lake, lake, names[first:last])
        with out_of_reach(lake, known):
            found = reported(lake, tmp_path / "new", tell=told.append)
        assert told[-1] == f"captures read anew: {last - len(known)} of {last}"
    assert differences(found, apart.report) == []
    assert closed_rows(tmp_path / "new") == closed_rows(apart.folder)
    # Nothing landed: nothing is read, whatever became of the files.
    with out_of_reach(lake, names):
        assert reported(lake, tmp_path / "new", tell=told.append) == found
    assert told[-1] == f"captures read anew: 0 of {len(names)}"


def test_captures_that_leave_a_lake_leave_its_report(apart: Apart, tmp_path: Path) -> None:
    names = names_of(apart.lake)
    gone = [name for name in names if "j24_unload" in name]
    shutil.copytree(apart.lake, tmp_path / "lake")
    for name in gone:
        (tmp_path / "lake" / MANIFEST_FOLDER / f"{name}.json").unlink()
    later = reported(tmp_path / "lake", tmp_path / "later")
    hand_over(apart.lake, tmp_path / "anew", set(names) - set(gone))
    assert differences(later, reported(tmp_path / "anew", tmp_path / "other")) == []


def test_what_was_damaged_is_made_again(apart: Apart, tmp_path: Path) -> None:
    shutil.copytree(apart.lake, tmp_path / "lake")
    chance = random.Random(SEED)
    for file in sorted((tmp_path / "lake" / SUMS).rglob("*.parquet")):
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.unlink()
        file.write_bytes(data)
    told: list[str] = []
    for read in (len(names_of(apart.lake)), 0):  # and once again is enough
        report = reported(tmp_path / "lake", tmp_path / "report", tell=told.append)
        assert differences(report, apart.report) == []
        assert told[-1].startswith(f"captures read anew: {read} of")


def test_kept_rows_of_which_none_are_wanted_stand_beside_others(tmp_path: Path) -> None:
    """As where a part of what is known of captures is damaged, and the rest of it is not."""
    rows = tmp_path / "rows.parquet"
    pq.write_table(small_table([("a", 1), ("b", 2)], capture=TEXT, number=NUMBER), rows)
    wanted = [CachedRows((str(rows),), frozenset(names), False) for names in ((), ("b",), ())]
    with DuckdbEngine() as db:
        found = db.table(select_sources(wanted)).to_pylist()
    assert found == [{"capture": "b", "number": 2}]


def test_a_changed_query_alone_is_run_again(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(apart.lake, tmp_path / "lake")
    known = queries.catalogue()
    changed = known["transmits"]._replace(digest="changed")
    ran: list[str] = []
    monkeypatch.setattr(
        queries.Query, "per_capture", lambda self, was=queries.Query.per_capture: (
            ran.append(self.name), was(self))[1],
    )  # fmt: skip
    for module in ("aggregation_cache", "pipeline"):
        monkeypatch.setattr(
            f"dissector.report.{module}.catalogue", lambda: {**known, "transmits": changed}
        )
    assert differences(reported(tmp_path / "lake", tmp_path / "report"), apart.report) == []
    assert ran == ["transmits"]


def test_parts_of_a_lake_are_counted_anew_and_not_kept(apart: Apart, tmp_path: Path) -> None:
    before = kept_rows(apart.lake)
    topic = apart.report["send_latency"]["by_topic"][0]["topic"]
    report = reported(apart.lake, tmp_path / "report", topics=(topic,))
    assert {row["topic"] for row in report["send_latency"]["by_topic"]} == {topic}
    assert report["selection"]["topics"] == [topic]
    exact = reported(apart.lake, tmp_path / "report", exact=True)
    assert exact["send_latency"]["total"]["sends"] == apart.report["send_latency"]["total"]["sends"]
    assert kept_rows(apart.lake) == before


def test_many_batches_become_few(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissector.report.aggregation_cache.MAX_CACHE_BATCHES", 3)
    lake, names = tmp_path / "lake", names_of(apart.lake)
    for start in range(0, len(names), 4):
        hand_over(apart.lake, lake, names[start : start + 4])
        report = reported(lake, tmp_path / "report")
        assert len(list((lake / SUMS).glob("*/index.json"))) <= 3
    assert differences(report, apart.report) == []


def test_a_lake_that_cannot_be_written_is_reported_all_the_same(
    apart: Apart, tmp_path: Path
) -> None:
    hand_over(apart.lake, tmp_path / "lake", names_of(apart.lake))
    (tmp_path / "lake" / SUMS).write_text("in the way")
    assert differences(reported(tmp_path / "lake", tmp_path / "report"), apart.report) == []
