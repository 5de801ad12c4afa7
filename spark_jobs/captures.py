"""A Spark data source for captures: the rows of any table of the lake, without landing.

    spark.read.format("pulsar_pcap").option("table", "deliveries").load("captures/*.pcap")

Spark discovers the format if this package is installed (`pyspark_pulsar_pcap`). Every capture is
one partition, and the files of a ring are one capture, as in `dissector land`. The rows, their
order and `capture` are those that landing would write; the caller's schema selects columns. A
partition keeps a few blocks of rows in memory, whatever its size.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from dissector.errors import DissectorError, InputError, UsageError
from dissector.sources.rings import Chain
from dissector.spark.schemas import spark_schema
from dissector.spark.uris import absolute
from spark_jobs import conditions
from spark_jobs.capture_rows import rows_of
from spark_jobs.read_options import ReadOptions, in_one_line, inputs_of, no_file, raise_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

NAME: Final = "pulsar_pcap"


class PulsarPcap(DataSource):
    """The format `pulsar_pcap`; options are those of `dissector land`, and `table`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """All columns of the table.

        Raises:
            UsageError: an option or its value is invalid. InputError: a file does not exist.
        """
        with in_one_line():
            options = ReadOptions(self.options)
            inputs_of(self.options)
            return spark_schema(options.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        with in_one_line():
            options, inputs = ReadOptions(self.options), inputs_of(self.options)
            if options.of_streams:
                raise UsageError(f"{options.of_streams[0]} is an option of readStream alone")
            kind = ConditionalReader if conditions.are_asked() else CapturesReader
            return kind(options, inputs, options.columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_jobs.capture_stream import CaptureStream, RefusedStream

        try:
            options, inputs = ReadOptions(self.options), inputs_of(self.options)
            return CaptureStream(options, inputs, options.columns_of(schema))
        except DissectorError as error:
            return RefusedStream(error)


class Capture(InputPartition):
    """A partition: one capture, with absolute paths."""

    def __init__(self, chain: Chain | None) -> None:
        super().__init__(chain)


class CapturesReader(DataSourceReader):
    """Reads captures, one partition each.

    columns: of the table, in the order of the result.
    """

    def __init__(self, options: ReadOptions, inputs: Sequence[str], columns: Sequence[str]) -> None:
        self._options = options
        self._inputs = list(inputs)
        self._columns = list(columns)
        self._conditions: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """One per capture, the largest first.

        Raises:
            InputError: an input cannot be read, or with `strict` "false": none can.
        """
        with in_one_line():
            return self._partitions()

    def _partitions(self) -> list[InputPartition]:
        from dissector.sources.files import is_file, raise_if_nothing
        from dissector.sources.rings import chains

        plan = chains(self._inputs, self._options.chain)
        raise_if_nothing(plan.problems, len(plan.chains))
        if self._options.is_strict:
            raise_for(problem.text for problem in plan.problems)
        for path in (path for chain in plan.chains for path in chain.files):
            if not is_file(path):
                raise InputError(no_file(path))
        selected = [chain for chain in plan.chains if conditions.may_hold(chain, self._conditions)]
        ordered = sorted(selected, key=lambda chain: -chain.stored_bytes)
        return [Capture(absolute(chain)) for chain in ordered]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of one capture.

        Raises:
            InputError: its files cannot be read any more, or are not those of before.
        """
        if partition.value is not None:
            with in_one_line():
                yield from rows_of(partition.value, self._options, self._columns, self._conditions)


class ConditionalReader(CapturesReader):
    """A reader that evaluates conditions, so that Spark receives only matching rows."""

    def pushFilters(self, filters: list["Filter"]) -> Iterable["Filter"]:
        """Accept the conditions that `conditions` supports; returns the others."""
        self._conditions = list(conditions.taken(self._options.table, filters))
        return [each for each in filters if not any(each is one for one in self._conditions)]
