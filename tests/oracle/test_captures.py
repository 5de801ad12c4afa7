"""Every sample capture, whole and with packets missing, against the oracle."""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dissector.dissection import Options
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from tests.hard.damage import Tap
from tests.oracle.conversations import named
from tests.oracle.facts import INPUTS, KEYS, Oracle
from tests.oracle.known import IN_LOSSY, IN_SAMPLES, NOT_MADE, Known

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
SAMPLES = sorted(CAPTURES.glob("*/*.pcap*"))
# Of each third capture some of the packets are left out: see IN_LOSSY.
DAMAGED = [
    path for path in SAMPLES if path.read_bytes()[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
][::3]
RIGHT = " java-j12_nack.pcap"
Tables = dict[str, pa.Table]


def dissected(paths: Sequence[Path]) -> Tables:
    """The rows of captures; to land them would take twice as long."""
    batches: dict[str, list[pa.Table]] = {name: [] for name in (*INPUTS, *KEYS)}
    for number, chain in enumerate(chains([str(path) for path in paths], "none").chains):
        for block in dissect(chain, Options()):
            if block.table in batches:
                rows = pa.Table.from_batches([arrow_batch(block)])
                batches[block.table].append(named(rows, f"{number} {Path(chain.files[0]).name}"))
    return {name: pa.concat_tables(found) for name, found in batches.items()}


@pytest.fixture(scope="module")
def samples() -> tuple[Tables, Oracle]:
    tables = dissected(SAMPLES)
    return tables, Oracle(tables)


def check(oracle: Oracle, known: Sequence[Known]) -> None:
    """What differs is what is listed."""
    found = set(oracle.differences())
    listed = {each for known_one in known for each in known_one.differences()}
    assert found - listed == set(), "the program and the oracle differ: which of them is wrong?"
    assert listed - found == set(), "nothing differs any more: take it from tests/oracle/known.py"


def test_every_sample_has_the_rows_of_the_oracle(samples: tuple[Tables, Oracle]) -> None:
    _, oracle = samples
    check(oracle, IN_SAMPLES)
    assert min(oracle.rows(table) for table in KEYS) > 10_000


@pytest.mark.parametrize("lost", IN_LOSSY)
def test_captures_that_lost_packets_have_the_rows_of_the_oracle(
    lost: float, tmp_path: Path
) -> None:
    paths = []
    for path in DAMAGED:
        tap = Tap.read(path.read_bytes()).without(lost, zlib.crc32(path.name.encode()))
        paths.append(tmp_path / path.name)
        paths[-1].write_bytes(tap.bytes())
    check(Oracle(dissected(paths)), IN_LOSSY[lost])


def test_columns_that_the_oracle_does_not_make_are_listed(samples: tuple[Tables, Oracle]) -> None:
    _, oracle = samples
    missing = {
        (table, name)
        for table in KEYS
        for name in set(oracle.columns(table)) - set(oracle.columns(f"new_{table}"))
    }
    assert missing == set(NOT_MADE)


def later(rows: pa.Table) -> pa.Table:
    """The first row of a table with a latency has one that is 1 ns longer."""
    place = rows.schema.get_field_index("latency_ns")
    values = rows["latency_ns"].to_pylist()
    row = next(row for row, value in enumerate(values) if value is not None)
    values[row] += 1
    return rows.set_column(place, "latency_ns", pa.array(values, pa.int64()))


def without_first(rows: pa.Table) -> pa.Table:
    """A table without its first row."""
    return rows.slice(1)


def lower(rows: pa.Table) -> pa.Table:
    """All balances of permits are lower by one."""
    place = rows.schema.get_field_index("available_after")
    return rows.set_column(place, "available_after", pc.subtract(rows["available_after"], 1))


@pytest.mark.parametrize(
    ("table", "change"),
    [("exchanges", later), ("deliveries", without_first), ("permits", lower)],
    ids=["a latency", "a row that is missing", "balances"],
)
def test_a_wrong_row_is_found(
    samples: tuple[Tables, Oracle], table: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    """In a capture that is right, so that the difference is that of the change."""
    whole, _ = samples
    tables = {
        name: rows.filter(pc.ends_with(rows["capture"], RIGHT)) for name, rows in whole.items()
    }
    assert Oracle(tables).differences() == []
    assert {
        each.table for each in Oracle({**tables, table: change(tables[table])}).differences()
    } == {table}
