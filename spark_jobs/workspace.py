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

from pyspark.sql import DataFrame

from dissector.errors import OutputError
from dissector.lake.locks import hold, is_held
from spark_jobs.counting import AT_ONCE

_LOCK: Final = "_lock"


class Workspace:
    """Folders of rows, each by a name of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def folder(self, name: str) -> Path:
        """Where the rows of a name are, or will be."""
        return self._folder / name

    def settled(self, rows: DataFrame, name: str) -> DataFrame:
        """The same rows, written down."""
        folder = str(self.folder(name))
        # Order is kept by nobody: what reads these rows sorts them.
        rows.write.option("compression", "zstd").parquet(folder)
        return rows.sparkSession.read.schema(rows.schema).parquet(folder)

    def all_settled(self, rows: Mapping[str, DataFrame], prefix: str = "") -> dict[str, DataFrame]:
        """Several DataFrames by name, some of them written at the same time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = {
                name: pool.submit(self.settled, each, f"{prefix}{name}")
                for name, each in rows.items()
            }
            return {name: future.result() for name, future in waiting.items()}


@contextmanager
def workspace(output: Path) -> Iterator[Workspace]:
    """A workspace for a report, on the disk that the report is written to; removed at the end.

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
        yield Workspace(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_left(output: Path) -> None:
    """Remove workspaces of runs that were killed."""
    for folder in output.parent.glob(f".{glob.escape(output.name)}.work.*"):
        if (folder / _LOCK).exists() and not is_held(folder / _LOCK):
            shutil.rmtree(folder, ignore_errors=True)

