"""Rows of windows are tables of the columns that queries name."""

import subprocess
import sys

import numpy as np

from dissector.blocks import Coded, TableBlock
from dissector.limits import NULL
from dissector.queries.catalogue import SharedView
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.tap.window_tables import (
    TableCollector,
    as_tables,
    columns_of,
    joined,
    name_tables,
    name_views,
)
from tests.dissector.observed import CAPTURES

CAPTURE = str(CAPTURES / "pulsar" / "cpp-s03_batch_none.pcap")
COLUMNS = columns_of(["SELECT kind, topic FROM exchanges"], ())


def rows(kinds: list[int]) -> dict:
    columns = {"kind": Coded(np.array(kinds), ["publish", "ping"]), "latency_ns": np.arange(2)}
    return as_tables([TableBlock("exchanges", len(kinds), columns)], "run", COLUMNS)


def test_tables_have_what_queries_name_and_nothing_else():
    assert {"kind", "topic", "capture"} <= set(COLUMNS["exchanges"])
    assert "latency_ns" not in COLUMNS["exchanges"] and "producers" not in COLUMNS
    (table,) = rows([0, 1]).values()
    assert tuple(table.column_names) == COLUMNS["exchanges"]
    assert table["capture"].to_pylist() == ["run"] * 2 and table["topic"].null_count == 2


def test_a_name_of_one_table_is_not_read_of_another_one():
    view = SharedView("late", "a producer", "SELECT * FROM producers")
    found = columns_of(
        ["SELECT latency_ns FROM exchanges", "SELECT opened_frame_no, topic FROM late"], [view]
    )
    assert {"exchanges", "producers"} == {*found}
    assert "opened_frame_no" in found["producers"] and "topic" not in found["exchanges"]
    assert "latency_ns" in found["exchanges"] and "capture" in found["producers"]


def test_who_reads_a_view_reads_of_its_table_what_the_view_names():
    view = SharedView("late", "a producer", "SELECT name, count(*) AS n FROM producers")
    found = columns_of(["SELECT opened_frame_no, topic, name, n FROM late JOIN consumers"], [view])
    assert "name" in found["producers"] and "opened_frame_no" not in found["producers"]
    assert "opened_frame_no" in found["consumers"]


def test_the_numbers_of_a_tap_want_no_pandas():
    program = (
        "import sys; from dissector.cli.main import run;"
        f"run(['tap', '--replay', {CAPTURE!r}, '--no-findings', '--metrics', '0']);"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_queries_read_the_rows_of_several_windows():
    both = joined([rows([0, 1]), {}, rows([1, 1])])
    with DuckdbEngine(threads=1) as db:
        name_tables(db, "run", 5, both, COLUMNS)
        name_views(db, COLUMNS)
        table = db.table("SELECT kind, count(*) AS n FROM exchanges GROUP BY kind ORDER BY n")
    assert table.to_pylist() == [{"kind": "publish", "n": 1}, {"kind": "ping", "n": 3}]


def test_what_repeats_another_connection_has_no_requests():
    """Whatever columns are asked for."""
    texts = ["SELECT kind FROM exchanges", "SELECT started FROM connections"]
    columns = columns_of(texts, ())
    legs = {
        "connection_id": np.arange(3),
        "leg": Coded(np.array([0, 1, -1]), ["client", "broker"]),
        "twin_connection_id": np.array([1, 0, NULL]),
    }
    requests = {"connection_id": np.array([0, 1, 2, 1])}
    blocks = [TableBlock("connections", 3, legs), TableBlock("exchanges", 4, requests)]
    with DuckdbEngine(threads=1) as db:
        name_tables(db, "run", 5, as_tables(blocks, "run", columns), columns)
        name_views(db, columns, has_all_rows=False)
        found = db.table("SELECT connection_id FROM exchanges ORDER BY ALL")
        assert found["connection_id"].to_pylist() == [0, 2]
        assert db.table("SELECT started FROM connections").num_rows == 3


def test_rows_are_gathered_whatever_blocks_they_came_in_and_a_matrix_is_not_kept():
    matrix = np.arange(60_000).reshape(2, -1)
    gathering = TableCollector({"exchanges": ("capture", "latency_ns", "kind")})
    assert gathering.is_empty
    for start in range(0, 30_000, 7_000):
        part = matrix[:, start : start + 7_000]
        kinds = Coded(part[1] % 2, ["publish", "ping"])
        columns = {"latency_ns": part[0], "kind": kinds, "outcome": Coded(part[1] * 0, ["ok"])}
        gathering.add(TableBlock("exchanges", part.shape[1], columns))
        gathering.add(TableBlock("frames", 1, {"frame_no": part[0]}))
    assert gathering.size == 2 * matrix[0].nbytes and not gathering.is_empty
    matrix[:] = 0  # another block is written there
    (table,) = gathering.tables("run").values()
    assert gathering.is_empty and table.column_names == ["capture", "latency_ns", "kind"]
    assert table["latency_ns"].to_pylist() == [*range(30_000)]
    assert table["kind"].to_pylist() == ["publish", "ping"] * 15_000
