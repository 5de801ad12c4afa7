"""The Parquet files of a table, encoded by our own kernels.

On the 7.5 million rows of a capture, pyarrow's writer takes twice the CPU time (3.5 s beside
1.8 s, so that landing takes half as long again) and 190 MB more memory: it spends 2 to 5 ns on
each null of an empty column, 10 to 20 on each value, and wants all rows of a row group before it
encodes any. Half of the columns of `frames` are empty in any one row. The files are plain Parquet,
and tests hold both writers to the same rows.

The id of a capture ends in a digest of its bytes, so the column `capture` is known only when all
rows are written. Its chunks (one text for all rows, some hundred bytes) therefore stand behind
those of all row groups. Indexes of pages follow, then the footer. A row group of one page has no
index: it would say what the footer says.
"""

import hashlib
from itertools import islice
from pathlib import Path

from dissector.lake.chunks import ColumnChunks, Workspace, chunks_for, same_text_chunk
from dissector.lake.manifest import PartFile
from dissector.lake.metadata import MAGIC, ChunkInfo, FileRange, GroupInfo, footer, leaves
from dissector.lake.settings import SETTINGS
from dissector.schemas import TABLES
from dissector.schemas.builders import ColumnValues
from dissector.schemas.shared import CAPTURE


class HashingFile:
    """A file that is written sequentially; counts its size and SHA-256."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Write all of data, in several calls if the system writes less at once."""
        if self._file.closed:
            self._file = self.path.open("ab", buffering=0)
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += self._file.write(view[done:]) or 0
        self._hash.update(view)
        self.size += len(view)

    def sha256(self) -> str:
        """Return the digest of the bytes written so far, in hex."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the descriptor; a later write opens the file again."""
        self._file.close()


