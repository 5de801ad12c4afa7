-- Views that the queries of reports share.
-- Each begins with a line `-- name: what one row is`; a view may read the views above it. A line
-- `-- materialized` makes DuckDB write its rows to a table once (catalogue.SharedView).

-- numbered_captures: a capture, with its number and its unit's number, each in order of names
-- materialized
SELECT
  capture, unit, row_number() OVER (ORDER BY capture) AS capture_no,
  dense_rank() OVER (ORDER BY unit) AS unit_no
FROM units;

-- twins: a connection whose frames another one repeats: the broker's leg of a proxied pair
-- materialized
SELECT capture, connection_id
FROM whole_legs
WHERE leg = 'broker' AND twin_connection_id IS NOT NULL;

-- other_legs: a twin of a proxied pair, not a second capture of one connection: rules leave it out
-- materialized
-- Totals count each connection once, but a rule judges each capture by all of its connections: the
-- cause of an incident, such as the owner of a name or another consumer, may be on a connection
-- that another capture repeats. One incident seen in two captures becomes one finding.
SELECT capture, connection_id
FROM legs
WHERE leg = 'broker' AND twin_connection_id > -2;

-- late_producers: a producer, with names that may have been learnt after its first rows
-- materialized
SELECT
  capture, connection_id, producer_id, incarnation,
  min(topic) AS late_topic, min(name) AS late_name
FROM producer_names
GROUP BY capture, connection_id, producer_id, incarnation;

-- sends_to_any_topic: a SEND, whatever names are selected: a dead letter belongs to its old topic
SELECT *
FROM frames_of_any_name
WHERE command = 'SEND';

-- late_consumers: a consumer, with names that may have been learnt after its first rows
-- materialized
SELECT
  capture, connection_id, consumer_id, incarnation,
  min(topic) AS late_topic, min(subscription) AS late_subscription,
  min(subscription_type) AS late_type, min(name) AS late_name
FROM consumer_names
GROUP BY capture, connection_id, consumer_id, incarnation;

-- unnamed_producers: a late producer with publishes that lack a name; mostly there are none
-- materialized
SELECT n.*
FROM late_producers AS n
SEMI JOIN (
  SELECT capture, connection_id, producer_id, incarnation
  FROM exchanges_around
  WHERE kind = 'publish' AND (topic IS NULL OR producer_name IS NULL)
) AS e
  ON e.capture = n.capture AND e.connection_id = n.connection_id
  AND e.producer_id = n.producer_id AND e.incarnation = n.incarnation;

-- unnamed_consumers: a late consumer with deliveries or acknowledged ids that lack a name
-- materialized
SELECT n.*
FROM late_consumers AS n
SEMI JOIN (
  SELECT capture, connection_id, consumer_id, incarnation
  FROM deliveries_around
  WHERE topic IS NULL OR subscription IS NULL OR consumer_name IS NULL
  UNION ALL
  SELECT capture, connection_id, consumer_id, incarnation
  FROM acks_around
  WHERE topic IS NULL OR subscription IS NULL
) AS d
  ON d.capture = n.capture AND d.connection_id = n.connection_id
  AND d.consumer_id = n.consumer_id AND d.incarnation = n.incarnation;

-- single_exchanges: a request with its answer, on connections that are no twins
SELECT
  e.*,
  (e.error_code IS NOT NULL OR e.outcome = 'error') AND e.response_last_ns IS NOT NULL
    AS is_refused
FROM exchanges AS e
ANTI JOIN twins AS t ON t.capture = e.capture AND t.connection_id = e.connection_id;

-- confirmed_entries: an entry that a receipt confirmed; of a subscription what its topics were sent
SELECT capture, connection_id, topic, ledger_id, entry_id
FROM exchanges_around
WHERE
  kind = 'publish' AND outcome = 'ok' AND ledger_id IS NOT NULL AND is_selected(micros(ts));

-- publishes: a SEND with its receipt, or a receipt alone, on connections that are no twins
-- message_id identifies a message within its producer: the sequence id. Producers without an id
-- (Cursus) number each partition from the beginning; `attempt` says which of their sends repeats
-- another. A replicator forwards entries of several producers, each with sequence ids of its own,
-- so its entries are identified by their checksum, which stays the same when they are sent again.
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
  CASE
    WHEN e.publish_time_ms BETWEEN 1 AND 4102444800000 THEN e.publish_time_ms * 1000000
  END AS published_ns,
  e.outstanding_before, e.request_first_ns, e.request_last_ns, e.response_last_ns, e.tainted,
  e.order_no, e.request_frame_no, e.response_frame_no,
  e.outcome <> 'orphan_response' AS is_request,
  coalesce(e.attempt, 1) = 1 AS is_first,
  e.outcome = 'ok' AND e.latency_ns IS NOT NULL AS is_timed,
  CASE WHEN e.outcome = 'ok' THEN e.latency_ns END AS latency_ns,
  CASE WHEN e.outcome = 'ok' AND e.latency_ns IS NOT NULL THEN e.latency_bucket END AS bucket,
  CASE WHEN e.outcome <> 'orphan_response' THEN e.transmit_ns END AS transmit_ns
