"""Runs the tasks of reports on Spark, one per core of its machines.

A task queries the files of its captures with its own DuckDB (`dissector.report.partitions`), joins
captures or lands one; nothing is shuffled. Tasks write their results to files that driver and
workers access under the same path.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from pyspark.sql import SparkSession

from dissector.errors import DissectorError
from dissector.queries.duckdb_engine import MEMORY
from dissector.spark.workers import Workers, workers_of

Task = TypeVar("Task")
Result = TypeVar("Result")

TASK_MEMORY: Final = "1GB"  # of each of several tasks on one machine; above it they spill


class SparkEngine:
    """Runs tasks in the caller's session, which stays open.

    Args:
        folder: the folder below which tasks write.
    """

    name: Final = "spark"

    def __init__(self, spark: SparkSession, folder: Path | None = None) -> None:
        self._context = spark.sparkContext
        self._workers = workers_of(self._context, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @property
    def at_once(self) -> int:
        """The number of concurrent tasks: one per core."""
        return max(1, self._context.defaultParallelism)

    def budget(self, tasks: int) -> tuple[str, int | None]:
        """Memory and threads per task: on one machine, a few tasks share its cores; on a cluster,
        Spark's settings decide."""
        if not str(self._context.master).startswith("local"):
            return TASK_MEMORY, int(self._context.getConf().get("spark.task.cpus", "1") or 1)
        return (MEMORY if tasks < 2 else TASK_MEMORY), max(1, self.at_once // max(1, tasks))

    def each(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """The results of a function for all tasks, each run as a Spark task.

        Raises:
            DissectorError: raised by a task.
        """
        if not tasks:
            return []
        run = partial(_outcome_of, self._workers, function)
        results: list[Result] = []
        for result in self._context.parallelize(tasks, len(tasks)).map(run).collect():
            if isinstance(result, DissectorError):
                raise result
            results.append(result)
        return results


def _outcome_of(
    workers: Workers, function: Callable[[Task], Result], task: Task
) -> Result | DissectorError:
    return workers.run(partial(function, task))
