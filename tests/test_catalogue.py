"""Queries, sections and texts agree: what a header declares, a section takes, a text tells."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dissector.queries.catalogue import catalogue, shared_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.report.merged_tables import MergedTables
from dissector.report.result import SECTIONS
from tests.dissector.queries.query_engine import QueryEngine
from tests.dissector.report.made import RandomCapture, batch
from tests.numbers import Numbers

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
KINDS = (pa.int64(), pa.string(), pa.bool_())
# Queries that no section takes, with what does.
USED_ELSEWHERE: dict[str, str] = {}
# Keys of totals that are explained for all sections together, at the beginning of the page.
OF_ALL_SECTIONS = {"not_evaluated_by_reason", "not_applicable", "latency_ms"}


@pytest.fixture(scope="module")
def db() -> Iterator[QueryEngine]:
    with DuckdbEngine(threads=1) as db:
        yield QueryEngine(engine=db)


@pytest.fixture(scope="module")
def merged() -> MergedTables:
    numbers = Numbers()
    for name, rows in RandomCapture(4).tables.items():
        numbers.add(name, batch(name, rows))
    return numbers.parts()


class Watched(dict[str, Any]):
    """Rows by the name of their query; it remembers which were asked for."""

    def __init__(self, tables: Any) -> None:
        super().__init__(tables)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)


def test_every_query_is_taken_by_a_section(merged: MergedTables) -> None:
    tables = Watched(merged.tables)
    for section in SECTIONS.values():
        section.build(merged._replace(tables=tables))
    assert catalogue().keys() - tables.seen == USED_ELSEWHERE.keys()


@pytest.mark.parametrize("name", catalogue())
def test_a_query_gives_the_columns_that_its_header_declares(name: str, db: QueryEngine) -> None:
    query, columns = catalogue()[name], db.gives(name)
    assert len(set(columns.names)) == len(columns.names) and columns.names[0] == "capture"
    assert query.row, "the header says what a row is"
    if query.is_list:
        assert {column for column, _ in query.order} | set(query.of) <= set(columns.names)
        return
    assert len(set(query.columns)) == len(query.columns), "a name is a key or a number, and once"
    assert set(query.columns) == set(columns.names)
    for column in (*query.sums, *query.least, *query.greatest):
        assert columns.field(column).type == pa.int64(), column
    assert all(columns.field(column).type in KINDS for column in query.keys)


def test_names_of_queries_and_views_tell_them_apart() -> None:
    """A query whose CTE has the name of a view would depend on it without reading it."""
    views = [view.name for view in shared_views()]
    assert len(set(views)) == len(views)
    texts = {query.name: query.text for query in catalogue().values()}
    for name, text in (texts | {view.name: view.query for view in shared_views()}).items():
        inner = set(re.findall(r"(\w+) AS \(", text))
        assert not inner & set(views), f"{name}: {inner & set(views)}"


@pytest.mark.parametrize("section", SECTIONS)
def test_keys_of_a_total_are_explained_in_the_part_about_its_section(
    section: str, merged: MergedTables
) -> None:
    """And its lists are named there."""
    begin = PAGE.index(f"\n## {section}\n")
    end = PAGE.find("\n## ", begin + 1)
    words = set(re.findall(r"\w+", PAGE[begin:end]))
    made = SECTIONS[section].build(merged)
    assert not made.get("total", {}).keys() - words - OF_ALL_SECTIONS
    assert not made.keys() - words - {"total"}


# What shows that each change of CONTRIBUTING.md works: how many files it is, code, what it prints.
SHOWN = {
    "sends.sql": (3, """
from dissector.report.result import SECTIONS
from tests.dissector.report.made import batch, publish
from tests.numbers import Numbers
numbers = Numbers()
numbers.add("exchanges", batch("exchanges", [publish(chunk_id=0), publish(chunk_id=1), publish()]))
print(SECTIONS["send_latency"].build(numbers.parts())["total"]["chunks"])
""", "2"),
    "schemas/frames.py": (1, """
from dissector.dissection import Options
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
(chain,) = chains(["captures/pulsar-apache/java-j03_batch_lz4.pcap"]).chains
frames = [
    row for block in dissect(chain, Options()) if block.table == "frames"
    for row in arrow_batch(block).to_pylist()
]
print({(row["command"], row["stated_messages"] is None) for row in frames}
      >= {("SEND", False), ("MESSAGE", True)})
""", "True"),
    "packet/link.py": (1, """
from tests.dissector.packet.decoding import decode
from tests.dissector.packet.test_link import V4
print(decode(bytes(16) + b"\\x08\\0" + V4, 138).source)
""", "10.0.0.1"),
    "stream/arrival.py": (2, """
from tests.dissector.dissection.test_connection_rows import opened, tables_of
from tests.wire.packets import ACK, URG, segment
urgent = segment(b"!", sequence=1001, acknowledgement=5001, flags=ACK | URG)
(row,) = tables_of([*opened(), (4, urgent)])["connections"]
print(row["urgent_packets_to_broker"], row["urgent_packets_to_client"])
""", "1 0"),
}  # fmt: skip


def shown_changes() -> dict[str, str]:
    """The changes of CONTRIBUTING.md by a part of the first file's name."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    matches = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {name: change for change in matches for name in SHOWN if name in change.splitlines()[0]}


@pytest.mark.parametrize("name", SHOWN)
def test_a_change_that_contributing_shows_works_and_is_all_there_is(
    name: str, tmp_path: Path
) -> None:
    files, code, printed = SHOWN[name]
    for folder in ("dissector", "tests", "docs"):
        ignored = shutil.ignore_patterns("__pycache__", "golden")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    (tmp_path / "captures").symlink_to(ROOT / "captures")
    command = ["git", "apply", "--unidiff-zero", "--verbose", "-"]
    done = subprocess.run(
        command, cwd=tmp_path, input=shown_changes()[name], text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Applied patch") == files
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert run.stdout.strip() == printed, run.stderr
    if name == "sends.sql":
        page = (tmp_path / "docs" / "metrics.md").read_text("utf-8")
        assert "| `chunks` |" in page and "| `chunks` |" not in PAGE