FROM single_exchanges AS e
LEFT JOIN unnamed_producers AS n USING (capture, connection_id, producer_id, incarnation)
WHERE e.kind = 'publish';

-- senders: a leaf: a producer incarnation with one combination of names and addresses; with numbers
-- materialized
-- Comparing half a million messages by names takes ten times as long. Messages are distinct within
-- producer_no, client_no or broker_no (see the query messages). Mostly a producer is one leaf (not
-- is_shared), and an incarnation too (is_all).
WITH leaves AS (
  SELECT DISTINCT
    p.capture, p.connection_id, p.producer_id, p.incarnation, p.topic, p.producer_name,
    p.client_ip, p.broker_ip
  FROM publishes AS p
  WHERE p.is_request
),
owned_leaves AS (
  SELECT
    l.*, u.unit,
    CASE
      WHEN l.topic IS NULL OR l.producer_name IS NULL
        THEN dense_rank() OVER (
          ORDER BY l.capture, l.connection_id, l.producer_id, l.incarnation
        )
    END AS owner_no,
    row_number() OVER (
      ORDER BY
        l.capture, l.connection_id, l.producer_id, l.incarnation, l.topic, l.producer_name,
        l.client_ip, l.broker_ip
    ) AS leaf_no
  FROM leaves AS l
  JOIN units AS u ON u.capture = l.capture
)
SELECT
  o.*,
  dense_rank() OVER (ORDER BY unit, topic, producer_name, owner_no) AS producer_no,
  dense_rank() OVER (ORDER BY unit, topic, producer_name, owner_no, client_ip) AS client_no,
  dense_rank() OVER (ORDER BY unit, topic, producer_name, owner_no, broker_ip) AS broker_no,
  count(*) OVER (PARTITION BY unit, topic, producer_name, owner_no) > 1 AS is_shared,
  count(*) OVER (PARTITION BY capture, connection_id, producer_id, incarnation) = 1 AS is_all
FROM owned_leaves AS o;

-- passed_sends: a send that was never answered although a later one of its producer was
-- materialized
-- A broker sends the receipts of a producer in order, so a send without one before a later receipt
-- was dropped, or its answer was. A refusal may overtake receipts and therefore proves nothing.
WITH answered AS (
  SELECT capture, connection_id, producer_id, incarnation, max(order_no) AS last_answered
  FROM exchanges_around
  WHERE
    kind = 'publish' AND request_frame_no IS NOT NULL AND outcome IN ('ok', 'dup_or_dropped')
  GROUP BY capture, connection_id, producer_id, incarnation
)
SELECT
  s.capture AS head_capture, s.connection_id AS head_connection_id,
  s.own_capture AS capture, s.own_connection_id AS connection_id, s.producer_id, s.incarnation,
  coalesce(s.topic, n.late_topic) AS topic, coalesce(s.producer_name, n.late_name) AS producer_name,
  s.sequence_id, s.message_count, s.outcome, s.request_last_ns AS at_ns, s.request_frame_no
FROM exchanges AS s
ANTI JOIN twins AS t USING (capture, connection_id)
JOIN answered AS a
  ON a.capture = s.capture AND a.connection_id = s.connection_id
  AND a.producer_id IS NOT DISTINCT FROM s.producer_id
  AND a.incarnation IS NOT DISTINCT FROM s.incarnation
LEFT JOIN late_producers AS n
  ON n.capture = s.capture AND n.connection_id = s.connection_id
  AND n.producer_id = s.producer_id AND n.incarnation = s.incarnation
WHERE
  s.kind = 'publish' AND s.request_frame_no IS NOT NULL
  AND s.outcome IN ('unanswered_at_end', 'conn_closed') AND s.order_no < a.last_answered;

-- frame_kinds: frames of one connection, command and status
-- materialized
SELECT
  capture, connection_id, protocol, direction, command, status, count(*) AS frames,
  sum(frame_bytes) AS frame_bytes
FROM frames
GROUP BY capture, connection_id, protocol, direction, command, status;

-- mismatched_frames: a frame whose checksum does not match
-- materialized
SELECT f.* FROM frames AS f WHERE f.checksum = 'mismatch';

