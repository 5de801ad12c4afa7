"""SQL that derives a group's exchanges, deliveries and permits of Pulsar from all its captures.

A dissection writes the rows of one capture. Here the tables of a group's captures become the tables
of one capture over all of them (`facts/whole.sql`): continued connections are one, incarnations are
counted through, names of earlier captures are known in later ones, holes between captures are
events. Joins and windows then derive the exchanges, deliveries and permits of the whole
(`facts/*.sql`); over one capture the same SQL returns what its dissection wrote.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.joining.files import BATCH_ROWS, plain, text
from dissector.limits import LATE_ACK_MS, MAX_CARRIED_REQUESTS, MAX_COMPARED_DELIVERIES
from dissector.schemas.arrow import arrow_schema

if TYPE_CHECKING:
    import duckdb

NAME: Final = "pulsar"
# The SQL files that derive the facts, in order.
STEPS: Final = ("frames", "exchanges", "deliveries", "permits")
_WHOLE: Final = "whole"
BOUNDS: Final = {
    "{carried}": MAX_CARRIED_REQUESTS,
    "{compared}": MAX_COMPARED_DELIVERIES,
    "{late}": LATE_ACK_MS * 1_000_000,
}
# Columns that name frames, and the columns for the rank of their capture; the first orders rows.
_FRAMES: Final = {
    "exchanges": {"request_frame_no": "request_rank", "response_frame_no": "response_rank"},
    "deliveries": {
        "frame_no": "rank",
        "previous_frame_no": "previous_rank",
        "ack_frame_no": "ack_rank",
    },
    "permits": {"frame_no": "rank"},
}
# The frame that decides in which increment a row is written, and the order of rows of one frame.
_FRAME: Final = {
    "exchanges": "coalesce(t.request_frame_no, t.response_frame_no)",
    "deliveries": "t.frame_no",
    "permits": "t.frame_no",
}
_OUTCOME: Final = """
CASE WHEN t.request_frame_no IN (SELECT n FROM pending_requests WHERE is_given_up) THEN 'evicted'
  ELSE t.outcome END AS outcome
"""
_WITHIN: Final = {"permits": ", t.consumer_id, t.event"}
# Columns that the SQL leaves null.
_UNKNOWN: Final = ("origin_capture", "lag")
# The state that one increment leaves to the next: tables of `before.sql`, and tables with a query's
# columns.
_BEFORE: Final = (
    "end", "frames", "consumers", "producers", "spots", "published", "attempts", "ranges",
)  # fmt: skip
# Increments with rows of messages that are sent or delivered again.
_PAST_INCREMENTS: Final = """
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
# Rows of producers and consumers are written when their connection has ended.
_OF_ENDED: Final = """
SEMI JOIN (
  SELECT p.chain FROM merged AS m JOIN placed AS p USING (capture, connection_id)
  ANTI JOIN going_on USING (capture, connection_id)
) AS ended ON ended.chain = t.chain
"""
_INCARNATIONS: Final = f"""
SELECT rank, chain, CASE kind WHEN 'consumer' THEN id END AS consumer_id,
  CASE kind WHEN 'producer' THEN id END AS producer_id, own AS own_incarnation, incarnation
FROM {_WHOLE}.handles AS t {_OF_ENDED}
"""
_Path = Callable[[str], Path]  # of a table
TableRows = tuple[str, pa.Table]  # a table's name, and rows of it


def statements(step: str) -> tuple[str, ...]:
    """The SQL of a step, one statement each, with its bounds."""
    sql = _text(step)
    for name, value in BOUNDS.items():
        sql = sql.replace(name, str(value))
    return tuple(filter(None, map(str.strip, sql.split(";\n"))))


@cache
def _text(step: str) -> str:
    """The SQL of a step without comments."""
    sql = (resources.files(__package__) / "facts" / f"{step}.sql").read_text("utf-8")
    return re.sub(r"(?m)^\s*--.*$\n?", "", sql)


