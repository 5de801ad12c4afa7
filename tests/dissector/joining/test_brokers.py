"""Brokers that began anew: topics, ledgers, entries and producers have equal names and numbers.

What clients of each saw is the judge: putting captures into one lake, or one file, adds nothing to
what each holds by itself.
"""

from pathlib import Path
from typing import Any

import pytest

from dissector.joining import survey
from dissector.joining.files import JoinSettings, digests, files_of
from dissector.lake.reader import Lake, open_lake
from tests.dissector.joining.cutting import closed, land, land_cut, planned, read

# Each set of one topic and ledger; sixteen ids of the last two were delivered in both.
SETS = (
    ("cpp-s03_batch_none.pcap", "tap-mirror-batch_none.pcap"),
    ("cpp-s08_nack.pcap", "tap-duplicated.pcap"),
    ("cpp-s30_latency_mix.pcap", "var-nano.pcap", "tap-caploss.pcap"),
)


def of(name: str) -> bytes:
    return read(f"../pulsar/{name}")


def redelivered(rows: Any) -> int:
    return sum(1 for row in rows.to_pylist() if row["is_redelivered"])


def in_deliveries(lake: Lake, plan: Any, folder: Path) -> int:
    """Redeliveries of a lake with its captures joined as a plan says."""
    own = lake.table("deliveries")
    names = plan.captures
    alone = [row["is_redelivered"] for row in own.to_pylist() if row["capture"] not in names]
    return sum(map(bool, alone)) + redelivered(closed(lake, plan, folder)["deliveries"])


@pytest.mark.parametrize("names", SETS, ids=lambda names: names[0])
def test_a_lake_has_the_redeliveries_of_its_captures(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    for name in names:
        land(of(name), name.partition(".")[0], tmp_path / "lake", tmp_path)
    with open_lake(tmp_path / "lake") as lake:
        known = survey.known(files_of(lake, frozenset(digests(lake.captures))), JoinSettings())
        keys = {
            (row["kind"], row["topic"], row["name"], row["ledger_id"])
            for row in known.presence.to_pylist()
        }
        assert len(keys) < known.presence.num_rows  # their numbers do overlap
        plan = planned(lake)
        assert plan.groups == () and plan.copies == ()


def test_what_belongs_together_is_joined_beside_what_only_has_its_numbers(tmp_path: Path) -> None:
    lake_folder = tmp_path / "lake"
    cut = land_cut("../pulsar/cpp-s08_nack.pcap", [40], lake_folder, tmp_path)
    land(of("tap-duplicated.pcap"), "other", lake_folder, tmp_path)
    land(of("cpp-s08_nack.pcap"), "whole", tmp_path / "whole", tmp_path)
    land(of("tap-duplicated.pcap"), "other", tmp_path / "whole", tmp_path)
    with open_lake(tmp_path / "whole") as lake:
        expected = redelivered(lake.table("deliveries"))
    with open_lake(lake_folder) as lake:
        plan = planned(lake)
        assert [set(group.captures) for group in plan.groups] == [set(cut.captures)]
        assert in_deliveries(lake, plan, tmp_path / "closed") == expected > 0


def test_two_brokers_in_one_capture_have_the_redeliveries_of_each(tmp_path: Path) -> None:
    first, second = of("cpp-s03_batch_none.pcap"), of("tap-mirror-batch_none.pcap")
    counts = []
    for number, data in enumerate((first, second, first + second[24:])):
        folder = tmp_path / str(number)
        land(data, f"part{number}", folder, tmp_path)
        with open_lake(folder) as lake:
            counts.append(redelivered(lake.table("deliveries")))
    assert counts[2] == counts[0] + counts[1]
