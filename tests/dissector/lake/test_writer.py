"""The Parquet files of a capture: same rows, same bytes, however they come."""

import hashlib
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.blocks import Coded, Column, Lists, Spans, TableBlock
from dissector.lake.manifest import PartFile
from dissector.lake.settings import SETTINGS
from dissector.lake.writer import LakeWriter, _idle, _TableWriter
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from tests.dissector.schemas.made import made_block
from tests.naive.rows import plain_rows


def written(folder: Path, blocks: list[TableBlock], **sizes: int) -> list[PartFile]:
    with LakeWriter(folder, **sizes) as writer:
        for block in blocks:
            writer.write(block)
        return writer.close("c-x")


def piece(block: TableBlock, start: int, stop: int) -> TableBlock:
    def cut(values: Column) -> Column:
        if isinstance(values, Coded):
            return values._replace(codes=values.codes[start:stop])
        if isinstance(values, Spans):
            return values._replace(
                starts=values.starts[start:stop], lengths=values.lengths[start:stop]
            )
        if isinstance(values, Lists):
            return values._replace(
                starts=values.starts[start:stop], counts=values.counts[start:stop]
            )
        return values[start:stop]

    columns = {name: cut(values) for name, values in block.columns.items()}
    return TableBlock(block.table, stop - start, columns)


def test_every_table_has_a_file_of_the_schema_even_without_rows(tmp_path: Path) -> None:
    parts = written(tmp_path, [])
    assert [part.table for part in parts] == list(TABLES)
    for part in parts:
        path = tmp_path / part.table / part.name
        assert part.name == "part-00000.parquet" and part.rows == 0
        assert part.bytes == path.stat().st_size
        assert part.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert pq.read_schema(path).equals(arrow_schema(part.table))


def test_rows_come_back_of_files_that_are_not_compressed(tmp_path: Path) -> None:
    """A writer that wrote one kind writes the other next."""
    blocks = [made_block(table, 50, seed=3) for table in TABLES]
    for name, is_compressed in (("plain", False), ("small", True), ("again", False)):
        with LakeWriter(tmp_path / name, is_compressed=is_compressed) as writer:
            for block in blocks:
                writer.write(block)
            parts = writer.close("c-x")
        for part in parts:
            path = tmp_path / name / part.table / part.name
            chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
            assert chunk.compression == ("ZSTD" if is_compressed else "UNCOMPRESSED")
            there = tmp_path / "plain" / part.table / part.name
            assert pq.read_table(path).equals(pq.read_table(there))


@pytest.mark.parametrize("table", list(TABLES))
def test_rows_come_back_and_do_not_depend_on_how_they_came_in_blocks(
    tmp_path: Path, table: str
) -> None:
    blocks = [made_block(table, 23, seed) for seed in range(4)]
    cut = [
        piece(block, start, stop)
        for block in blocks
        for start, stop in pairwise([0, 1, 2, 9, 9, 22, 23])
    ]
    whole = written(tmp_path / "whole", blocks, group_rows=10, part_bytes=5)
    pieces = written(tmp_path / "pieces", cut, group_rows=10, part_bytes=5)
    assert whole == pieces
    own = [part for part in whole if part.table == table]
    assert [part.rows for part in own] == [10] * 9 + [2]
    files = [pq.ParquetFile(tmp_path / "whole" / table / part.name) for part in own]
    groups = [f.metadata.row_group(n).num_rows for f in files for n in range(f.num_row_groups)]
    assert groups == [10] * 9 + [2]
    rows = [row for f in files for row in f.read().to_pylist()]
    wanted = [row for block in blocks for row in plain_rows(block)]
    assert rows == [{**row, "capture": "c-x"} for row in wanted]


def test_writers_of_a_small_capture_serve_the_next_and_leave_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    new = _TableWriter.__init__

    def counted(self: _TableWriter, folder: Path, table: str, *sizes: int) -> None:
        made.append(table)
        new(self, folder, table, *sizes)

    monkeypatch.setattr(_TableWriter, "__init__", counted)
    captures = [
        [made_block(table, rows, seed) for table in TABLES]
        for seed, rows in enumerate((5, 9, 0, 2, 9))
    ]
    sizes = {"group_rows": 10, "part_bytes": 1 << 20}
    fresh = []
    for number, blocks in enumerate(captures):
        _idle.clear()
        fresh.append(written(tmp_path / f"fresh-{number}", blocks, **sizes))
    _idle.clear()
    made.clear()
    for number, blocks in enumerate(captures):
        assert written(tmp_path / f"again-{number}", blocks, **sizes) == fresh[number]
    assert made == list(TABLES)
    for table in (made_block("frames", 10, 1), made_block("acks", 25, 1)):
        written(tmp_path / table.table, [table], **sizes)
    assert made == [*TABLES, *TABLES], "those of a capture that filled a page are not kept"


def test_files_are_zstd_with_names_coded_and_numbers_delta_packed(tmp_path: Path) -> None:
    columns: dict[str, Column] = {
        "frame_no": np.arange(3),
        "ts": np.arange(3) * 1000,
        "topic": Coded(np.array([0, 1, 0]), [b"a", b"b"]),
    }
    written(tmp_path, [TableBlock("frames", 3, columns)])
    path = tmp_path / "frames" / "part-00000.parquet"
    group = pq.read_metadata(path).row_group(0)
    chunks = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert {chunk.compression for chunk in chunks.values()} == {"ZSTD"}
    assert "DELTA_BINARY_PACKED" in chunks["frame_no"].encodings
    assert "DELTA_BINARY_PACKED" in chunks["ts"].encodings
    assert chunks["topic"].has_dictionary_page and not chunks["frame_no"].has_dictionary_page
    assert pq.read_schema(path).field("topic").type == pa.string()
    assert pq.read_metadata(path).metadata is None


def test_a_row_group_ends_early_where_its_rows_hold_much_text(tmp_path: Path) -> None:
    size = SETTINGS.row_group_text_bytes // 4
    data = np.full(size, 97, np.uint8)
    spans = Spans(data, np.zeros(6, np.int64), np.full(6, size))
    blocks = [TableBlock("messages", 6, {"partition_key": spans})]
    written(tmp_path / "whole", blocks)
    written(tmp_path / "rows", [piece(blocks[0], row, row + 1) for row in range(6)])
    for name in ("whole", "rows"):
        found = pq.read_metadata(tmp_path / name / "messages" / "part-00000.parquet")
        assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [4, 2]


def test_a_failed_write_is_raised_in_the_caller_and_ends_the_thread(tmp_path: Path) -> None:
    (tmp_path / "frames").write_text("in the way")
    block = TableBlock("frames", 2, {"frame_no": np.arange(2)})
    with pytest.raises(OSError), LakeWriter(tmp_path, group_rows=1) as writer:
        for _ in range(10_000):
            writer.write(block)
    assert not [t for t in threading.enumerate() if t.name == "lake-writer"]


def test_leaving_early_ends_the_thread(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), LakeWriter(tmp_path) as writer:
        writer.write(made_block("frames", 5, 1))
        raise KeyboardInterrupt
    assert not [t for t in threading.enumerate() if t.name == "lake-writer"]
