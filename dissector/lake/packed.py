"""The Parquet files of a capture's tables, encoded by our own kernels.

pyarrow's writer took 0.7 to 1.2 µs for a row of `frames` (67 columns, half of them null in any one
row), more than all of the decoding before it: it spends 4 ns on each null of an empty column and 18
on each value where nulls come irregularly. Kernels that know what the columns hold take a quarter.
Files are plain Parquet: pyarrow, Spark and others read them as they read pyarrow's, and tests hold
both writers to the same rows.

The id of a capture ends in a digest of its bytes, so the column `capture` is known only when all
rows are written. Its chunks (one text for all rows, some hundred bytes) therefore stand behind
those of all row groups, right before the footer.
"""

from pathlib import Path
from typing import Final

from dissector.lake.chunks import Workspace, chunks_for, same_text_chunk
from dissector.lake.layout import MAGIC, GroupInfo, footer, leaves
from dissector.lake.manifest import PartFile
from dissector.lake.parquet import WITH_STATISTICS, HashingFile
from dissector.limits import PART_ROWS, ROW_GROUP_ROWS
from dissector.schemas import TABLES
from dissector.schemas.builders import Gathered
from dissector.schemas.shared import CAPTURE

PAGE_ROWS: Final = 65_536  # rows of a page: what a column gathers then stays in the cache


class PackedFiles:
    """The files of one table, filled page by page."""

    def __init__(
        self,
        folder: Path,
        table: str,
        page_rows: int = PAGE_ROWS,
        group_rows: int = ROW_GROUP_ROWS,
        part_rows: int = PART_ROWS,
    ) -> None:
        self._folder = folder / table
        self._table = TABLES[table]
        self._group_rows = group_rows
        self._part_rows = part_rows
        self._work = Workspace(page_rows)
        self._capture_at = self._table.columns.index(CAPTURE)
        self._columns = [
            chunks_for(column, self._work, column.name in WITH_STATISTICS)
            for column in self._table.columns
            if column != CAPTURE
        ]
        # Parts that have all their rows.
        self._filled: list[tuple[HashingFile, list[GroupInfo]]] = []
        self._file: HashingFile | None = None
        self._groups: list[GroupInfo] = []
        self._rows_in_group = 0

    def write(self, rows: int, gathered: list[Gathered]) -> bool:
        """Encode one page of rows of every column; what is gathered of `capture` is left.

        Returns:
            Whether the row group was full and has been written.
        """
        others = gathered[: self._capture_at] + gathered[self._capture_at + 1 :]
        for column, found in zip(self._columns, others, strict=True):
            column.add(rows, found)
        self._rows_in_group += rows
        if self._rows_in_group < self._group_rows:
            return False
        self.end_group()
        return True

    def end_group(self) -> None:
        """Write the row group that was gathered; a part that has its rows is closed first."""
        rows = self._rows_in_group
        if rows == 0:
            return
        if self._file is not None and self._part_size() + rows > self._part_rows:
            self._end_part()
        file = self._begin_part()
        at, start = file.size, file.size
        pages: list[bytes] = []
        chunks = []
        for column in self._columns:
            for data, info in column.finish(at):
                pages += data
                chunks.append(info)
                at += info.bytes
        file.write(b"".join(pages))
        self._groups.append(GroupInfo(tuple(chunks), rows, start))
        self._rows_in_group = 0

    def close(self, capture: str) -> list[PartFile]:
        """End all parts, rows being of this capture; a table without rows has one empty part."""
        self.end_group()
        if self._file is not None or not self._filled:
            self._begin_part()
            self._end_part()
        return [self._finish(number, capture) for number in range(len(self._filled))]

    def abandon(self) -> None:
        """Let go of unfinished files."""
        for file, _ in self._filled:
            file.close()
        if self._file is not None:
            self._file.close()

    def _part_size(self) -> int:
        return sum(group.rows for group in self._groups)

    def _begin_part(self) -> HashingFile:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = HashingFile(self._folder / f"part-{len(self._filled):05d}.parquet")
            self._file.write(MAGIC)
        return self._file

    def _end_part(self) -> None:
        assert self._file is not None
        self._file.rest()
        self._filled.append((self._file, self._groups))
        self._file = None
        self._groups = []

    def _finish(self, number: int, capture: str) -> PartFile:
        """Write what a part still wants: the column of its capture, and the footer."""
        file, groups = self._filled[number]
        (leaf,) = leaves(CAPTURE)
        place = sum(len(leaves(column)) for column in self._table.columns[: self._capture_at])
        whole = []
        for chunks, rows, start in groups:
            pages, info = same_text_chunk(leaf, self._work, capture.encode(), rows, file.size)
            file.write(b"".join(pages))
            whole.append(GroupInfo((*chunks[:place], info, *chunks[place:]), rows, start))
        file.write(footer(self._table, whole))
        file.close()
        rows = sum(group.rows for group in whole)
        return PartFile(self._table.name, file.path.name, rows, file.size, file.sha256())
