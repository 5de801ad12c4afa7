"""Reports say the same however traffic is split: some captures; `python -m tests.split` has all."""

from pathlib import Path

import pytest

from tests.split import WAYS, can_be, split

# Transactions that are aborted, in every way; messages that are asked for again, refusals on
# several connections, a group of Cursus.
SPLITS = [
    *(("java-j61_txn_abort.pcap", way) for way in WAYS),
    ("java-j12_nack.pcap", "cut"),
    ("java-j26_backlog_quota.pcap", "order"),
    ("../cursus/go-group_rebalance_two_consumers.pcap", "rotations"),
]


@pytest.mark.parametrize(("name", "way"), SPLITS)
def test_a_report_is_the_same_however_its_capture_is_split(
    name: str, way: str, tmp_path: Path
) -> None:
    assert can_be(way, name)
    assert split(name, way, 1, tmp_path) == []
