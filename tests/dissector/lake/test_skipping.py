"""What readers skip row groups and pages by, told by what they read, and by pyarrow."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.blocks import Coded, TableBlock
from dissector.lake import metadata
from dissector.lake.settings import SETTINGS
from dissector.schemas import TABLES
from tests.dissector.lake.test_parquet import packed
from tests.dissector.schemas.made import made_block

TOPICS = [b"persistent://tenant/space/%04d" % k for k in range(4000)]
GROUPS, PAGE = 4, 1000


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four row groups of two pages: topics at random, latency and time ascending."""
    chance = np.random.default_rng(2)
    blocks = []
    for page in range(2 * GROUPS):
        numbers = np.arange(PAGE) + page * PAGE
        topics = Coded(chance.permutation(len(TOPICS))[:PAGE], TOPICS)
        columns: dict[str, Any] = {"topic": topics, "latency_ns": numbers, "ts": numbers * 10**6}
        blocks.append(TableBlock("exchanges", PAGE, columns))
    folder = tmp_path_factory.mktemp("skipping")
    return packed(folder, blocks, page_rows=PAGE, group_rows=2 * PAGE)


@pytest.mark.parametrize("table", list(TABLES))
def test_ranges_of_all_columns_are_those_of_their_rows(tmp_path: Path, table: str) -> None:
    blocks = [made_block(table, rows, rows) for rows in (61, 8, 1, 64, 61)]
    file = pq.ParquetFile(packed(tmp_path, blocks, group_rows=100))
    for number in range(file.num_row_groups):
        rows, group = file.read_row_group(number), file.metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            if "." in chunk.path_in_schema:
                continue
            declared = next(c for c in TABLES[table].columns if c.name == chunk.path_in_schema)
            column, found = rows.column(declared.name), chunk.statistics
            assert found.null_count == column.null_count
            if declared.type == "string" and not declared.repeats:
                assert not found.has_min_max or column.null_count == rows.num_rows
                continue
            wanted = pc.min_max(column).as_py()
            is_there = wanted["min"] is not None
            assert found.has_min_max == is_there
            if is_there:
                assert (found.min, found.max) == (wanted["min"], wanted["max"])


def test_a_row_group_of_several_pages_has_indexes_of_them(exchanges: Path) -> None:
    data = exchanges.read_bytes()
    group = pq.read_metadata(exchanges).row_group(1)
    for chunk in map(group.column, range(group.num_columns)):
        assert chunk.has_offset_index, "readers skip pages only where every column tells places"
        is_text = chunk.path_in_schema in ("error_text",)
        assert chunk.has_column_index or is_text
    # Each number of the least and the most of a page stands in the index, as the file has them.
    for page in (2, 3):
        for edge in (page * PAGE, page * PAGE + PAGE - 1):
            assert b"\x08" + edge.to_bytes(8, "little") in data


def test_one_page_has_no_index(tmp_path: Path) -> None:
    path = packed(tmp_path, [made_block("frames", 50, 1)])
    group = pq.read_metadata(path).row_group(0)
    assert not any(group.column(n).has_offset_index for n in range(group.num_columns))


def test_spark_s_reader_library_reads_no_more_than_one_page(exchanges: Path, spark: Any) -> None:
    rows = spark.read.parquet(str(exchanges)).where("latency_ns = 4321").select("topic", "capture")
    assert len(rows.collect()) == 1
    scan = str(rows._jdf.queryExecution().executedPlan().collectLeaves().head().metrics())
    (read,) = re.findall(r"numOutputRows -> SQLMetric.*?value: (\d+)", scan)
    assert int(read) == PAGE


def scanned(path: Path, condition: str) -> str:
    """Row groups that DuckDB scans for a condition, of how many; none at all where it need not."""
    query = f"explain analyze select topic, latency_ns from '{path}' where {condition}"
    text = duckdb.sql(query).fetchall()[0][1]
    found = re.search(r"Row Groups Scanned: (\d+ / \d+)", text)
    assert found or "Empty Result" in text, text
    return found[1] if found else "none"


