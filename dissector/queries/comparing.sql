-- Views of the durations, events and permit times by which two runs are compared.
-- Each begins with a line `-- name: what one row is`; they read the shared views of reports.

-- timed_events: one duration of one event, ns; each request command has its own measure
-- PINGs are left out: both sides send them, and they measure the network.
SELECT
  'send_latency' AS measure, p.topic, p.request_last_ns AS at_ns, p.latency_ns AS value_ns
FROM publishes AS p
WHERE p.is_timed
UNION ALL
SELECT 'logical_latency', l.topic, l.at_ns, l.logical_ns
FROM logical_sends AS l
UNION ALL
SELECT 'transmit', p.topic, p.request_last_ns, p.transmit_ns
FROM publishes AS p
WHERE p.transmit_ns IS NOT NULL
UNION ALL
SELECT
  'publish_to_delivery', coalesce(d.topic, n.late_topic), micros(d.ts) * 1000,
  d.publish_to_delivery_ns
FROM deliveries AS d
LEFT JOIN late_consumers AS n USING (capture, connection_id, consumer_id, incarnation)
WHERE
  d.publish_to_delivery_ns IS NOT NULL AND NOT coalesce(d.is_redelivered, FALSE)
  AND NOT coalesce(d.deliver_at_ms > 0, FALSE)
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = d.capture AND t.connection_id = d.connection_id
  )
UNION ALL
SELECT 'ack_latency', r.named_topic, micros(r.ts) * 1000, r.ack_latency_ns
FROM received AS r
WHERE r.outcome = 'acked' AND r.ack_latency_ns IS NOT NULL
UNION ALL
SELECT
  concat('request_latency.', e.request_command), CAST(NULL AS STRING), e.request_last_ns,
  e.latency_ns
FROM exchanges AS e
WHERE
  coalesce(e.kind, '') NOT IN ('publish', 'ping') AND e.request_command IS NOT NULL
  AND e.outcome IN ('ok', 'error') AND e.latency_ns IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = e.capture AND t.connection_id = e.connection_id
  );

-- counted_events: one event, and the number (part) that it adds to a metric's count
SELECT
  'sends_refused' AS metric, p.topic, p.request_last_ns AS at_ns,
  CASE WHEN p.outcome = 'error' THEN 1 ELSE 0 END AS part
FROM publishes AS p
WHERE
  p.is_request AND p.outcome IN (
    'ok', 'dup_or_dropped', 'error', 'conn_closed', 'dropped_after_close', 'unanswered_at_end'
  )
UNION ALL
SELECT
  'sends_unanswered', p.topic, p.request_last_ns,
  CASE
    WHEN p.outcome IN ('conn_closed', 'dropped_after_close', 'unanswered_at_end') THEN 1 ELSE 0
  END
FROM publishes AS p
WHERE
  p.is_request AND p.outcome IN (
    'ok', 'dup_or_dropped', 'error', 'conn_closed', 'dropped_after_close', 'unanswered_at_end'
  )
UNION ALL
SELECT
  'sends_resent', p.topic, p.request_last_ns, CASE WHEN p.attempt > 1 THEN 1 ELSE 0 END
FROM publishes AS p
WHERE p.is_request AND p.attempt IS NOT NULL
UNION ALL
SELECT
  'redeliveries', r.named_topic, micros(r.ts) * 1000, CASE WHEN r.is_redelivered THEN 1 ELSE 0 END
FROM received AS r
WHERE r.is_redelivered IS NOT NULL AND coalesce(r.named_topic, '') NOT LIKE 'non-persistent://%'
UNION ALL
SELECT
  'checksum_failures', coalesce(f.topic, p.late_topic, c.late_topic), f.last_ts_ns,
  CASE WHEN f.checksum = 'mismatch' THEN 1 ELSE 0 END
FROM frames AS f
LEFT JOIN late_producers AS p USING (capture, connection_id, producer_id, incarnation)
LEFT JOIN late_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
WHERE
  f.checksum IN ('ok', 'mismatch')
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = f.capture AND t.connection_id = f.connection_id
  )
UNION ALL
SELECT
  'connections_failed', CAST(NULL AS STRING), a.first_ts_ns, CASE WHEN a.is_vain THEN 1 ELSE 0 END
FROM attempts_to_connect AS a
WHERE a.is_opened
UNION ALL
SELECT
  'requests_refused', CAST(NULL AS STRING), e.request_last_ns,
  CASE WHEN e.outcome = 'error' THEN 1 ELSE 0 END
FROM exchanges AS e
WHERE
  coalesce(e.kind, '') NOT IN ('publish', 'ping') AND e.outcome IN ('ok', 'error')
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = e.capture AND t.connection_id = e.connection_id
  )
UNION ALL
SELECT 'messages_sent', p.topic, p.request_last_ns, p.message_count
FROM publishes AS p
WHERE p.is_request AND p.is_first AND p.message_count IS NOT NULL
UNION ALL
SELECT 'messages_delivered', r.named_topic, micros(r.ts) * 1000, r.message_count
FROM received AS r
WHERE r.message_count IS NOT NULL;

-- permit_times: a time range of an active consumer, with permits left or without
SELECT n.topic, c.at_us * 1000 AS from_ns, c.until_us * 1000 AS until_ns, c.is_exhausted
FROM permit_changes AS c
JOIN permit_consumers AS n USING (consumer_no)
WHERE (c.is_open OR c.is_exhausted) AND c.until_us > c.at_us;
