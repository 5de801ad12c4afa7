"""Spark as what runs the tasks of reports, one for each core of its machines.

A task opens the files of captures of its own and queries them with a DuckDB of its own
(`dissector.report.partitions`), joins captures or lands one; nothing is shuffled. What tasks give
lies in files that driver and workers see under one path.
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

TASK_MEMORY: Final = "1GB"  # where several run on one machine; then they go on in their folder


class SparkEngine:
    """The tasks of a report in a session, which is the caller's, and goes on.

    Args:
        folder: below which tasks write.
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
        """How many tasks run at the same time: one for each core."""
        return max(1, self._context.defaultParallelism)

    def budget(self, tasks: int) -> tuple[str, int | None]:
        """The memory and the threads of each of so many tasks: on one machine, few tasks share its
        cores; elsewhere a task has what Spark says it has."""
        if not str(self._context.master).startswith("local"):
            return TASK_MEMORY, int(self._context.getConf().get("spark.task.cpus", "1") or 1)
        return (MEMORY if tasks < 2 else TASK_MEMORY), max(1, self.at_once // max(1, tasks))

    def each(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """What a function gives for each of some tasks, each a task of Spark.

        Raises:
            DissectorError: what one of them raised.
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
