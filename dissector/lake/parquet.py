"""How tables become Parquet files: encodings, row groups, parts, checksums.

Measured per column and row (pyarrow 26, one core): DELTA_BINARY_PACKED with zstd 8 to 13 ns,
PLAIN with zstd 22 to 31 ns and larger, a dictionary of integers 45 to 80 ns. So every integer is
delta-packed; dictionaries are for text that repeats. One page per column chunk (a page costs a
compressor start of its own) and no statistics but on a few columns save another fifth.
"""

import hashlib
import inspect
import io
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.lake.manifest import PartFile
from dissector.limits import PART_ROWS, ROW_GROUP_ROWS
from dissector.schemas import TABLES
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.shared import CAPTURE

_ZSTD_LEVEL: Final = 1
# What readers select by: row groups whose range does not fit are then skipped.
WITH_STATISTICS: Final = frozenset(
    (
        "ts", "connection_id", "frame_no", "first_ts_ns", "last_ts_ns", "request_frame_no",
        CAPTURE.name,
    )
)  # fmt: skip
_HAS_PAGE_ROWS: Final = "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters


class HashingFile(io.RawIOBase):
    """A file to write once from start to end, which knows its size and SHA-256.

    path: where it is.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write all of data, in pieces where the system takes less at once."""
        if self._file.closed:
            self._file = self.path.open("ab", buffering=0)
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += self._file.write(view[done:]) or 0
        self._hash.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def rest(self) -> None:
        """Give the descriptor back until there is more to write."""
        self._file.close()

    def sha256(self) -> str:
        """Digest of what was written so far, in hex."""
        return self._hash.hexdigest()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def writer_options(table: str) -> dict[str, Any]:
    """What pyarrow's Parquet writer is told for a table."""
    columns = TABLES[table].columns
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": [c.name for c in columns if c.type == "string" and c.repeats],
        "column_encoding": {
            c.name if c.type != "array<bigint>" else f"{c.name}.list.element": "DELTA_BINARY_PACKED"
            for c in columns
            if c.type in ("bigint", "timestamp[us, UTC]", "array<bigint>")
        },
        "write_statistics": [c.name for c in columns if c.name in WITH_STATISTICS],
        "store_schema": False,
        "version": "2.6",
    }
    if _HAS_PAGE_ROWS:
        options["max_rows_per_page"] = ROW_GROUP_ROWS
    return options


class TableFiles:
    """The files of one table, filled with row groups one after the other."""

    def __init__(self, folder: Path, table: str, part_rows: int = PART_ROWS) -> None:
        self._folder = folder / table
        self._table = table
        self._part_rows = part_rows
        self._schema = in_memory_schema(table)
        self._options = writer_options(table)
        self._file: HashingFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self.parts: list[PartFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch as one row group; a part that has its rows is closed first."""
        if self._writer is not None and self._rows + batch.num_rows > self._part_rows:
            self._end_part()
        self._begin_part()
        assert self._writer is not None
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            self._writer.write_table(table, row_group_size=max(batch.num_rows, 1))
            self._rows += batch.num_rows

    def close(self) -> None:
        """End the last part; a table without rows gets its one empty part."""
        if self._writer is None and not self.parts:
            self._begin_part()
        if self._writer is not None:
            self._end_part()

    def abandon(self) -> None:
        """Let go of an unfinished file."""
        if self._file is not None:
            self._file.close()

    def _begin_part(self) -> None:
        if self._writer is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = HashingFile(self._folder / f"part-{len(self.parts):05d}.parquet")
        sink = pa.PythonFile(self._file, mode="w")
        self._writer = pq.ParquetWriter(sink, self._schema, **self._options)
        self._rows = 0

    def _end_part(self) -> None:
        assert self._writer is not None and self._file is not None
        self._writer.close()
        name = f"part-{len(self.parts):05d}.parquet"
        done = PartFile(self._table, name, self._rows, self._file.size, self._file.sha256())
        self._file.close()
        self.parts.append(done)
        self._writer = self._file = None