def test_duckdb_scans_only_row_groups_that_can_have_rows(exchanges: Path) -> None:
    assert scanned(exchanges, "latency_ns > 7500") == "1 / 4"
    assert scanned(exchanges, "latency_ns >= 0") == "4 / 4"
    assert scanned(exchanges, "latency_ns > 8000") == "none"
    assert scanned(exchanges, "topic > 'q'") == "none"
    assert scanned(exchanges, "ts < timestamptz '1970-01-01 00:00:03Z'") == "2 / 4"


def test_bloom_filters_find_what_is_there_and_little_else(exchanges: Path) -> None:
    topics = [row[0] for row in duckdb.sql(f"select topic from '{exchanges}'").fetchall()]
    groups = [set(topics[n * 2 * PAGE : (n + 1) * 2 * PAGE]) for n in range(GROUPS)]
    wrong = 0
    for name in map(bytes.decode, TOPICS[:400]):
        probe = f"select bloom_filter_excludes from parquet_bloom_probe('{exchanges}', 'topic', ?)"
        for (is_excluded,), held in zip(
            duckdb.execute(probe, [name]).fetchall(), groups, strict=True
        ):
            assert not (is_excluded and name in held)
            wrong += not is_excluded and name not in held
    absent = sum(name.decode() not in held for name in TOPICS[:400] for held in groups)
    assert wrong < absent / 30


def test_connections_are_found_by_their_key(tmp_path: Path) -> None:
    keys = [f"10.0.0.1:{port}-10.0.0.2:6650" for port in range(300)]
    block = TableBlock("connections", 300, {"connection_key": [*keys[:299], None]})
    path = packed(tmp_path, [block])
    probe = f"select bloom_filter_excludes from parquet_bloom_probe('{path}', 'connection_key', ?)"
    found = [duckdb.execute(probe, [key]).fetchall() for key in keys]
    assert found[:299] == [[(False,)]] * 299
    assert found[299] == [(True,)]


def test_polars_reads_only_row_groups_that_can_have_rows(exchanges: Path) -> None:
    code = (
        "import polars as pl, sys\n"
        "for condition in (pl.col('latency_ns') > 7500, pl.col('topic') > 'q'):\n"
        "    rows = pl.scan_parquet(sys.argv[1]).filter(condition).select('topic')\n"
        "    print(rows.collect(engine='streaming').height)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, exchanges],
        env={**os.environ, "POLARS_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["499", "0"]
    assert re.findall(r"reading (\d / \d) row groups", done.stderr) == ["1 / 4", "0 / 4"]


@pytest.mark.parametrize(
    ("frame_nos", "times", "wanted"),
    [
        ([1, 2, 3, 4], [5, 5, 6, 9], ["ts", "frame_no"]),
        ([1, 2, 3, 4], [5, 4, 6, 9], ["frame_no"]),
        ([1, 2, 2, 1], [5, 5, 5, 5], ["ts"]),
        ([1, None, 3, 4], [5, 6, None, 9], []),
        ([2, 1, 3, 4], [5, 6, 6, 5], []),
    ],
)
def test_a_row_group_says_how_it_is_sorted_only_where_it_is(
    tmp_path: Path, frame_nos: list[int | None], times: list[int | None], wanted: list[str]
) -> None:
    us = [None if time is None else time * 1000 for time in times]
    columns = {"frame_no": frame_nos, "ts": us}
    halves = [
        TableBlock("frames", 2, {name: values[at : at + 2] for name, values in columns.items()})
        for at in (0, 2)
    ]
    path = packed(tmp_path, [*halves, *halves], group_rows=4)
    file = pq.read_metadata(path)
    for number in range(2):
        group = file.row_group(number)
        found = [group.column(each.column_index).path_in_schema for each in group.sorting_columns]
        assert found == wanted
        assert not any(each.descending or each.nulls_first for each in group.sorting_columns)


@given(st.text(min_size=1, max_size=20).map(lambda text: text * 200), st.text(max_size=3))
def test_a_long_text_is_bounded_by_short_ones(text: str, more: str) -> None:
    leaf = next(metadata.leaves(c)[0] for c in TABLES["frames"].columns if c.name == "topic")
    data = (text + more).encode()
    least, most = metadata._plain(leaf, (data, data))
    assert least <= data <= most and len(least) <= SETTINGS.text_bound_bytes
    assert least.decode() and most.decode()
    is_highest = set(text) == {chr(0x10FFFF)}
    assert len(most) <= SETTINGS.text_bound_bytes or is_highest
