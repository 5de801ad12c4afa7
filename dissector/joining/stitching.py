"""What captures of a group cannot know by themselves of Pulsar's traffic, by SQL.

Stage 1, a dissection, says all that one capture tells. Here the tables of the captures of a group
become those of one capture over all of them (`facts/whole.sql`): connections that go on are one,
incarnations are counted through, names that were learnt before are known behind the border, holes
between captures are events. From them the exchanges, deliveries and permits of the whole follow by
joins and windows (`facts/*.sql`); the same SQL over one capture gives what its dissection wrote.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.joining.files import BATCH_ROWS, plain, text
from dissector.limits import MAX_CARRIED_REQUESTS
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
# The frame by which a row is told, and what orders rows of one frame.
_FRAME: Final = {
    "exchanges": "coalesce(t.request_frame_no, t.response_frame_no)",
    "deliveries": "t.frame_no",
    "permits": "t.frame_no",
}
_OUTCOME: Final = """
CASE WHEN t.request_frame_no IN (SELECT n FROM waiting WHERE is_given_up) THEN 'evicted'
  ELSE t.outcome END AS outcome
"""
_WITHIN: Final = {"permits": ", t.consumer_id, t.event"}
# Columns that no SQL makes.
_UNKNOWN: Final = ("origin_capture", "lag")
# What one increment of a group leaves to the next: tables of `before.sql`, and those whose rows are
# like those of others (a query).
_BEFORE: Final = (
    "end", "frames", "consumers", "producers", "spots", "published", "attempts", "ranges",
)  # fmt: skip
# Increments that told something of messages that come again.
_ASKED: Final = """
SELECT DISTINCT b.increment FROM before_ranges AS b JOIN ranges AS r
  ON r.is_new AND r.name = b.name AND r.least <= b.greatest AND r.greatest >= b.least
  AND CASE r.kind WHEN 'got' THEN b.kind <> 'sent' ELSE b.kind = 'sent' AND r.kind = 'sent' END
ORDER BY ALL
"""
_CARRIED: Final = {
    "frames": "FROM main.frames",
    "acks": "FROM main.acks",
    "handles": "SELECT 'producer' AS kind",
    "places": "SELECT 0 AS rank, 0 AS chain, 0 AS frame_no, 0 AS n",
    "connections": "FROM main.merged",
}
LEFT: Final = (*(f"before_{name}" for name in _BEFORE), *(f"carried_{name}" for name in _CARRIED))
# Producers and consumers are told when their connection is over.
_TOLD: Final = """
SEMI JOIN (
  SELECT p.chain FROM merged AS m JOIN placed AS p USING (capture, connection_id)
  ANTI JOIN going_on USING (capture, connection_id)
) AS told ON told.chain = t.chain
"""
_INCARNATIONS: Final = f"""
SELECT rank, chain, CASE kind WHEN 'consumer' THEN id END AS consumer_id,
  CASE kind WHEN 'producer' THEN id END AS producer_id, own AS own_incarnation, incarnation
