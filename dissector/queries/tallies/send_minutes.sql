-- send_minutes: sends of a producer per minute and bucket of latency, messages of first attempts
-- keys: topic, producer_name, client_ip, broker_ip, minute, bucket
-- sums: sends, messages, request_bytes, latencies, latency_ns
-- least: latency_ns_min
-- greatest: latency_ns_max
SELECT
  capture, topic, producer_name, client_ip, broker_ip,
  floor_div(request_last_ns, 60000000000) AS minute, bucket,
  count(*) AS sends,
  sum(CASE WHEN is_first THEN message_count END) AS messages,
  sum(request_bytes) AS request_bytes,
  count(latency_ns) AS latencies,
  sum(latency_ns) AS latency_ns,
  min(latency_ns) AS latency_ns_min,
  max(latency_ns) AS latency_ns_max
FROM publishes
WHERE is_request
GROUP BY ALL
