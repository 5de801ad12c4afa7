"""Partitions of a lake: nothing is lost or read twice, and the report is that of one piece."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dissector.errors import InputError
from dissector.findings.querying import rule_queries
from dissector.lake.cache import CachePartition
from dissector.limits import MAX_PARTITION_ROWS
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report import partitions
from dissector.report.partitions import LEAST_ROWS, Partition, partitioned
from tests.dissector.report.apart import Apart
from tests.dissector.report.test_pipeline import hand_over, names_of, reported
from tests.reports import differences

pytestmark = pytest.mark.usefixtures("joined_once")


def manifest(rows: int, *names: str) -> Any:
    inside = [SimpleNamespace(capture_id=name) for name in names]
    return SimpleNamespace(files=[SimpleNamespace(rows=rows)], captures=lambda: inside)


@pytest.mark.parametrize("at_once", [1, 2, 7])
@pytest.mark.parametrize("seed", range(8))
def test_every_unit_is_in_one_partition_and_partitions_are_bounded(seed: int, at_once: int) -> None:
    chance = random.Random(seed)
    sizes = [int(10 ** chance.uniform(2, 7.8)) for _ in range(chance.randrange(1, 200))]
    lake = SimpleNamespace(captures=[manifest(rows, f"c{n}") for n, rows in enumerate(sizes)])
    cache_partitions = [CachePartition(f"d{n}", (f"c{n}",)) for n in range(len(sizes))]
    partitions = partitioned(
        chance.sample(cache_partitions, len(cache_partitions)), SimpleNamespace(lake=lake), at_once
    )
    assert Counter(
        cache_partition for _, some in partitions for cache_partition in some
    ) == Counter(cache_partitions)
    most = min(MAX_PARTITION_ROWS, max(LEAST_ROWS, -(-sum(sizes) // at_once)))
    for rows, some in partitions:
        assert rows == sum(sizes[int(cache_partition.captures[0][1:])] for cache_partition in some)
        assert rows <= most or len(some) == 1
    for (one, _), (other, _) in pairwise(partitions):
        assert one + other > most or max(one, other) > most // 2, "no share is needless"


def test_captures_of_one_compacted_file_are_read_together() -> None:
    lake = SimpleNamespace(captures=[
        manifest(900, "c1", "c5", "c9"), manifest(MAX_PARTITION_ROWS - 900, "c4"),
        manifest(300, "c2", "c3"),
    ])  # fmt: skip
    cache_partitions = [CachePartition(f"d{n}", (f"c{n}",)) for n in (9, 2, 1, 4, 3, 5)]
    partitions = partitioned(cache_partitions, SimpleNamespace(lake=lake), 1)
    assert [{each.captures[0] for each in some} for _, some in partitions] == [
        {"c1", "c4", "c5", "c9"}, {"c2", "c3"},
    ]  # fmt: skip


class Partitioned(DuckdbEngine):
    """An engine with partitions as small as units."""

    at_once = 10**6

    def each(self, function: Any, tasks: Any) -> list[Any]:
        made.extend(task for task in tasks if isinstance(task, Partition))
        return super().each(function, tasks)


made: list[Partition] = []


def test_a_report_of_partitions_is_that_of_one_piece(
    apart: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "LEAST_ROWS", 1)
    made.clear()
    hand_over(apart.lake, tmp_path / "lake", names_of(apart.lake))
    report = reported(tmp_path / "lake", tmp_path / "report", Partitioned)
    assert differences(report, apart.report) == []
    assert len(made) > 3
    # Rules read the rows of captures before they are joined, in a partition of their own.
    inside = Counter(
        (set(share.queries) <= set(rule_queries()), name)
        for share in made for name in share.tables.small["wanted"][0].to_pylist()
    )  # fmt: skip
    names = {name for _, name in inside}
    assert set(inside.values()) <= {1} and names <= set(names_of(apart.lake))
    assert 0 < len(names) <= len(names_of(apart.lake))


def test_a_task_that_runs_twice_writes_once(apart: Apart, tmp_path: Path) -> None:
    """As Spark's do that are tried again, or run twice by speculation."""
    made.clear()
    hand_over(apart.lake, tmp_path / "lake", names_of(apart.lake))
    queries = {"connections": "SELECT capture FROM connections"}

    class Twice(Partitioned):
        def each(self, function: Any, tasks: Any) -> list[Any]:
            if isinstance(tasks[0], Partition) and not found:
                share = tasks[0]._replace(folder=tmp_path / "out", queries=queries)
                for _ in range(2):
                    function(share)
                    found.append((tmp_path / "out" / "connections.parquet").stat().st_mtime_ns)
            return super().each(function, tasks)

    found: list[int] = []
    report = reported(tmp_path / "lake", tmp_path / "report", Twice)
    assert differences(report, apart.report) == []
    assert len(found) == 2 and found[0] == found[1]
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


@pytest.mark.parametrize("table", ["exchanges", "connections"])
def test_a_file_without_sense_is_an_error_of_input(
    apart: Apart, tmp_path: Path, table: str
) -> None:
    """Of a lake that is surveyed, joined and counted; its length and its marks are as they were."""
    hand_over(apart.lake, tmp_path / "lake", names_of(apart.lake))
    for file in (tmp_path / "lake" / table).rglob("*.parquet"):
        data = bytearray(file.read_bytes())
        data[4:-8] = bytes(byte ^ 0x5A for byte in data[4:-8])
        file.unlink()
        file.write_bytes(data)
    words = "cannot be read, dissector lake verify tells which"
    with pytest.raises(InputError, match=words) as told:
        reported(tmp_path / "lake", tmp_path / "report")
    assert "LINE" not in str(told.value) and "SELECT" not in str(told.value)


def test_what_is_kept_needs_no_engine(apart: Apart, tmp_path: Path) -> None:
    """So that Spark is not started for a report of what is known."""

    def engine(work: Path) -> Any:
        raise AssertionError("an engine was opened")

    hand_over(apart.lake, tmp_path / "lake", names_of(apart.lake))
    first = reported(tmp_path / "lake", tmp_path / "report")
    assert reported(tmp_path / "lake", tmp_path / "report", engine) == first
