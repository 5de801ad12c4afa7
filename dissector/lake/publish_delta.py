"""Publish a lake as Delta Lake tables: LAKE/<table>/_delta_log lists the table's data files.

The folder of a table has Delta's layout already: files in the folders of the partition columns
`day` and `landing`. A data file is identified by its path, size and modification time.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from dissector.errors import OutputError, needs
from dissector.lake.publish import (
    DAY,
    ConflictError,
    Difference,
    Held,
    LakeFile,
    Published,
    leaves_of,
    private_folder,
)
from dissector.limits import STORE_CONNECT_SECONDS, STORE_TIMEOUT_SECONDS
from dissector.schemas.arrow import arrow_schema
from dissector.storage.addresses import s3_server

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_LOG: Final = "_delta_log"
_PARTITIONS: Final = [DAY, pa.field("landing", pa.string())]
_CONFIGURATION: Final = {
    # Statistics of all columns, not of the first 32 alone.
    "delta.dataSkippingNumIndexedCols": "-1",
    # VACUUM deletes unlisted files older than this: landings that are not published yet.
    "delta.deletedFileRetentionDuration": "interval 520 weeks",
}


_OF_S3: Final = {
    # A commit is a conditional write: it fails if the file exists.
    "aws_conditional_put": "etag",
    "timeout": f"{STORE_TIMEOUT_SECONDS}s",
    "connect_timeout": f"{STORE_CONNECT_SECONDS}s",
}
_ASKED: Final = "Error performing"  # in an error text, before the request and its response
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_STATUS: Final = re.compile(r"\b([1-5]\d\d [A-Z][A-Za-z -]{1,40})")


class _Known(NamedTuple):
    """A file in the table's log. time_ms: modification time, ms since 1970."""

    bytes: int
    time_ms: int
    partitions: dict[str, Any]


class _Place(NamedTuple):
    """Location of a table: its address, and whether that is in a store."""

    table: str
    address: str
    is_stored: bool

    @property
    def uri(self) -> str:
        """The percent-encoded address that the library expects."""
        return quote(os.fsencode(self.address), safe=":/@")

    @property
    def log(self) -> str:
        """Path of the table's log, for messages."""
        return f"{self.address.removeprefix('file://')}/{_LOG}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options that the library does not read from the environment as we do."""
        if not self.address.startswith("s3://"):
            return {}
        endpoint, region = s3_server()
        server = {"aws_endpoint_url": endpoint, "aws_region": region}
        clear = {"aws_allow_http": "true"} if (endpoint or "").startswith("http://") else {}
        return _OF_S3 | clear | {name: value for name, value in server.items() if value}


class Delta:
    """The Delta Lake tables of a lake, each in the table's own folder."""

    name = "delta"

    def __init__(self) -> None:
        """Raises: DependencyError: deltalake is missing."""
        with needs("publish", "all but lake publish works without"):
            import deltalake  # noqa: F401

    def listed(self, table: str, root: str) -> set[str]:
        """See Format."""
        place = _Place(table, f"{root}/{table}", is_stored=True)
        with _written(place):
            there = _opened(place)
            return set() if there is None else set(_listed(there))

    def publish(self, table: str, held: Held) -> Published:
        """See Format."""
        place = _Place(table, f"{held.root}/{table}", held.stored is not None)
        if not place.is_stored:
            private_folder(held.lake.folder.absolute() / table / _LOG)
        with _written(place):
            there = _opened(place)
            files = {file.inner: file for file in held.files(table)}
            listed = {} if there is None else _listed(there)
            is_same, time_ms = _OF_STORES if place.is_stored else (_is_same, _time_ms)
            difference = held.difference(files, listed, is_same)
            adding = held.described(lambda each: _add_action(each, time_ms), difference.added)
            with _seen(place, there):
                if there is None:
                    _create(place, adding)
                else:
                    _commit(there, table, adding, _removed(difference, listed))
        return Published.of(table, files.values(), difference)


@contextmanager
def _written(place: _Place) -> Iterator[None]:
    """Convert the library's exceptions to our errors.

    Raises:
        ConflictError, OutputError: as Format says.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise ConflictError(str(error)) from error
    except (DeltaError, OSError) as error:
        raise OutputError(
            f"cannot write the Delta table {place.table} in {place.log}: {_brief(error)}"
        ) from error


def _brief(error: Exception) -> str:
    """Return the library's message in one line, without the server responses that it quotes."""
    text = _COLOURS.sub("", str(error))
    lines = [line.strip(" \u21b3") for line in text.partition(_ASKED)[0].splitlines()]
    answer = _CODE.search(text) or _STATUS.search(text)
    said = ": ".join([*filter(None, lines), *(answer.groups() if answer else ())])
    if answer is None and _ASKED in text:
        return f"{said}: no answer, and whether it was written is not known: publish again"
    return f"{said}; it is as it was"


