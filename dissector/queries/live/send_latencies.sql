-- send_latencies: answers to sends of a topic by outcome and bucket of the time they took
-- keys: topic, outcome, bucket
-- sums: answers, latency_ns
-- least: latency_ns_min
-- greatest: latency_ns_max
-- Unlike `sends`, which times what was confirmed, it times refusals, too.
SELECT
  e.capture, coalesce(e.topic, n.late_topic) AS topic, e.outcome, e.latency_bucket AS bucket,
  count(*) AS answers,
  sum(e.latency_ns) AS latency_ns,
  min(e.latency_ns) AS latency_ns_min,
  max(e.latency_ns) AS latency_ns_max
FROM exchanges AS e
ANTI JOIN twins AS t ON t.capture = e.capture AND t.connection_id = e.connection_id
LEFT JOIN late_producers AS n
  ON n.capture = e.capture AND n.connection_id = e.connection_id
  AND n.producer_id = e.producer_id AND n.incarnation = e.incarnation
WHERE e.kind = 'publish' AND e.latency_ns IS NOT NULL
GROUP BY ALL
