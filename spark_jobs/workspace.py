"""A folder beside the report, for rows that are computed once and read several times.

What a query is made of grows with every step, and Spark looks through all of it for each further
step. Rows that are written down and read back begin anew, need only the columns that are asked
for, and survive the loss of a worker.
"""

import glob
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from dissector.errors import OutputError
from dissector.lake.locks import hold, is_held
from spark_jobs.counting import AT_ONCE
from spark_jobs.uris import to_read, to_write

_LOCK: Final = "_lock"
# A lake of less than this has rows that fit into any memory, however many columns they have.
SMALL_BYTES: Final = 4 << 20


class Workspace:
    """Folders of rows, each by a name of its own.

    is_small: the rows are few, so that writing them here costs less than what Spark does for many.
    """

    def __init__(self, folder: Path, *, is_small: bool = False) -> None:
        self._folder = folder.absolute()
        self._is_small = is_small

    def folder(self, name: str) -> Path:
        """Where the rows of a name are, or will be."""
        return self._folder / name

    def settled(self, rows: DataFrame, name: str) -> DataFrame:
        """The same rows, written down."""
        folder = self.folder(name)
        # Order is kept by nobody: what reads these rows sorts them.
        if self._is_small:
            found = rows.toArrow()
            folder.mkdir(parents=True)
            pq.write_table(found, folder / "part-00000.parquet", compression="zstd")
        else:
            rows.write.option("compression", "zstd").parquet(to_write(folder))
        return rows.sparkSession.read.schema(rows.schema).parquet(to_read(folder))

    def all_settled(self, rows: Mapping[str, DataFrame], prefix: str = "") -> dict[str, DataFrame]:
        """Several DataFrames by name, some of them written at the same time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = {
                name: pool.submit(self.settled, each, f"{prefix}{name}")
                for name, each in rows.items()
            }
            return {name: future.result() for name, future in waiting.items()}


@contextmanager
def workspace(output: Path, lake_bytes: int = SMALL_BYTES) -> Iterator[Workspace]:
    """A workspace for a report, on the disk that the report is written to; removed at the end.

    lake_bytes: size of what the report reads.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(output)
        folder = output.parent / f".{output.name}.work.{secrets.token_hex(6)}"
        folder.mkdir()
        lock = hold(folder / _LOCK)
    except OSError as error:
        raise OutputError(f"cannot write the report to {output}: {error.strerror}") from error
    try:
        yield Workspace(folder, is_small=lake_bytes < SMALL_BYTES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _remove_left(output: Path) -> None:
    """Remove workspaces of runs that were killed."""
    for folder in output.parent.glob(f".{glob.escape(output.name)}.work.*"):
        if (folder / _LOCK).exists() and not is_held(folder / _LOCK):
            shutil.rmtree(folder, ignore_errors=True)
