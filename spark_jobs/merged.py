"""Parts of a report that are no sums over captures, as rows that can be kept for each capture.

A message that two captures hold counts once, and so does an entry; a send that one capture saw and
another one repeats is one. For each capture rows are kept that are as few as these need, and what
makes the part of the rows of all.
"""

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

# Rows of all captures, and the label of each capture's cluster (capture, cluster), to the part.
Finish = Callable[[DataFrame, DataFrame], DataFrame]


class Merged(NamedTuple):
    """rows: of the captures that are read, with their capture; finish: makes the part of the rows
    of all; schema: of the part."""

    rows: DataFrame
    finish: Finish
    schema: pa.Schema
