"""Tallies by Spark, and from DataFrames to the tables that the report's arithmetic takes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dissector.report.tallies import Tally

# Jobs of a small lake wait for the scheduler, not for the processor: some at once save seconds.
AT_ONCE: Final = 4


def tally(rows: DataFrame, what: Tally) -> DataFrame:
    """Sum up rows by the keys of a tally; rows have its keys and everything that is summed."""
    sums = [F.sum(name).alias(name) for name in what.sums]
    lows = [F.min(name).alias(f"{name}_min") for name in what.lows]
    highs = [F.max(name).alias(f"{name}_max") for name in what.highs]
    return rows.groupBy(*what.key_names).agg(*sums, *lows, *highs)


def collected(rows: DataFrame, schema: pa.Schema) -> pa.Table:
    """A small DataFrame as an Arrow table of a schema."""
    table = rows.select(*schema.names).toArrow()
    arrays = [table.column(field.name).cast(field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def collect_all(
    frames: dict[str, tuple[DataFrame, pa.Schema]], done: Callable[[str], None] = lambda name: None
) -> dict[str, pa.Table]:
    """Several small DataFrames by name, some of them computed at the same time.

    Args:
        done: takes the name of each that is computed, in this thread.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = {
            pool.submit(collected, rows, schema): name for name, (rows, schema) in frames.items()
        }
        for future in as_completed(names):
            future.result()  # the first failure ends it
            done(names[future])
        return {name: future.result() for future, name in names.items()}
