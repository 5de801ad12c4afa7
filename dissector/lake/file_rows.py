"""Rows of the Parquet files of a capture, of whatever schema version, as this version has them."""

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
    """Rows of one file: all of them, or one row group.

    Args:
        capture: whose file it is. columns: None = all that the table is declared with; those that
            the file's version did not have are null, but for `capture`, by which the folder was
            named.
    """
    declared = {column.name: column for column in TABLES[table].columns}
    wanted = list(declared) if columns is None else list(columns)
    there = set(file.schema_arrow.names)
    stored = [name for name in wanted if name in there]
    is_named_by_folder = _CAPTURE in wanted and _CAPTURE not in there
    if is_named_by_folder and _ORIGIN not in stored:
        stored.append(_ORIGIN)
    rows = file.read(stored) if group is None else file.read_row_group(group, stored)
    arrays = []
    for name in wanted:
        if name in there:
            arrays.append(rows.column(name))
        elif name == _CAPTURE:
            arrays.append(rows.column(_ORIGIN).fill_null(capture.capture_id))
        else:
            arrays.append(pa.nulls(rows.num_rows, ARROW_TYPES[declared[name].type]))
    if not wanted:
        return rows
    return pa.Table.from_arrays(arrays, names=wanted)


def names_of_rows(path: Path, metadata: pq.FileMetaData, capture: Manifest) -> frozenset[str]:
    """The captures that the rows of one file name as theirs.

    Args:
        metadata: of that file.
    """
    captures: set[str] = set()
    if metadata.num_rows == 0:
        return frozenset()
    column = _CAPTURE if _CAPTURE in metadata.schema.names else _ORIGIN
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=[column]) as file:
        # (Other threads would have nothing to do: it is one column.)
        for batch in file.iter_batches(columns=[column], use_threads=False):
            names = batch.column(0).unique().to_pylist()
            captures.update(capture.capture_id if name is None else name for name in names)
    return frozenset(captures)


def with_previous_connections(rows: pa.Table, deliveries: pa.Table) -> pa.Table:
    """Deliveries of schema version 1 with previous_connection_id, which that did not have.

    A frame's number says where it is within its capture; a delivery of an earlier rotation of a tap
    is in another one, and stays unknown.

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
    """Whether a file has the columns that a table has in a schema version. Older versions had the
    same ones without those that came since, in the same order; version 1 had no `capture`."""
    declared = arrow_schema(table)
    if version == SCHEMA_VERSION:
        return bool(schema.equals(declared))
    names = set(schema.names)
    if (_CAPTURE in names) != (version > 1) or _ORIGIN not in names:
        return False
    return bool(schema.equals(pa.schema([field for field in declared if field.name in names])))