@contextmanager
def _seen(place: _Place, there: "DeltaTable | None") -> Iterator[None]:
    """Raise ConflictError if the body fails and the table's version has changed: another writer
    committed, or our commit succeeded and the store's response was lost."""
    from deltalake.exceptions import DeltaError

    version = None if there is None else there.version()
    try:
        yield
    except (DeltaError, OSError) as error:
        now = _opened(place)
        if (None if now is None else now.version()) == version:
            raise
        raise ConflictError(str(error)) from error


def _opened(place: _Place) -> "DeltaTable | None":
    """Open the table at a location; None if there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(place.uri, storage_options=place.options)
    except TableNotFoundError:
        return None
    if table.metadata().partition_columns != [field.name for field in _PARTITIONS]:
        raise OutputError(f"{place.log} is not of lake publish: remove it, and publish again")
    return table


def _listed(table: "DeltaTable") -> dict[str, _Known]:
    actions = pa.table(table.get_add_actions()).select(
        ["path", "size_bytes", "modification_time", "partition"]
    )
    columns = (column.to_pylist() for column in actions.columns)
    return {path: _Known(*known) for path, *known in zip(*columns, strict=True)}


def _is_same(file: LakeFile, known: _Known) -> bool:
    return (file.bytes, _time_ms(file)) == (known.bytes, known.time_ms)


def _is_same_name(file: LakeFile, known: _Known) -> bool:
    """As _is_same, in a store, where a name is never used again."""
    return file.bytes == known.bytes


def _time_ms(file: LakeFile) -> int:
    return os.stat(file.path).st_mtime_ns // 1_000_000


def _now_ms(_: LakeFile) -> int:
    return time.time_ns() // 1_000_000


_OF_STORES: Final = (_is_same_name, _now_ms)


def _add_action(file: LakeFile, time_ms: Callable[[LakeFile], int]) -> "AddAction":
    from deltalake.transaction import AddAction

    leaves, _ = leaves_of(file)
    # The range of a boolean skips no file, and readers expect none.
    ranged = {
        name: leaf for name, leaf in leaves.items() if not isinstance(leaf.least, bool | None)
    }
    statistics = {
        "numRecords": file.rows,
        "minValues": {name: _as_json(leaf.least) for name, leaf in ranged.items()},
        "maxValues": {name: _as_json(leaf.most) for name, leaf in ranged.items()},
        # Elements of lists and maps have no statistics in Delta.
        "nullCount": {
            name: leaf.nulls
            for name, leaf in leaves.items()
            if leaf.nulls is not None and "." not in name
        },
    }
    return AddAction(
        file.inner,
        file.bytes,
        {"day": None if file.day is None else file.day.isoformat(), "landing": file.landing},
        time_ms(file),
        data_change=True,
        stats=json.dumps(statistics),
    )


def _as_json(bound: object) -> object:
    return f"{bound:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(bound, datetime) else bound


def _removed(difference: Difference, listed: dict[str, _Known]) -> list["RemoveAction"]:
    """Return the remove actions; none for a path that is added again, as the add replaces it."""
    from deltalake.transaction import RemoveAction

    now_ms = time.time_ns() // 1_000_000
    re_added = {file.inner for file in difference.added}
    return [
        RemoveAction(
            path,
            True,
            now_ms,
            listed[path].bytes,
            {name: None if of is None else str(of) for name, of in listed[path].partitions.items()},
        )
        for path in difference.removed
        if path not in re_added
    ]


def _schema(table: str) -> pa.Schema:
    return pa.schema([*arrow_schema(table), *_PARTITIONS])


def _once() -> "CommitProperties":
    """Return properties without retries: else the library commits after another writer's commit if
    that removed none of our files."""
    from deltalake import CommitProperties

    return CommitProperties(max_commit_retries=0)


def _create(place: _Place, adding: list["AddAction"]) -> None:
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    create_table_with_add_actions(
        place.uri,
        Schema.from_arrow(_schema(place.table)),
        adding,
        mode="error",
        partition_by=[field.name for field in _PARTITIONS],
        name=place.table,
        configuration=_CONFIGURATION,
        storage_options=place.options,
        commit_properties=_once(),
    )


def _commit(
    there: "DeltaTable", table: str, adding: list["AddAction"], removed: list["RemoveAction"]
) -> None:
    """Add the columns that the table lacks, then commit the file changes."""
    from deltalake import Schema

    schema = _schema(table)
    known = {field.name for field in there.schema().fields}
    if missing := [field for field in Schema.from_arrow(schema).fields if field.name not in known]:
        there.alter.add_columns(missing)
    if adding or removed:
        there.create_write_transaction(
            [*adding, *removed],
            mode="append",
            schema=schema,
            partition_by=[field.name for field in _PARTITIONS],
            commit_properties=_once(),
        )