class TableFiles:
    """The files of one table, filled page by page.

    Args:
        is_one_capture: all rows are of the capture passed to `close`; else the column `capture` is
            written as any other.
    """

    def __init__(
        self,
        folder: Path,
        table: str,
        page_rows: int = SETTINGS.page_rows,
        group_rows: int = SETTINGS.row_group_rows,
        part_bytes: int = SETTINGS.part_bytes,
        *,
        is_one_capture: bool = True,
    ) -> None:
        self._table = TABLES[table]
        self._group_rows = group_rows
        self._part_bytes = part_bytes
        self._is_one_capture = is_one_capture
        self._work = Workspace(page_rows)
        self._columns: list[ColumnChunks | None] = [
            None if column == CAPTURE and is_one_capture else chunks_for(column, self._work)
            for column in self._table.columns
        ]
        before = self._table.columns[: self._table.columns.index(CAPTURE)]
        self._capture_index = sum(len(leaves(column)) for column in before)
        self._file: HashingFile | None = None
        self._groups: list[GroupInfo] = []
        self._rows_in_group = 0
        self.begin(folder)

    def begin(self, folder: Path, *, is_compressed: bool = True) -> None:
        """Reset for another capture, after `close`; keeps the encoders."""
        self._work.is_compressed = is_compressed
        self._folder = folder / self._table.name
        # Parts whose rows are complete; the footer follows.
        self._filled: list[tuple[HashingFile, list[GroupInfo]]] = []

    def write(self, rows: int, columns: list[ColumnValues]) -> bool:
        """Encode one page of rows, at most page_rows, of every column.

        Returns:
            Whether the row group was full and has been written.
        """
        for column, values in zip(self._columns, columns, strict=True):
            if column is not None:
                column.add(rows, values)
        self._rows_in_group += rows
        if self._rows_in_group < self._group_rows:
            return False
        self.end_group()
        return True

    def end_group(self) -> None:
        """Write the buffered row group; starts a new part first if the current one is full."""
        rows = self._rows_in_group
        if rows == 0:
            return
        if self._file is not None and self._file.size >= self._part_bytes:
            self._file.close()
            self._end_part()
        file = self._begin_part()
        at = start = file.size
        pages: list[bytes] = []
        chunks: list[ChunkInfo] = []
        sorted_by = self._sorted_by()
        for column in self._columns:
            for data, info in column.finish(at) if column is not None else ():
                pages += data
                chunks.append(info)
                at += info.bytes
        blooms = {}
        for info in chunks:
            if info.bloom_filter:
                pages.append(info.bloom_filter)
                blooms[info.leaf] = FileRange(at, len(info.bloom_filter))
                at += len(info.bloom_filter)
        file.write(b"".join(pages))
        infos = tuple([info._replace(bloom_filter=b"") if blooms else info for info in chunks])
        self._groups.append(GroupInfo(infos, rows, start, sorted_by, blooms))
        self._rows_in_group = 0

    def _sorted_by(self) -> tuple[int, ...]:
        """Return the indexes of the leaves by which the row group is sorted, each independently."""
        names = [column.name for column in self._table.columns]
        indexes = []
        for name in SETTINGS.sorted_by:
            column = self._columns[names.index(name)] if name in names else None
            if column is not None and column.is_ascending:
                before = self._table.columns[: names.index(name)]
                indexes.append(sum(len(leaves(each)) for each in before))
        return tuple(indexes)

    def close(self, capture: str = "") -> list[PartFile]:
        """Finish and return all parts; a table without rows has one empty part.

        Args:
            capture: id of the capture, if all rows are of one.
        """
        self.end_group()
        if self._file is not None or not self._filled:
            self._begin_part()
            self._end_part()
        return [self._finish(file, groups, capture) for file, groups in self._filled]

    def abandon(self) -> None:
        """Close unfinished files without writing their footers."""
        for file, _ in self._filled:
            file.close()
        if self._file is not None:
            self._file.close()

    def _begin_part(self) -> HashingFile:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = HashingFile(self._folder / f"part-{len(self._filled):05d}.parquet")
            self._file.write(MAGIC)
        return self._file

    def _end_part(self) -> None:
        assert self._file is not None
        self._filled.append((self._file, self._groups))
        self._file = None
        self._groups = []

    def _finish(self, file: HashingFile, groups: list[GroupInfo], capture: str) -> PartFile:
        """Write the end of a part: the column `capture`, the indexes and the footer."""
        if self._is_one_capture:
            groups = [self._with_capture(file, group, capture) for group in groups]
        file.write(footer(self._table.name, groups, _with_indexes(file, groups)))
        file.close()
        rows = sum(group.rows for group in groups)
        return PartFile(self._table.name, file.path.name, rows, file.size, file.sha256())

    def _with_capture(self, file: HashingFile, group: GroupInfo, capture: str) -> GroupInfo:
        index = self._capture_index
        (leaf,) = leaves(CAPTURE)
        pages, info = same_text_chunk(
            leaf,
            self._work,
            capture.encode(),
            group.rows,
            file.size,
            is_indexed=any(chunk.offset_index for chunk in group.chunks),
        )
        file.write(b"".join(pages))
        return group._replace(chunks=(*group.chunks[:index], info, *group.chunks[index:]))


def _with_indexes(
    file: HashingFile, groups: list[GroupInfo]
) -> list[list[tuple[FileRange, FileRange]]]:
    """Write the page indexes, all column indexes first; return where both of each chunk lie."""
    if not any(chunk.offset_index for group in groups for chunk in group.chunks):
        return []
    written: list[list[FileRange]] = []
    for field in ("column_index", "offset_index"):
        indexes = [getattr(chunk, field) for group in groups for chunk in group.chunks]
        at = file.size
        file.write(b"".join(indexes))
        written.append([])
        for index in indexes:
            written[-1].append(FileRange(at, len(index)))
            at += len(index)
    both = zip(*written, strict=True)
    return [list(islice(both, len(group.chunks))) for group in groups]
