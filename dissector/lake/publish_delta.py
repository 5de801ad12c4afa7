"""A lake as tables of Delta Lake: LAKE/<table>/_delta_log lists the files that lie beside it.

The folder of a table is one of that format already: files in folders of partitions, `day` and
`landing`. A file is known by its path, its size and its time.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from dissector.schemas.arrow import arrow_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_LOG: Final = "_delta_log"
_PARTITIONS: Final = [DAY, pa.field("landing", pa.string())]
_CONFIGURATION: Final = {
    # Ranges of all columns, not of the first 32 alone.
    "delta.dataSkippingNumIndexedCols": "-1",
    # What is not listed and older than this, VACUUM deletes: landings that nobody published yet.
    "delta.deletedFileRetentionDuration": "interval 520 weeks",
}


class _Known(NamedTuple):
    """What a log says of a file. time_ms: since 1970."""

    bytes: int
    time_ms: int
    partitions: dict[str, Any]


class Delta:
    """Tables of Delta Lake, each in its own folder of the lake."""

    name = "delta"

    def __init__(self) -> None:
        """Raises: DependencyError: deltalake is missing."""
        with needs("publish", "all but lake publish works without"):
            import deltalake  # noqa: F401

    def publish(self, table: str, held: Held) -> Published:
        """See Format."""
        files = {file.inner: file for file in held.files(table)}
        folder = held.lake.folder.absolute() / table
        private_folder(folder / _LOG)
        with _written(table, folder):
            there = _opened(folder)
            listed = {} if there is None else _listed(there)
            difference = held.difference(files, listed, _is_same)
            adding = [_add_action(file) for file in difference.added]
            if there is None:
                _create(folder, table, adding)
            else:
                _commit(there, table, adding, _removed(difference, listed))
        return Published(
            table,
            len(files),
            sum(file.rows for file in files.values()),
            len(difference.added),
            len(difference.removed),
        )


@contextmanager
def _written(table: str, folder: Path) -> Iterator[None]:
    """Turn what the library raises into our errors.

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
            f"cannot write the Delta table {table} in {folder / _LOG}: {error}; it is as it was"
        ) from error


def _opened(folder: Path) -> "DeltaTable | None":
    """The table in a folder, None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(folder.as_uri())
    except TableNotFoundError:
        return None
    if table.metadata().partition_columns != [field.name for field in _PARTITIONS]:
        raise OutputError(f"{folder / _LOG} is not of lake publish: remove it, and publish again")
    return table


def _listed(table: "DeltaTable") -> dict[str, _Known]:
    actions = pa.table(table.get_add_actions()).select(
        ["path", "size_bytes", "modification_time", "partition"]
    )
    columns = (column.to_pylist() for column in actions.columns)
    return {path: _Known(*known) for path, *known in zip(*columns, strict=True)}


def _is_same(file: LakeFile, known: _Known) -> bool:
    return (file.bytes, _time_ms(file)) == (known.bytes, known.time_ms)


def _time_ms(file: LakeFile) -> int:
    return os.stat(file.path).st_mtime_ns // 1_000_000


def _add_action(file: LakeFile) -> "AddAction":
    from deltalake.transaction import AddAction

    leaves, _ = leaves_of(file)
    # A flag's range tells nothing, and readers expect none.
    ranged = {
        name: leaf for name, leaf in leaves.items() if not isinstance(leaf.least, bool | None)
    }
    statistics = {
        "numRecords": file.rows,
        "minValues": {name: _as_json(leaf.least) for name, leaf in ranged.items()},
        "maxValues": {name: _as_json(leaf.most) for name, leaf in ranged.items()},
        # What lists and maps hold is below their columns, and has no place here.
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
        _time_ms(file),
        data_change=True,
        stats=json.dumps(statistics),
    )


def _as_json(bound: object) -> object:
    return f"{bound:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(bound, datetime) else bound


def _removed(difference: Difference, listed: dict[str, _Known]) -> list["RemoveAction"]:
    """What is to be taken off the list. A file under whose path another one lies is not: adding it
    takes the place of the old one."""
    from deltalake.transaction import RemoveAction

    now_ms = time.time_ns() // 1_000_000
    again = {file.inner for file in difference.added}
    return [
        RemoveAction(
            path,
            True,
            now_ms,
            listed[path].bytes,
            {name: None if of is None else str(of) for name, of in listed[path].partitions.items()},
        )
        for path in difference.removed
        if path not in again
    ]


def _schema(table: str) -> pa.Schema:
    return pa.schema([*arrow_schema(table), *_PARTITIONS])


def _create(folder: Path, table: str, adding: list["AddAction"]) -> None:
    from deltalake import Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import create_table_with_add_actions

    try:
        create_table_with_add_actions(
            folder.as_uri(),
            Schema.from_arrow(_schema(table)),
            adding,
            mode="error",
            partition_by=[field.name for field in _PARTITIONS],
            name=table,
            configuration=_CONFIGURATION,
        )
    except DeltaError:
        if _opened(folder) is None:
            raise
        raise ConflictError from None


def _commit(
    there: "DeltaTable", table: str, adding: list["AddAction"], removed: list["RemoveAction"]
) -> None:
    """Add the columns that the table does not have, then change the list."""
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
        )
