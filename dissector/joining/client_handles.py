"""Producers and consumers of joined connections, and the names that each capture's own have.

The joined ones stand under the head of their connection; what other captures of the chain call by
numbers of their own stands there with the names that the joined one has.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import no_rows

if TYPE_CHECKING:
    import duckdb

_NUMBERS: Final = {"producers": "producer_id", "consumers": "consumer_id"}
# Where the frame that closed one lies.
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
# Which incarnation of the whole a capture's own incarnation is.
INCARNATIONS: Final = "incarnations"
INCARNATION: Final = pa.schema(
    [
        (name, pa.int64())
        for name in (
            "rank", "chain", "consumer_id", "producer_id", "own_incarnation", "incarnation",
        )
    ]
)  # fmt: skip
_TOLD: Final = {
    INCARNATIONS: INCARNATION,
    **{
        table: pa.schema([*arrow_schema(table), ("rank", pa.int64()), ("order_no", pa.int64())])
        for table in _NUMBERS
    },
}
_IS_HEAD: Final = "p.capture = p.head_capture AND p.connection_id = p.head_connection_id"
_JOINED: Final = f"""
SELECT {{columns}}{{more}} FROM told_{{table}} AS t
JOIN placed AS p ON p.chain = t.connection_id AND {_IS_HEAD}
LEFT JOIN placed AS c ON c.chain = t.connection_id AND c.rank = t.rank
"""
_OWN: Final = f"""
SELECT {{columns}} FROM (SELECT DISTINCT * FROM told_incarnations) AS i
JOIN told_{{table}} AS t ON t.connection_id = i.chain AND t.{{number}} = i.{{number}}
  AND t.incarnation = i.incarnation
JOIN placed AS p ON p.chain = i.chain AND p.rank = i.rank AND NOT ({_IS_HEAD})
"""


def queries(
    db: "duckdb.DuckDBPyConnection",
    told: Mapping[str, Sequence[pa.Table]],
) -> dict[str, str]:
    """The SQL that gives the rows of each table of SCHEMAS.

    Args:
        db: with placed, see `places`.
        told: rows of producers, consumers, and incarnations.
    """
    selects = {}
    for name, schema in _TOLD.items():
        _register(db, f"told_{name}", told.get(name, ()), schema)
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
    """Rows as a table; columns that they lack are null."""
    rows = pa.concat_tables([no_rows(schema), *(_as(table, schema) for table in tables)])
    db.register(name, rows)


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
