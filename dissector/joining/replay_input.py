"""The rows that the replay of Cursus reads, of a group of captures, in order.

Within a capture that is the order of turns: a frame's turn is the largest last packet of its
connection so far, that of an end the packet that brought it; holes bring theirs. (The first frames
of a connection that began before the capture are held back, in case that others come before them;
they have later numbers than in the middle of a capture.) Captures that lasted at the same time are
merged by the largest stamp so far, in which no row goes before those of the capture that its own
one continues.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dissector.joining.files import BATCH_ROWS
from dissector.joining.replay_cursus import INPUT, NAME, InputKind
from dissector.schemas import TABLES
from dissector.schemas.small_tables import no_rows

if TYPE_CHECKING:
    import duckdb

_SQL_TYPES: Final = {pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN", pa.string(): "VARCHAR"}
# What orders rows beside columns of the input; place: of rows that are of one frame.
_ORDERS: Final = ("time", "turn", "place")
_KINDS: Final = {
    **{field.name: _SQL_TYPES[field.type] for field in INPUT},
    **dict.fromkeys(_ORDERS, "BIGINT"),
}

# A frame that goes on in the next capture keeps its place: order alone tells what answers what.
_READ: Final = f"""
CREATE VIEW read_frames AS
SELECT f.*, p.rank, p.chain FROM frames AS f JOIN placed AS p USING (capture, connection_id)
WHERE f.protocol = '{NAME}' AND p.read_by = '{NAME}'
"""
# The turn of each frame. Rows are ordered by few columns alone: sorting takes all that it is given.
_TURNS: Final = """
CREATE TABLE turns AS
SELECT rank, chain, frame_no, last_ts_ns, coalesce(max(last_packet) OVER (
  PARTITION BY rank, chain ORDER BY frame_no ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
), 0) AS turn
FROM read_frames
"""
# Ends of connections and holes with their turns; place tells them apart.
_OTHERS: Final = f"""
CREATE TABLE others AS
WITH given AS (
  SELECT rank, chain, direction, event_code, stream_offset, frames_missing, frame_no,
    frame_bytes, last_ts_ns, last_packet, NULL AS turn, place, {InputKind.EVENT} AS kind
  FROM events WHERE read_by = '{NAME}'
  UNION ALL BY NAME
  SELECT rank, chain, direction, event_code, stream_offset, frames_missing, frame_no,
    bytes AS frame_bytes, turn, stream_offset AS place, {InputKind.EVENT} AS kind
  FROM gaps WHERE read_by = '{NAME}'
),
beside AS (
  SELECT g.* REPLACE (coalesce(g.turn, greatest(g.last_packet, t.turn)) AS turn)
  FROM given AS g
  ASOF LEFT JOIN turns AS t
    ON t.rank = g.rank AND t.chain = g.chain AND t.frame_no <= g.frame_no
)
SELECT * REPLACE (
  coalesce(turn, 0) AS turn,
  row_number() OVER (ORDER BY rank, turn, frame_no, kind, chain, place, direction) AS place
)
FROM beside
"""
_IN_TURN: Final = """
CREATE VIEW orders AS SELECT *, 0 AS time FROM turns;
CREATE VIEW placed_others AS SELECT *, 0 AS time FROM others
"""
_BY_TIME: Final = f"""
CREATE TABLE times AS
WITH rows AS (
  SELECT rank, chain, turn, frame_no, {InputKind.FRAME} AS kind, 0 AS place, last_ts_ns FROM turns
  UNION ALL BY NAME
  SELECT rank, chain, turn, frame_no, kind, place, last_ts_ns FROM others
)
SELECT b.rank, chain, frame_no, kind, place, turn, greatest(floor_ns, max(last_ts_ns) OVER (
  PARTITION BY b.rank ORDER BY turn, frame_no, kind, place
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)) AS time
FROM rows AS b JOIN ranks USING (rank);
CREATE VIEW orders AS
SELECT rank, chain, frame_no, turn, time FROM times WHERE kind = {InputKind.FRAME};
CREATE VIEW placed_others AS
SELECT others.*, time FROM others
JOIN (SELECT place, time FROM times WHERE kind <> {InputKind.FRAME}) USING (place)
"""
_FRAMES: Final = """
SELECT {columns} FROM read_frames AS f JOIN orders AS o USING (rank, chain, frame_no)
"""
# Rows of a table that belong to batches; {frame}: their column that names it.
_BESIDE: Final = """
SELECT {columns} FROM {table} AS f JOIN placed AS p USING (capture, connection_id)
JOIN orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.{frame}
"""
# The first record of batches.
_RECORDS: Final = """
LEFT JOIN (
  SELECT capture, connection_id, frame_no, producer_name, sequence_id FROM messages
  WHERE batch_index = 0
) AS m ON m.capture = f.capture AND m.connection_id = f.connection_id AND m.frame_no = f.frame_no
"""


def input_rows(db: "duckdb.DuckDBPyConnection", *, is_in_turn: bool) -> Iterator[pa.Table]:
    """The rows of INPUT, in order, some at a time.

    Args:
        db: with placed, ranks, events, gaps, and frames, deliveries, exchanges and messages of the
            group.
        is_in_turn: whether captures come one behind the other.
    """
    for query in (
        _READ,
        _TURNS,
        _OTHERS,
        _IN_TURN if is_in_turn else _BY_TIME,
    ):
        db.execute(query)
    parts = [_frames(), *_batches(), _others()]
    query = (
        f"SELECT {', '.join(INPUT.names)} FROM ({' UNION ALL BY NAME '.join(parts)}) "
        "ORDER BY time, rank, turn, frame_no, kind, place"
    )
    # Pieces of one size, however many threads there are: rows come out in the order of pieces.
    held = no_rows(INPUT)
    for batch in db.sql(query).to_arrow_reader(BATCH_ROWS):
        held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(INPUT)])
        while held.num_rows >= BATCH_ROWS:
            yield held.slice(0, BATCH_ROWS)
            held = held.slice(BATCH_ROWS)
    yield held


def _columns(own: Iterable[str], **more: str) -> str:
    """Columns of the input and of what orders it: of a table (f), or by an expression."""
    given = {name: f"f.{name}" for name in own} | more
    return ", ".join(
        f"{given[name]}::{kind} AS {name}" for name, kind in _KINDS.items() if name in given
    )


def _frames() -> str:
    own = [column.name for column in TABLES["frames"].columns]
    more = {"kind": str(InputKind.FRAME), "turn": "o.turn", "time": "o.time"}
    return _FRAMES.format(columns=_columns((*own, "rank", "chain"), **more))


def _beside(table: str, own: Iterable[str], **more: str) -> str:
    """The query for rows of a table that belong to batches."""
    placed = {"rank": "p.rank", "chain": "p.chain"}
    placed |= {"kind": str(InputKind.COST), "turn": "o.turn", "time": "o.time"}
    frame = more.get("frame_no", "f.frame_no").removeprefix("f.")
    columns = _columns(("frame_no", "place", *own), **placed, **more)
    return _BESIDE.format(columns=columns, table=table, frame=frame)


def _batches() -> list[str]:
    """Of batches: offsets and the first record of those for clients, and how those for brokers were
    answered (permits: whether an answer was wanted)."""
    got = _beside(
        "deliveries", ("entry_id", "message_count", "redelivery_count"),
        producer_name="m.producer_name", sequence_id="m.sequence_id",
    )  # fmt: skip
    sent = _beside(
        "exchanges", (), frame_no="f.request_frame_no",
        permits="CASE f.outcome WHEN 'not_awaited' THEN 0 ELSE 1 END",
        redelivery_count="CASE f.outcome WHEN 'dup_or_dropped' THEN 1 ELSE 0 END",
    )  # fmt: skip
    return [f"{got} {_RECORDS}", f"{sent} WHERE f.request_command = 'BATCH'"]


def _others() -> str:
    own = (
        "rank", "chain", "kind", "direction", "event_code", "stream_offset",
        "frames_missing", "frame_no", "frame_bytes", "last_ts_ns", *_ORDERS,
    )  # fmt: skip
    return f"SELECT {_columns(own)} FROM placed_others AS f"
