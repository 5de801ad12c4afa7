"""Rows as Python values are what Arrow makes of them."""

import pytest

from dissector.dissection import Options
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.dissector.observed import CAPTURES
from tests.plain import plain_rows


@pytest.mark.parametrize(
    "name",
    ["pulsar-apache/java-j61_txn_abort.pcap", "cursus/go-group_rebalance_two_consumers.pcap"],
)
def test_they_are_those_of_arrow(name: str) -> None:
    (chain,) = chains([str(CAPTURES / name)]).chains
    tables = set()
    for block in dissect(chain, Options()):
        rows = arrow_batch(block)
        tables.add(block.table)
        assert plain_rows(rows) == rows.to_pylist()
        for one, other in zip(plain_rows(rows), rows.to_pylist(), strict=True):
            assert [*map(type, one.values())] == [*map(type, other.values())]
    assert {"frames", "exchanges", "deliveries", "capture_files"} <= tables
