-- send_points: sends per step of time and bucket of latency; at_ns: when the step begins
-- keys: at_ns, bucket
-- sums: sends, messages, request_bytes, latencies, latency_ns
-- least: latency_ns_min
-- greatest: latency_ns_max
SELECT
  p.capture, try_multiply(floor_div(p.request_last_ns, s.step_ns), s.step_ns) AS at_ns, p.bucket,
  count(*) AS sends,
  sum(CASE WHEN p.is_first THEN p.message_count END) AS messages,
  sum(p.request_bytes) AS request_bytes,
  count(p.latency_ns) AS latencies,
  sum(p.latency_ns) AS latency_ns,
  min(p.latency_ns) AS latency_ns_min,
  max(p.latency_ns) AS latency_ns_max
FROM publishes AS p
JOIN steps AS s USING (capture)
WHERE p.is_request
GROUP BY ALL
