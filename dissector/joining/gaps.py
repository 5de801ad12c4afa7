"""Place the holes of streams among the frames of both directions of their connection.

A row of `notices` has a direction's missing bytes, and the packet that ended the wait for them.
The other direction's frames decide which requests the hole affects; a dissection merges both
directions by turns, which are packets (see stream/reassembly). A hole has the turn of the first
packet behind it, or of the acknowledgement that proves it. If an answer acknowledged it earlier, a
dissection places it before that answer; acknowledgements are in no row, so here it is behind.
"""

from typing import TYPE_CHECKING, Final

from dissector.protocols.columns import FrameEvent
from dissector.tls.facts import DECRYPTED, PARTLY

if TYPE_CHECKING:
    import duckdb

# Stream notices count bytes of TCP, decrypted frames count bytes inside TLS: for decrypted
# connections the holes are read from frame events.
_OPENED: Final = f"'{DECRYPTED}', '{PARTLY}'"
# The missing bytes of the frame that the end of a capture cut, for directions that continue in
# another capture. Bytes that are skipped there beyond these hide frames.
_RESTS: Final = """
CREATE TABLE rests AS
SELECT h.after_capture AS capture, h.after_connection_id AS connection_id, h.direction,
  coalesce(max(f.stream_offset + f.frame_bytes) - max(CASE h.direction
    WHEN 'to_client' THEN c.stream_bytes_to_client ELSE c.stream_bytes_to_broker END), 0) AS bytes
FROM handovers AS h JOIN connections AS c
  ON c.capture = h.before_capture AND c.connection_id = h.before_connection_id
LEFT JOIN frames AS f ON f.capture = c.capture AND f.connection_id = c.connection_id
  AND f.direction = h.direction AND f.status = 'cut_by_end'
WHERE h.missing = 0 GROUP BY ALL HAVING count(*) = count(f.frame_bytes) OR count(f.frame_no) = 0
"""
# A hole that begins within a frame, and skipped bytes, come before the next frame. If a connection
# continues from the previous capture, skipped bytes are the rest of a frame; bytes beyond that come
# before all frames. Bytes missing at the end of a capture are in the next one, if the direction
# continues there.
_HOLES: Final = f"""
CREATE TABLE gaps AS
WITH in_tls AS (
  SELECT capture, connection_id FROM connections WHERE tls_decryption IN ({_OPENED})
),
known_holes AS (
  SELECT n.capture, n.connection_id, coalesce(e.direction, n.direction) AS direction,
    n.stream_offset, n.bytes, n.packet, n.code
  FROM notices AS n ANTI JOIN in_tls USING (capture, connection_id)
  -- The notice may have no direction yet.
  LEFT JOIN all_events AS e ON n.code = 'midstream_start' AND e.event = 'skipped'
    AND e.capture = n.capture AND e.connection_id = n.connection_id
    AND e.stream_offset = n.stream_offset AND e.bytes = n.bytes
  UNION ALL
  SELECT capture, connection_id, direction, stream_offset, bytes, packet,
    CASE event WHEN 'gap' THEN 'gap_lost' ELSE 'resync' END
  FROM all_events SEMI JOIN in_tls USING (capture, connection_id) WHERE event IN ('gap', 'skipped')
),
gap_notices AS (
  SELECT p.rank, p.chain, p.read_by, n.capture, n.connection_id, n.direction, n.stream_offset,
    n.bytes, n.packet, n.code = 'gap_lost' AS is_hole,
    CASE n.direction WHEN 'to_client' THEN p.goes_on_to_client ELSE p.goes_on_to_broker END
      AS goes_on,
    n.code = 'midstream_start' AND CASE n.direction
      WHEN 'to_client' THEN p.comes_from_to_client ELSE p.comes_from_to_broker END AS is_at_boundary
  FROM known_holes AS n JOIN placed AS p USING (capture, connection_id)
  LEFT JOIN rests AS r USING (capture, connection_id, direction)
  WHERE p.read_by IS NOT NULL AND n.code IN ('gap_lost', 'resync', 'midstream_start')
    AND n.stream_offset IS NOT NULL AND NOT (is_at_boundary AND coalesce(n.bytes <= r.bytes, true))
),
near AS (
  SELECT capture, connection_id, direction, frame_no, stream_offset AS start,
    stream_offset + frame_bytes AS stop, first_packet, last_packet
  FROM frames SEMI JOIN gap_notices USING (capture, connection_id, direction)
),
gap_neighbours AS (
  SELECT g.*, l.frame_no AS last_frame_no, l.last_packet AS last_packet,
    f.frame_no AS next_frame_no, f.start, f.stop,
    CASE WHEN g.is_hole AND coalesce(f.start >= g.stream_offset, true)
      THEN least(f.first_packet, g.packet) END AS revealed
  FROM gap_notices AS g
  ASOF LEFT JOIN near AS l ON l.capture = g.capture AND l.connection_id = g.connection_id
    AND l.direction = g.direction AND g.stream_offset >= l.stop
  ASOF LEFT JOIN near AS f ON f.capture = g.capture AND f.connection_id = g.connection_id
    AND f.direction = g.direction AND g.stream_offset < f.stop
  WHERE f.frame_no IS NOT NULL OR (g.is_hole AND NOT g.goes_on)
)
SELECT rank, chain, read_by, direction, stream_offset, bytes,
  CASE WHEN is_hole THEN {FrameEvent.GAP} ELSE {FrameEvent.SKIPPED} END AS event_code,
  CASE WHEN coalesce(start < stream_offset AND stop >= stream_offset + coalesce(bytes, 0), false)
    THEN 0 ELSE 1 END AS frames_missing,
  revealed AS turn,
  CASE WHEN is_at_boundary OR revealed IS NOT NULL THEN 0 ELSE next_frame_no - 1 END AS frame_no
FROM gap_neighbours
"""


def find_gaps(db: "duckdb.DuckDBPyConnection") -> None:
    """Create the table gaps, ordered by turn and frame_no; turn is null if frame_no is enough.

    Args:
        db: with connections, notices, handovers, all_events (of the lake), frames and placed.
    """
    db.execute(_RESTS)
    db.execute(_HOLES)
