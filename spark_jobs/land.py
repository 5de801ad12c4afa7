"""Land many captures on a cluster: one chain of files per task, the largest first.

    spark-submit spark_jobs/land.py INPUT... --lake LAKE
    python -m spark_jobs.land INPUT... --lake LAKE --master spark://host:7077 --archive FILE

Options, output and exit codes are those of `dissector land`, and so are the bytes in the lake: each
task calls the same function. It stages a capture beside the lake and installs it under the lake's
lock, and what is there already is left as it is; so a task that Spark runs again, or twice at once,
changes nothing. Captures and the lake must lie in folders that all machines see by the same names.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from dissector.dissection import Options
from dissector.errors import DissectorError, InputError
from dissector.lake.land import Outcome, landed_or_failed
from dissector.sources.account import Account
from dissector.sources.rings import Chain
from spark_jobs import session
from spark_jobs.archive import settings_of

MOST_AT_ONCE: Final = 256  # jobs that wait for the cluster's cores at the same time


class Task(NamedTuple):
    """What a task needs: number of the chain on the command line, the chain, and where it goes."""

    number: int
    chain: Chain
    lake: str
    options: Options
    cluster: str | None


def land_task(task: Task) -> Outcome | DissectorError:
    """On a worker: land one capture. A lake that cannot be written is returned, not raised, since
    the same attempt on another machine would fail in the same way."""
    try:
        return landed_or_failed(
            task.number, task.chain, Path(task.lake), task.options, task.cluster
        )
    except DissectorError as error:
        return error


def tasks_of(
    chains: Sequence[Chain], lake: Path, options: Options, cluster: str | None
) -> list[Task]:
    """One task per chain, the largest first, so that the last one to end is not the longest."""
    order = sorted(range(len(chains)), key=lambda number: (-chains[number].stored_bytes, number))
    folder = str(lake.absolute())
    return [Task(number, _absolute(chains[number]), folder, options, cluster) for number in order]


def _absolute(chain: Chain) -> Chain:
    """The chain with the full names of its files: a worker runs in a folder of its own."""
    return chain._replace(files=tuple(os.path.abspath(name) for name in chain.files))


def land_on(spark: SparkSession, tasks: Sequence[Task], at_once: int) -> Iterator[Outcome]:
    """Run tasks on a cluster; yields outcomes as they come.

    Each task is a Spark job by itself: one that fails for good, such as for want of memory on its
    worker, is an outcome with an error and takes no other along.

    Raises:
        OutputError: the lake could not be written.
    """
    context = spark.sparkContext

    def submit(task: Task) -> Outcome | DissectorError:
        try:
            found = context.parallelize([task], 1).map(land_task).collect()[0]
        except Exception as error:  # whatever Spark raises where a task failed too often
            return _failed(task, error)
        return found

    with ThreadPoolExecutor(max(1, min(at_once, len(tasks), MOST_AT_ONCE))) as pool:
        waiting = [pool.submit(submit, task) for task in tasks]
        try:
            for future in as_completed(waiting):
                found = future.result()
                if isinstance(found, DissectorError):
                    raise found
                yield found
        except BaseException:
            for future in waiting:
                future.cancel()
            context.cancelAllJobs()
            raise


@contextmanager
def started(master: str | None, archive: Path | None) -> Iterator[SparkSession]:
    """A session whose workers use an archive; one that runs already is used and left running."""
    running = SparkSession.getActiveSession()
    spark = running or session.start(master, 0, "dissector-land", settings_of(archive))
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def _failed(task: Task, error: Exception) -> Outcome:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines if "Lost task" in line or "Error" in line), "")
    text = f"{task.chain.files[0]}: its task failed on the cluster: {reason[:300] or 'no reason'}"
    account = Account()
    account.miss(text)
    return Outcome(task.number, account, None, InputError(text))


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself, with the options and words of the command line."""
    command: Any = importlib.import_module("dissector.cli.cluster")
    code: int = command.main(sys.argv[1:] if argv is None else list(argv))
    return code


if __name__ == "__main__":
    sys.exit(main())
