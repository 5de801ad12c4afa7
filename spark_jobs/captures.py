"""Captures as a data source of Spark: the rows of any table of the lake, without landing.

    spark.read.format("pulsar_pcap").option("table", "deliveries").load("captures/*.pcap")

Spark finds the name by itself where this package is installed (`pyspark_pulsar_pcap`). Every
capture is one partition, and files of a ring are one capture, as `dissector land` has it. The rows
are those that landing would write, in their order, with the same `capture`; a schema that the
caller gives chooses columns. A partition holds a few blocks of rows at a time, whatever its size.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from dissector.errors import DissectorError, InputError, UsageError
from dissector.options import OVERLAPS, Options
from dissector.protocols import PROTOCOL_NAMES
from dissector.schemas import TABLES
from dissector.sources.rings import Chain, ChainMode
from dissector.spark.schemas import spark_schema
from dissector.spark.uris import absolute

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "pulsar_pcap"
BATCH_ROWS: Final = 8192
_PATHS: Final = ("path", "paths")
_FLAGS: Final = {"true": True, "false": False}
# Options of the dissection that are not the source's to set.
_NOT_HERE: Final = ("decode_as", "follow_connection")
_CHOICES: Final = {
    "chain": get_args(ChainMode),
    "protocol": ("auto", *PROTOCOL_NAMES),
    "overlap": OVERLAPS,
    "want_detail": ("none", "rare", "all"),
}


NO_STREAM: Final = (
    "pulsar_pcap reads captures that are complete, and is no stream; a table of a lake is one, of "
    "what taps and `dissector land` add to it: "
    "spark.readStream.schema(spark.read.parquet('LAKE/frames').schema).parquet('LAKE/frames')"
)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Lets Spark show the text of our errors alone: they say what to do, and a trace hides it.

    It asks the environment of this process, which ends with the error where it is one of Spark's.
    """
    try:
        yield
    except DissectorError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class PulsarPcap(DataSource):
    """The format `pulsar_pcap`; options are those of `dissector land`, and `table`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """All columns of the table.

        Raises:
            UsageError: an option is unknown or has no such value. InputError: no such file.
        """
        with _in_one_line():
            options = ReadOptions(self.options)
            inputs_of(self.options)
            return spark_schema(options.table)

    def reader(self, schema: StructType) -> DataSourceReader:
        with _in_one_line():
            return CapturesReader(
                ReadOptions(self.options), inputs_of(self.options), schema.fieldNames()
            )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NoStream()


class NoStream(DataSourceStreamReader):
    """What Spark gets where it asks for a stream: its first question is answered with what works.

    An error before it has a reader Spark buries under another one.
    """

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        with _in_one_line():
            raise UsageError(NO_STREAM)


class ReadOptions:
    """What the options of a read say: table, chain, cluster, options of the dissection.

    Raises:
        UsageError: one is unknown or has no such value.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        kinds = {each.name: each.default for each in fields(Options) if each.name not in _NOT_HERE}
        values: dict[str, Any] = {}
        self.table = "frames"
        self.chain: ChainMode = "auto"
        self.cluster: str | None = None
        self.is_strict = True
        for raw, text in given.items():
            name = raw.lower()
            if name in _CHOICES and text not in _CHOICES[name]:
                raise _no_value(name, text, _CHOICES[name])
            if name == "table":
                if text not in TABLES:
                    raise _no_value(name, text, tuple(TABLES))
                self.table = text
            elif name == "chain":
                self.chain = text  # type: ignore[assignment]
            elif name == "cluster":
                self.cluster = text
            elif name == "strict":
                self.is_strict = _value(name, text, True)
            elif name == "decode_as":
                values[name] = dict(map(_port, filter(None, text.split(","))))
            elif name in kinds:
                values[name] = _value(name, text, kinds[name])
            elif name not in _PATHS:
                known = ("table", "chain", "cluster", "strict", "decode_as", *kinds)
                raise UsageError(f"no option {raw}; there are {', '.join(known)}")
        self.options = Options(**values)


def _no_value(name: str, text: str, known: Sequence[str]) -> UsageError:
    return UsageError(f"{name} cannot be {text!r}; choose one of {', '.join(known)}")


def _value(name: str, text: str, default: Any) -> Any:
    """The value of an option, of the type that its default has: a flag, a text or a number."""
    if isinstance(default, bool):
        if text.lower() not in _FLAGS:
            raise _no_value(name, text, tuple(_FLAGS))
        return _FLAGS[text.lower()]
    if isinstance(default, str):
        return text
    if not text.isdecimal():
        raise UsageError(f"{name} cannot be {text!r}; write a whole number")
    return int(text)


def _port(text: str) -> tuple[int, str]:
    port, sign, protocol = text.strip().partition("=")
    if not sign or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"decode_as: {text!r} is no port and protocol; write 6655=pulsar")
    if protocol not in PROTOCOL_NAMES:
        raise _no_value("decode_as", protocol, PROTOCOL_NAMES)
    return int(port), protocol


