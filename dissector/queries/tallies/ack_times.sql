-- ack_times: deliveries of a subscription by outcome and bucket of the time until their ack
-- keys: topic, subscription, outcome, bucket
-- sums: deliveries, timed, ack_latency_ns, acked_in_part
-- least: ack_latency_ns_min
-- greatest: ack_latency_ns_max
WITH delivery_outcomes AS (
  SELECT
    capture, named_topic AS topic, named_subscription AS subscription, outcome,
    CASE WHEN outcome = 'acked' THEN ack_latency_ns END AS took_ns,
    CASE WHEN outcome <> 'acked' THEN messages_acked END AS acked_in_part
  FROM received
)
SELECT
  capture, topic, subscription, outcome, histogram_bucket(took_ns) AS bucket,
  count(*) AS deliveries,
  count(took_ns) AS timed,
  sum(took_ns) AS ack_latency_ns,
  sum(acked_in_part) AS acked_in_part,
  min(took_ns) AS ack_latency_ns_min,
  max(took_ns) AS ack_latency_ns_max
FROM delivery_outcomes
GROUP BY ALL
