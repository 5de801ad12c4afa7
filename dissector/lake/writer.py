"""Write the tables of one capture while the dissection continues.

A bounded queue passes blocks to one thread, which collects them into row groups and writes Parquet;
numpy and pyarrow release the GIL meanwhile, so decoding continues on another core. The limits of
row groups and files depend on the rows alone, never on block sizes or the timing of threads: equal
rows give equal bytes.
"""

import queue
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from dissector.blocks import Coded, Column, Lists, Spans, TableBlock
from dissector.lake.manifest import PartFile
from dissector.lake.parquet import TableFiles
from dissector.lake.settings import SETTINGS
from dissector.limits import WRITE_QUEUE_BLOCKS, WRITE_QUEUE_BYTES
from dissector.schemas import TABLES
from dissector.schemas.rows import TableBuilder, text_bytes


class _TableWriter:
    """Cuts the rows of one table into row groups."""

    def __init__(self, folder: Path, table: str, group_rows: int, part_bytes: int) -> None:
        page_rows = min(SETTINGS.page_rows, group_rows)
        self._builder = TableBuilder(table, page_rows)
        self._files = TableFiles(folder, table, page_rows, group_rows, part_bytes)
        self._text_bytes = 0
        self.is_small = True  # no page was filled yet, so the arrays use little memory

    def begin(self, folder: Path, *, is_compressed: bool) -> None:
        """Reset for another capture."""
        self._files.begin(folder, is_compressed=is_compressed)
        self._text_bytes = 0

    def write(self, block: TableBlock) -> None:
        start = 0
        while start < block.rows:
            stop = min(block.rows, start + self._builder.free_rows)
            stop, size = self._within_text_limit(block, start, stop)
            self._builder.append(block, start, stop)
            self._text_bytes += size
            if self._builder.free_rows == 0:
                self._end_page()
                self.is_small = False
            if self._text_bytes >= SETTINGS.row_group_text_bytes:
                self._end_page()
                self._files.end_group()
                self._text_bytes = 0
                self.is_small = False
            start = stop

    def _within_text_limit(self, block: TableBlock, start: int, stop: int) -> tuple[int, int]:
        """Return the row after which the text limit ends the row group (at most `stop`), and the
        text size up to it. Counts by rows, so that block sizes do not matter."""
        size = text_bytes(block, start, stop)
        if self._text_bytes + size < SETTINGS.row_group_text_bytes:
            return stop, size
        size = 0
        for row in range(start, stop):
            size += text_bytes(block, row, row + 1)
            if self._text_bytes + size >= SETTINGS.row_group_text_bytes:
                return row + 1, size
        return stop, size

    def _end_page(self) -> None:
        rows = self._builder.rows
        if rows and self._files.write(rows, self._builder.take()):
            self._text_bytes = 0

    def close(self, capture: str) -> list[PartFile]:
        self._end_page()
        return self._files.close(capture)

    def abandon(self) -> None:
        self._files.abandon()


# Idle writers of finished small captures, by row group and part size, for reuse: constructing the
# encoders of all columns costs more than encoding a hundred rows.
_Tables: TypeAlias = dict[str, _TableWriter]
_idle: Final[defaultdict[tuple[int, int], list[_Tables]]] = defaultdict(list)


def _tables(folder: Path, sizes: tuple[int, int], *, is_compressed: bool) -> _Tables:
    """Return writers of all tables for exclusive use, idle ones if there are any."""
    try:
        tables = _idle[sizes].pop()
    except IndexError:
        tables = {name: _TableWriter(folder, name, *sizes) for name in TABLES}
    for table in tables.values():
        table.begin(folder, is_compressed=is_compressed)
    return tables


class LakeWriter:
    """Writes all tables of one capture below a folder.

    Use it in a `with` block: leaving it without `close` stops the thread and leaves partial files,
    which the owner of the folder removes.
    """

    def __init__(
        self,
        folder: Path,
        group_rows: int = SETTINGS.row_group_rows,
        part_bytes: int = SETTINGS.part_bytes,
        *,
        is_compressed: bool = True,
    ) -> None:
        self._sizes = (group_rows, part_bytes)
        self._tables = _tables(folder, self._sizes, is_compressed=is_compressed)
        self._blocks: queue.SimpleQueue[tuple[TableBlock, int] | None] = queue.SimpleQueue()
        self._not_full = threading.Condition()
        self._queued_bytes = 0
        self._queued_blocks = 0
        self._stopped = False
        self._failure: BaseException | None = None
        self._capture = ""
        self._parts: list[PartFile] = []
        self._thread = threading.Thread(target=self._run, name="lake-writer", daemon=True)
        self._thread.start()

    def __enter__(self) -> "LakeWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def write(self, block: TableBlock) -> None:
        """Queue a block, which the caller must not change afterwards; waits if the queue is full.

        Raises:
            OSError: an earlier block could not be written.
        """
        assert block.table in self._tables, f"no table {block.table}"
        size = block_bytes(block)
        with self._not_full:
            while self._failure is None and (
                self._queued_blocks >= WRITE_QUEUE_BLOCKS
                or (self._queued_blocks and self._queued_bytes + size > WRITE_QUEUE_BYTES)
            ):
                self._not_full.wait()
            self._raise_failure()
            self._queued_blocks += 1
            self._queued_bytes += size
        self._blocks.put((block, size))

    def close(self, capture: str) -> list[PartFile]:
        """Write the queued blocks and close all files.

        Args:
            capture: id of the capture of all rows.

        Returns:
            The files, tables in the order of the schema, parts by number.
        """
        self._capture = capture
        self._blocks.put(None)
        self._thread.join()
        self._raise_failure()
        if all(table.is_small for table in self._tables.values()):
            _idle[self._sizes].append(self._tables)
        self._tables = {}
        return self._parts

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        """Stop the thread without writing the queued blocks."""
        self._stopped = True
        self._blocks.put(None)
        self._thread.join()
        for table in self._tables.values():
            table.abandon()

    def _run(self) -> None:
        try:
            while (queued := self._blocks.get()) is not None:
                if self._stopped:
                    return
                block, size = queued
                self._tables[block.table].write(block)
                with self._not_full:
                    self._queued_blocks -= 1
                    self._queued_bytes -= size
                    self._not_full.notify()
            if not self._stopped:
                self._parts = [
                    part for table in self._tables.values() for part in table.close(self._capture)
                ]
        except BaseException as failure:
            with self._not_full:
                self._failure = failure
                self._not_full.notify_all()


def block_bytes(block: TableBlock) -> int:
    """Return the memory use of a block in bytes."""
    return sum(map(_column_bytes, block.columns.values()))


def _column_bytes(values: Column) -> int:
    if isinstance(values, np.ndarray):
        return values.nbytes
    if isinstance(values, Coded):
        return values.codes.nbytes
    if isinstance(values, Spans):
        return values.data.nbytes + values.starts.nbytes + values.lengths.nbytes
    if isinstance(values, Lists):
        return values.values.nbytes + values.starts.nbytes + values.counts.nbytes
    return 64 * len(values)
