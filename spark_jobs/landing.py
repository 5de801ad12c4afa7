"""Landing as tasks of Spark: one stage, one chain of files per task, the largest first.

Each task calls the function that `dissector land` calls. It stages a capture beside the lake, under
a name of its own, and installs it under the lake's lock; what is there already is left as it is. So
a task that Spark runs again, or twice at once (`spark.speculation`), changes nothing. Captures and
the lake lie in folders that all machines see by the same names, or in stores. A capture for a store
is staged in a folder of the task's machine, and is in the lake by an entry of its log.
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

_WAIT_SECONDS: Final = 0.2  # between looks at what tasks have sent
# How Spark names the task that failed once too often, by its number in the stage.
_FAILED: Final = re.compile(r"\b[Tt]ask (\d+)(?: in stage| \(partition)")


class Task(NamedTuple):
    """What a task needs: number of the chain on the command line, the chain, and where it goes.

    lake: a folder, or an address.
    """

    number: int
    chain: Chain
    lake: str
    options: Options
    cluster: str | None


# The place of a task in its stage, and what came of it: an error is of the lake as a whole.
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
    """One task per chain, the largest first, so that the last one to end is not the longest."""
    order = sorted(range(len(chains)), key=lambda number: (-chains[number].stored_bytes, number))
    name = mirror.shown(lake.absolute())
    return [Task(number, absolute(chains[number]), name, options, cluster) for number in order]


class _Results(AccumulatorParam[list[Result]]):
    """Results of tasks, which Spark takes from each task once, however often it ran."""

    def zero(self, value: list[Result]) -> list[Result]:
        return []

    def addInPlace(self, value1: list[Result], value2: list[Result]) -> list[Result]:
        value1.extend(value2)
        return value1


def land_on(spark: SparkSession, tasks: Sequence[Task]) -> Iterator[Outcome]:
    """Run tasks on a cluster, in one stage; yields outcomes as they come.

    A task that fails for good, such as for want of memory on its worker, ends the stage. It is an
    outcome with an error, and takes no other along: a further stage goes on with the rest.

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
    """The place of the task that ended a stage; where Spark names none, of all that wait."""
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
