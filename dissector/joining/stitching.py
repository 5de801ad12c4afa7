"""What captures of a group cannot know by themselves of Pulsar's traffic, by SQL.

Stage 1, a dissection, says all that one capture tells. Here the tables of the captures of a group
become those of one capture over all of them (`facts/whole.sql`): connections that go on are one,
incarnations are counted through, names that were learnt before are known behind the border, holes
between captures are events. From them the exchanges, deliveries and permits of the whole follow by
joins and windows (`facts/*.sql`); the same SQL over one capture gives what its dissection wrote.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.joining.files import BATCH_ROWS
from dissector.schemas.arrow import arrow_schema

if TYPE_CHECKING:
    import duckdb

NAME: Final = "pulsar"
# What makes the facts of a capture of its tables, in order.
STEPS: Final = ("frames", "exchanges", "deliveries", "permits")
_WHOLE: Final = "whole"
# Columns that name frames, and where the rank of their capture goes; the first orders rows.
_FRAMES: Final = {
    "exchanges": {"request_frame_no": "request_rank", "response_frame_no": "response_rank"},
    "deliveries": {
        "frame_no": "rank",
        "previous_frame_no": "previous_rank",
        "ack_frame_no": "ack_rank",
    },
    "permits": {"frame_no": "rank"},
}
_IN_ORDER: Final = {
    "exchanges": "coalesce(t.request_frame_no, t.response_frame_no)",
    "deliveries": "t.frame_no",
    "permits": "t.frame_no, t.consumer_id, t.event",
}
# Columns that no SQL makes.
_UNKNOWN: Final = ("origin_capture", "lag")
INCARNATIONS: Final = f"""
SELECT rank, chain, CASE kind WHEN 'consumer' THEN id END AS consumer_id,
  CASE kind WHEN 'producer' THEN id END AS producer_id, own AS own_incarnation, incarnation
FROM {_WHOLE}.handles
"""
TableRows = tuple[str, pa.Table]  # a table's name, and rows of it


@cache
def statements(step: str) -> tuple[str, ...]:
    """The SQL of a step, one statement each."""
    text = (resources.files(__package__) / "facts" / f"{step}.sql").read_text("utf-8")
    parts = (re.sub(r"(?m)^\s*--.*$\n?", "", part).strip() for part in text.split(";\n"))
    return tuple(part for part in parts if part)


def stitched(db: "duckdb.DuckDBPyConnection", *, is_in_turn: bool) -> Iterator[TableRows]:
    """The rows of exchanges, deliveries, permits, producers and consumers of a group, and which
    incarnation of the whole is which of a capture's own.

    Frames are named by `rank` of their capture and own number, connections by chain, as
    `closing.placed_rows` takes them.

    Args:
        db: with what `facts/whole.sql` reads, in the schema main.
        is_in_turn: whether captures come one behind the other.
    """
    for statement in statements(_WHOLE):
        db.execute(statement.replace("{time}", "" if is_in_turn else "time, "))
    db.execute(f"SET search_path = '{_WHOLE},main'")
    for step in STEPS:
        for statement in statements(step):
            db.execute(statement)
    db.execute("SET search_path = 'main'")
    for table in _FRAMES:
        for batch in db.sql(_facts(table)).to_arrow_reader(BATCH_ROWS):
            yield table, pa.Table.from_batches([batch])
    for table in ("producers", "consumers"):
        yield table, db.sql(_handles(table)).to_arrow_table()
    yield "incarnations", db.sql(INCARNATIONS).to_arrow_table()


def _facts(table: str) -> str:
    """The rows of a table, each frame by its capture and own number."""
    frames = _FRAMES[table]
    columns = []
    for field in arrow_schema(table):
        if field.name in frames:
            columns.append(f"{field.name}_of.frame_no AS {field.name}")
        elif field.name in _UNKNOWN:
            columns.append(f"NULL AS {field.name}")
        else:
            columns.append(f"t.{field.name}")
    columns += [f"{name}_of.rank AS {rank}" for name, rank in frames.items()]
    columns.append(f"t.{next(iter(frames))} AS order_no")
    joins = " ".join(
        f"LEFT JOIN {_WHOLE}.orders AS {name}_of ON {name}_of.n = t.{name}" for name in frames
    )
    rows = f"FROM new_{table} AS t {joins} ORDER BY {_IN_ORDER[table]}"
    return f"SELECT {', '.join(columns)} {rows}"


def _handles(table: str) -> str:
    """The rows of producers or consumers, with the place of the frame that closed them."""
    columns = ", ".join(f"t.{name}" for name in arrow_schema(table).names)
    return (
        f"SELECT {columns}, o.rank, o.frame_no AS order_no FROM {_WHOLE}.{table} AS t "
        f"LEFT JOIN {_WHOLE}.orders AS o ON o.n = t.closed_frame_no"
    )
