"""Rows of files, of whatever schema version, with the columns of this one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.lake.file_rows import is_schema_of, read_rows, with_previous_connections
from dissector.lake.manifest import Manifest
from dissector.lake.partitions import part_path
from dissector.lake.reader import open_lake
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from tests.dissector.lake.landed import content, land
from tests.dissector.lake.older_versions import as_old, as_version_1


def file_of(lake: Path, table: str) -> tuple[pq.ParquetFile, Manifest]:
    with open_lake(lake) as opened:
        (capture,) = opened.captures
        (part,) = (part for part in capture.files if part.table == table)
        return pq.ParquetFile(part_path(lake, capture, part)), capture


@pytest.mark.parametrize("table", ["frames", "messages", "acks"])
def test_rows_of_version_1_have_the_columns_of_this_one(tmp_path: Path, table: str) -> None:
    name = land(tmp_path, "a", content(700)).capture_id
    wanted = read_rows(*file_of(tmp_path, table), table)
    assert wanted.column_names == [column.name for column in TABLES[table].columns]
    as_version_1(tmp_path)
    wanted = pa.Table.from_pylist(
        as_old({table: wanted.to_pylist()}, {name})[table], schema=wanted.schema
    )
    assert read_rows(*file_of(tmp_path, table), table).equals(wanted)
    if wanted.num_rows:
        assert read_rows(*file_of(tmp_path, table), table, group=0).equals(wanted)
    for columns in (["capture"], ["connection_id", "capture"], ["connection_id"]):
        found = read_rows(*file_of(tmp_path, table), table, columns)
        assert found.equals(wanted.select(columns))


def test_each_version_has_its_columns() -> None:
    new = arrow_schema("deliveries")
    fields = [f for f in new if f.name not in ("capture", "previous_connection_id")]
    old = pa.schema(fields)
    assert is_schema_of(new, "deliveries", 2) and is_schema_of(old, "deliveries", 1)
    assert not is_schema_of(old, "deliveries", 2) and not is_schema_of(new, "deliveries", 1)
    assert not is_schema_of(pa.schema(fields[:-1]), "deliveries", 1)
    assert not is_schema_of(pa.schema(fields[::-1]), "deliveries", 1)
    odd = pa.schema([pa.field("connection_id", pa.string()), *fields[1:]])
    assert not is_schema_of(odd, "deliveries", 1)


def test_connections_of_deliveries_before_are_found_by_their_frames() -> None:
    places = pa.table({
        "capture": ["a", "a", "b", "b"], "frame_no": [3, 9, 3, 5], "connection_id": [0, 1, 2, 3],
    })  # fmt: skip
    rows = pa.table({
        "capture": ["a", "b", "b", "a", "b"],
        "previous_frame_no": pa.array([3, 3, None, 5, 5], pa.int64()),
        "previous_connection_id": pa.nulls(5, pa.int64()),
    })  # fmt: skip
    found = with_previous_connections(rows, places).column("previous_connection_id")
    # (Frame 5 of "a" is none of its deliveries: one of an earlier rotation.)
    assert found.to_pylist() == [0, 2, None, None, 3]
