"""Accounting closes: on every capture of the suite, on damaged copies, in tables and reports.

The queries of reports run once for all captures: to plan them costs more than to run them over one.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
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
from tests.dissector.observed import CASES, RANDOM_CASES, few_cases, name_of
from tests.hard.cases import all_cases
from tests.hard.scratches import scratched
from tests.hard.tape import Tables
from tests.numbers import Numbers, empty_report
from tests.plain import rows_of_block

DAMAGED_COPIES = 3 if LOOKS_AT_ALL else 1  # of each hard case
HARD = {case.file_name: case.make for case in all_cases()}
# `tests.dissector.test_accounts` looks at the rows of all of them.
SAMPLES = {name_of(case): case.path.read_bytes for case in few_cases([*CASES, *RANDOM_CASES])}
# One capture of each hard case, by day; of these there are reports, and damaged copies.
FEW = [*covering({case.file_name: [case.id] for case in all_cases()}), *SAMPLES]
each_capture = pytest.mark.parametrize("name", [*HARD, *SAMPLES])
each_damaged = pytest.mark.parametrize("name", FEW)


def damaged(name: str) -> list[bytes]:
    """Copies of a capture with damage that depends on its name alone."""
    if name in SAMPLES:
        return [scratched(SAMPLES[name](), zlib.crc32(Path(name).name.encode()), most=12)]
    data = HARD[name]()
    seeds = [zlib.crc32(f"{name} {seed}".encode()) for seed in range(DAMAGED_COPIES)]
    return [scratched(data, seed) for seed in seeds]


def damaged_copies() -> Iterator[tuple[str, bytes]]:
    """Every damaged copy, by the name of its capture and its number."""
    for name in FEW:
        for number, data in enumerate(damaged(name)):
            yield f"{name} {number}", data


class Rows(NamedTuple):
    """What was read of a capture: the rows that are looked at, and all of them, if it is
    counted."""

    tables: Tables
    batches: list[tuple[str, pa.RecordBatch]]


def rows_of(captures: Iterable[tuple[str, bytes]], counted: Collection[str]) -> dict[str, Rows]:
    """The rows of each capture; none of what is no capture at all."""
    found: dict[str, Rows] = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tap.pcap"
        for name, data in captures:
            path.write_bytes(data)
            tables, batches = found[name] = Rows({}, [])
            try:
                for block in dissect(Chain((str(path),), "tap"), Options()):
                    if block.table in LOOKED_AT:
                        tables.setdefault(block.table, []).extend(rows_of_block(block))
                    if name in counted:
                        batches.append((block.table, arrow_batch(block)))
            except InputError:
                assert not tables and not batches
    return found


def numbers_of(captures: Mapping[str, Rows]) -> Numbers:
    """What the queries of reports give for them."""
    numbers = Numbers()
    for name, rows in captures.items():
        for table, batch in rows.batches:
            numbers.add(table, batch, name)
    return numbers


class Read(NamedTuple):
    """Captures: the rows of each, the numbers of those that are counted, and the report of each of
    them.

    There is no report if a query ends over one of them: then each is asked alone, so that the test
    of that one says so.
    """

    rows: dict[str, Rows]
    counted: Collection[str]
    numbers: Numbers
    reports: dict[str, dict[str, Any]]

    def check(self, name: str) -> None:
        """Rows and report of a capture add up."""
        rows = self.rows[name]
        check(rows.tables)
        if name in self.counted:
            alone = numbers_of({name: rows}).result if rows.batches else empty_report
            check_report(self.reports.get(name) or alone())


def read(captures: Mapping[str, bytes], counted: Collection[str]) -> Read:
    rows = rows_of(captures.items(), counted)
    numbers = numbers_of(rows)
    try:
        return Read(rows, counted, numbers, numbers.results())
    except duckdb.Error:
        return Read(rows, counted, numbers, {})


@pytest.fixture(scope="module")
def whole() -> Read:
    return read({name: make() for name, make in {**HARD, **SAMPLES}.items()}, FEW)


@pytest.fixture(scope="module")
def copies() -> Read:
    found = dict(damaged_copies())
    return read(found, found)


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
