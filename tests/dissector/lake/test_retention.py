"""Days of a lake: what lies where, what is put together, what goes; killed at any step."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dissector.blocks import TableBlock
from dissector.cli.main import run
from dissector.joining.files import digests
from dissector.lake import manifests, partitions, retention
from dissector.lake.compact import compact
from dissector.lake.landing import Landing
from dissector.lake.locks import shared_lock
from dissector.lake.manifest import Manifest
from dissector.lake.manifests import crowded_days
from dissector.lake.queries import VIEW
from dissector.lake.reader import open_lake, remove, verify
from dissector.lake.retention import compact_crowded, cutoff_ns, keep
from dissector.limits import MAX_DAY_LANDINGS
from dissector.schemas import SCHEMA_VERSION, TABLES
from tests.dissector.lake.landed import content, land, tree
from tests.dissector.lake.older_versions import as_version_3
from tests.dissector.lake.test_compact import all_rows
from tests.dissector.lake.test_install import steps_to_be_killed_at
from tests.dissector.lake.test_reader import ended_without_a_crash_at
from tests.dissector.schemas.made import made_block

HOUR = 3_600_000_000_000
JANUARY = 1_769_817_600_000_000_000  # 2026-01-31T00:00Z


def land_at(lake: Path, name: str, first: float | None, last: float = 0.0, rows: int = 8) -> str:
    """Land a capture; first, last: hours since midnight of the 31st of January."""
    with Landing(lake, name) as landing:
        landing.digest.update(name.encode())
        landing.digest.end_file(f"{name}.pcap")
        landing.write(made_block("frames", rows, len(name)))
        span: dict[str, Any] = {"packets": np.array([rows])}
        if first is not None:
            times = (first, max(first, last))
            for column, hours in zip(("first_ts_ns", "last_ts_ns"), times, strict=True):
                span[column] = np.array([JANUARY + int(hours * HOUR)])
        landing.write(TableBlock("capture_files", 1, span))
        return landing.commit({}).capture_id


def captures(lake: Path) -> tuple[Manifest, ...]:
    with open_lake(lake) as opened:
        assert verify(opened) == []
        return opened.captures


def days_of(lake: Path) -> dict[str, int]:
    """Landings by day, the same in each table."""
    found = {
        table: {path.name: len(list(path.iterdir())) for path in (lake / table).glob("day=*")}
        for table in TABLES
    }
    (days,) = {tuple(sorted(each.items())) for each in found.values()}
    return {name.removeprefix("day="): count for name, count in days}


def test_captures_lie_in_the_day_of_their_first_packet(tmp_path: Path) -> None:
    land_at(tmp_path, "midnight", 0)
    land_at(tmp_path, "over", 23.9, 24.5)
    land_at(tmp_path, "before", -0.001)
    land_at(tmp_path, "empty", None)
    assert days_of(tmp_path) == {"2026-01-30": 1, "2026-01-31": 2, partitions.NO_DAY: 1}
    assert len(captures(tmp_path)) == 4
    # Readers see the day as a column, and nothing where there was no packet.
    duckdb.sql(VIEW.format(table="capture_files", lake=tmp_path))
    rows = duckdb.sql("select day, count(*) from capture_files group by all order by all")
    days = [(str(day) if day else None, count) for day, count in rows.fetchall()]
    assert days == [("2026-01-30", 1), ("2026-01-31", 2), (None, 1)]
    text = duckdb.sql(
        "explain analyze select capture from capture_files where day = date '2026-01-30'"
    ).fetchall()[0][1]
    assert "Total Files Read: 1" in text
    duckdb.sql("drop view capture_files")


@pytest.mark.parametrize("ns", [0, -1, JANUARY, JANUARY - 1, 2**63 - 1, -(2**63) + 1])
def test_every_time_has_a_day(ns: int) -> None:
    day = partitions.day_of(ns)
    year, month, of_month = map(int, day.split("-"))
    first = int(datetime(year, month, of_month, tzinfo=UTC).timestamp()) * 10**9
    assert first <= ns < first + 24 * HOUR
    assert partitions.is_partition(f"day={day}/landing=c-x")


@pytest.mark.parametrize(
    "text", ["", "x", "landing=", "../landing=x", "day=1/x=y", "day=1/landing=x/y", "/landing=x",
             "day=1/landing=a\0", "day=a/b/landing=x", "day=1/../landing=x"],
)  # fmt: skip
def test_what_is_no_place_is_refused(text: str) -> None:
    """What a list of a stage names is deleted."""
    assert not partitions.is_partition(text)


def test_groups_are_of_one_day_and_rows_stay(tmp_path: Path) -> None:
    names = [(f"n{hour}", hour) for hour in (-30, -25, -20, 1, 2, 23, 25)]
    for name, hour in names:
        land_at(tmp_path, name, hour, hour + 3)
    before, kept = all_rows(tmp_path), digests(captures(tmp_path))
    made = compact(tmp_path)
    assert [len(group.replaces) for group in made.groups] == [2, 3] and made.migrated == ()
    assert days_of(tmp_path) == dict.fromkeys(
        ("2026-01-29", "2026-01-30", "2026-01-31", "2026-02-01"), 1
    )
    assert all_rows(tmp_path) == before
    assert digests(captures(tmp_path)) == kept, "what was kept of captures serves on"
    land_at(tmp_path, "later", 5)
    assert len(compact(tmp_path).groups) == 1
    after = digests(captures(tmp_path))
    assert {name: after[name] for name in kept} == kept and len(after) == len(kept) + 1


def test_lakes_without_days_are_read_and_move_to_days(tmp_path: Path) -> None:
    for name, hour in (("a", -3), ("b", 1), ("c", 2)):
        land_at(tmp_path, name, hour)
    before, kept = all_rows(tmp_path), digests(captures(tmp_path))
    as_version_3(tmp_path)
    assert days_of(tmp_path) == {} and all_rows(tmp_path) == before
    old = digests(captures(tmp_path))
    assert old.keys() == kept.keys()
    land_at(tmp_path, "d", 3)
    assert days_of(tmp_path) == {"2026-01-31": 1} and len(captures(tmp_path)) == 4
    made = compact(tmp_path)
    assert len(made.migrated) == 1 and [len(group.replaces) for group in made.groups] == [3]
    assert days_of(tmp_path) == {"2026-01-30": 1, "2026-01-31": 1}
    assert list(tmp_path.glob("*/landing=*")) == []
    assert {each.schema_version for each in captures(tmp_path)} == {SCHEMA_VERSION}
    new = digests(captures(tmp_path))
    assert {name: new[name] for name in old} == old
    remove(tmp_path, ["c-d-*", "compact-*"])
    assert {row["capture"] for row in all_rows(tmp_path)["frames"]} <= {made.migrated[0]}


def test_an_old_group_of_several_days_stays_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, hour in (("a", -3), ("b", 1), ("c", -4), ("d", -5)):
        land_at(tmp_path, name, hour, hour + 1)
    with monkeypatch.context() as before_days:
        as_version_3(tmp_path)
        before_days.setattr(partitions, "day_of", lambda _: "2026-01-30")
        (old,) = compact(tmp_path, ["c-a-*", "c-b-*"]).groups
        as_version_3(tmp_path, old.capture_id)
    before, kept = all_rows(tmp_path), digests(captures(tmp_path))
    made = compact(tmp_path)
    assert made.migrated == (old.capture_id,)
    assert [len(group.replaces) for group in made.groups] == [2]
    assert days_of(tmp_path) == {"2026-01-30": 2}
    assert all_rows(tmp_path) == before and digests(captures(tmp_path)) == kept
    assert keep(tmp_path, JANUARY).gone == ()
    assert len(keep(tmp_path, JANUARY + 3 * HOUR).gone) == 2


def test_whole_days_go_and_one_that_is_not_over_stays(tmp_path: Path) -> None:
    ids = {
        name: land_at(tmp_path, name, first, last)
        for name, first, last in (
            ("old", -50, -49), ("older", -80, 0), ("beside", -79, -78), ("new", 1, 2),
            ("empty", None, 0),
        )
    }  # fmt: skip
    done = keep(tmp_path, JANUARY)
    assert done.gone == (ids["old"],)
    (note,) = done.notes
    assert note == f"2026-01-27 stays: its capture {ids['older']} ends on 2026-01-31"
    done = keep(tmp_path, JANUARY + 1)
    assert set(done.gone) == {ids["older"], ids["beside"]} and done.notes == ()
    assert {each.capture_id for each in captures(tmp_path)} == {ids["new"], ids["empty"]}
    assert days_of(tmp_path) == {"2026-01-31": 1, partitions.NO_DAY: 1}
    assert keep(tmp_path, JANUARY).gone == ()


def test_the_last_days_begin_at_a_midnight() -> None:
    noon = (JANUARY + 12 * HOUR) // 10**9
    assert cutoff_ns(1, noon) == JANUARY
    assert cutoff_ns(30, noon) == JANUARY - 29 * 24 * HOUR
    assert cutoff_ns(1, JANUARY // 10**9) == JANUARY


def test_keep_and_rm_by_days_do_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.time", lambda: (JANUARY + 12 * HOUR) / 10**9)
    for command in (["keep", "{}", "2d"], ["rm", "{}", "--before", "2d"]):
        lake = tmp_path / command[0]
        ids = [land_at(lake, f"n{-hour}", -hour, 1 - hour) for hour in (100, 50, 20)]
        assert run(["lake", *(part.format(lake) for part in command)]) == 0
        assert capsys.readouterr().out.split() == sorted(ids[:2])
        assert [each.capture_id for each in captures(lake)] == ids[2:]
    for odd in ("0d", "-1d", "30", "d", "1000000d"):
        assert run(["lake", "keep", str(tmp_path / "keep"), "--", odd]) == 1
    assert "no number of days" in capsys.readouterr().err
    assert run(["lake", "rm", str(lake), "c-*", "--before", "2d"]) == 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Days are crowded with few landings."""
    for module in (manifests, retention):
        monkeypatch.setattr(module, "MAX_DAY_LANDINGS", 6)
    return 6


