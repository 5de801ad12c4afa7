"""Hand-made rows of a group of captures as tables of a database, as joining sees them."""

from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from dissector.joining import links
from dissector.joining.positions import assign_positions
from dissector.schemas.arrow import arrow_schema

Row = dict[str, Any]


def tables(**rows: Iterable[Mapping[str, Any]]) -> duckdb.DuckDBPyConnection:
    """A database with tables of the lake, whose rows have null where nothing is given."""
    db = duckdb.connect()
    for name, given in rows.items():
        schema = arrow_schema(name)
        schema = schema.append(pa.field("place", pa.int64()))
        filled = [{**dict.fromkeys(schema.names), **row} for row in given]
        db.register("given", pa.Table.from_pylist(filled, schema=schema))
        db.execute(f"CREATE TABLE {name} AS FROM given")
    return db


def planned(
    connections: Iterable[links.Row], shared: Iterable[Iterable[str]] = ()
) -> links.JoinPlan:
    """The plan of connections in captures that last as long as these do."""
    rows = list(connections)
    spans: dict[str, tuple[int, int]] = {}
    for row in rows:
        first, last = spans.get(row["capture"], (row["first_ts_ns"], row["last_ts_ns"]))
        spans[row["capture"]] = min(first, row["first_ts_ns"]), max(last, row["last_ts_ns"])
    return links.plan(rows, spans, shared)


def placed(connections: Iterable[links.Row], **rows: Iterable[Row]) -> duckdb.DuckDBPyConnection:
    """A database with a group of captures that its connections put together."""
    given = list(connections)
    db = tables(connections=given, **rows)
    assign_positions(db, planned(given, [sorted({row["capture"] for row in given})]))
    return db
