"""Whoever writes queries by hand joins by (capture, connection_id, frame_no), before and after.

That names one row in DuckDB, pandas and Polars, also in a compacted lake, and whether folders are
read as columns or not.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dissector.lake.reader import open_lake
from dissector.schemas import TABLES
from tests.dissector.lake.samples import compacted, landed

# The columns of each table that name a frame of the row's own connection.
FRAMES = {
    "messages": ("frame_no",),
    "acks": ("frame_no",),
    "exchanges": ("request_frame_no", "response_frame_no"),
    "deliveries": ("frame_no",),
    "permits": ("frame_no",),
    "producers": ("opened_frame_no", "ready_frame_no", "closed_frame_no"),
    "consumers": ("opened_frame_no", "ready_frame_no", "closed_frame_no"),
    "notices": ("frame_no",),
}
JOINS = [(table, column) for table, columns in FRAMES.items() for column in columns]


class Lakes(NamedTuple):
    """The same captures, each by itself and in one group."""

    apart: Path
    group: Path


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    root = tmp_path_factory.mktemp("joins")
    apart = landed(root / "apart")
    yield Lakes(apart, compacted(apart, root / "group"))


def files(lake: Path, table: str) -> str:
    return f"{lake}/{table}/*/*/*.parquet"


@cache
def commands(lake: Path) -> dict[tuple[Any, ...], str]:
    """The command of each frame."""
    with open_lake(lake) as opened:
        rows = opened.table("frames", ["capture", "connection_id", "frame_no", "command"])
    return {tuple(key): command for *key, command in _tuples(rows)}


@cache
def told(lake: Path, table: str, column: str) -> Counter[Any]:
    """What the rows of a table say about a frame, and what the frame says."""
    frames = commands(lake)
    with open_lake(lake) as opened:
        keys = _tuples(opened.table(table, ["capture", "connection_id", column]))
    return Counter((*key, frames[key]) for key in keys if key in frames)


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@cache
def in_memory(lake: Path, table: str) -> pd.DataFrame:
    """A table as pandas reads it."""
    return pd.read_parquet(lake / table, dtype_backend="pyarrow")


@pytest.mark.parametrize("hive", ["", ", hive_partitioning = true", ", hive_partitioning = false"])
@pytest.mark.parametrize(("table", "column"), JOINS)
def test_in_duckdb(lakes: Lakes, table: str, column: str, hive: str) -> None:
    counts = []
    for lake in lakes:
        rows = duckdb.sql(
            f"select f.capture, f.connection_id, f.frame_no, f.command "
            f"from read_parquet('{files(lake, table)}'{hive}) t "
            f"join read_parquet('{files(lake, 'frames')}'{hive}) f on f.capture = t.capture "
            f"and f.connection_id = t.connection_id and f.frame_no = t.{column}"
        ).fetchall()
        counts.append(Counter(rows))
    assert counts[0] == counts[1] == told(lakes.apart, table, column)
    assert counts[0] or (table, column) == ("notices", "frame_no")


@pytest.mark.parametrize(("table", "column"), JOINS)
def test_in_pandas(lakes: Lakes, table: str, column: str) -> None:
    counts = []
    for lake in lakes:
        rows, frames = in_memory(lake, table), in_memory(lake, "frames")
        right = ["capture", "connection_id", "frame_no"]
        frames = frames[[*right, "command"]].rename(columns={"frame_no": "of"})
        both = rows.merge(
            frames, left_on=["capture", "connection_id", column],
            right_on=["capture", "connection_id", "of"],
        )  # fmt: skip
        columns = both[["capture", "connection_id", "of", "command"]]
        counts.append(Counter(columns.itertuples(index=False, name=None)))
    assert counts[0] == counts[1] == told(lakes.apart, table, column)


@pytest.mark.parametrize("hive", [True, False])
@pytest.mark.parametrize(("table", "column"), JOINS)
def test_in_polars(lakes: Lakes, table: str, column: str, hive: bool) -> None:
    counts = []
    for lake in lakes:
        rows = pl.read_parquet(files(lake, table), hive_partitioning=hive)
        frames = pl.read_parquet(files(lake, "frames"), hive_partitioning=hive)
        frames = frames.select("capture", "connection_id", "frame_no", "command")
        both = rows.select("capture", "connection_id", pl.col(column).alias("frame_no")).join(
            frames, on=["capture", "connection_id", "frame_no"]
        )
        counts.append(Counter(both.rows()))
    assert counts[0] == counts[1] == told(lakes.apart, table, column)


def test_a_frames_number_alone_is_enough_within_a_capture(lakes: Lakes) -> None:
    """What multiplied rows sixtyfold when `capture` was the group's name: exchanges with the frames
    of their requests, by (capture, frame_no)."""
    counts = [
        duckdb.sql(
            f"select count(*) from '{files(lake, 'exchanges')}' e join '{files(lake, 'frames')}' f "
            "on f.capture = e.capture and f.frame_no = e.request_frame_no"
        ).fetchall()
        for lake in lakes
    ]
    assert counts[0] == counts[1] == [(sum(told(lakes.apart, *JOINS[2]).values()),)]


@pytest.mark.parametrize("table", list(TABLES))
def test_queries_that_were_written_for_version_1_give_the_same(lakes: Lakes, table: str) -> None:
    count = (
        "select coalesce(origin_capture, capture) as c, count(*) from '{}' group by 1 order by 1"
    )
    old = [duckdb.sql(count.format(files(lake, table))).fetchall() for lake in lakes]
    assert old[0] == old[1]
    new = count.replace("coalesce(origin_capture, capture)", "capture")
    assert [duckdb.sql(new.format(files(lake, table))).fetchall() for lake in lakes] == old


def test_the_delivery_before_is_found_by_three_columns(lakes: Lakes) -> None:
    for lake in lakes:
        ((again, found, elsewhere, wrong),) = duckdb.sql(
            f"select count(d.previous_frame_no), count(b.frame_no), "
            f"count_if(b.connection_id <> d.connection_id), "
            f"count_if((b.topic, b.entry_id) is distinct from (d.topic, d.entry_id)) "
            f"from '{files(lake, 'deliveries')}' d left join '{files(lake, 'deliveries')}' b "
            f"on b.capture = d.capture and b.connection_id = d.previous_connection_id "
            f"and b.frame_no = d.previous_frame_no where d.ledger_id is not null "
            f"and d.previous_frame_no is not null"
        ).fetchall()
        assert again == found > 200 and elsewhere > 0 and wrong == 0


def test_row_groups_of_other_captures_are_passed_over(lakes: Lakes) -> None:
    """A filter by capture reads nothing of the others: each row group says whose it is."""
    for path in lakes.apart.glob("frames/*/*/*.parquet"):
        stats = duckdb.sql(
            f"select distinct stats_min_value, stats_max_value from parquet_metadata('{path}') "
            "where path_in_schema = 'capture'"
        ).fetchall()
        name = path.parent.name.partition("=")[2]
        assert stats == [(name, name)]
