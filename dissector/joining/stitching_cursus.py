"""Tables of Cursus' traffic across the captures of a group, by SQL.

As for Pulsar (`stitching`), they follow from the captures' rows by joins and windows. A connection
within one capture keeps its pairs; if it spans several, requests and answers are paired in order,
first in, first out, for there are no ids. Groups' reads and commits, and producers' batches, are
then computed over all connections together.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.joining.files import BATCH_ROWS
from dissector.joining.stitching import TableRows, statements
from dissector.schemas.arrow import arrow_schema

if TYPE_CHECKING:
    import duckdb

NAME: Final = "cursus"
STEPS: Final = ("cursus", "cursus_deliveries")
# Extra columns beside each table's own: ranks of its frames' captures, and the order of its rows.
_MORE: Final = {
    "exchanges": ("request_rank", "response_rank", "ask AS order_no"),
    "deliveries": ("rank", "previous_rank", "ack_rank", "n AS order_no"),
    "producers": ("rank", "order_no"),
    "consumers": ("rank", "order_no"),
}
_ORDER: Final = {"exchanges": "coalesce(ask, answer)", "deliveries": "n"}


def stitched(db: "duckdb.DuckDBPyConnection", *, is_in_turn: bool) -> Iterator[TableRows]:
    """The rows of exchanges, deliveries, producers and consumers of a group.

    A frame is identified by the `rank` of its capture and its number, a connection by its chain.
    Data that a lake lacks stays unknown: lags are those of each capture by itself.

    Args:
        db: with the inputs of `facts/cursus.sql` and `facts/cursus_deliveries.sql`.
        is_in_turn: whether each capture begins after the previous one ended.
    """
    db.execute(f"CREATE SCHEMA {NAME}")
    db.execute(f"SET search_path = '{NAME},main'")
    for step in STEPS:
        for statement in statements(step):
            statement = statement.replace("{time}", "" if is_in_turn else "time, ")
            db.execute(statement)
    for table, more in _MORE.items():
        computed = db.table(f"new_{table}").columns
        columns = [
            "chain AS connection_id" if name == "connection_id"
            else name if name in computed
            else f"NULL AS {name}"
            for name in arrow_schema(table).names
        ]  # fmt: skip
        order = _ORDER.get(table, "ALL")
        rows = db.sql(f"SELECT {', '.join((*columns, *more))} FROM new_{table} ORDER BY {order}")
        for batch in rows.to_arrow_reader(BATCH_ROWS):
            yield table, pa.Table.from_batches([batch])
    db.execute("SET search_path = 'main'")
    db.execute(f"DROP SCHEMA {NAME} CASCADE")
