"""What is kept beside a lake is a memory: right, or not there; never wrong and never in the way."""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.lake.cache import Cache, CachedRows, CachePartition
from dissector.lake.install import SUMS_FOLDER as SUMS

ONE, TWO, BOTH = (
    CachePartition("d1", ("a",)),
    CachePartition("d2", ("b",)),
    CachePartition("d12", ("a", "b")),
)


def made(folder: Path, rows: Mapping[str, Sequence[str]], name: str = "sends") -> Path:
    """A folder with a table of captures and numbers."""
    folder.mkdir(exist_ok=True)
    captures = [capture for capture, texts in rows.items() for _ in texts]
    values = [text for texts in rows.values() for text in texts]
    table = pa.table({"capture": pa.array(captures, pa.string()), "value": values})
    pq.write_table(table, folder / f"{name}.parquet")
    return folder


def values(sources: Sequence[CachedRows]) -> list[str]:
    """The rows that sources mean."""
    values = []
    for source in sources:
        for path in source.paths:
            for row in pq.read_table(path).to_pylist():
                if source.is_all or row["capture"] in source.captures:
                    values.append(row["value"])
    return sorted(values)


def again(tmp_path: Path) -> Cache:
    """The memory as the next run finds it."""
    number = sum(1 for _ in tmp_path.glob("work-*"))
    (tmp_path / f"work-{number}").mkdir()
    return Cache(tmp_path, tmp_path / f"work-{number}")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake in which two captures were counted together."""
    rows = made(tmp_path / "made", {"a": ["1"], "b": ["2", "3"]})
    assert again(tmp_path).add(rows, [ONE, TWO], {"sends": "q1"})
    return tmp_path


def test_what_was_kept_is_found_by_query_and_unit(lake: Path) -> None:
    sources, missing = again(lake).sources("sends", "q1", [ONE, TWO])
    assert values(sources) == ["1", "2", "3"] and not missing
    sources, missing = again(lake).sources("sends", "q1", [TWO])
    assert values(sources) == ["2", "3"] and not missing


def test_another_query_or_another_content_is_made_again(lake: Path) -> None:
    assert again(lake).sources("sends", "q2", [ONE]) == ([], [ONE])
    changed = ONE._replace(digest="d1, landed again")
    assert again(lake).sources("sends", "q1", [changed]) == ([], [changed])
    assert again(lake).sources("lags", "q1", [ONE]) == ([], [ONE])


def test_captures_that_came_together_later_are_made_again(lake: Path) -> None:
    assert again(lake).sources("sends", "q1", [BOTH]) == ([], [BOTH])
    rows = made(lake / "joined", {"a": ["4"]})
    again(lake).add(rows, [BOTH], {"sends": "q1"})
    sources, missing = again(lake).sources("sends", "q1", [BOTH])
    assert values(sources) == ["4"] and not missing


def the_file(lake: Path) -> Path:
    (found,) = (lake / SUMS).glob("*/sends.parquet")
    return found


def test_one_flipped_byte_is_noticed(lake: Path) -> None:
    data = bytearray(the_file(lake).read_bytes())
    for place in range(0, len(data), 37):
        flipped = data.copy()
        flipped[place] ^= 1
        the_file(lake).write_bytes(flipped)
        assert again(lake).sources("sends", "q1", [ONE]) == ([], [ONE])


def test_what_was_damaged_and_made_again_alike_is_whole(lake: Path) -> None:
    """The same rows have the same name: they must not be taken for those that are there."""
    the_file(lake).unlink()
    assert again(lake).add(lake / "made", [ONE, TWO], {"sends": "q1"})
    sources, missing = again(lake).sources("sends", "q1", [ONE, TWO])
    assert values(sources) == ["1", "2", "3"] and not missing
    assert len(list((lake / SUMS).iterdir())) == 1, "and nothing else is left"


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "index", "version", "folder"])
def test_damage_is_forgetting(lake: Path, damage: str) -> None:
    file = the_file(lake)
    index = file.with_name("index.json")
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "index":
        index.write_text("{", "utf-8")
    elif damage == "version":
        index.write_text(json.dumps(json.loads(index.read_text("utf-8")) | {"version": 99}))
    else:
        file.unlink()
        file.mkdir()
    assert again(lake).sources("sends", "q1", [ONE]) == ([], [ONE])


def test_an_index_leads_to_no_other_file(lake: Path) -> None:
    """A name in an index is a name in its batch, whoever wrote it."""
    secret = made(lake / "elsewhere", {"a": ["secret"]}) / "sends.parquet"
    index = the_file(lake).with_name("index.json")
    said = json.loads(index.read_text("utf-8"))
    (digest,) = said["tables"]["sends"]["files"].values()
    for name in ("../../elsewhere/sends.parquet", str(secret), "a/../../../elsewhere/x"):
        said["tables"]["sends"]["files"] = {name: digest}
        index.write_text(json.dumps(said), "utf-8")
        assert again(lake).sources("sends", "q1", [ONE]) == ([], [ONE])


def test_a_lake_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / SUMS).write_text("a file is in the way")
    rows = made(tmp_path / "made", {"a": ["1"]})
    assert not again(tmp_path).add(rows, [ONE], {"sends": "q1"})


def test_what_a_killed_run_left_is_removed(lake: Path) -> None:
    left = lake / SUMS / ".abc.123"
    left.mkdir()
    (left / "_lock").touch()
    again(lake).add(made(lake / "more", {"a": ["9"]}, "lags"), [ONE], {"lags": "q"})
    assert not left.exists()


def test_batches_of_captures_that_are_gone_are_forgotten(lake: Path) -> None:
    again(lake).forget({TWO.digest})
    assert again(lake).sources("sends", "q1", [TWO])[0]
    again(lake).forget({"another"})
    assert not any((lake / SUMS).glob("*/index.json"))


def test_a_batch_that_is_removed_meanwhile_can_still_be_read(lake: Path) -> None:
    sources, _ = again(lake).sources("sends", "q1", [ONE, TWO])
    again(lake).forget(())
    assert values(sources) == ["1", "2", "3"]


def test_rows_are_as_private_as_their_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again(tmp_path).add(made(tmp_path / "made", {"a": ["1"]}), [ONE], {"sends": "q1"})
    finally:
        os.umask(before)
    for path in (tmp_path / SUMS).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
