"""The rows that the replay reads, of a group of captures, in order.

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

from dissector.joining import replay
from dissector.joining.files import BATCH_ROWS, text
from dissector.schemas import TABLES

if TYPE_CHECKING:
    import duckdb

_SQL_TYPES: Final = {
    pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN", pa.string(): "VARCHAR",
    pa.list_(pa.int64()): "BIGINT[]",
}  # fmt: skip
# What orders rows beside columns of the input; place: of rows that are of one frame.
_ORDERS: Final = ("last_packet", "turn", "place")
_PLACED: Final = ("rank", "chain", "is_cursus")


def _columns(given: Iterable[str], alias: str, **more: str) -> str:
    """Every column of the input: of `placed` (p), of a table, by an expression, or null."""
    own = frozenset(given)
    found = []
    for name, kind in [
        *((field.name, _SQL_TYPES[field.type]) for field in replay.INPUT),
        *((name, "BIGINT") for name in _ORDERS),
    ]:
        if name in more:
            value = more[name]
        elif name in _PLACED:
            value = f"p.{name}"
        elif name in own:
            value = f"{alias}.{name}"
        else:
            value = "NULL"
        found.append(f"{value}::{kind} AS {name}")
    return ", ".join(found)


# A frame that goes on in the next capture is left out, unless it tells whose it is: its rest is
# lost, and nothing else is. Of Cursus, where order alone tells what answers what, it keeps its
# place. The text of `detail` is read of commands alone that say there what the replay wants.
_FRAMES: Final = """
SELECT {columns}
FROM frames AS f JOIN placed AS p USING (capture, connection_id)
LEFT JOIN details AS d ON d.capture = f.capture AND d.frame_no = f.frame_no
WHERE f.protocol = CASE WHEN p.is_cursus THEN 'cursus' ELSE 'pulsar' END
  AND NOT coalesce(
    f.status = 'cut_by_end' AND NOT p.is_cursus
    AND CASE f.direction WHEN 'to_client' THEN p.goes_on_to_client ELSE p.goes_on_to_broker END
    AND NOT coalesce(
      f.command IN ('SEND', 'MESSAGE') AND coalesce(f.producer_id, f.consumer_id) IS NOT NULL, false
    ), false
  )
"""
_DETAILS: Final = """
CREATE TABLE details AS
SELECT capture, frame_no, detail FROM frames
WHERE detail IS NOT NULL AND (command IN ({commands})
  OR (protocol = 'cursus' AND command NOT IN ('BATCH', 'KEEPALIVE')))
