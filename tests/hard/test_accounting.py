"""Accounting closes: on every capture of the suite, on damaged copies, in tables and reports."""

import zlib
from pathlib import Path

import pytest

from dissector.dissection import Options
from dissector.errors import InputError
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.accounting import check, check_report
from tests.dissector.observed import CASES, name_of
from tests.dissector.observed import Case as Sample
from tests.hard.cases import Case, all_cases
from tests.hard.scratches import scratched
from tests.hard.tape import Tables
from tests.numbers import Numbers

DAMAGED_COPIES = 3
each_case = pytest.mark.parametrize("case", all_cases(), ids=lambda each: each.file_name)
each_sample = pytest.mark.parametrize("sample", CASES, ids=name_of)


def check_all(folder: Path, *copies: bytes) -> None:
    """Rows of each capture and the report of all of them add up; one may be no capture at all."""
    path = folder / "tap.pcap"
    summary = Numbers()
    for number, data in enumerate(copies):
        path.write_bytes(data)
        tables: Tables = {}
        try:
            for block in dissect(Chain((str(path),), "tap"), Options()):
                batch = arrow_batch(block)
                tables.setdefault(block.table, []).extend(batch.to_pylist())
                summary.add(block.table, batch, f"tap {number}")
        except InputError:
            assert not tables
        check(tables)
    # Of what is damaged everything is counted, since nothing that it holds may end a query.
    check_report(summary.result() if len(copies) > 1 else summary.coverage())


@each_case
def test_every_case_adds_up(case: Case, tmp_path: Path) -> None:
    check_all(tmp_path, case.make())


@each_case
def test_damaged_copies_of_cases_add_up(case: Case, tmp_path: Path) -> None:
    data = case.make()
    seeds = [zlib.crc32(f"{case.file_name} {seed}".encode()) for seed in range(DAMAGED_COPIES)]
    check_all(tmp_path, *(scratched(data, seed) for seed in seeds))


@each_sample
def test_every_sample_adds_up(sample: Sample, tmp_path: Path) -> None:
    check_all(tmp_path, sample.path.read_bytes())


@each_sample
def test_damaged_copies_of_samples_add_up(sample: Sample, tmp_path: Path) -> None:
    data = sample.path.read_bytes()
    seed = zlib.crc32(sample.name.encode())
    check_all(tmp_path, scratched(data, seed, most=12))
