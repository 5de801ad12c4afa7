"""One batch that is acked in any way: the oracle, and captures that are cut and joined."""

import random
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from dissector.joining import stitching
from dissector.joining.closing import CLOSED
from dissector.joining.planning import parts_of
from dissector.lake.reader import open_lake
from tests.choosing import examples
from tests.dissector.joining.cutting import closed, land, parts, planned
from tests.dissector.joining.test_closing import rows_of
from tests.dissector.joining.test_increments import all_touched, closed_in_increments
from tests.dissector.joining.test_increments import rows_of as in_tables
from tests.hard.damage import Tap
from tests.hard.tape import capture
from tests.oracle import batches
from tests.oracle.batches import records
from tests.oracle.conversations import tables_of
from tests.oracle.facts import Oracle


@pytest.mark.parametrize("seed", range(examples(40, 4)))
def test_any_acks_of_a_batch_have_the_rows_of_the_oracle(seed: int) -> None:
    """Short conversations and long ones, in which acks lie dense."""
    content = capture(records(seed, 40, (12, 30, 80)[seed % 3]))
    oracle = Oracle(tables_of({"batches": (content, ())}))
    assert oracle.differences() == [] and oracle.rows("deliveries") > 60


@pytest.mark.parametrize("seed", range(examples(40, 4)))
def test_any_acks_of_a_batch_that_lost_packets_have_the_rows_of_the_oracle(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one connection: of several, one that waits at a hole comes late to what others say."""
    monkeypatch.setattr(batches, "TYPES", ("Exclusive",))
    monkeypatch.setattr(batches, "KINDS", [kind for kind in batches.KINDS if kind != "hang up"])
    content = capture(records(seed, 1, (12, 30, 80)[seed % 3]))
    content = Tap.read(content).without((0.03, 0.1)[seed % 2], seed).bytes()
    assert Oracle(tables_of({"batches": (content, ())})).differences() == []


@pytest.mark.parametrize("seed", range(examples(20, 2)))
def test_any_acks_of_a_batch_that_are_cut_have_the_rows_of_the_whole(
    seed: int, tmp_path: Path
) -> None:
    """Joined at once and in increments."""
    packets = records(1000 + seed, 30, (12, 40)[seed % 2])
    data = capture(packets)
    land(data, "whole", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        whole = {table: rows_of(lake.table(table)) for table in CLOSED}
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(len(packets) // 4, len(packets) - 1), chance.choice((1, 2))))
    for part, content in enumerate(parts(data, cuts)):
        land(content, f"part{part}", tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        plan = planned(lake)
        with patch.object(stitching, "leave_untouched", all_touched):
            tables = closed(lake, plan, tmp_path / "at-once")
        (group,) = parts_of(plan)
        assert closed_in_increments(lake, group, tmp_path / "increments", 1) == len(cuts) + 1
    for table in CLOSED:
        mine = rows_of(tables[table])
        assert (mine - whole[table], whole[table] - mine) == (Counter(), Counter()), table
    assert in_tables(tmp_path / "increments") == in_tables(tmp_path / "at-once")
