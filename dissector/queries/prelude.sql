-- Views that the queries of reports share, in the SQL that DuckDB and Spark have in common.
-- Each begins with a line `-- name: what one row is`; a view may use those above it.

-- twins: a connection whose frames another one has, too: the broker's leg of a proxied pair
SELECT capture, connection_id FROM legs WHERE leg = 'broker' AND twin_connection_id IS NOT NULL;

-- late_producers: a producer, with names that may have been learnt behind its first rows
SELECT
  capture, connection_id, producer_id, incarnation,
  min(topic) AS late_topic, min(name) AS late_name
FROM producer_names
GROUP BY capture, connection_id, producer_id, incarnation;

-- late_consumers: the same of a consumer
SELECT
  capture, connection_id, consumer_id, incarnation,
  min(topic) AS late_topic, min(subscription) AS late_subscription,
  min(subscription_type) AS late_type, min(name) AS late_name
FROM consumer_names
GROUP BY capture, connection_id, consumer_id, incarnation;

-- publishes: a SEND with its receipt, or a receipt alone, of connections that count
-- message_id tells the messages of one producer apart: the sequence id. Producers without an id
-- (Cursus) number each partition from the beginning, and which of their sends repeats another
-- stands in attempt. A replicator sends on what several producers published, each with sequence
-- ids of its own; its entries are told apart by their checksum, which they keep when sent again.
SELECT
  e.capture, e.connection_id, e.producer_id, e.incarnation,
  coalesce(e.topic, n.late_topic) AS topic,
  coalesce(e.producer_name, n.late_name) AS producer_name,
  e.client_ip, e.broker_ip, e.outcome,
  CASE
    WHEN e.producer_id IS NULL THEN NULL
    WHEN e.producer_name LIKE 'pulsar.repl.%' AND e.sequence_id IS NOT NULL
      THEN coalesce(e.crc32c_stored, e.sequence_id)
    ELSE e.sequence_id
  END AS message_id,
  e.sequence_id, e.chunk_id, e.crc32c_stored, e.attempt, e.message_count, e.request_bytes,
  e.request_last_ns, e.response_last_ns, e.tainted, e.order_no,
  e.outcome <> 'orphan_response' AS is_request,
  coalesce(e.attempt, 1) = 1 AS is_first,
  e.outcome = 'ok' AND e.latency_ns IS NOT NULL AS is_timed,
  CASE WHEN e.outcome = 'ok' THEN e.latency_ns END AS latency_ns,
  CASE WHEN e.outcome = 'ok' AND e.latency_ns IS NOT NULL THEN e.latency_bucket END AS bucket,
  CASE WHEN e.outcome <> 'orphan_response' THEN e.transmit_ns END AS transmit_ns
FROM exchanges AS e
LEFT JOIN late_producers AS n
  ON n.capture = e.capture AND n.connection_id = e.connection_id
  AND n.producer_id = e.producer_id AND n.incarnation = e.incarnation
WHERE
  e.kind = 'publish'
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = e.capture AND t.connection_id = e.connection_id
  );

-- passed_sends: a send that was never answered although a later one of its producer was
-- A broker answers the sends of a producer in order: what is missing in between was dropped, or its
-- answer was. A refusal overtakes receipts; only these say that what was sent before is settled.
WITH sent AS (
  SELECT
    e.*,
    max(CASE WHEN e.outcome IN ('ok', 'dup_or_dropped') THEN e.order_no END) OVER (
      PARTITION BY e.capture, e.connection_id, e.producer_id, e.incarnation
    ) AS last_answered
  FROM exchanges AS e
  WHERE
    e.kind = 'publish' AND e.request_frame_no IS NOT NULL
    AND NOT EXISTS (
      SELECT 1 FROM twins AS t WHERE t.capture = e.capture AND t.connection_id = e.connection_id
    )
)
SELECT
  s.capture AS head_capture, s.connection_id AS head_connection_id,
  s.own_capture AS capture, s.own_connection_id AS connection_id, s.producer_id, s.incarnation,
  coalesce(s.topic, n.late_topic) AS topic, coalesce(s.producer_name, n.late_name) AS producer_name,
  s.sequence_id, s.message_count, s.outcome, s.request_last_ns AS at_ns, s.request_frame_no
FROM sent AS s
LEFT JOIN late_producers AS n
  ON n.capture = s.capture AND n.connection_id = s.connection_id
  AND n.producer_id = s.producer_id AND n.incarnation = s.incarnation
WHERE s.outcome IN ('unanswered_at_end', 'conn_closed') AND s.order_no < s.last_answered;

-- mismatches: a frame whose checksum does not match, and what that is worth
-- A broker verifies a SEND before it answers: SEND_ERROR ChecksumError confirms the mismatch, a
-- normal receipt proves that the bytes were good on the wire and the capture is wrong. A receipt
-- without an id proves nothing (drops are answered before the check). A consumer confirms by the
-- ACK that ended this delivery, if that has a validation error; a normal ACK proves nothing, since
-- some clients do not verify. What proves it may lie in another capture, and has no number then.
WITH discarded AS (
  SELECT
    d.own_capture, d.own_connection_id, d.frame_no,
    CASE WHEN d.ack_capture IS NULL THEN d.ack_frame_no END AS refused_frame_no
  FROM deliveries AS d
  WHERE
    d.outcome = 'discarded'
    AND EXISTS (
      SELECT 1 FROM acks AS a
      WHERE
        a.validation_error = 'ChecksumMismatch'
        AND a.capture = coalesce(d.ack_capture, d.own_capture)
        AND a.connection_id = coalesce(d.ack_connection_id, d.own_connection_id)
        AND a.frame_no = d.ack_frame_no
    )
)
SELECT
  f.capture, f.connection_id, f.frame_no, f.first_packet, f.last_packet, f.last_ts_ns AS at_ns,
  f.direction, f.command, f.topic, f.producer_id, f.consumer_id, f.incarnation, f.sequence_id,
  f.ledger_id, f.entry_id, f.frame_bytes, f.checksum_note, f.crc32c_stored, f.crc32c_computed,
  f.metadata_bytes, f.payload_bytes, coalesce(f.command = 'SEND', FALSE) AS is_send,
  e.outcome AS send_outcome, e.error_code AS send_error_code,
  CASE
    WHEN r.frame_no IS NOT NULL THEN 'confirmed_by_peer'
    WHEN e.outcome = 'error' AND e.error_code = 'ChecksumError' THEN 'confirmed_by_peer'
    WHEN e.outcome = 'ok' THEN 'capture_artefact'
    ELSE 'unconfirmed'
  END AS verdict,
  coalesce(
    r.refused_frame_no, CASE WHEN e.response_capture IS NULL THEN e.response_frame_no END
  ) AS evidence_frame_no
FROM frames AS f
LEFT JOIN exchanges AS e
  ON f.command = 'SEND' AND e.own_capture = f.capture AND e.own_connection_id = f.connection_id
  AND e.request_frame_no = f.frame_no
LEFT JOIN discarded AS r
  ON r.own_capture = f.capture AND r.own_connection_id = f.connection_id
  AND r.frame_no = f.frame_no
WHERE f.checksum = 'mismatch';
