-- Frames with numbers for their connections, and the places where an answer may be hidden.
-- Inputs: connections, frames, events.

-- numbered_connections: the connections of Pulsar by number. d: the domain of names and ids, apart
-- for a proxy's own leg.
CREATE TEMP TABLE numbered_connections AS
SELECT
  row_number() OVER (ORDER BY capture, connection_id) AS c, capture, connection_id,
  concat(capture, CASE WHEN leg = 'broker' AND twin_connection_id IS NOT NULL THEN ' proxy'
    ELSE '' END) AS d,
  ended, client_ip, broker_ip,
  frames_to_client > 0 OR stream_bytes_to_client > 0
    OR fin_packet_to_client IS NOT NULL AS sees_client,
  frames_to_broker > 0 OR stream_bytes_to_broker > 0
    OR fin_packet_to_broker IS NOT NULL AS sees_broker,
  fin_packet_to_broker, fin_packet_to_client, ended_packet
FROM connections WHERE protocol = 'pulsar';

-- numbered_frames: frames with the number of their connection; n orders them.
CREATE TEMP TABLE numbered_frames AS
SELECT k.c, f.frame_no AS n, f.command, f.direction, f.status, f.first_ts_ns, f.last_ts_ns,
  f.first_packet, f.last_packet, f.stream_offset, f.frame_bytes,
  f.retransmitted, f.request_id, f.producer_id, f.consumer_id, f.incarnation, f.sequence_id,
    f.highest_sequence_id, f.ledger_id, f.entry_id, f.partition,
  f.message_count, f.permits, f.redelivery_count, f.topic, f.subscription, f.producer_name,
    f.error_code, f.error_text, f.checksum, f.crc32c_stored,
  f.is_batch, f.publish_time_ms, f.deliver_at_ms, f.chunk_id, f.chunk_count,
    f.repl_source_ledger_id, f.repl_source_entry_id, f.replicated_from,
    f.txn_most_bits, f.txn_least_bits, f.ack_set, f.message_permits,
    f.is_ready, f.is_active, f.txn_action, f.detail
FROM frames AS f JOIN numbered_connections AS k ON k.connection_id = f.connection_id
  AND k.capture = f.capture;

-- ranges: between which numbers messages lie that are sent, stored or delivered. is_new: those that
-- did not come before.
CREATE TEMP VIEW ranges AS
SELECT n > (SELECT max(n) FROM before_end) AS is_new, CASE command WHEN 'SEND' THEN 'sent' WHEN 'MESSAGE' THEN 'got' ELSE 'stored' END AS kind,
  CASE command WHEN 'SEND' THEN producer_name ELSE ledger_id::VARCHAR END AS name,
  min(CASE command WHEN 'SEND' THEN sequence_id ELSE entry_id END) AS least,
  max(CASE command WHEN 'SEND' THEN sequence_id ELSE entry_id END) AS greatest
FROM numbered_frames WHERE command IN ('SEND', 'MESSAGE', 'SEND_RECEIPT') GROUP BY ALL;

-- holes: bytes that were never captured, or in which no frame was found, at their place among the
-- frames of both directions: between two numbers.
CREATE TEMP TABLE holes AS
SELECT k.c, e.direction, e.is_inside, e.behind_frame_no + 0.5 AS spot
FROM events AS e JOIN numbered_connections AS k USING (capture, connection_id)
WHERE e.event IN ('gap', 'skipped');

-- hidden_answers: where an answer may be hidden: holes, and frames of which too little was read.
CREATE TEMP TABLE hidden_answers AS
SELECT c, direction, spot FROM holes WHERE NOT is_inside
UNION ALL
SELECT k.c, b.direction, b.spot
FROM before_spots AS b JOIN numbered_connections AS k ON k.connection_id = b.chain
WHERE b.hides = 'answers'
UNION ALL
SELECT c, direction, n FROM numbered_frames AS f
WHERE command IS NULL OR command LIKE 'UNKNOWN%'
  OR (status = 'malformed' AND command NOT IN ('SEND', 'MESSAGE', 'FLOW'))
  OR (command IN ('SEND_RECEIPT', 'SEND_ERROR') AND (producer_id IS NULL OR sequence_id IS NULL))
  OR (status <> 'complete' AND request_id IS NULL AND direction = 'to_client'
    AND (command IN ('SUCCESS', 'ERROR', 'PRODUCER_SUCCESS')
      OR command LIKE '%\_RESPONSE' ESCAPE '\'));

-- next_hidden_answers: of each frame of a connection with such places the next one, and the next of
-- each direction.
CREATE TEMP TABLE next_hidden_answers AS
WITH spots AS (
  SELECT c, n AS spot, n, NULL AS direction FROM numbered_frames AS f WHERE c IN (SELECT c
    FROM hidden_answers)
  UNION ALL SELECT c, spot, NULL, direction FROM hidden_answers
),
marked_spots AS (
  SELECT c, n,
    min(CASE WHEN n IS NULL THEN spot END) OVER later AS any_spot,
    min(CASE WHEN n IS NULL AND direction <> 'to_broker' THEN spot END) OVER later AS client_spot,
    min(CASE WHEN n IS NULL AND direction <> 'to_client' THEN spot END) OVER later AS broker_spot,
    max(CASE WHEN n IS NULL THEN spot END) OVER earlier AS before_spot
  FROM spots
  WINDOW later AS (PARTITION BY c ORDER BY spot DESC,
    n DESC NULLS LAST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
    earlier AS (PARTITION BY c ORDER BY spot,
      n NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT * FROM marked_spots WHERE n IS NOT NULL;
