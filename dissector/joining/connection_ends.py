"""What the rows of connections tell that `frames` does not: events for the replay of Cursus."""

from typing import TYPE_CHECKING, Final

from dissector.protocols.columns import FrameEvent
from dissector.schemas.enums import BOTH_DIRECTIONS
from dissector.stream.columns import ENDED_FIN, ENDED_NAMES

if TYPE_CHECKING:
    import duckdb

# Frame number of events that come behind all frames of their packet.
_LATEST: Final = 1 << 62
_HOW: Final = ", ".join(f"'{name}'" for name in ENDED_NAMES)

# Ends of directions and of connections, and the bytes that are missing between two captures. Where
# the directions of a connection ended in different captures, each of these saw one that was half
# closed. place: their order where all else is equal.
_EVENTS: Final = f"""
CREATE TABLE events AS
WITH own AS (
  SELECT p.rank, p.chain, p.read_by, c.*
  FROM connections AS c JOIN placed AS p USING (capture, connection_id) WHERE p.read_by IS NOT NULL
),
halves AS (
  SELECT rank, chain, read_by, last_ts_ns, fin_packet_to_broker, fin_packet_to_client,
    bool_and(ended_packet IS NULL) OVER of_chain AS is_open,
    min(CASE WHEN fin_packet_to_broker IS NOT NULL THEN rank END) OVER of_chain AS broker_rank,
    min(CASE WHEN fin_packet_to_client IS NOT NULL THEN rank END) OVER of_chain AS client_rank
  FROM own WINDOW of_chain AS (PARTITION BY chain)
)
SELECT rank, chain, read_by, {_LATEST} AS frame_no, {FrameEvent.FIN} AS event_code,
  'to_broker' AS direction, fin_packet_to_broker AS last_packet, NULL AS last_ts_ns,
  NULL AS frames_missing, NULL AS stream_offset, NULL AS frame_bytes, 1 AS place
FROM own WHERE fin_packet_to_broker IS NOT NULL
UNION ALL BY NAME
SELECT rank, chain, read_by, {_LATEST} AS frame_no, {FrameEvent.FIN} AS event_code,
  'to_client' AS direction, fin_packet_to_client AS last_packet, 2 AS place
FROM own WHERE fin_packet_to_client IS NOT NULL
UNION ALL BY NAME
SELECT rank, chain, read_by, {_LATEST} AS frame_no,
  {FrameEvent.CLOSE} AS event_code, 'to_client' AS direction,
  list_position([{_HOW}], ended) - 1 AS frames_missing, last_ts_ns,
  ended_packet AS last_packet, 3 AS place
FROM own WHERE ended_packet IS NOT NULL
UNION ALL BY NAME
SELECT rank, chain, read_by, {_LATEST} AS frame_no,
  {FrameEvent.CLOSE} AS event_code, 'to_client' AS direction,
  {ENDED_FIN} AS frames_missing, last_ts_ns,
  greatest(fin_packet_to_broker, fin_packet_to_client) AS last_packet, 3 AS place
FROM halves WHERE is_open AND rank = greatest(broker_rank, client_rank)
  AND broker_rank IS NOT NULL AND client_rank IS NOT NULL
UNION ALL BY NAME
SELECT p.rank, p.chain, p.read_by, 0 AS frame_no, {FrameEvent.GAP} AS event_code,
  s.direction, 1 AS frames_missing, -s.missing AS stream_offset, s.missing AS frame_bytes,
  CASE s.direction WHEN '{BOTH_DIRECTIONS[0]}' THEN 1 ELSE 2 END AS place
FROM handovers AS s
JOIN placed AS p ON p.capture = s.after_capture AND p.connection_id = s.after_connection_id
WHERE p.read_by IS NOT NULL AND s.missing > 0
"""


def find_events(db: "duckdb.DuckDBPyConnection") -> None:
    """Make the table events. db: with connections, handovers and placed."""
    db.execute(_EVENTS)
