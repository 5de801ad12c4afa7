"""Many small captures as one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dissector.blocks import Coded, TableBlock
from dissector.errors import UsageError
from dissector.lake.compact import compact
from dissector.lake.landing import INSTALLED, SHORTER, UNCHANGED, Landing
from dissector.lake.manifest import Manifest
from dissector.lake.reader import open_lake, verify
from dissector.lake.settings import SETTINGS
from dissector.schemas import TABLES
from tests.dissector.lake.landed import content, folder_of, land, tree


def all_rows(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row with the capture that it came from."""
    found = {}
    with open_lake(lake) as opened:
        assert verify(opened) == []
        for table in TABLES:
            rows = opened.table(table).to_pylist()
            for row in rows:
                assert row.pop("origin_capture") in (None, row["capture"])
            found[table] = sorted(rows, key=repr)
    return found


def group_of(lake: Path, patterns: Sequence[str] = ("*",)) -> Manifest:
    made = compact(lake, patterns)
    assert made.migrated == ()
    (group,) = made.groups
    return group


def test_rows_stay_and_say_where_they_came_from(tmp_path: Path) -> None:
    for size in (300, 400, 500, 600):
        land(tmp_path, f"n{size}", content(size))
    before = all_rows(tmp_path)
    first = group_of(tmp_path, ["c-n3*", "c-n4*"])
    assert first.capture_id.startswith("compact-") and len(first.replaces) == 2
    assert all_rows(tmp_path) == before
    second = group_of(tmp_path)
    assert len(second.replaces) == 4 and second.capture_id != first.capture_id
    assert all_rows(tmp_path) == before
    with open_lake(tmp_path) as lake:
        assert [capture.capture_id for capture in lake.captures] == [second.capture_id]
        assert lake.captures[0].replaces == second.replaces
        assert len(lake.part_paths("frames")) == 1


def test_large_groups_have_the_row_groups_and_ranges_of_landed_captures(tmp_path: Path) -> None:
    """Rows are cut anew: pages, row groups and lists do not end where those of captures did."""
    rows = SETTINGS.page_rows - 7
    for name in ("a", "b", "c"):
        with Landing(tmp_path, name) as landing:
            landing.digest.update(name.encode())
            landing.digest.end_file(name)
            numbers = np.arange(rows)
            lists: list[list[int] | None] = [None, [], [1, 2], [3]]
            landing.write(TableBlock("acks", rows, {
                "frame_no": numbers,
                "ts": numbers * 1000,
                "topic": Coded(numbers % 3 - 1, [b"x", b"y"]),
                "ack_set": lists * (rows // 4) + lists[: rows % 4],
            }))  # fmt: skip
            landing.write(TableBlock("capture_files", 1, {"packets": np.array([1])}))
            landing.commit({})
    with open_lake(tmp_path) as lake:
        before = lake.table("acks").drop(["origin_capture"])
    group = group_of(tmp_path)
    with open_lake(tmp_path) as lake:
        assert verify(lake) == []
        assert lake.table("acks").drop(["origin_capture"]).equals(before)
    (path,) = (folder_of(tmp_path, "acks", group.capture_id)).iterdir()
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sizes == [SETTINGS.row_group_rows, 3 * rows - SETTINGS.row_group_rows]
    first = metadata.row_group(0)
    found = {first.column(n).path_in_schema: first.column(n) for n in range(first.num_columns)}
    ids = [inside.capture_id for inside in group.replaces]
    assert (found["capture"].statistics.min, found["capture"].statistics.max) == (ids[0], ids[2])
    assert (found["frame_no"].statistics.min, found["frame_no"].statistics.max) == (0, rows - 1)
    assert group.settings == SETTINGS.as_json() and "zstd" in group.versions


def test_compacting_is_the_same_in_any_order_of_landing(tmp_path: Path) -> None:
    for lake, sizes in ((tmp_path / "x", (300, 400)), (tmp_path / "y", (400, 300))):
        for size in sizes:
            land(lake, f"n{size}", content(size))
        compact(lake)
    assert tree(tmp_path / "x") == tree(tmp_path / "y")


def test_landing_what_was_compacted_is_noticed(tmp_path: Path) -> None:
    land(tmp_path, "ring", content(700))
    land(tmp_path, "other", content(400))
    into = group_of(tmp_path).capture_id
    for size, outcome in ((700, UNCHANGED), (600, SHORTER), (900, INSTALLED)):
        landed = land(tmp_path, "ring", content(size))
        assert landed.outcome == outcome and landed.replaced == ()
        (sentence,) = landed.sentences
        assert outcome == SHORTER or into in sentence


def test_one_capture_is_nothing_to_compact(tmp_path: Path) -> None:
    land(tmp_path, "a", content(300))
    land(tmp_path, "b", content(301))
    with pytest.raises(UsageError, match="no two of the captures named"):
        compact(tmp_path, ["c-a*"])
    assert compact(tmp_path, most_bytes=10) == ((), ())
