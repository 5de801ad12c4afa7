"""Captures joined by SQL have the rows that a replay of their frames gives, in every column."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dissector.joining import closing, stitching
from dissector.joining.closing import SCHEMAS
from dissector.lake.reader import open_lake
from tests.dissector.joining.cutting import (
    by_client,
    closed,
    cut_places,
    land,
    parts,
    planned,
    read,
)
from tests.dissector.lake.older_versions import as_version_2

# Sample, in how many parts, by a seed: acks, nacks, transactions, refusals, chunks, a killed
# consumer, resends, lost packets, ids that are used again, PRODUCER and its answer apart.
CUTS = (
    ("java-j24_unload.pcap", 3, 1),
    ("java-j12_nack.pcap", 2, 2),
    ("java-j61_txn_abort.pcap", 2, 3),
    ("../threads/t07-txn-ack-conflict.pcap", 3, 4),
    ("cpp-c40_killed_Shared.pcap", 2, 5),
    ("mut-loss1-java-j24_unload.pcap", 3, 6),
    ("node-flex.pcap", 2, 7),
    ("../pulsar/cpp-s15_errors.pcap", 3, 8),
    ("../cursus/go-transactions.pcap", 2, 9),
)
# What a replay does not read of frames, so that it is null after it.
NOT_REPLAYED = {"schema_version_hex"}


def landed(root: Path, contents: Sequence[bytes]) -> Path:
    for number, content in enumerate(contents):
        land(content, f"part{number}", root / "lake", root)
    return root / "lake"


def rows(table: pa.Table) -> Counter[str]:
    return Counter(
        str([(name, value) for name, value in row.items() if name not in NOT_REPLAYED])
        for row in table.to_pylist()
    )


def joined(lake: Path, folder: Path, *, is_small: bool = True) -> dict[str, pa.Table]:
    with open_lake(lake) as opened:
        plan = planned(opened)
        assert plan.groups
        return closed(opened, plan, folder, is_small=is_small)


def replayed(lake: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, pa.Table]:
    with monkeypatch.context() as patched:
        patched.setattr(closing, "ALONE", None)
        return joined(lake, folder)


def check(one: dict[str, pa.Table], other: dict[str, pa.Table]) -> None:
    for name in SCHEMAS:
        mine, theirs = rows(one[name]), rows(other[name])
        assert (mine - theirs, theirs - mine) == (Counter(), Counter()), name


@pytest.mark.parametrize(("name", "count", "seed"), CUTS)
def test_parts_of_a_capture(
    name: str, count: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read(name)
    lake = landed(tmp_path, parts(data, cut_places(data, count - 1, seed)))
    check(joined(lake, tmp_path / "new"), replayed(lake, tmp_path / "old", monkeypatch))


@pytest.mark.parametrize("name", ["cpp-c40_killed_Shared.pcap", "cpp-c40_killed_Failover.pcap"])
def test_captures_at_the_same_time_whose_own_parts_are_cut(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = by_client(read(name), lambda port: port % 3 > 0)
    pieces = [part for half in halves for part in parts(half, cut_places(half, 1, 1))]
    lake = landed(tmp_path, pieces)
    check(joined(lake, tmp_path / "new"), replayed(lake, tmp_path / "old", monkeypatch))


def test_what_is_planned_for_many_rows_is_the_same(tmp_path: Path) -> None:
    data = read("java-j61_txn_abort.pcap")
    lake = landed(tmp_path, parts(data, cut_places(data, 2, 5)))
    few, many = (joined(lake, tmp_path / str(is_few), is_small=is_few) for is_few in (True, False))
    for name in SCHEMAS:
        assert few[name].equals(many[name]), name


def test_captures_without_events_have_their_holes_of_notices(tmp_path: Path) -> None:
    data = read("mut-loss1-java-j24_unload.pcap")
    lake = landed(tmp_path, parts(data, cut_places(data, 2, 6)))
    new = joined(lake, tmp_path / "new")
    with open_lake(lake) as opened:
        first = opened.captures[0].capture_id
    check(joined(as_version_2(lake, first), tmp_path / "mixed"), new)
    check(joined(as_version_2(lake), tmp_path / "old"), new)


def test_every_step_is_statements_that_make_something() -> None:
    made: list[Any] = []
    for step in ("whole", *stitching.STEPS):
        for statement in stitching.statements(step):
            assert statement.startswith("CREATE ")
            made.append(statement.split("AS\n")[0].split(" AS ")[0])
    assert len(made) == len(set(made)) > 40