"""
# What deliveries cost, where their frame alone does not say it.
_COSTS: Final = """
SELECT {columns} FROM deliveries AS d JOIN placed AS p USING (capture, connection_id)
WHERE d.ack_set IS NOT NULL OR coalesce(d.batch_size, 1) IS DISTINCT FROM d.message_count
"""
# What is told of batches of Cursus: offsets and the first record of those for clients, and how
# those for brokers were answered (permits: whether an answer was wanted).
_GOT: Final = """
SELECT {columns} FROM deliveries AS d JOIN placed AS p USING (capture, connection_id)
LEFT JOIN (
  SELECT capture, connection_id, frame_no, producer_name, sequence_id FROM messages
  WHERE batch_index = 0
) AS m USING (capture, connection_id, frame_no)
WHERE p.is_cursus
"""
_SENT: Final = """
SELECT {columns} FROM exchanges AS e JOIN placed AS p USING (capture, connection_id)
WHERE p.is_cursus AND e.request_command = 'BATCH'
"""
_TURNS: Final = """
WITH fed AS ({rows}),
turned AS (
  SELECT * REPLACE (coalesce(turn, greatest(
    CASE WHEN kind = {event} THEN last_packet END,
    max(last_packet) OVER (
      PARTITION BY rank, chain ORDER BY frame_no, kind, place
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
  ), 0) AS turn)
  FROM fed
)
"""
_IN_TURN: Final = "SELECT {names} FROM turned ORDER BY rank, turn, frame_no, kind, place"
_BY_TIME: Final = """
SELECT {names} FROM (
  SELECT turned.*, greatest(floor_ns, max(last_ts_ns) OVER (
    PARTITION BY rank ORDER BY turn, frame_no, kind, place
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )) AS time
  FROM turned JOIN ranks USING (rank)
) ORDER BY time, rank, turn, frame_no, kind, place
"""


def input_rows(db: "duckdb.DuckDBPyConnection", *, is_in_turn: bool) -> Iterator[pa.Table]:
    """The rows of replay.INPUT, in order, some at a time.

    Args:
        db: with placed, ranks, events, holes, told (what deliveries cost that end in the next
            capture), and frames, acks, deliveries, exchanges and messages of the group.
        is_in_turn: whether captures come one behind the other.
    """
    db.execute(_DETAILS.format(commands=_texts(replay.said_by())))
    parts = [_frames(), _ids(), _costs(), *_batches(), _told(), _holes(), _events()]
    query = _TURNS.format(rows=" UNION ALL ".join(parts), event=replay.EVENT)
    query += (_IN_TURN if is_in_turn else _BY_TIME).format(names=", ".join(replay.INPUT.names))
    for batch in db.sql(query).to_arrow_reader(BATCH_ROWS):
        yield pa.Table.from_batches([batch]).cast(replay.INPUT)


def _frames() -> str:
    own = [column.name for column in TABLES["frames"].columns]
    # Of frequent commands the names that the wire did not have are not carried along.
    frequent = f"NOT p.is_cursus AND f.command IN ({_texts(replay.frequent())})"
    more = {name: f"CASE WHEN {frequent} THEN NULL ELSE f.{name} END" for name in replay.ASKED}
    more |= {"kind": str(replay.FRAME), "detail": "d.detail"}
    return _FRAMES.format(columns=_columns(own, "f", **more))


def _texts(values: Iterable[str]) -> str:
    return ", ".join(map(text, values))


def _ids() -> str:
    own = ("frame_no", "ledger_id", "entry_id", "partition", "batch_size", "ack_set", "place")
    return (
        f"SELECT {_columns(own, 'a', kind=str(replay.ID))} FROM acks AS a "
        "JOIN placed AS p USING (capture, connection_id) WHERE p.is_read"
    )


def _costs() -> str:
    own = ("frame_no", "message_count", "ack_set", "place")
    return _COSTS.format(columns=_columns(own, "d", kind=str(replay.COST)))


def _batches() -> list[str]:
    kind = str(replay.COST)
    own = ("frame_no", "entry_id", "message_count", "permits", "redelivery_count", "place")
    got = {"kind": kind, "producer_name": "m.producer_name", "sequence_id": "m.sequence_id"}
    got["permits"] = "NULL"
    sent = {
        "kind": kind, "frame_no": "e.request_frame_no", "place": "e.place",
        "permits": "CASE e.outcome WHEN 'not_awaited' THEN 0 ELSE 1 END",
        "redelivery_count": "CASE e.outcome WHEN 'dup_or_dropped' THEN 1 ELSE 0 END",
    }  # fmt: skip
    return [
        _GOT.format(columns=_columns(own, "d", **got)),
        _SENT.format(columns=_columns((), "e", **sent)),
    ]


def _told() -> str:
    columns = _columns(("frame_no", "message_count"), "t", kind=str(replay.COST))
    return f"SELECT {columns} FROM told AS t JOIN placed AS p USING (capture, connection_id)"


def _holes() -> str:
    own = ("direction", "event_code", "stream_offset", "frames_missing", "frame_no", "turn")
    more = {"kind": str(replay.EVENT), "frame_bytes": "p.bytes", "place": "p.stream_offset"}
    return f"SELECT {_columns(own, 'p', **more)} FROM holes AS p"


def _events() -> str:
    own = ("direction", "event_code", "stream_offset", "frames_missing", "frame_no", "frame_bytes",
           "last_ts_ns", "last_packet", "place")  # fmt: skip
    kind = f"CASE event WHEN 'leg' THEN {replay.LEG} ELSE {replay.EVENT} END"
    return f"SELECT {_columns(own, 'p', kind=kind)} FROM events AS p"
