"""Lakes of schema version 1: read as they are, and written anew by `compact`."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dissector.cli.main import run
from dissector.lake.compact import compact
from dissector.lake.landing import INSTALLED, UNCHANGED
from dissector.lake.reader import Lake, open_lake, remove, verify
from dissector.queries.sandbox import sandbox_over
from dissector.schemas import SCHEMA_VERSION, TABLES
from tests.dissector.lake.landed import content, land, tree
from tests.dissector.lake.older_versions import as_old, as_version_1, as_version_2
from tests.dissector.lake.test_compact import all_rows
from tests.dissector.lake.test_install import Crash, crash_at, steps_to_be_killed_at
from tests.dissector.observed import CAPTURES
from tests.reports import reported

SIZES = (300, 400, 500)
LATENCY = ("send_latency",)


def lake_of(folder: Path, *old: int) -> Path:
    """A lake of three captures, some of them (by their size) of version 1."""
    ids = {size: land(folder, f"n{size}", content(size)).capture_id for size in SIZES}
    if old:
        as_version_1(folder, *(ids[size] for size in old))
    return folder


def folders(lake: Path) -> set[str]:
    return {path.name.partition("=")[0] for path in lake.glob("*/*=*")}


def in_order(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {table: sorted(of_table, key=repr) for table, of_table in rows.items()}


def opened(lake: Path) -> Lake:
    with open_lake(lake) as opened:
        return opened


@pytest.mark.parametrize("old", [SIZES, (400,), (300, 500)], ids=["all", "one", "two"])
def test_its_rows_are_read_and_stay_when_it_is_written_anew(
    tmp_path: Path, old: tuple[int, ...]
) -> None:
    new = lake_of(tmp_path / "new")
    ids = {c.capture_id for c in opened(new).captures if int(c.base_name[1:]) in old}
    rows = in_order(as_old(all_rows(new), ids))
    lake = lake_of(tmp_path / "lake", *old)
    assert folders(lake) == ({"capture"} if old == SIZES else {"capture", "day"})
    assert all_rows(lake) == rows
    alone, together = tmp_path / "alone", tmp_path / "together"
    shutil.copytree(lake, alone)
    shutil.copytree(lake, together)
    # Too large to be put together, and yet all of them are migrated.
    made = compact(alone, most_bytes=1)
    assert not made.groups and sorted(made.migrated) == sorted(
        c.capture_id for c in opened(lake).captures if c.schema_version == 1
    )
    assert [c.capture_id for c in opened(alone).captures] == [
        c.capture_id for c in opened(lake).captures
    ]
    assert {c.schema_version for c in opened(alone).captures} == {SCHEMA_VERSION}
    (group,) = compact(together).groups
    assert len(group.replaces) == 3
    for each in (alone, together):
        assert folders(each) == {"day"} and all_rows(each) == rows


def test_a_group_of_version_1_is_migrated_with_its_captures_names(tmp_path: Path) -> None:
    rows = all_rows(lake_of(tmp_path))
    rows = in_order(as_old(rows, {row["capture"] for row in rows["frames"]}))
    (group,) = compact(tmp_path).groups
    as_version_1(tmp_path)
    assert all_rows(tmp_path) == rows
    assert compact(tmp_path) == ((), (group.capture_id,))
    assert all_rows(tmp_path) == rows and folders(tmp_path) == {"day"}
    (found,) = opened(tmp_path).captures
    assert found.capture_id == group.capture_id and found.replaces == group.replaces


def test_landing_again_puts_this_version_in_its_place(tmp_path: Path) -> None:
    lake_of(tmp_path / "new")
    lake = lake_of(tmp_path / "lake", *SIZES)
    for size in SIZES:
        assert land(lake, f"n{size}", content(size)).outcome == INSTALLED
    assert tree(lake) == tree(tmp_path / "new") and folders(lake) == {"day"}
    assert land(lake, "n300", content(300)).outcome == UNCHANGED


def test_removing_takes_either_layout(tmp_path: Path) -> None:
    lake_of(tmp_path, 300, 400)
    remove(tmp_path, ["c-n3*", "c-n5*"])
    (left,) = opened(tmp_path).captures
    assert left.base_name == "n400" and verify(opened(tmp_path)) == []
    remove(tmp_path, ["*"])
    assert folders(tmp_path) == set()


def rows_of(lake: Path) -> list[dict[str, Any]]:
    """The frames of a lake that is whole."""
    found = opened(lake)
    assert verify(found) == [] and len(found.captures) == 1
    return found.table("frames").to_pylist()


def test_a_crash_while_it_is_written_anew_loses_nothing(tmp_path: Path) -> None:
    start = tmp_path / "start"
    land(start, "a", content(300))
    rows = rows_of(as_version_1(start))
    shutil.copytree(start, tmp_path / "wanted")
    for step in steps_to_be_killed_at(partial(compact, tmp_path / "wanted", most_bytes=1)):
        lake = tmp_path / f"lake{step}"
        shutil.copytree(start, lake)
        with crash_at(step):
            try:
                compact(lake, most_bytes=1)
                break
            except Crash:
                pass
        assert rows_of(lake) == rows
        shutil.rmtree(lake)
    assert folders(lake) == {"day"} and rows_of(lake) == rows
    assert step > 2 * len(TABLES)


def test_columns_that_came_since_are_null_in_lakes_that_are_mixed(tmp_path: Path) -> None:
    """Whichever capture's file comes first: DuckDB takes the columns of it."""
    sent = CAPTURES / "pulsar-apache" / "java-j01_plain.pcap"
    more = CAPTURES / "pulsar-apache" / "java-j12_nack.pcap"
    for old, new in ((sent, more), (more, sent)):
        lake = tmp_path / old.stem
        for path in (old, more, sent):
            assert run(["land", "-q", "--lake", str(lake), str(path)]) == 0
        (name,) = [c.capture_id for c in opened(lake).captures if old.stem in c.capture_id]
        as_version_2(lake, name)
        assert not list(verify(opened(lake)))
        by_client = reported(lake, tmp_path / f"{old.stem}-report", sections=LATENCY)
        since = by_client["send_latency"]["total"]["application_since"]
        sends = {sent: 100, more: 20}
        assert since == {"publish_time": sends[new], "first_send": sends[old]}
        with open_lake(lake) as each, sandbox_over(each) as sandbox:
            query = "SELECT count(publish_time_ms) AS n FROM exchanges"
            (batch,) = (one for answer in sandbox.answers(query) for one in answer.batches())
            assert batch.to_pydict() == {"n": [sends[new]]}
        assert compact(lake)
        assert {c.schema_version for c in opened(lake).captures} == {SCHEMA_VERSION}
        again = reported(lake, tmp_path / f"{old.stem}-again", sections=LATENCY)
        assert again["send_latency"] == by_client["send_latency"]
