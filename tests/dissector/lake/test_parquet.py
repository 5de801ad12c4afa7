"""Our Parquet files against pyarrow's own: the same schema, rows and statistics; sizes, digests."""

import errno
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.blocks import Coded, Column, Lists, Spans, TableBlock
from dissector.lake.parquet import HashingFile, TableFiles
from dissector.limits import NULL
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.rows import TableBuilder, arrow_batch
from tests.dissector.schemas.made import NAMES, WORDS, made_block


def packed(folder: Path, blocks: list[TableBlock], **sizes: int) -> Path:
    """Write one block per page."""
    files = TableFiles(folder, blocks[0].table, **sizes)
    builder = TableBuilder(blocks[0].table, max(block.rows for block in blocks))
    for block in blocks:
        builder.append(block, 0, block.rows)
        files.write(block.rows, builder.take())
    files.close("c-x")
    return folder / blocks[0].table / "part-00000.parquet"


def by_pyarrow(folder: Path, blocks: list[TableBlock]) -> Path:
    table = pa.Table.from_batches([arrow_batch(block) for block in blocks])
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "x.parquet", store_schema=False)
    return folder / "x.parquet"


def frame_column(name: str, values: Column, rows: int) -> TableBlock:
    return TableBlock("frames", rows, {name: values})


def read(path: Path, column: str) -> list[Any]:
    return list(pq.ParquetFile(path).read([column]).column(0).to_pylist())


@pytest.mark.parametrize("table", list(TABLES))
def test_rows_and_schema_equal_those_of_pyarrow(tmp_path: Path, table: str) -> None:
    blocks = [made_block(table, rows, rows) for rows in (61, 8, 1, 64, 61)]
    ours = packed(tmp_path / "a", blocks, group_rows=100)
    theirs = by_pyarrow(tmp_path / "b", blocks)
    assert pq.read_schema(ours).equals(arrow_schema(table))
    found, wanted = pq.ParquetFile(ours).read(), pq.ParquetFile(theirs).read()
    found.validate(full=True)
    assert set(found.column("capture").to_pylist()) == {"c-x"}
    assert found.drop(["capture"]).equals(wanted.drop(["capture"]))
    ours_schema, theirs_schema = pq.ParquetFile(ours).schema, pq.ParquetFile(theirs).schema
    for number in range(len(theirs_schema)):
        mine, other = ours_schema.column(number), theirs_schema.column(number)
        for what in ("path", "physical_type", "logical_type", "converted_type"):
            assert str(getattr(mine, what)) == str(getattr(other, what))
        assert mine.max_definition_level == other.max_definition_level
        assert mine.max_repetition_level == other.max_repetition_level


def test_statistics_cover_all_pages_of_a_row_group(tmp_path: Path) -> None:
    pages = [[5, NULL, 9], [NULL, NULL, NULL], [-3, 7, 7]]
    blocks = [frame_column("connection_id", np.array(page), 3) for page in pages]
    blocks.append(frame_column("connection_id", np.array([NULL]), 1))
    metadata = pq.read_metadata(packed(tmp_path, blocks, group_rows=9))
    assert metadata.num_row_groups == 2 and metadata.num_rows == 10
    column = metadata.row_group(0).column(0).statistics
    assert (column.min, column.max, column.null_count) == (-3, 9, 4)
    alone = metadata.row_group(1).column(0).statistics
    assert alone.null_count == 1 and not alone.has_min_max
    ts = TABLES["frames"].columns.index(next(c for c in TABLES["frames"].columns if c.name == "ts"))
    assert metadata.row_group(0).column(ts).statistics.null_count == 9