FROM {_WHOLE}.handles AS t {_TOLD}
"""
_Path = Callable[[str], Path]  # of a table
TableRows = tuple[str, pa.Table]  # a table's name, and rows of it


@cache
def statements(step: str) -> tuple[str, ...]:
    """The SQL of a step, one statement each."""
    sql = (resources.files(__package__) / "facts" / f"{step}.sql").read_text("utf-8")
    parts = (re.sub(r"(?m)^\s*--.*$\n?", "", part).strip() for part in sql.split(";\n"))
    return tuple(part for part in parts if part)


def texts() -> list[str]:
    """All that the SQL says, which decides what rows come of a group."""
    files = (resources.files(__package__) / "facts").iterdir()
    steps = sorted(file.name.removesuffix(".sql") for file in files if file.name.endswith(".sql"))
    return [statement for step in steps for statement in statements(step)]


def leave_untouched(db: "duckdb.DuckDBPyConnection", *, is_complete: bool) -> None:
    """Make the table untouched, of connections whose rows are not made again, and the view dated.

    Args:
        db: with what `facts/untouched.sql` reads.
        is_complete: whether all captures have all columns, and nothing comes before or behind; else
            no connection is left.
    """
    for statement in statements("untouched"):
        db.execute(statement)
    if not is_complete:
        db.execute("DELETE FROM untouched")


def stitched(
    db: "duckdb.DuckDBPyConnection",
    before: _Path | None,
    past: Mapping[str, Sequence[Path]],
    leaves: _Path | None,
    *,
    is_in_turn: bool,
) -> Iterator[TableRows]:
    """The rows of exchanges, deliveries, permits, producers and consumers of a group, and which
    incarnation of the whole is which of a capture's own.

    Frames are named by `rank` of their capture and own number, connections by chain, as
    `closing.placed_rows` takes them.

    Args:
        db: with what `facts/whole.sql` reads, and going_on, in the schema main.
        before: the tables of LEFT that the increment before left, None if there is none.
        past: files of the exchanges and deliveries that each earlier increment told, in order.
        leaves: where the tables of LEFT go, None if no increment follows.
        is_in_turn: whether captures come one behind the other.
    """
    db.execute(f"CREATE SCHEMA {_WHOLE}")
    db.execute(f"SET search_path = '{_WHOLE},main'")
    _go_on(db, before)
    for statement in statements("whole"):
        db.execute(statement.replace("{time}", "" if is_in_turn else "time, "))
    for step in STEPS:
        for statement in statements(step):
            db.execute(statement)
        if step == "frames" and before is not None:
            _ask(db, past)
    if leaves is not None:
        for statement in statements("border"):
            db.execute(statement.replace("{carried}", str(MAX_CARRIED_REQUESTS)))
        for name in LEFT:
            leaves(name).parent.mkdir(parents=True, exist_ok=True)
            db.execute(f"COPY (FROM next_{name}) TO {text(str(leaves(name)))} (FORMAT parquet)")
    for table in _FRAMES:
        for batch in db.sql(_facts(table, is_last=leaves is None)).to_arrow_reader(BATCH_ROWS):
            yield table, pa.Table.from_batches([batch])
    db.execute("SET search_path = 'main'")
    for table in ("producers", "consumers"):
        yield table, db.sql(_handles(table)).to_arrow_table()
    yield "incarnations", db.sql(_INCARNATIONS).to_arrow_table()


def _go_on(db: "duckdb.DuckDBPyConnection", before: _Path | None) -> None:
    """Make the tables of what came before."""
    for statement in statements("before"):
        db.execute(statement)
    for name, like in _CARRIED.items():
        rows = f"{like} LIMIT 0" if before is None else _parquet([before(f"carried_{name}")])
        db.execute(f"CREATE TABLE {_WHOLE}.carried_{name} AS {rows}")
    if before is None:
        return
    for name in _BEFORE:
        db.execute(f"INSERT INTO before_{name} BY NAME {_parquet([before(f'before_{name}')])}")


def _ask(db: "duckdb.DuckDBPyConnection", past: Mapping[str, Sequence[Path]]) -> None:
    """Take over what earlier increments told of messages that come again."""
    increments = [number for (number,) in db.execute(_ASKED).fetchall()]
    if not increments:
        return
    for table, paths in past.items():
        db.execute(f"CREATE VIEW past_{table} AS {_parquet([paths[n] for n in increments])}")
    for statement in statements("past"):
        db.execute(statement)


def _parquet(paths: Sequence[Path]) -> str:
    return f"FROM read_parquet([{', '.join(text(plain(path)) for path in paths)}])"


def _facts(table: str, *, is_last: bool) -> str:
    """The rows of a table that are told now, each frame by its capture and own number."""
    frames = _FRAMES[table]
    columns = []
    for field in arrow_schema(table):
        if field.name in frames:
            columns.append(f"{field.name}_of.frame_no AS {field.name}")
        elif table == "exchanges" and field.name == "outcome" and not is_last:
            columns.append(_OUTCOME)
        elif field.name in _UNKNOWN:
            columns.append(f"NULL AS {field.name}")
        else:
            columns.append(f"t.{field.name}")
    columns += [f"{name}_of.rank AS {rank}" for name, rank in frames.items()]
    columns.append(f"t.{next(iter(frames))} AS order_no")
    joins = " ".join(
        f"LEFT JOIN {_WHOLE}.orders AS {name}_of ON {name}_of.n = t.{name}" for name in frames
    )
    frame = _FRAME[table]
    told = f"({frame} > (SELECT max(n) FROM before_end) OR {frame} IN (FROM was_open))"
    if not is_last and table != "permits":
        told += f" AND {frame} NOT IN (SELECT n FROM open_rows)"
    return (
        "WITH was_open AS (SELECT n FROM before_frames WHERE is_open) "
        f"SELECT {', '.join(columns)} FROM new_{table} AS t {joins} WHERE {told} "
        f"ORDER BY {frame}{_WITHIN.get(table, '')}"
    )


def _handles(table: str) -> str:
    """The rows of producers or consumers, with the place of the frame that closed them."""
    columns = ", ".join(f"t.{name}" for name in arrow_schema(table).names)
    return (
        f"SELECT {columns}, o.rank, o.frame_no AS order_no FROM {_WHOLE}.{table} AS t {_TOLD} "
        f"LEFT JOIN {_WHOLE}.orders AS o ON o.n = t.closed_frame_no"
    )
