-- Frames with the numbers of their connections, and the spots where an answer may be hidden.
-- Inputs: connections, frames, events.

-- numbered_connections: Pulsar's connections, numbered. d: the scope of names and ids; a proxy's own leg
-- has a scope of its own.
CREATE TEMP TABLE numbered_connections AS
SELECT
  row_number() OVER (ORDER BY capture, connection_id) AS c, capture, connection_id,
  concat(capture, CASE WHEN leg = 'broker' AND twin_connection_id IS NOT NULL THEN ' proxy'
    ELSE '' END) AS d,
  ended, client_ip, broker_ip,
  packets_to_broker > 0 AND packets_to_client > 0 AS is_two_way,
  fin_packet_to_broker, fin_packet_to_client, ended_packet
FROM connections WHERE protocol = 'pulsar';

-- numbered_frames: frames with the number of their connection; n orders them.
CREATE TEMP TABLE numbered_frames AS
SELECT k.c, f.frame_no AS n, f.command, f.direction, f.status, f.first_ts_ns, f.last_ts_ns,
  f.last_packet, f.frame_bytes, f.retransmitted, f.request_id, f.producer_id, f.consumer_id, f.incarnation, f.sequence_id,
    f.highest_sequence_id, f.ledger_id, f.entry_id, f.partition,
  f.message_count, f.permits, f.redelivery_count, f.topic, f.subscription, f.producer_name,
    f.error_code, f.error_text, f.checksum, f.crc32c_stored,
  f.is_batch, f.publish_time_ms, f.deliver_at_ms, f.chunk_id, f.chunk_count,
    f.repl_source_ledger_id, f.repl_source_entry_id, f.replicated_from,
    f.txn_most_bits, f.txn_least_bits, f.ack_set, f.message_permits,
    f.is_ready, f.is_active, f.txn_action, f.detail
FROM frames AS f JOIN numbered_connections AS k ON k.connection_id = f.connection_id
  AND k.capture = f.capture;

-- ranges: the lowest and highest number of messages that are sent, stored or delivered, per producer
-- or ledger. is_new: frames of this increment.
CREATE TEMP VIEW ranges AS
SELECT n > (SELECT max(n) FROM before_end) AS is_new, CASE command WHEN 'SEND' THEN 'sent' WHEN 'MESSAGE' THEN 'got' ELSE 'stored' END AS kind,
  CASE command WHEN 'SEND' THEN producer_name ELSE ledger_id::VARCHAR END AS name,
  min(CASE command WHEN 'SEND' THEN sequence_id ELSE entry_id END) AS least,
  max(CASE command WHEN 'SEND' THEN sequence_id ELSE entry_id END) AS greatest
FROM numbered_frames WHERE command IN ('SEND', 'MESSAGE', 'SEND_RECEIPT') GROUP BY ALL;

-- holes: bytes that were not captured, or in which no frame was found. spot: their position among the
-- frames of both directions, between two frame numbers.
CREATE TEMP TABLE holes AS
SELECT k.c, e.direction, e.is_inside, e.behind_frame_no + 0.5 AS spot
FROM events AS e JOIN numbered_connections AS k USING (capture, connection_id)
WHERE e.event IN ('gap', 'skipped');

-- hidden: spots that may hide an answer (holes, and frames of which too little was read), and spots
-- that may hide acks or messages.
CREATE TEMP TABLE hidden AS
SELECT hides, c, direction, spot FROM holes, (VALUES ('answers'), ('acks')) AS t(hides)
WHERE NOT is_inside
UNION ALL
SELECT b.hides, k.c, b.direction, b.spot
FROM before_spots AS b JOIN numbered_connections AS k ON k.connection_id = b.chain
UNION ALL
SELECT 'answers', c, direction, n FROM numbered_frames AS f
WHERE command IS NULL OR command LIKE 'UNKNOWN%'
  OR (status = 'malformed' AND command NOT IN ('SEND', 'MESSAGE', 'FLOW'))
  OR (command IN ('SEND_RECEIPT', 'SEND_ERROR') AND (producer_id IS NULL OR sequence_id IS NULL))
  OR (command = 'SEND' AND status NOT IN ('complete', 'malformed')
    AND (producer_id IS NULL OR sequence_id IS NULL))
  OR (status <> 'complete' AND request_id IS NULL AND direction = 'to_client'
    AND (command IN ('SUCCESS', 'ERROR', 'PRODUCER_SUCCESS')
      OR command LIKE '%\_RESPONSE' ESCAPE '\'))
UNION ALL
SELECT 'acks', c, direction, n FROM numbered_frames AS f WHERE status <> 'complete' AND (
  (status <> 'malformed' AND consumer_id IS NULL AND producer_id IS NULL AND request_id IS NULL)
  OR CASE direction WHEN 'to_broker'
    THEN command IS NULL OR command IN ('ACK', 'REDELIVER_UNACKNOWLEDGED_MESSAGES')
      OR (command = 'FLOW' AND permits IS NULL)
    ELSE command IS NULL OR (command = 'MESSAGE' AND consumer_id IS NULL) END);

CREATE TEMP VIEW hidden_answers AS SELECT * FROM hidden WHERE hides = 'answers';
CREATE TEMP VIEW hidden_acks AS SELECT * FROM hidden WHERE hides = 'acks';

-- between_hidden: the hidden spots around the frames from from_n on, up to the next spot. before_spot,
-- client_before_spot and broker_before_spot (to one side only), may be the frame itself.
CREATE TEMP TABLE between_hidden AS
WITH spots AS (
  SELECT hides, c, spot, bool_or(direction <> 'to_broker') AS is_to_client,
    bool_or(direction <> 'to_client') AS is_to_broker
  FROM hidden WHERE spot IS NOT NULL GROUP BY hides, c, spot
  UNION ALL SELECT DISTINCT hides, c, NULL, false, false FROM hidden
)
SELECT hides, c, coalesce(spot, 0) AS from_n, spot AS before_spot,
  max(CASE WHEN is_to_client THEN spot END) OVER earlier AS client_before_spot,
  max(CASE WHEN is_to_broker THEN spot END) OVER earlier AS broker_before_spot,
  min(spot) OVER later AS any_spot, min(CASE WHEN is_to_client THEN spot END) OVER later AS client_spot,
  min(CASE WHEN is_to_broker THEN spot END) OVER later AS broker_spot
FROM spots
WINDOW earlier AS (PARTITION BY hides, c ORDER BY spot NULLS FIRST
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
  later AS (PARTITION BY hides, c ORDER BY spot NULLS FIRST
    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING);

-- next_hidden_answers, next_hidden_acks: the hidden spots around each request, and around each frame
-- that changes a balance.
CREATE TEMP TABLE next_hidden_answers AS
SELECT f.c, f.n, b.any_spot, b.client_spot, b.broker_spot, b.before_spot
FROM (SELECT c, n FROM numbered_frames WHERE command NOT IN ('MESSAGE', 'FLOW', 'SEND_RECEIPT')) AS f
ASOF JOIN (FROM between_hidden WHERE hides = 'answers') AS b ON b.c = f.c AND b.from_n <= f.n;

CREATE TEMP TABLE next_hidden_acks AS
SELECT f.c, f.n, b.broker_spot, b.before_spot, b.client_before_spot, b.broker_before_spot
FROM (SELECT c, n FROM numbered_frames WHERE command IN ('MESSAGE', 'FLOW', 'SUBSCRIBE')) AS f
ASOF JOIN (FROM between_hidden WHERE hides = 'acks') AS b ON b.c = f.c AND b.from_n <= f.n;