def inputs_of(given: Mapping[str, str]) -> list[str]:
    """The files, folders and patterns that are to be read, all of this machine's file system.

    Raises:
        InputError: there is none, or it lies elsewhere.
    """
    listed = json.loads(given["paths"]) if "paths" in given else []
    inputs = [*([given["path"]] if "path" in given else []), *listed]
    if not inputs:
        raise InputError("no capture is named: .load('captures/*.pcap')")
    return [_local(text) for text in inputs]


def _local(text: str) -> str:
    """A path as Python takes it; Spark's users write `file:/...` too."""
    parts = urlsplit(text)
    if parts.scheme == "file" and not os.path.lexists(text):
        return unquote(parts.path)
    if text == "-" or (parts.scheme and text.startswith(f"{parts.scheme}://")):
        raise InputError(f"{text}: only files of a local or mounted folder can be read")
    return text


class Capture(InputPartition):
    """One capture, a partition; its files by their full names."""

    def __init__(self, chain: Chain | None) -> None:
        super().__init__(chain)


class CapturesReader(DataSourceReader):
    """Reads captures, one partition each.

    columns: of the table, in the order in which they are wanted.
    """

    def __init__(self, options: ReadOptions, inputs: Sequence[str], columns: Sequence[str]) -> None:
        self._options = options
        self._inputs = list(inputs)
        self._columns = list(columns)

    def partitions(self) -> list[InputPartition]:
        """One per capture, the largest first.

        Raises:
            InputError: an input cannot be read, or with `strict` "false": none can.
        """
        with _in_one_line():
            return self._partitions()

    def _partitions(self) -> list[InputPartition]:
        from dissector.sources.files import is_file, raise_if_nothing
        from dissector.sources.rings import chains

        known = {column.name for column in TABLES[self._options.table].columns}
        if unknown := [name for name in self._columns if name not in known]:
            raise UsageError(f"the table {self._options.table} has no column {unknown[0]}")
        plan = chains(self._inputs, self._options.chain)
        raise_if_nothing(plan.problems, len(plan.chains))
        if self._options.is_strict and plan.problems:
            text = plan.problems[0].text
            raise InputError(f"{text}; .option('strict', 'false') reads the other captures")
        for path in (path for chain in plan.chains for path in chain.files):
            if not is_file(path):
                raise InputError(f"{path}: no file, and only files can be read again by a task")
        ordered = sorted(plan.chains, key=lambda chain: -chain.stored_bytes)
        return [Capture(absolute(chain)) for chain in ordered]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of one capture.

        Raises:
            InputError: its files cannot be read any more, or are not those of before.
        """
        if partition.value is not None:
            with _in_one_line():
                yield from rows_of(partition.value, self._options, self._columns)


def rows_of(
    chain: Chain, options: ReadOptions, columns: Sequence[str]
) -> Iterator["pa.RecordBatch"]:
    """The rows of a table of one capture, some thousand at a time."""
    import pyarrow as pa

    from dissector.lake.digest import ChainDigest
    from dissector.schemas.arrow import arrow_schema
    from dissector.schemas.rows import TableBuilder
    from dissector.sources.account import Account
    from dissector.sources.dissect import dissect

    whole = arrow_schema(options.table)
    schema = pa.schema([whole.field(name) for name in columns])
    capture = capture_of(chain) if "capture" in columns else None
    digest, account = ChainDigest(), Account(chain.base_name, chain.shown_names)
    builder = TableBuilder(options.table, BATCH_ROWS)

    def batch() -> pa.RecordBatch:
        rows = builder.rows
        built = builder.finish()
        arrays = [
            pa.repeat(pa.scalar(capture), rows)
            if name == "capture"
            else built.column(name).cast(schema.field(name).type)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    for block in dissect(chain, options.options, digest=digest, cluster=options.cluster):
        account.add(block)
        if block.table != options.table:
            continue
        start = 0
        while start < block.rows:
            stop = min(block.rows, start + builder.free_rows)
            builder.append(block, start, stop)
            start = stop
            if not builder.free_rows:
                yield batch()
                builder = TableBuilder(options.table, BATCH_ROWS)
    if capture is not None and capture != _id_of(chain, digest):
        raise InputError(f"{chain.files[0]}: it was written to while it was read")
    if account.is_unreadable:
        raise InputError(account.missing[0])
    if builder.rows:
        yield batch()


def _id_of(chain: Chain, digest: Any) -> str:
    from dissector.sources.rings import capture_id

    return capture_id(chain.base_name, digest.sha256())


def capture_of(chain: Chain) -> str:
    """The id that a lake would give to a capture; reads all of its bytes."""
    from dissector.capture.reader import CaptureReader
    from dissector.lake.digest import ChainDigest
    from dissector.sources.files import Buffer, ChainReader, FileStart

    digest, scout = ChainDigest(), CaptureReader()
    with ChainReader(chain.files, digest) as reader:
        for event in reader:
            if isinstance(event, FileStart):
                scout.start_file()
            elif isinstance(event, Buffer):
                scan = scout.feed(event.data, event.start, event.end, event.is_last)
                while scan.is_more:
                    scan = scout.feed(event.data, scan.consumed, event.end, event.is_last)
                event.consumed, event.is_enough = scan.consumed, scout.is_over
            else:
                scout.finish_file()
    return _id_of(chain, digest)
