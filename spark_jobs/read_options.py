"""Parses the options and inputs of Spark reads of captures, for tables and streams."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, get_args

from dissector.errors import DissectorError, InputError, UsageError
from dissector.local_paths import located
from dissector.options import OVERLAPS, Options
from dissector.protocols import PROTOCOL_NAMES
from dissector.schemas import TABLES
from dissector.sources.rings import ChainMode

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SETTLED_SECONDS: Final = 60  # without a write until a stream's file counts as complete
_PATHS: Final = ("path", "paths")
_FLAGS: Final = {"true": True, "false": False}
# Options of the dissection that the data source does not accept.
_NOT_HERE: Final = ("decode_as", "follow_connection")
_OF_STREAMS: Final = ("settled_seconds", "max_files_per_trigger")
_TEXTS: Final = ("keylog",)
_CHOICES: Final = {
    "chain": get_args(ChainMode),
    "protocol": ("auto", *PROTOCOL_NAMES),
    "overlap": OVERLAPS,
    "want_detail": ("none", "rare", "all"),
}


@contextmanager
def in_one_line() -> Iterator[None]:
    """Makes Spark show only the text of our errors, which says what to do, without a stack trace.

    Spark reads an environment variable; its own worker process ends with the error.
    """
    try:
        yield
    except DissectorError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class ReadOptions:
    """The parsed options of a read: table, chain, cluster, options of the dissection.

    settled_seconds, max_files (None: all complete files): of a stream; of_streams: the given
    options that only streams have.

    Raises:
        UsageError: an option or its value is invalid.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        kinds = {each.name: each.default for each in fields(Options) if each.name not in _NOT_HERE}
        values: dict[str, Any] = {}
        self.table = "frames"
        self.chain: ChainMode = "auto"
        self.cluster: str | None = None
        self.is_strict = True
        self.settled_seconds = SETTLED_SECONDS
        self.max_files: int | None = None
        self.of_streams = [raw for raw in given if raw.lower() in _OF_STREAMS]
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
            elif name == "settled_seconds":
                self.settled_seconds = _value(name, text, SETTLED_SECONDS)
            elif name == "max_files_per_trigger":
                self.max_files = max(1, _value(name, text, 1))
            elif name == "decode_as":
                values[name] = dict(map(_port, filter(None, text.split(","))))
            elif name in kinds:
                values[name] = _value(name, text, kinds[name])
            elif name not in _PATHS:
                known = ("table", "chain", "cluster", "strict", "decode_as", *_OF_STREAMS, *kinds)
                raise UsageError(f"no option {raw}; there are {', '.join(known)}")
        self.options = Options(**values)

    def columns_of(self, schema: "StructType") -> list[str]:
        """The names of a schema's columns.

        Raises:
            UsageError: the table lacks a column, or it has another type.
        """
        from dissector.spark.schemas import spark_schema

        types = {one.name: one.dataType.simpleString() for one in spark_schema(self.table)}
        for one in schema:
            if one.name not in types:
                raise UsageError(f"the table {self.table} has no column {one.name}")
            wanted, actual = one.dataType.simpleString(), types[one.name]
            if wanted != actual:
                raise UsageError(
                    f"the column {one.name} of {self.table} is {actual}, not {wanted}: "
                    f"name it so in the schema, and cast it afterwards"
                )
        return schema.fieldNames()


def _no_value(name: str, text: str, known: Sequence[str]) -> UsageError:
    return UsageError(f"{name} cannot be {text!r}; choose one of {', '.join(known)}")


def _value(name: str, text: str, default: Any) -> Any:
    """Parse an option to the type of its default: a flag, a text or a number."""
    if isinstance(default, bool):
        if text.lower() not in _FLAGS:
            raise _no_value(name, text, tuple(_FLAGS))
        return _FLAGS[text.lower()]
    if isinstance(default, str) or name in _TEXTS:
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
    """The files, folders and patterns to read.

    Raises:
        InputError: there is none, or one is not on a local file system.
    """
    listed = json.loads(given["paths"]) if "paths" in given else []
    inputs = [*([given["path"]] if "path" in given else []), *listed]
    if not inputs:
        raise InputError("no capture is named: .load('captures/*.pcap')")
    return [_local(text) for text in inputs]


def _local(text: str) -> str:
    """An input as a local path; Spark's users may write `file:/...`."""
    if text == "-":
        raise InputError("-: only files can be read, not standard input")
    try:
        return text if os.path.lexists(text) else located(text)
    except UsageError as error:
        raise InputError(str(error)) from None


def no_file(path: str) -> str:
    """The error text for a pipe or a device."""
    return f"{path}: no file, and only files can be read again by a task"


def raise_for(problems: Iterable[str]) -> None:
    """Raise the first of some problems.

    Raises:
        InputError: there is a problem.
    """
    for text in problems:
        raise InputError(f"{text}; .option('strict', 'false') reads the other captures")
