"""What differs where tasks run on other machines than the driver, as it is told to each task.

What a task fetches of a lake in a store lies in the folder that Spark has there for what is gone
with the session, unless the environment of its machine names another (DISSECTOR_LAKES). Credentials
are those of that environment: nothing of them travels with a task.
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
_SCRATCH: Final = "SPARK_LOCAL_DIRS"  # Spark tells its processes of Python


class Workers(NamedTuple):
    """The machines of tasks.

    is_here: they share the driver's folders. folder: of the driver's, that they must see.
    """

    is_here: bool
    folder: str | None = None

    def run(self, function: Callable[[], T]) -> T | DissectorError:
        """In a task: what a function gives. What is wrong with its input, or its machine, is given
        back, too: to try that again would not help, and Spark would print a trace."""
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
