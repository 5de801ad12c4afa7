"""Reads rows of Parquet files of any schema version as rows of the current version."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.lake.manifest import Manifest
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.arrow import ARROW_TYPES, arrow_schema

_CAPTURE: Final = "capture"
_ORIGIN: Final = "origin_capture"
PREVIOUS: Final = "previous_connection_id"


def read_rows(
    file: pq.ParquetFile,
    capture: Manifest,
    table: str,
    columns: Sequence[str] | None = None,
    group: int | None = None,
) -> pa.Table:
    """Read the rows of one file, or of one row group.

    Args:
        capture: of the file. columns: None for all declared ones. Columns that the file lacks are
            null; a missing `capture` is read from `origin_capture` or the manifest.
    """
    declared = {column.name: column for column in TABLES[table].columns}
    wanted = list(declared) if columns is None else list(columns)
    file_columns = set(file.schema_arrow.names)
    stored = [name for name in wanted if name in file_columns]
    is_named_by_folder = _CAPTURE in wanted and _CAPTURE not in file_columns
    if is_named_by_folder and _ORIGIN not in stored:
        stored.append(_ORIGIN)
    rows = file.read(stored) if group is None else file.read_row_group(group, stored)
    arrays = []
    for name in wanted:
        if name in file_columns:
            arrays.append(rows.column(name))
        elif name == _CAPTURE:
            arrays.append(rows.column(_ORIGIN).fill_null(capture.capture_id))
        else:
            arrays.append(pa.nulls(rows.num_rows, ARROW_TYPES[declared[name].type]))
    if not wanted:
        return rows
    return pa.Table.from_arrays(arrays, names=wanted)


def names_of_rows(path: Path, metadata: pq.FileMetaData, capture: Manifest) -> frozenset[str]:
    """Return the distinct captures of the rows of one file.

    Args:
        metadata: of that file.
    """
    captures: set[str] = set()
    if metadata.num_rows == 0:
        return frozenset()
    column = _CAPTURE if _CAPTURE in metadata.schema.names else _ORIGIN
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=[column]) as file:
        # One column gives other threads nothing to do.
        for batch in file.iter_batches(columns=[column], use_threads=False):
            names = batch.column(0).unique().to_pylist()
            captures.update(capture.capture_id if name is None else name for name in names)
    return frozenset(captures)


def with_previous_connections(rows: pa.Table, deliveries: pa.Table) -> pa.Table:
    """Add `previous_connection_id` to deliveries of schema version 1, which lacks it.

    A frame number identifies a frame within its capture only; if the previous delivery is in an
    earlier rotation of a tap, the column stays null.

    Args:
        deliveries: capture, frame_no and connection_id of all deliveries of the captures.
    """
    import pyarrow.compute as pc

    previous = pa.nulls(rows.num_rows, pa.int64())
    for capture in pc.unique(rows.column(_CAPTURE)):
        of_capture = deliveries.filter(pc.equal(deliveries.column(_CAPTURE), capture))
        at = pc.index_in(rows.column("previous_frame_no"), value_set=of_capture.column("frame_no"))
        is_of_capture = pc.and_(pc.equal(rows.column(_CAPTURE), capture), pc.is_valid(at))
        known = pc.and_(is_of_capture, pc.is_valid(rows.column("previous_frame_no")))
        previous = pc.if_else(known, of_capture.column("connection_id").take(at), previous)
    column = rows.schema.get_field_index(PREVIOUS)
    return rows.set_column(column, PREVIOUS, previous)


def is_schema_of(schema: pa.Schema, table: str, version: int) -> bool:
    """Whether a file has a table's columns of a schema version. Older versions have a subset of the
    current columns, in the same order; version 1 lacks `capture`."""
    declared = arrow_schema(table)
    if version == SCHEMA_VERSION:
        return bool(schema.equals(declared))
    names = set(schema.names)
    if (_CAPTURE in names) != (version > 1) or _ORIGIN not in names:
        return False
    return bool(schema.equals(pa.schema([field for field in declared if field.name in names])))
