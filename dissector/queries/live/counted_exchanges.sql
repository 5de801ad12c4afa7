-- counted_exchanges: requests by outcome; publishes also by topic and bucket of latency
-- keys: is_publish, request_command, outcome, is_refused, error_code, topic, bucket
-- sums: exchanges, messages, request_bytes, resent, latency_ns
-- least: latency_ns_min
-- greatest: latency_ns_max
-- Unlike `sends`, which times only confirmed publishes, it includes the latency of refusals.
SELECT
  e.capture, coalesce(e.kind = 'publish', FALSE) AS is_publish, e.request_command, e.outcome,
  e.is_refused, e.error_code,
  CASE WHEN e.kind = 'publish' THEN coalesce(e.topic, n.late_topic) END AS topic,
  CASE WHEN e.kind = 'publish' AND e.latency_ns IS NOT NULL THEN e.latency_bucket END AS bucket,
  count(*) AS exchanges,
  sum(e.message_count) AS messages,
  sum(e.request_bytes) AS request_bytes,
  count(CASE WHEN e.attempt > 1 THEN 1 END) AS resent,
  sum(e.latency_ns) AS latency_ns,
  min(e.latency_ns) AS latency_ns_min,
  max(e.latency_ns) AS latency_ns_max
FROM single_exchanges AS e
LEFT JOIN late_producers AS n USING (capture, connection_id, producer_id, incarnation)
GROUP BY ALL
