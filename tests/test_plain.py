"""Rows as Python values are what Arrow makes of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.blocks import TableBlock
from dissector.dissection import Options
from dissector.errors import InputError
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.dissector.observed import CAPTURES, CASES, CURSUS_CASES, Case, name_of
from tests.hard.cases import Case as HardCase
from tests.hard.cases import all_cases
from tests.plain import plain_rows, rows_of_block

ALL = Options(properties=True, payload_sha256=True, want_detail="all")


def blocks(path: str, options: Options) -> Iterator[TableBlock]:
    return iter(dissect(Chain((path,), "tap"), options))


def check(block: TableBlock) -> None:
    """Values and their types."""
    found, expected = rows_of_block(block), plain_rows(arrow_batch(block))
    assert found == expected
    for one, other in zip(found, expected, strict=True):
        assert [*map(type, one.values())] == [*map(type, other.values())]


@pytest.mark.parametrize(
    "name",
    ["pulsar-apache/java-j61_txn_abort.pcap", "cursus/go-group_rebalance_two_consumers.pcap"],
)
def test_they_are_those_of_arrow(name: str) -> None:
    tables = set()
    for block in blocks(str(CAPTURES / name), Options()):
        rows = arrow_batch(block)
        tables.add(block.table)
        assert plain_rows(rows) == rows.to_pylist()
        for one, other in zip(plain_rows(rows), rows.to_pylist(), strict=True):
            assert [*map(type, one.values())] == [*map(type, other.values())]
    assert {"frames", "exchanges", "deliveries", "capture_files"} <= tables


# Some of all kinds.
@pytest.mark.parametrize("case", [*CASES, *CURSUS_CASES][::4], ids=name_of)
def test_those_of_a_block_are_those_of_its_batch(case: Case) -> None:
    for block in blocks(str(case.path), ALL):
        check(block)


@pytest.mark.parametrize("case", all_cases()[::4], ids=lambda case: case.file_name)
def test_those_of_odd_blocks_are_those_of_their_batch(case: HardCase, tmp_path: Path) -> None:
    path = tmp_path / case.file_name
    path.write_bytes(case.make())
    try:
        for block in blocks(str(path), ALL):
            check(block)
    except InputError:
        pass  # what is no capture has no rows
