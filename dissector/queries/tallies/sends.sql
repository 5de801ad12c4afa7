-- sends: sends of a producer from one address to another, by outcome
-- keys: topic, producer_name, client_ip, broker_ip, outcome
-- sums: sends, messages, tainted, resent, request_bytes, counts_unknown, latencies, latency_ns,
--   transmits, transmit_ns, published
-- least: latency_ns_min, transmit_ns_min, request_ns_min, message_ns_min
-- greatest: latency_ns_max, transmit_ns_max, response_ns_max, outstanding_max, message_ns_max
SELECT
  capture, topic, producer_name, client_ip, broker_ip, outcome,
  count(*) AS sends,
  sum(message_count) AS messages,
  count(CASE WHEN tainted THEN 1 END) AS tainted,
  count(CASE WHEN attempt > 1 THEN 1 END) AS resent,
  sum(request_bytes) AS request_bytes,
  count(CASE WHEN is_request AND message_count IS NULL THEN 1 END) AS counts_unknown,
  count(latency_ns) AS latencies,
  sum(latency_ns) AS latency_ns,
  count(transmit_ns) AS transmits,
  sum(transmit_ns) AS transmit_ns,
  sum(CASE WHEN is_first THEN message_count END) AS published,
  min(latency_ns) AS latency_ns_min,
  min(transmit_ns) AS transmit_ns_min,
  max(latency_ns) AS latency_ns_max,
  max(transmit_ns) AS transmit_ns_max,
  min(request_last_ns) AS request_ns_min,
  min(CASE WHEN is_request AND is_first AND message_count IS NOT NULL THEN request_last_ns END)
    AS message_ns_min,
  max(CASE WHEN is_request AND is_first AND message_count IS NOT NULL THEN request_last_ns END)
    AS message_ns_max,
  max(response_last_ns) AS response_ns_max,
  max(outstanding_before) + 1 AS outstanding_max
FROM publishes
GROUP BY capture, topic, producer_name, client_ip, broker_ip, outcome