def test_a_crowded_day_is_put_together_but_not_what_is_large(tmp_path: Path, few: int) -> None:
    land_at(tmp_path, "large", 1, rows=4000)
    for number in range(few - 1):
        land_at(tmp_path, f"n{number}", 2 + number)
    land_at(tmp_path, "other-day", 30)
    assert crowded_days(tmp_path) == [] and compact_crowded(tmp_path).groups == ()
    land_at(tmp_path, "one-more", 12)
    before = all_rows(tmp_path)
    assert crowded_days(tmp_path) == ["2026-01-31"]
    assert compact_crowded(tmp_path, ["2026-02-01"]).groups == ()
    with shared_lock(tmp_path):
        assert compact_crowded(tmp_path).groups == (), "who reads is not waited for"
    (group,) = compact_crowded(tmp_path).groups
    assert len(group.replaces) == few and all_rows(tmp_path) == before
    assert days_of(tmp_path) == {"2026-01-31": 2, "2026-02-01": 1}
    assert not (tmp_path / "_tmp").exists() and compact_crowded(tmp_path).groups == ()


def test_rows_are_written_anew_a_few_times_however_many_captures_come(
    tmp_path: Path, few: int
) -> None:
    written = 0
    for number in range(60):
        land_at(tmp_path, f"n{number:03}", number / 10)
        written += sum(len(group.replaces) for group in compact_crowded(tmp_path).groups)
    assert sum(len(each.captures()) for each in captures(tmp_path)) == 60
    assert days_of(tmp_path)["2026-01-31"] <= 2 * few
    assert written < 60 * 3


