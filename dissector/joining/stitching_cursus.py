"""What captures of a group cannot know by themselves of Cursus' traffic, by SQL.

As for Pulsar (`stitching`), the facts of the whole follow from rows of the captures by joins and
windows. Connections that lie in one capture are paired as their capture has it; of those that go on
requests meet answers in one order, first in, first out, for there are no ids. What groups read and
commit, and what producers sent, is then told for all connections together.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.joining.files import BATCH_ROWS
from dissector.joining.stitching import TableRows, statements
from dissector.limits import MAX_COMPARED_DELIVERIES
from dissector.schemas.arrow import arrow_schema

if TYPE_CHECKING:
    import duckdb

NAME: Final = "cursus"
STEPS: Final = ("cursus", "cursus_deliveries")
# Of each table what is no column of it: where its frames lie, and the frame that orders its rows.
_MORE: Final = {
    "exchanges": ("request_rank", "response_rank", "ask AS order_no"),
    "deliveries": ("rank", "previous_rank", "ack_rank", "n AS order_no"),
    "producers": ("rank", "order_no"),
    "consumers": ("rank", "order_no"),
}
_ORDER: Final = {"exchanges": "coalesce(ask, answer)", "deliveries": "n"}


def stitched(db: "duckdb.DuckDBPyConnection", *, is_in_turn: bool) -> Iterator[TableRows]:
    """The rows of exchanges, deliveries, producers and consumers of a group.

    Frames are named by `rank` of their capture and own number, connections by chain. What is not in
    a lake stays unknown: lags are those of each capture by itself.

    Args:
        db: with what `facts/cursus.sql` and `facts/cursus_deliveries.sql` read.
        is_in_turn: whether captures come one behind the other.
    """
    db.execute(f"CREATE SCHEMA {NAME}")
    db.execute(f"SET search_path = '{NAME},main'")
    for step in STEPS:
        for statement in statements(step):
            statement = statement.replace("{time}", "" if is_in_turn else "time, ")
            db.execute(statement.replace("{compared}", str(MAX_COMPARED_DELIVERIES)))
    for table, more in _MORE.items():
        made = db.table(f"new_{table}").columns
        columns = [
            "chain AS connection_id" if name == "connection_id"
            else name if name in made
            else f"NULL AS {name}"
            for name in arrow_schema(table).names
        ]  # fmt: skip
        order = _ORDER.get(table, "ALL")
        rows = db.sql(f"SELECT {', '.join((*columns, *more))} FROM new_{table} ORDER BY {order}")
        for batch in rows.to_arrow_reader(BATCH_ROWS):
            yield table, pa.Table.from_batches([batch])
    db.execute("SET search_path = 'main'")
    db.execute(f"DROP SCHEMA {NAME} CASCADE")
