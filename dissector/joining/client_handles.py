"""Producers and consumers of joined connections, and their names under each capture's own numbers.

A joined producer or consumer has a row under the root of its connection, and one row under the
numbers of each other capture of the chain, with the joined one's names.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import no_rows

if TYPE_CHECKING:
    import duckdb

_NUMBERS: Final = {"producers": "producer_id", "consumers": "consumer_id"}
# The capture, connection and number of the frame that closed a handle.
_CLOSED_AT: Final = (
    ("closed_capture", pa.string()),
    ("closed_connection_id", pa.int64()),
    ("closed_no", pa.int64()),
)
SCHEMAS: Final = {
    name: schema
    for table in _NUMBERS
    for name, schema in (
        (table, pa.schema([*arrow_schema(table), *_CLOSED_AT])),
        (f"{table[:-1]}_names", arrow_schema(table)),
    )
}
# The incarnation in the whole of each capture's own incarnation.
INCARNATIONS: Final = "incarnations"
INCARNATION: Final = pa.schema(
    [
        (name, pa.int64())
        for name in (
            "rank", "chain", "consumer_id", "producer_id", "own_incarnation", "incarnation",
        )
    ]
)  # fmt: skip
_STITCHED: Final = {
    INCARNATIONS: INCARNATION,
    **{
        table: pa.schema([*arrow_schema(table), ("rank", pa.int64()), ("order_no", pa.int64())])
        for table in _NUMBERS
    },
}
_IS_HEAD: Final = "p.capture = p.head_capture AND p.connection_id = p.head_connection_id"
_JOINED: Final = f"""
SELECT {{columns}}{{more}} FROM stitched_{{table}} AS t
JOIN placed AS p ON p.chain = t.connection_id AND {_IS_HEAD}
LEFT JOIN placed AS c ON c.chain = t.connection_id AND c.rank = t.rank
"""
_OWN: Final = f"""
SELECT {{columns}} FROM (SELECT DISTINCT * FROM stitched_incarnations) AS i
JOIN stitched_{{table}} AS t ON t.connection_id = i.chain AND t.{{number}} = i.{{number}}
  AND t.incarnation = i.incarnation
JOIN placed AS p ON p.chain = i.chain AND p.rank = i.rank AND NOT ({_IS_HEAD})
"""


def queries(
    db: "duckdb.DuckDBPyConnection",
    stitched: Mapping[str, Sequence[pa.Table]],
) -> dict[str, str]:
    """The query of each table of SCHEMAS.

    Args:
        db: with placed, see `positions`.
        stitched: rows of producers, consumers, and incarnations.
    """
    selects = {}
    for name, schema in _STITCHED.items():
        _register(db, f"stitched_{name}", stitched.get(name, ()), schema)
    for table, number in _NUMBERS.items():
        schema = arrow_schema(table)
        joined, own = (
            ", ".join(_column(name, table, incarnation) for name in schema.names)
            for incarnation in ("t.incarnation", "i.own_incarnation")
        )
        more = (
            ", c.capture AS closed_capture, c.connection_id AS closed_connection_id, "
            "t.order_no AS closed_no"
        )
        first = _JOINED.format(columns=joined, more=more, table=table)
        plain = _JOINED.format(columns=joined, more="", table=table)
        others = _OWN.format(columns=own, table=table, number=number)
        selects[table] = f"{first} ORDER BY ALL"
        selects[f"{table[:-1]}_names"] = f"({plain}) UNION ALL ({others}) ORDER BY ALL"
    return selects


def _column(name: str, table: str, incarnation: str) -> str:
    values = {
        "connection_id": "p.connection_id",
        "capture": "p.capture",
        "origin_capture": "NULL",
        "incarnation": incarnation,
    }
    return f"{values.get(name, f't.{name}')} AS {name}"


def _register(
    db: "duckdb.DuckDBPyConnection", name: str, tables: Sequence[pa.Table], schema: pa.Schema
) -> None:
    """Register rows as a table; missing columns are null."""
    rows = pa.concat_tables([no_rows(schema), *(_with_schema(table, schema) for table in tables)])
    db.register(name, rows)


def _with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