def test_upkeep_is_a_process_of_its_own(tmp_path: Path) -> None:
    for number in range(MAX_DAY_LANDINGS + 1):
        land_at(tmp_path, f"n{number}", number / 10)
    run_upkeep = [sys.executable, "-m", "dissector.lake.retention", str(tmp_path)]
    subprocess.run(run_upkeep, check=True)
    assert [len(each.replaces) for each in captures(tmp_path)] == [MAX_DAY_LANDINGS + 1]
    subprocess.run([*run_upkeep, "30"], check=True)
    assert captures(tmp_path) == ()
    shutil.rmtree(tmp_path / "_manifest")
    failed = subprocess.run([*run_upkeep[:3], str(tmp_path / "none"), "3"], capture_output=True)
    assert failed.returncode == 1 and b"is not a lake" in failed.stderr


STEPS: dict[str, Callable[[Path], object]] = {
    "compact": compact,
    "keep": partial(keep, before_ns=JANUARY),
    "rm": partial(remove, patterns=["c-n1-*", "c-n30-*"]),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("is_old", [False, True], ids=["days", "no-days"])
def test_what_is_killed_at_any_step_is_done_or_was_not_begun(
    tmp_path: Path, name: str, is_old: bool
) -> None:
    """Of several groups of one compaction, each is."""
    start, wanted = tmp_path / "start", tmp_path / "wanted"
    for hour in (-30, -29, 1, 2):
        land_at(start, f"n{abs(hour)}", hour, hour + 1)
    if is_old:
        as_version_3(start)
    shutil.copytree(start, wanted)
    steps = steps_to_be_killed_at(partial(STEPS[name], wanted))
    rows = [all_rows(start), all_rows(wanted)]
    trees = [tree(start), tree(wanted)]
    seen = set()
    for step in steps:
        lake = tmp_path / f"lake{step}"
        shutil.copytree(start, lake)
        if ended_without_a_crash_at(step, partial(STEPS[name], lake)):
            break
        captures(lake)  # which opens it, and verifies it
        left = tree(lake)
        if left not in trees:  # else the rows are theirs, too
            assert name == "compact" and all_rows(lake) in rows
        seen.add(left == trees[1])
        shutil.rmtree(lake)
    assert tree(lake) == trees[1] and seen == {False, True} and step > 15


def test_a_linked_day_is_not_followed(tmp_path: Path) -> None:
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    name = land_at(lake, "a", 1)
    day = lake / "frames" / "day=2026-01-31"
    day.rename(elsewhere)
    day.symlink_to(elsewhere)
    before = tree(elsewhere)
    with open_lake(lake) as opened:
        assert {problem.text.split(":")[0] for problem in verify(opened)} == {"a link"}
        with pytest.raises(Exception, match="a link"):
            opened.part_paths("frames")
    assert remove(lake, [name]).gone == (name,)
    assert not os.path.lexists(day) and tree(elsewhere) == before


def test_ready_stages_of_a_program_before_days_are_finished(tmp_path: Path) -> None:
    names: Sequence[str] = [land(tmp_path, name, content(300 + n)).capture_id
                            for n, name in enumerate("ab")]  # fmt: skip
    as_version_3(tmp_path)
    stage = tmp_path / "_tmp" / "rm.0123.ready"
    stage.mkdir(parents=True)
    (stage / "replaces.json").write_text(f'["{names[0]}"]')
    assert [each.capture_id for each in captures(tmp_path)] == [names[1]]
    assert list(tmp_path.glob(f"*/landing={names[0]}")) == []
