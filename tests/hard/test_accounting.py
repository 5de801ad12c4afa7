"""Accounting closes: on every capture of the suite, on damaged copies, in tables and reports."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dissector.blocks import TableBlock
from dissector.dissection import Options
from dissector.errors import InputError
from dissector.report.summary import TABLES, Summary
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.accounting import check, check_report
from tests.dissector.observed import CASES, name_of
from tests.dissector.observed import Case as Sample
from tests.hard.cases import Case, all_cases
from tests.hard.scratches import scratched
from tests.hard.tape import Tables

DAMAGED_COPIES = 3
each_case = pytest.mark.parametrize("case", all_cases(), ids=lambda each: each.file_name)
each_sample = pytest.mark.parametrize("sample", CASES, ids=name_of)


def blocks(data: bytes, folder: Path) -> Iterator[TableBlock]:
    path = folder / "tap.pcap"
    path.write_bytes(data)
    yield from dissect(Chain((str(path),), "tap"), Options())


def check_all(data: bytes, folder: Path) -> None:
    """Rows and the report of a capture add up, unless it is none."""
    tables: Tables = {}
    summary = Summary()
    try:
        for block in blocks(data, folder):
            batch = arrow_batch(block)
            tables.setdefault(block.table, []).extend(batch.to_pylist())
            if block.table in TABLES:
                summary.add(block.table, batch, "tap")
    except InputError:
        assert not tables
        return
    check(tables)
    check_report(summary.result({"tap": "tap"}))


@each_case
def test_every_case_adds_up(case: Case, tmp_path: Path) -> None:
    check_all(case.make(), tmp_path)


@each_case
def test_damaged_copies_of_cases_add_up(case: Case, tmp_path: Path) -> None:
    data = case.make()
    for seed in range(DAMAGED_COPIES):
        check_all(scratched(data, zlib.crc32(f"{case.file_name} {seed}".encode())), tmp_path)


@each_sample
def test_every_sample_adds_up(sample: Sample, tmp_path: Path) -> None:
    check_all(sample.path.read_bytes(), tmp_path)


@each_sample
def test_damaged_copies_of_samples_add_up(sample: Sample, tmp_path: Path) -> None:
    data = sample.path.read_bytes()
    seed = zlib.crc32(sample.name.encode())
    check_all(scratched(data, seed, most=12), tmp_path)