def texts() -> list[str]:
    """All statements: their digest changes when a group's rows may change."""
    files = (resources.files(__package__) / "facts").iterdir()
    steps = sorted(file.name.removesuffix(".sql") for file in files if file.name.endswith(".sql"))
    return [statement for step in steps for statement in statements(step)]


def leave_untouched(db: "duckdb.DuckDBPyConnection", *, is_complete: bool) -> None:
    """Create the table untouched, of connections whose rows are copied, and the view dated.

    Args:
        db: with the inputs of `facts/untouched.sql`.
        is_complete: whether all captures have all columns, and no increment comes before or behind;
            if not, the table is empty.
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
    """The rows of exchanges, deliveries, permits, producers and consumers of a group, and its table
    of incarnations (see `client_handles`).

    Rows name frames by `rank` of their capture and own number, and connections by chain, as
    `closing.placed_rows` expects.

    Args:
        db: with the inputs of `facts/whole.sql`, and going_on, in the schema main.
        before: paths of the earlier increment's tables of LEFT, None if there is none.
        past: files of the exchanges and deliveries that each earlier increment wrote, in order.
        leaves: paths for the tables of LEFT, None if no increment follows.
        is_in_turn: whether no two captures overlap in time.
    """
    db.execute(f"CREATE SCHEMA {_WHOLE}")
    db.execute(f"SET search_path = '{_WHOLE},main'")
    _load_earlier_state(db, before)
    for statement in statements("whole"):
        db.execute(statement.replace("{time}", "" if is_in_turn else "time, "))
    for step in STEPS:
        for statement in statements(step):
            db.execute(statement)
        if step == "frames" and before is not None:
            _load_past(db, past)
    if leaves is not None:
        for statement in statements("boundary"):
            db.execute(statement)
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


def _load_earlier_state(db: "duckdb.DuckDBPyConnection", before: _Path | None) -> None:
    """Create the tables of the earlier state, empty without an earlier increment."""
    for statement in statements("before"):
        db.execute(statement)
    for name, like in _CARRIED.items():
        rows = f"{like} LIMIT 0" if before is None else _parquet([before(f"carried_{name}")])
        db.execute(f"CREATE TABLE {_WHOLE}.carried_{name} AS {rows}")
    if before is None:
        return
    for name in _BEFORE:
        db.execute(f"INSERT INTO before_{name} BY NAME {_parquet([before(f'before_{name}')])}")


def _load_past(db: "duckdb.DuckDBPyConnection", past: Mapping[str, Sequence[Path]]) -> None:
    """Load the rows of earlier increments about messages that are sent or delivered again."""
    increments = [number for (number,) in db.execute(_PAST_INCREMENTS).fetchall()]
    if not increments:
        return
    for table, paths in past.items():
        db.execute(f"CREATE VIEW past_{table} AS {_parquet([paths[n] for n in increments])}")
    for statement in statements("past"):
        db.execute(statement)


def _parquet(paths: Sequence[Path]) -> str:
    return f"FROM read_parquet([{', '.join(text(plain(path)) for path in paths)}])"


def _facts(table: str, *, is_last: bool) -> str:
    """The query of a table's rows that this increment writes; frames by rank and own number."""
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
    is_due = f"({frame} > (SELECT max(n) FROM before_end) OR {frame} IN (FROM was_open))"
    if not is_last and table != "permits":
        is_due += f" AND {frame} NOT IN (SELECT n FROM open_rows)"
    return (
        "WITH was_open AS (SELECT n FROM before_frames WHERE is_open) "
        f"SELECT {', '.join(columns)} FROM new_{table} AS t {joins} WHERE {is_due} "
        f"ORDER BY {frame}{_WITHIN.get(table, '')}"
    )


def _handles(table: str) -> str:
    """The query of producers or consumers, with rank and number of the frame that closed them."""
    columns = ", ".join(f"t.{name}" for name in arrow_schema(table).names)
    return (
        f"SELECT {columns}, o.rank, o.frame_no AS order_no FROM {_WHOLE}.{table} AS t {_OF_ENDED} "
        f"LEFT JOIN {_WHOLE}.orders AS o ON o.n = t.closed_frame_no"
    )
