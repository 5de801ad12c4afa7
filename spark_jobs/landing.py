"""Landing as Spark tasks: one stage, one chain of files per task, the largest first.

Each task calls the same function as `dissector land`. It stages a capture beside the lake under a
unique name, and installs it under the lake's lock; an existing capture is left unchanged. So a task
that Spark repeats or runs twice at once (`spark.speculation`) changes nothing. Captures and the
lake are in folders that all machines access under the same path, or in stores. A capture for a
store is staged on the task's machine, and becomes part of the lake by an entry in its log.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import SparkSession

from dissector.dissection import Options
from dissector.errors import DissectorError, InputError
from dissector.lake import mirror
from dissector.lake.install import writing_to
from dissector.lake.land import Outcome, landed_or_failed
from dissector.sources.account import Account
from dissector.sources.rings import Chain
from dissector.spark.uris import absolute
from dissector.spark.workers import workers_of
from dissector.storage.addresses import is_stored

_WAIT_SECONDS: Final = 0.2  # between checks for results of tasks
# Spark's message on a task that failed too often, with its number in the stage.
_FAILED: Final = re.compile(r"\b[Tt]ask (\d+)(?: in stage| \(partition)")


class Task(NamedTuple):
    """One task: the chain's number on the command line, the chain, and its destination.

    lake: a folder, or an address.
    """

    number: int
    chain: Chain
    lake: str
    options: Options
    cluster: str | None


# A task's index in its stage, and its outcome; an error concerns the whole lake.
Result = tuple[int, Outcome | DissectorError]


def land_task(task: Task) -> Outcome:
    """On a worker: land one capture.

    Raises:
        OutputError: the lake cannot be written.
    """
    lake = mirror.folder_of(task.lake) if is_stored(task.lake) else Path(task.lake)
    with writing_to(lake):
        mirror.refresh(lake)
    outcome = landed_or_failed(task.number, task.chain, lake, task.options, task.cluster)
    mirror.trim(lake)
    return outcome


def tasks_of(
    chains: Sequence[Chain], lake: Path, options: Options, cluster: str | None
) -> list[Task]:
    """One task per chain, the largest first, so that the longest task does not start last."""
    order = sorted(range(len(chains)), key=lambda number: (-chains[number].stored_bytes, number))
    name = mirror.shown(lake.absolute())
    return [Task(number, absolute(chains[number]), name, options, cluster) for number in order]


class _Results(AccumulatorParam[list[Result]]):
    """An accumulator of results; Spark adds each task's result once, however often it ran."""

    def zero(self, value: list[Result]) -> list[Result]:
        return []

    def addInPlace(self, value1: list[Result], value2: list[Result]) -> list[Result]:
        value1.extend(value2)
        return value1


def land_on(spark: SparkSession, tasks: Sequence[Task]) -> Iterator[Outcome]:
    """Run tasks on a cluster in one stage; yields outcomes as tasks end.

    A task that fails permanently, for example out of memory, aborts the stage. Its outcome is an
    error; a further stage runs the remaining tasks.

    Raises:
        OutputError: the lake could not be written.
    """
    left = list(tasks)
    with ThreadPoolExecutor(1) as pool:
        try:
            while left:
                results = spark.sparkContext.accumulator([], _Results())
                stage = pool.submit(_run_stage, spark.sparkContext, left, results)
                seen: list[int] = []
                is_over = False
                while not is_over:
                    is_over = bool(wait([stage], _WAIT_SECONDS).done)
                    for index, result in results.value[len(seen) :]:
                        seen.append(index)
                        if isinstance(result, DissectorError):
                            raise result
                        yield result
                waiting = [index for index in range(len(left)) if index not in set(seen)]
                failed = _failed_of(waiting, stage.exception())
                for index in failed:
                    yield _failed(left[index], stage.exception())
                left = [left[index] for index in waiting if index not in failed]
        except BaseException:
            spark.sparkContext.cancelAllJobs()
            raise


def _run_stage(
    context: SparkContext, tasks: list[Task], results: Accumulator[list[Result]]
) -> None:
    """Run one stage to its end: one partition per task, in the order of the tasks."""

    workers = workers_of(context)

    def run(numbered: Iterable[tuple[int, Task]]) -> None:
        for index, task in numbered:
            results.add([(index, workers.run(partial(land_task, task)))])

    context.parallelize(list(enumerate(tasks)), len(tasks)).foreachPartition(run)


def _failed_of(waiting: Sequence[int], error: BaseException | None) -> Collection[int]:
    """The index of the task that aborted a stage; of all waiting tasks if Spark names none."""
    if error is None:
        return ()
    named = _FAILED.search(str(error))
    return (int(named[1]),) if named and int(named[1]) in waiting else waiting


def _failed(task: Task, error: BaseException | None) -> Outcome:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines if "Lost task" in line or "Error" in line), "")
    text = f"{task.chain.files[0]}: its task failed on the cluster: {reason[:300] or 'no reason'}"
    account = Account()
    account.miss(text)
    return Outcome(task.number, account, None, InputError(text))
