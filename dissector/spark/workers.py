"""Settings for tasks that run on other machines than the driver, sent with each task.

A task stores files that it fetches from a lake's store in Spark's temporary folder of its machine,
unless that machine's environment names another (DISSECTOR_LAKES). Credentials are read from that
environment; they are never sent with a task.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pyspark import SparkContext

from dissector.errors import DissectorError, OutputError
from dissector.lake.mirror import BASE
from dissector.spark.session import runs_here

T = TypeVar("T")
_SCRATCH: Final = "SPARK_LOCAL_DIRS"  # Spark sets it for Python processes


class Workers(NamedTuple):
    """The machines of tasks.

    is_here: they share the driver's folders. folder: the driver's folder that they must access.
    """

    is_here: bool
    folder: str | None = None

    def run(self, function: Callable[[], T]) -> T | DissectorError:
        """Run a function in a task. Errors of its input or machine are returned, not raised,
        because Spark would retry in vain and print a stack trace."""
        try:
            if self.is_here:
                return function()
            scratch = os.environ.get(_SCRATCH, "").partition(",")[0]
            if scratch and not os.environ.get(BASE):
                os.environ[BASE] = scratch
            if self.folder is not None and not Path(self.folder).is_dir():
                raise OutputError(
                    f"{self.folder} is not there: tasks write beside the report (-o), or below "
                    "$TMPDIR where none is written, and all machines must see that folder"
                )
            return function()
        except DissectorError as error:
            return error if self.is_here else type(error)(f"worker {socket.gethostname()}: {error}")


def workers_of(context: SparkContext, folder: Path | None = None) -> Workers:
    """The machines on which tasks of a session run."""
    return Workers(runs_here(str(context.master)), None if folder is None else str(folder))