-- mismatches: a frame whose checksum does not match, and the verdict on it
-- materialized
-- A broker verifies a SEND before it answers: SEND_ERROR ChecksumError confirms the mismatch, a
-- normal receipt proves that the bytes were good on the wire and the capture is wrong. A receipt
-- without an id proves nothing (drops are answered before the check). A consumer confirms with an
-- ACK of this delivery that has a validation error; a normal ACK proves nothing, since some clients
-- do not verify. A proving frame in another capture has no number here.
WITH discarded AS (
  SELECT
    d.own_capture, d.own_connection_id, d.frame_no,
    CASE WHEN d.ack_capture IS NULL THEN d.ack_frame_no END AS refused_frame_no
  FROM deliveries AS d
  WHERE
    d.outcome = 'discarded'
    AND EXISTS (
      SELECT 1 FROM acks_around AS a
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
FROM mismatched_frames AS f
LEFT JOIN exchanges AS e
  ON f.command = 'SEND' AND e.own_capture = f.capture AND e.own_connection_id = f.connection_id
  AND e.request_frame_no = f.frame_no
LEFT JOIN discarded AS r
  ON r.own_capture = f.capture AND r.own_connection_id = f.connection_id
  AND r.frame_no = f.frame_no;

-- listed_mismatches: the first of these of each capture, with what tells their entry
-- materialized
SELECT
  m.*, u.unit, CASE WHEN m.is_send THEN m.sequence_id ELSE m.ledger_id END AS first_id,
  CASE WHEN m.is_send THEN -1 ELSE m.entry_id END AS second_id
FROM mismatches AS m
ANTI JOIN twins AS t ON t.capture = m.capture AND t.connection_id = m.connection_id
JOIN units AS u ON u.capture = m.capture
QUALIFY row_number() OVER (PARTITION BY m.capture ORDER BY m.at_ns, m.frame_no) <= 1000;

-- sound_copies: another frame with the entry of such a one, and a right checksum, at whatever time
-- An entry keeps its checksum from SEND to MESSAGE and over every repetition. So a copy is a
-- publish with the same sequence id, or a publish or delivery of the same ledger and entry, whose
-- checksum is the stored or the computed one. One in another capture has no number there.
WITH wanted AS (
  SELECT unit, capture, frame_no, first_id, second_id, crc32c_stored AS crc FROM listed_mismatches
  UNION
  SELECT unit, capture, frame_no, first_id, second_id, crc32c_computed FROM listed_mismatches
),
sent AS (
  SELECT
    own_capture, crc32c_stored AS crc, sequence_id, ledger_id, entry_id, order_no,
    request_frame_no AS frame_no
  FROM whole_exchanges
  WHERE
    kind = 'publish' AND request_frame_no IS NOT NULL
    AND crc32c_stored IN (SELECT crc FROM wanted)
),
others AS (
  SELECT own_capture, crc, sequence_id AS first_id, -1 AS second_id, order_no, frame_no FROM sent
  UNION ALL
  SELECT own_capture, crc, ledger_id, entry_id, order_no, frame_no FROM sent
  UNION ALL
  SELECT own_capture, crc32c_stored, ledger_id, entry_id, order_no, frame_no
  FROM whole_deliveries
  WHERE checksum = 'ok' AND crc32c_stored IN (SELECT crc FROM wanted)
),
first_others AS (
  SELECT u.unit, o.*
  FROM others AS o
  JOIN units AS u ON u.capture = o.own_capture
  WHERE NOT EXISTS (
    SELECT 1 FROM whole_frames AS f
    WHERE f.checksum = 'mismatch' AND f.capture = o.own_capture AND f.frame_no = o.frame_no
  )
  QUALIFY row_number() OVER (
    PARTITION BY u.unit, o.crc, o.first_id, o.second_id
    ORDER BY o.order_no, o.own_capture, o.frame_no
  ) = 1
)
SELECT
  w.capture, w.frame_no, o.crc AS copy_crc32c,
  CASE WHEN o.own_capture = w.capture THEN o.frame_no END AS copy_frame_no,
  row_number() OVER (
    PARTITION BY w.capture, w.frame_no ORDER BY o.order_no, o.crc, o.own_capture, o.frame_no
  ) AS place
FROM wanted AS w
JOIN first_others AS o USING (unit, crc, first_id, second_id);

-- logical_sends: a message, with the time from its first send to its first ok receipt
-- Sends of one message are matched within their topic and producer if both are known, else within
-- one incarnation of a producer. The message counts for the client of its first answered attempt.
WITH first_attempts AS (
  SELECT
    capture, topic, producer_name, client_ip, broker_ip, request_last_ns AS at_ns,
    latency_ns AS logical_ns, bucket
  FROM publishes
  WHERE is_request AND is_first AND is_timed
),
unconfirmed_sends AS (
  SELECT
    u.unit, p.capture, p.connection_id, p.producer_id, p.incarnation, p.topic, p.producer_name,
    p.client_ip, p.broker_ip, p.sequence_id, p.chunk_id, p.crc32c_stored, p.attempt,
    p.request_last_ns,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.capture END AS own_capture,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.connection_id END AS own_connection,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.producer_id END AS own_producer,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.incarnation END AS own_incarnation,
    CASE WHEN p.outcome = 'ok' THEN p.response_last_ns END AS answered_ns
  FROM publishes_around AS p
  JOIN units AS u USING (capture)
  WHERE
    p.is_request AND p.attempt IS NOT NULL AND NOT (p.is_first AND p.outcome = 'ok')
    AND p.outcome <> 'other_side_not_captured'
),
attempts AS (
  SELECT
    w.*,
    row_number() OVER (
      PARTITION BY
        unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
        sequence_id, chunk_id, crc32c_stored
      ORDER BY
        answered_ns ASC NULLS LAST, connection_id ASC NULLS LAST, producer_id ASC NULLS LAST,
        incarnation ASC NULLS LAST, capture ASC
    ) AS place,
    min(attempt) OVER message AS first_attempt,
    min(request_last_ns) OVER message AS first_sent_ns
  FROM unconfirmed_sends AS w
  WINDOW message AS (
    PARTITION BY
      unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
      sequence_id, chunk_id, crc32c_stored
  )
),
later_attempts AS (
  SELECT
    capture, topic, producer_name, client_ip, broker_ip, first_sent_ns AS at_ns,
    try_subtract(answered_ns, first_sent_ns) AS logical_ns
  FROM attempts
  WHERE
    place = 1 AND first_attempt = 1 AND answered_ns >= first_sent_ns
    AND selects_sends() AND is_selected(floor_div(first_sent_ns, 1000))
)
SELECT * FROM first_attempts
UNION ALL
SELECT *, histogram_bucket(logical_ns) AS bucket FROM later_attempts;

-- publish_distances: the time from a SEND's publish time until it began, by client
-- sends: their number; a tap adds rows of earlier windows. All sends are read, whatever is
-- selected: a clock belongs to a client, not to a topic or a time.
SELECT
  u.unit, e.client_ip,
  try_subtract(e.request_first_ns, e.publish_time_ms * 1000000) AS distance_ns, 1 AS sends
FROM whole_exchanges AS e
ANTI JOIN twins AS t USING (capture, connection_id)
JOIN units AS u USING (capture)
WHERE
  e.kind = 'publish' AND e.outcome <> 'orphan_response'
  AND e.publish_time_ms BETWEEN 1 AND 4102444800000;

-- unsteady_clocks: a capture whose own clock was set back, or whose packets two clocks have stamped
SELECT DISTINCT capture
FROM notices
WHERE code = 'clock_unsteady';

-- clocks_set_back: a client whose clock was set back, or that of a capture that shows it
SELECT DISTINCT u.unit, c.client_ip
FROM whole_notices AS n
JOIN whole_connections AS c USING (capture, connection_id)
JOIN units AS u USING (capture)
WHERE n.code = 'publish_time_back'
UNION
SELECT u.unit, c.client_ip
FROM whole_notices AS n
JOIN units AS m USING (capture)
JOIN units AS u ON u.unit = m.unit
JOIN whole_connections AS c ON c.capture = u.capture
WHERE n.code = 'clock_unsteady';

-- client_clocks: a client's clock beside the clock of the capture
-- materialized
-- A message is sent after its publish time, so the least distance is the most that the client's
-- clock can be behind; below zero the clock is ahead. Above zero, a late clock and messages that
-- wait in the client look alike. A clock shifts all sends equally, so it is assumed to be behind if
-- half of them lie within twice the least distance. ahead_ns is subtracted from publish times.
-- is_steady: the clock was not set back.
WITH least_distances AS (
  SELECT unit, client_ip, min(distance_ns) AS least_ns
  FROM publish_distances
  GROUP BY unit, client_ip
),
distance_counts AS (
  SELECT
    d.unit, d.client_ip, l.least_ns, sum(d.sends) AS sends,
    sum(CASE WHEN floor_div(d.distance_ns, 2) < l.least_ns THEN d.sends ELSE 0 END) AS near
  FROM publish_distances AS d
  JOIN least_distances AS l USING (unit, client_ip)
  GROUP BY d.unit, d.client_ip, l.least_ns
)
SELECT
  c.unit, c.client_ip, c.sends, b.client_ip IS NULL AS is_steady,
  CASE WHEN c.least_ns < 0 OR 2 * c.near > c.sends THEN try_subtract(0, c.least_ns) ELSE 0 END
    AS ahead_ns
FROM distance_counts AS c
LEFT JOIN clocks_set_back AS b USING (unit, client_ip);

-- application_sends: a SEND as its application sees it: from publishing to the receipt that counts
-- It begins at the publish time, which clients stamp once, or else at the first attempt. Of several
-- confirmed attempts the last one counts: before it, the client did not have a receipt. A receipt
-- without an id confirms, too: the broker has the message already. The last chunk represents a
-- chunked message. If sequence ids restart in each partition, they identify no message, and each
-- attempt counts.
WITH repeated_sends AS (
  SELECT
    u.unit, p.topic, p.producer_name, p.sequence_id, p.chunk_id, p.crc32c_stored,
    min(p.request_first_ns) AS first_ns,
    max(CASE WHEN p.outcome IN ('ok', 'dup_or_dropped') THEN p.response_last_ns END) AS last_ns,
    max(p.attempt) AS attempts
  FROM publishes_around AS p
  JOIN units AS u USING (capture)
  SEMI JOIN (
    SELECT topic, producer_name, sequence_id
    FROM publishes_around
    WHERE attempt > 1 AND producer_id IS NOT NULL
  ) AS r USING (topic, producer_name, sequence_id)
  WHERE p.is_request
  GROUP BY u.unit, p.topic, p.producer_name, p.sequence_id, p.chunk_id, p.crc32c_stored
),
confirmed_sends AS (
  SELECT
    u.unit, p.capture, p.topic, p.producer_name, p.client_ip, p.broker_ip, p.connection_id,
    p.producer_id, p.incarnation, p.request_frame_no, p.response_frame_no, p.message_count,
    p.request_first_ns, p.request_last_ns, p.response_last_ns,
    coalesce(s.first_ns, p.request_first_ns) AS first_ns,
    try_subtract(p.published_ns, k.ahead_ns) AS published_ns,
    p.published_ns IS NULL OR k.is_steady AS is_steady
  FROM publishes AS p
  JOIN units AS u USING (capture)
  LEFT JOIN repeated_sends AS s
    ON s.unit = u.unit AND s.topic = p.topic AND s.producer_name = p.producer_name
    AND s.sequence_id = p.sequence_id AND s.chunk_id IS NOT DISTINCT FROM p.chunk_id
    AND s.crc32c_stored IS NOT DISTINCT FROM p.crc32c_stored AND s.attempts > 1
    AND p.producer_id IS NOT NULL
  LEFT JOIN client_clocks AS k ON k.unit = u.unit AND k.client_ip = p.client_ip
  WHERE
    p.is_request AND p.outcome IN ('ok', 'dup_or_dropped') AND p.message_count IS DISTINCT FROM 0
    AND p.response_last_ns >= p.request_last_ns
    AND (s.last_ns IS NULL OR s.last_ns = p.response_last_ns)
)
SELECT
  c.capture, c.topic, c.producer_name, c.client_ip, c.broker_ip, c.connection_id, c.producer_id,
  c.incarnation, c.request_frame_no, c.response_frame_no, c.is_steady, c.published_ns, c.first_ns,
  c.response_last_ns, coalesce(c.message_count > 1, FALSE) AS is_batch,
  try_subtract(c.response_last_ns, coalesce(c.published_ns, c.first_ns)) AS application_ns,
  try_subtract(c.first_ns, c.published_ns) AS client_ns,
  try_subtract(c.request_first_ns, c.first_ns) AS again_ns,
  try_subtract(c.request_first_ns, c.published_ns) AS waited_ns,
  try_subtract(c.request_last_ns, c.request_first_ns) AS transmit_ns,
  try_subtract(c.response_last_ns, c.request_last_ns) AS answer_ns
FROM confirmed_sends AS c;

-- refusals: an answer with an error, under the capture and connection of the answer
-- materialized
-- Repeats of one request have equal request_of, error_code, topic, subscription and of_…, also
-- across clients of one topic. A publish is identified by producer and sequence id, a request
-- without a topic by its client. Clients repeat a refused request with growing pauses, by default
-- at most a minute: two minutes of silence begin a new incident. A request in another capture has
-- no frame number here.
WITH refused_answers AS (
  SELECT
    u.unit, coalesce(e.response_capture, e.own_capture) AS capture,
    coalesce(e.response_connection_id, e.own_connection_id) AS connection_id,
    e.capture AS head_capture, e.connection_id AS head_connection_id, e.request_command,
    e.response_command, e.error_code, e.error_text,
    coalesce(e.request_command, e.response_command) AS request_of,
    coalesce(e.topic, p.late_topic, c.late_topic) AS topic,
    coalesce(e.subscription, c.late_subscription) AS subscription, e.client_ip,
    CASE WHEN e.kind = 'publish' THEN coalesce(e.producer_name, p.late_name) END AS of_producer,
    CASE WHEN e.kind = 'publish' THEN e.sequence_id END AS of_sequence_id,
    CASE WHEN coalesce(e.topic, p.late_topic, c.late_topic) IS NULL THEN e.client_ip END
      AS of_client,
    CASE WHEN e.response_capture IS NULL THEN e.request_frame_no END AS request_frame_no,
    e.response_frame_no, e.response_last_ns AS at_ns
  FROM single_exchanges AS e
  JOIN units AS u USING (capture)
  LEFT JOIN late_producers AS p USING (capture, connection_id, producer_id, incarnation)
  LEFT JOIN late_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
  WHERE e.is_refused
),
incident_starts AS (
  SELECT
    r.*,
    CASE
      WHEN lag(r.at_ns) OVER (
        PARTITION BY
          r.unit, r.request_of, r.error_code, r.topic, r.subscription, r.of_producer,
          r.of_sequence_id, r.of_client
        ORDER BY
          r.at_ns ASC, r.capture ASC, r.response_frame_no ASC NULLS LAST, r.connection_id ASC,
          r.request_frame_no ASC NULLS LAST
      ) >= try_subtract(r.at_ns, 120000000000) THEN 0
      ELSE 1
    END AS begins
  FROM refused_answers AS r
)
SELECT
  b.*,
  sum(b.begins) OVER (
    PARTITION BY
      b.unit, b.request_of, b.error_code, b.topic, b.subscription, b.of_producer,
      b.of_sequence_id, b.of_client
    ORDER BY
      b.at_ns ASC, b.capture ASC, b.response_frame_no ASC NULLS LAST, b.connection_id ASC,
      b.request_frame_no ASC NULLS LAST
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS incident_no
FROM incident_starts AS b;

-- chains: from a client's first question for a topic to the producer or consumer open on it
-- materialized
-- A chain has the requests of one client for one topic, and the CONNECT of the connection on which
-- the topic was opened if it lies in between. A successful PRODUCER or SUBSCRIBE ends the chain.
-- After two minutes without a request another one begins: clients wait at most a minute between
-- attempts. A chain belongs to the time of its PRODUCER or SUBSCRIBE. CONNECT names no topic: it is
-- part of the chains of all topics that are opened on its connection.
WITH requests AS (
  SELECT e.*
  FROM exchanges_around AS e
  WHERE e.request_command IN ('PARTITIONED_METADATA', 'LOOKUP', 'PRODUCER', 'SUBSCRIBE')
  UNION ALL
  SELECT e.*
  FROM whole_exchanges AS e
  WHERE e.request_command = 'CONNECT'
),
steps AS (
  SELECT
    u.unit, e.capture, e.connection_id, e.own_capture, e.own_connection_id, e.request_command,
    e.topic, e.client_ip, e.outcome, e.request_first_ns, e.response_last_ns, e.order_no,
    e.request_frame_no,
    CASE WHEN e.response_capture IS NULL THEN e.response_frame_no END AS response_frame_no,
    try_subtract(e.response_last_ns, e.request_first_ns) AS took_ns,
    e.request_command IN ('PRODUCER', 'SUBSCRIBE') AND e.outcome = 'ok'
      AND e.response_last_ns IS NOT NULL AS is_open,
    sum(CASE WHEN e.request_command = 'CONNECT' THEN 1 ELSE 0 END) OVER (
      PARTITION BY e.capture, e.connection_id
      ORDER BY
        e.request_first_ns ASC, e.order_no ASC,
        CASE WHEN e.request_command = 'CONNECT' THEN 0 ELSE 1 END ASC,
        e.request_frame_no ASC NULLS LAST, e.response_last_ns ASC NULLS LAST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS connect_no
  FROM requests AS e
  ANTI JOIN twins AS t USING (capture, connection_id)
  JOIN units AS u USING (capture)
  WHERE e.request_first_ns IS NOT NULL
),
topic_requests AS (
  SELECT
    s.*, c.request_first_ns AS connect_ns, c.took_ns AS connect_took_ns,
    c.outcome AS connect_outcome, c.request_frame_no AS connect_frame_no,
    lag(s.request_first_ns) OVER asking AS before_ns, lag(s.is_open) OVER asking AS was_open
  FROM steps AS s
  LEFT JOIN steps AS c
    ON c.request_command = 'CONNECT' AND c.capture = s.capture
    AND c.connection_id = s.connection_id AND c.connect_no = s.connect_no
  WHERE s.request_command <> 'CONNECT' AND s.topic IS NOT NULL
  WINDOW asking AS (
    PARTITION BY s.unit, s.client_ip, s.topic
    ORDER BY
      s.request_first_ns ASC, s.order_no ASC, s.capture ASC, s.connection_id ASC,
      s.request_command ASC, s.request_frame_no ASC NULLS LAST, s.response_last_ns ASC NULLS LAST,
      s.response_frame_no ASC NULLS LAST, s.outcome ASC
  )
),
chain_starts AS (
  SELECT
    a.*,
    CASE
      WHEN NOT a.was_open AND try_subtract(a.request_first_ns, a.before_ns) <= 120000000000 THEN 0
      ELSE 1
    END AS begins
  FROM topic_requests AS a
),
numbered_requests AS (
  SELECT
    b.*,
    sum(b.begins) OVER (
      PARTITION BY b.unit, b.client_ip, b.topic
      ORDER BY
        b.request_first_ns ASC, b.order_no ASC, b.capture ASC, b.connection_id ASC,
        b.request_command ASC, b.request_frame_no ASC NULLS LAST, b.response_last_ns ASC NULLS LAST,
        b.response_frame_no ASC NULLS LAST, b.outcome ASC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS chain_no
  FROM chain_starts AS b
),
chain_sums AS (
  SELECT
    n.unit, n.client_ip, n.topic, n.chain_no, count(*) AS steps,
    min(n.request_first_ns) AS first_ns,
    max(CASE WHEN n.begins = 1 THEN n.own_capture END) AS first_capture,
    max(CASE WHEN n.begins = 1 THEN n.request_frame_no END) AS first_frame_no,
    max(CASE WHEN n.is_open THEN n.own_capture END) AS capture,
    max(CASE WHEN n.is_open THEN n.own_connection_id END) AS connection_id,
    max(CASE WHEN n.is_open THEN n.request_command END) AS opened,
    max(CASE WHEN n.is_open THEN n.response_last_ns END) AS last_ns,
    max(CASE WHEN n.is_open THEN n.request_frame_no END) AS open_frame_no,
    max(CASE WHEN n.is_open THEN n.response_frame_no END) AS response_frame_no,
    sum(CASE WHEN n.request_command IN ('LOOKUP', 'PARTITIONED_METADATA') THEN n.took_ns END)
      AS lookup_ns,
    sum(CASE WHEN n.request_command IN ('PRODUCER', 'SUBSCRIBE') THEN n.took_ns END) AS open_ns,
    count(CASE WHEN n.request_command = 'LOOKUP' THEN 1 END) AS lookups,
    count(CASE WHEN n.outcome = 'error' THEN 1 END) AS refused,
    max(CASE WHEN n.is_open THEN n.connect_ns END) AS connect_ns,
    max(CASE WHEN n.is_open THEN n.connect_took_ns END) AS connect_took_ns,
    max(CASE WHEN n.is_open THEN n.connect_outcome END) AS connect_outcome,
    max(CASE WHEN n.is_open THEN n.connect_frame_no END) AS connect_frame_no
  FROM numbered_requests AS n
  GROUP BY n.unit, n.client_ip, n.topic, n.chain_no
)
SELECT
  s.capture, s.connection_id, s.topic, s.client_ip, s.opened, s.first_ns,
  try_subtract(s.last_ns, s.first_ns) AS chain_ns, TRY_CAST(s.lookup_ns AS BIGINT) AS lookup_ns,
  TRY_CAST(s.open_ns AS BIGINT) AS open_ns,
  CASE WHEN s.connect_ns >= s.first_ns THEN s.connect_took_ns END AS connect_took_ns, s.lookups,
  s.refused + CASE WHEN s.connect_ns >= s.first_ns AND s.connect_outcome = 'error' THEN 1 ELSE 0 END
    AS refused,
  CASE
    WHEN s.steps = 1 AND s.connect_ns >= s.first_ns THEN s.connect_frame_no
    WHEN s.first_capture = s.capture THEN s.first_frame_no
  END AS request_frame_no,
  s.response_frame_no
FROM chain_sums AS s
SEMI JOIN exchanges AS e
  ON e.own_capture = s.capture AND e.own_connection_id = s.connection_id
  AND e.request_frame_no = s.open_frame_no
WHERE s.last_ns >= s.first_ns;

-- attempts_to_connect: a connection, and whether it was attempted in vain
-- is_vain: neither a handshake nor a byte of payload; FALSE if nothing of the client was captured,
-- since its part of the handshake is unknown. is_seen: its SYN was captured. is_opened and
-- is_closed_by_broker: that happened in the selected time. Both legs of a proxied pair count, but a
-- leg that another capture shows, too, counts once, and so does one that is seen behind the
-- translation of an address, with the same initial number.
SELECT
  c.capture, c.connection_id, c.client_ip, c.broker_ip, c.broker_port, c.first_ts_ns,
  c.handshake_rtt_ns,
  coalesce(c.closed_first_by = 'broker' AND is_selected(floor_div(c.last_ts_ns, 1000)), FALSE)
    AS is_closed_by_broker,
  coalesce(c.started = 'syn' AND c.first_ts_ns IS NOT NULL, FALSE) AS is_seen,
  coalesce(
    c.started = 'syn' AND c.first_ts_ns IS NOT NULL
    AND is_selected(floor_div(c.first_ts_ns, 1000)),
    FALSE
  ) AS is_opened,
  c.handshake_rtt_ns IS NULL AND coalesce(c.protocol = 'none', FALSE)
    AND coalesce(c.packets_to_broker > 0, TRUE) AS is_vain
FROM connections AS c
ANTI JOIN (
  SELECT capture, connection_id, isn_to_broker FROM connections WHERE leg = 'client'
) AS o
  ON o.capture = c.capture AND o.connection_id = c.twin_connection_id
  AND o.isn_to_broker = c.isn_to_broker
WHERE NOT coalesce(c.leg = 'broker' AND c.twin_connection_id = -2, FALSE);

-- storms: a client and a broker, and the most connections between them opened within ten seconds
-- materialized
-- A sweep backwards in time counts a connection (+1) at its own time and drops it (-1) ten seconds
-- before that.
WITH changes AS (
  SELECT
    u.unit, a.capture, a.client_ip, a.broker_ip, a.broker_port, a.is_vain, a.first_ts_ns AS at_ns,
    1 AS change
  FROM attempts_to_connect AS a
  JOIN units AS u USING (capture)
  WHERE a.is_opened
  UNION ALL
  SELECT
    u.unit, a.capture, a.client_ip, a.broker_ip, a.broker_port, FALSE,
    try_subtract(a.first_ts_ns, 10000000001), -1
  FROM attempts_to_connect AS a
  JOIN units AS u USING (capture)
  WHERE a.is_opened
),
running_counts AS (
  SELECT
    c.*,
    sum(c.change) OVER (
      PARTITION BY c.unit, c.client_ip, c.broker_ip, c.broker_port
      ORDER BY c.at_ns DESC, c.change ASC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS following
  FROM changes AS c
),
ranked AS (
  SELECT
    c.*,
    row_number() OVER (
      PARTITION BY c.unit, c.client_ip, c.broker_ip, c.broker_port
      ORDER BY c.following DESC, c.at_ns ASC, c.capture ASC
    ) AS place,
    count(*) OVER (PARTITION BY c.unit, c.client_ip, c.broker_ip, c.broker_port) AS opened,
    count(CASE WHEN c.is_vain THEN 1 END) OVER (
      PARTITION BY c.unit, c.client_ip, c.broker_ip, c.broker_port
    ) AS vain
  FROM running_counts AS c
  WHERE c.change = 1
)
SELECT
  r.capture, r.client_ip, r.broker_ip, r.broker_port, r.opened, r.vain,
  r.following AS within_10_s, r.at_ns
FROM ranked AS r
WHERE r.place = 1;

-- closed_subjects: a producer or consumer that the broker closed, without those that it refused
-- materialized
-- cause: the first cause that matches, by frames of all times and all clients.
SELECT
  s.capture, s.connection_id, s.what, s.topic, s.name, s.subscription, s.closed_frame_no,
  CASE
    WHEN m.frame_no < s.closed_no THEN 'migrated'
    WHEN k.seeks > 0 THEN 'seek'
    WHEN o.terminated > 0 THEN 'terminated'
    WHEN a.refused_frame_no < s.closed_no AND a.refused_frame_no > a.granted_frame_no
      THEN 'refused'
    WHEN o.opened_ns > f.last_ts_ns THEN 'opened_again'
    WHEN o.refused_ns > f.last_ts_ns THEN 'not_opened_again'
    ELSE 'unknown'
  END AS cause
FROM (
  SELECT
    'producer' AS what, p.capture, p.connection_id, p.producer_id AS number, p.topic, p.name,
    CAST(NULL AS STRING) AS subscription, p.closed_frame_no, p.closed_capture,
    p.closed_connection_id, p.closed_no
  FROM producers AS p
  WHERE p.closed_by = 'broker' AND p.refused_code IS NULL
  UNION ALL
  SELECT
    'consumer', c.capture, c.connection_id, c.consumer_id, c.topic, c.name, c.subscription,
    c.closed_frame_no, c.closed_capture, c.closed_connection_id, c.closed_no
  FROM consumers AS c
  WHERE c.closed_by = 'broker' AND c.refused_code IS NULL
) AS s
ANTI JOIN twins AS t USING (capture, connection_id)
JOIN units AS v USING (capture)
LEFT JOIN whole_frames AS f ON f.capture = s.closed_capture AND f.frame_no = s.closed_no
ANTI JOIN ( -- Refused without a code.
  SELECT coalesce(response_capture, own_capture) AS capture, response_frame_no
  FROM whole_exchanges
  WHERE request_command IN ('PRODUCER', 'SUBSCRIBE') AND outcome = 'error'
) AS r ON r.capture = s.closed_capture AND r.response_frame_no = s.closed_no
LEFT JOIN (
  SELECT
    capture, connection_id, CASE WHEN consumer_id IS NULL THEN 'producer' ELSE 'consumer' END
      AS what,
    coalesce(consumer_id, producer_id) AS number, min(frame_no) AS frame_no
  FROM whole_frames
  WHERE command = 'TOPIC_MIGRATED'
  GROUP BY 1, 2, 3, 4
) AS m
  ON m.capture = s.closed_capture AND m.connection_id = s.closed_connection_id AND m.what = s.what
  AND m.number = s.number
LEFT JOIN (
  SELECT c.closed_capture, c.closed_connection_id, c.consumer_id, c.closed_no, count(*) AS seeks
  FROM consumers AS c
  JOIN whole_exchanges AS e
    ON e.own_capture = c.closed_capture AND e.topic = c.topic AND e.subscription = c.subscription
    AND e.request_frame_no < c.closed_no
    AND (c.capture <> c.closed_capture OR e.request_frame_no >= coalesce(c.opened_frame_no, 0))
  WHERE c.closed_by = 'broker' AND e.request_command = 'SEEK' AND e.outcome = 'ok'
  GROUP BY c.closed_capture, c.closed_connection_id, c.consumer_id, c.closed_no
) AS k
  ON k.closed_capture = s.closed_capture AND k.closed_connection_id = s.closed_connection_id
  AND k.consumer_id = s.number AND k.closed_no = s.closed_no AND s.what = 'consumer'
LEFT JOIN (
  SELECT
    u.unit, e.topic, CASE WHEN e.request_command = 'SUBSCRIBE' THEN 'consumer' ELSE 'producer' END
      AS what,
    count(CASE WHEN e.error_code = 'TopicTerminatedError' THEN 1 END) AS terminated,
    max(CASE WHEN e.request_command <> 'SEND' AND e.outcome = 'ok' THEN e.request_last_ns END)
      AS opened_ns,
    max(CASE WHEN e.request_command <> 'SEND' AND e.outcome = 'error' THEN e.request_last_ns END)
      AS refused_ns
  FROM whole_exchanges AS e
  JOIN units AS u USING (capture)
  WHERE
    e.request_command IN ('SEND', 'PRODUCER', 'SUBSCRIBE') AND e.outcome IN ('ok', 'error')
  GROUP BY 1, 2, 3
) AS o ON o.unit = v.unit AND o.topic = s.topic AND o.what = s.what
LEFT JOIN (
  SELECT
    coalesce(response_capture, own_capture) AS capture,
    coalesce(response_connection_id, own_connection_id) AS connection_id, producer_id,
    max(CASE WHEN outcome = 'error' THEN response_frame_no END) AS refused_frame_no,
    coalesce(max(CASE WHEN outcome = 'ok' THEN response_frame_no END), -1) AS granted_frame_no
  FROM whole_exchanges
  WHERE kind = 'publish' AND outcome IN ('ok', 'error')
  GROUP BY 1, 2, 3
) AS a
  ON a.capture = s.closed_capture AND a.connection_id = s.closed_connection_id AND a.producer_id = s.number
  AND s.what = 'producer'
WHERE f.ts IS NULL OR is_selected(micros(f.ts));
