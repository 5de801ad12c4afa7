"""Accounting closes: on every capture of the suite, on damaged copies, in tables and reports.

The queries of reports run once for all captures: to plan them costs more than to run them over one.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest

from dissector.dissection import Options
from dissector.errors import InputError
from dissector.report.result import build
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import Chain
from tests.accounting import LOOKED_AT, check, check_report
from tests.choosing import LOOKS_AT_ALL, covering
from tests.dissector.observed import CASES, few_cases, name_of
from tests.hard.cases import all_cases
from tests.hard.scratches import scratched
from tests.hard.tape import Tables
from tests.numbers import Numbers, empty_report

DAMAGED_COPIES = 3 if LOOKS_AT_ALL else 1  # of each hard case
HARD = {case.file_name: case.make for case in all_cases()}
# `tests.dissector.test_accounts` looks at the rows of all of them.
SAMPLES = {name_of(case): case.path.read_bytes for case in few_cases(CASES)}
DAMAGED = [*covering({case.file_name: [case.id] for case in all_cases()}), *SAMPLES]
each_capture = pytest.mark.parametrize("name", [*HARD, *SAMPLES])
each_damaged = pytest.mark.parametrize("name", DAMAGED)
Blocks = list[tuple[str, pa.RecordBatch]]


def damaged(name: str) -> list[bytes]:
    """Copies of a capture with damage that depends on its name alone."""
    if name in SAMPLES:
        return [scratched(SAMPLES[name](), zlib.crc32(Path(name).name.encode()), most=12)]
    data = HARD[name]()
    seeds = [zlib.crc32(f"{name} {seed}".encode()) for seed in range(DAMAGED_COPIES)]
    return [scratched(data, seed) for seed in seeds]


def damaged_copies() -> Iterator[tuple[str, bytes]]:
    """Every damaged copy, by the name of its capture and its number."""
    for name in DAMAGED:
        for number, data in enumerate(damaged(name)):
            yield f"{name} {number}", data


def blocks_of(captures: Iterable[tuple[str, bytes]]) -> dict[str, Blocks]:
    """The rows of each capture; none of what is no capture at all."""
    found: dict[str, Blocks] = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tap.pcap"
        for name, data in captures:
            path.write_bytes(data)
            blocks = found[name] = []
            try:
                for block in dissect(Chain((str(path),), "tap"), Options()):
                    blocks.append((block.table, arrow_batch(block)))
            except InputError:
                assert not blocks
    return found


def numbers_of(captures: Mapping[str, Blocks]) -> Numbers:
    """What the queries of reports give for them."""
    numbers = Numbers()
    for name, blocks in captures.items():
        for table, batch in blocks:
            numbers.add(table, batch, name)
    return numbers


class Read(NamedTuple):
    """Captures: the rows of each, the numbers of all, and the report of each.

    There is no report if a query ends over one of them: then each is asked alone, so that the test
    of that one says so.
    """

    blocks: dict[str, Blocks]
    numbers: Numbers
    reports: dict[str, dict[str, Any]]

    def check(self, name: str) -> None:
        """Rows and report of a capture add up."""
        blocks = self.blocks[name]
        tables: Tables = {}
        for table, batch in blocks:
            if table in LOOKED_AT:
                columns = LOOKED_AT[table]
                rows = batch if columns is None else batch.select(columns)
                tables.setdefault(table, []).extend(rows.to_pylist())
        check(tables)
        alone = numbers_of({name: blocks}).result if blocks else empty_report
        check_report(self.reports.get(name) or alone())


def read(captures: Iterable[tuple[str, bytes]]) -> Read:
    blocks = blocks_of(captures)
    numbers = numbers_of(blocks)
    try:
        return Read(blocks, numbers, numbers.results())
    except duckdb.Error:
        return Read(blocks, numbers, {})


@pytest.fixture(scope="module")
def whole() -> Read:
    return read((name, make()) for name, make in {**HARD, **SAMPLES}.items())


@pytest.fixture(scope="module")
def copies() -> Read:
    return read(damaged_copies())


@each_capture
def test_every_capture_adds_up(name: str, whole: Read) -> None:
    whole.check(name)


@each_damaged
def test_damaged_copies_add_up(name: str, copies: Read) -> None:
    """Of what is damaged everything is counted, since nothing that it holds may end a query."""
    for number in range(1 if name in SAMPLES else DAMAGED_COPIES):
        copies.check(f"{name} {number}")


def test_damaged_copies_add_up_in_one_report(copies: Read) -> None:
    check_report(build(copies.numbers.parts()))
