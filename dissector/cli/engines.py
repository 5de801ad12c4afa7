"""The choice of a report's engine: DuckDB in this process, or Spark, on one machine or many."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from dissector.errors import UsageError, needs
from dissector.queries.duckdb_engine import DuckdbEngine

if TYPE_CHECKING:
    from dissector.cli.options import Common
    from dissector.report.partitions import Engine

Name = Literal["auto", "duckdb", "spark"]
# A lake of more rows is queried by Spark: with fewer, DuckDB ends before Spark has started.
LARGE_ROWS: Final = 100_000_000
# The environment variable that spark-submit sets for its program.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"

engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "duckdb", "spark"]),
    default="auto",
    show_default=True,
    help="Count with DuckDB in this process, or with Spark.",
)


def chosen(name: Name, master: str | None, rows: int) -> tuple[str, str]:
    """The engine's name, and the sentence that says which one and why.

    Args:
        master: of Spark, if the user named one. rows: of the lake.

    Raises:
        UsageError: DuckDB has no master.
    """
    if name == "duckdb" and master is not None:
        raise UsageError("--master is of Spark: leave it or --engine duckdb out")
    if name != "auto":
        return name, f"engine: {name}"
    if master is not None:
        return "spark", "engine: spark, since --master names where"
    if _SUBMITTED in os.environ:
        return "spark", "engine: spark, which started this program"
    if rows > LARGE_ROWS:
        return "spark", f"engine: spark, for {rows:,} rows; --engine duckdb counts in this process"
    return "duckdb", f"engine: duckdb, for {rows:,} rows; --engine spark shares the work out"


@contextmanager
def opened(
    name: str, master: str | None, common: "Common"
) -> Iterator[Callable[[Path], AbstractContextManager["Engine"]]]:
    """Yield a function from a folder for intermediate files to an engine.

    Spark starts at the first call: with all rows cached, it is not needed.

    Raises:
        DependencyError: Spark is missing. The yielded function raises it if Java is.
    """
    if name == "duckdb":
        yield partial(DuckdbEngine, threads=common.jobs)
        return
    with needs("spark,jvm", "--engine duckdb and `dissector summary` work without"):
        from dissector.spark.engine import SparkEngine
        from dissector.spark.session import started
    with ExitStack() as stack:
        # A running session is reused.
        yield lambda folder: SparkEngine(
            stack.enter_context(started(master, "dissector-report")), folder
        )