def test_sizes_and_places_in_the_footer_are_right(tmp_path: Path) -> None:
    blocks = [made_block("messages", 100, seed) for seed in range(2)]
    path = packed(tmp_path, blocks, group_rows=100)
    data = path.read_bytes()
    metadata = pq.read_metadata(path)
    at = 4
    chunks, of_capture = [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        assert group.total_byte_size >= sum(1 for _ in range(group.num_columns))
        for column in range(group.num_columns):
            chunk = group.column(column)
            (of_capture if chunk.path_in_schema == "capture" else chunks).append(chunk)
    assert len(of_capture) == metadata.num_row_groups == 2
    # Bloom filters stand behind their row group. The capture's id is known last: its chunks stand
    # behind all others.
    of_group = len(chunks) // 2
    for number, chunk in enumerate((*chunks, *of_capture)):
        if number in (of_group, 2 * of_group):
            filters = [c for c in chunks[number - of_group : number] if c.bloom_filter_offset]
            for each in filters:
                assert (each.path_in_schema, each.bloom_filter_offset) == ("topic", at)
                at += each.bloom_filter_length
        assert chunk.compression == "ZSTD"
        assert (chunk.dictionary_page_offset or chunk.data_page_offset) == at
        at += chunk.total_compressed_size
    for chunk in of_capture:
        assert (chunk.statistics.min, chunk.statistics.max) == ("c-x", "c-x")
        assert chunk.statistics.null_count == 0 and chunk.total_compressed_size < 100
    assert len(data) == at + metadata.serialized_size + 8
    assert data[:4] == data[-4:] == b"PAR1"


def test_a_dictionary_holds_the_names_in_use_of_all_pages(tmp_path: Path) -> None:
    growing = list(NAMES[:10])
    blocks = [
        frame_column("topic", Coded(np.array([3, NULL, 3]), growing), 3),
        frame_column("topic", Coded(np.array([7, 3]), growing), 2),
    ]
    builder = TableBuilder("frames", 3)
    files = TableFiles(tmp_path, "frames")
    for block in blocks:
        builder.append(block, 0, block.rows)
        files.write(block.rows, builder.take())
        growing += NAMES[10:20]
    for column in (
        Coded(np.array([19, 3, -1]), growing),
        Coded(np.array([1, 0, 1]), WORDS),
        ["plain", None, "ok"],
        Spans(np.frombuffer(b"okplain", np.uint8), np.array([0, 2, 0]), np.array([2, 5, 0])),
    ):
        builder.append(frame_column("topic", column, 3), 0, 3)
        files.write(3, builder.take())
    files.close("c-x")
    a, b, c = (NAMES[k].decode() for k in (3, 7, 19))
    wanted = [a, None, a, b, a, c, a, None, "error", "ok", "error", "plain", None, "ok"]
    path = tmp_path / "frames" / "part-00000.parquet"
    assert read(path, "topic") == [*wanted, "ok", "plain", ""]


def test_a_row_group_starts_with_a_dictionary_of_its_own(tmp_path: Path) -> None:
    blocks = [frame_column("topic", Coded(np.array([k, k + 1]), NAMES), 2) for k in (0, 5, 1, 5)]
    path = packed(tmp_path, blocks, group_rows=4)
    assert read(path, "topic") == [NAMES[k].decode() for k in (0, 1, 5, 6, 1, 2, 5, 6)]


def test_lists_null_empty_and_long(tmp_path: Path) -> None:
    lists: list[list[int] | None] = [None, [], [2**62], list(range(300)), None, []]
    block = TableBlock("acks", 6, {"ack_set": lists})
    empty = TableBlock("acks", 2, {"ack_set": [[], None]})
    null = Lists(np.empty(0, np.int64), np.zeros(3, np.int64), np.full(3, -1))
    path = packed(tmp_path, [block, empty, TableBlock("acks", 3, {"ack_set": null})])
    assert read(path, "ack_set") == [*lists, [], None, None, None, None]


def test_large_pages_come_back(tmp_path: Path) -> None:
    rows = 40_000
    chance = np.random.default_rng(1)
    values = chance.integers(-(2**63), 2**63 - 1, rows)
    codes = chance.integers(-1, 30_000, rows)
    names = [b"name-%d" % k for k in range(30_000)]
    block = TableBlock("frames", rows, {"request_id": values, "topic": Coded(codes, names)})
    path = packed(tmp_path, [block], page_rows=rows)
    assert read(path, "request_id") == values.tolist()
    assert read(path, "topic") == [None if k < 0 else f"name-{k}" for k in codes]


@pytest.mark.parametrize(
    "texts",
    [[""], ["", None], ["00ff", None], ["é", "è"], ["ab", "a", "aba"], ["", "a", None], [None]],
)
def test_texts_of_many_rows_come_back_page_by_page(tmp_path: Path, texts: list[str | None]) -> None:
    """Also where all rows that have one have the same."""
    blocks = [
        frame_column("schema_version_hex", (texts * 3000)[:rows], rows) for rows in (2500, 3000, 2)
    ]
    path = packed(tmp_path, blocks, page_rows=3000, group_rows=9000)
    wanted = [text for rows in (2500, 3000, 2) for text in (texts * 3000)[:rows]]
    assert read(path, "schema_version_hex") == wanted


def test_a_file_that_could_not_be_ended_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor that stays would keep a full disk from being unmounted."""
    files = TableFiles(tmp_path, "frames")
    builder = TableBuilder("frames", 8)
    builder.append(made_block("frames", 8, 1), 0, 8)
    files.write(8, builder.take())
    opened: list[HashingFile] = []
    write = HashingFile.write

    def full(self: HashingFile, data: Any) -> None:
        if self.size > 4:  # behind the rows, where the capture's column begins
            write(self, b"")
            opened.append(self)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, data)

    files.end_group()
    monkeypatch.setattr(HashingFile, "write", full)
    with pytest.raises(OSError):
        files.close("c-x")
    assert not opened[0]._file.closed
    files.abandon()
    assert opened[0]._file.closed


def test_a_file_knows_its_size_and_digest(tmp_path: Path) -> None:
    file = HashingFile(tmp_path / "x")
    file.write(b"abc")
    file.close()
    file.write(b"defg")
    file.close()
    assert file.size == 7 and (tmp_path / "x").read_bytes() == b"abcdefg"
    assert file.sha256() == hashlib.sha256(b"abcdefg").hexdigest()
    with pytest.raises(FileExistsError):
        HashingFile(tmp_path / "x")


def test_a_code_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="without a name"):
        packed(tmp_path, [frame_column("topic", Coded(np.array([0, 3]), WORDS), 2)])
