-- ack_times: deliveries of a subscription by outcome and bucket of the time until their ack
-- keys: topic, subscription, outcome, bucket
-- sums: deliveries, timed, ack_latency_ns, acked_in_part
-- least: ack_latency_ns_min
-- greatest: ack_latency_ns_max, oldest_us
-- oldest_us: how long the oldest that nobody acknowledged had waited at the end of all captures
-- that are read together with its own.
WITH delivery_outcomes AS (
  SELECT
    capture, named_topic AS topic, named_subscription AS subscription, outcome, ts,
    CASE WHEN outcome = 'acked' THEN ack_latency_ns END AS took_ns,
    CASE WHEN outcome <> 'acked' THEN messages_acked END AS acked_in_part
  FROM received
),
added AS (
  SELECT
    capture, topic, subscription, outcome, histogram_bucket(took_ns) AS bucket,
    count(*) AS deliveries,
    count(took_ns) AS timed,
    sum(took_ns) AS ack_latency_ns,
    sum(acked_in_part) AS acked_in_part,
    min(took_ns) AS ack_latency_ns_min,
    max(took_ns) AS ack_latency_ns_max,
    min(CASE WHEN outcome = 'unacked_at_end' THEN ts END) AS oldest
  FROM delivery_outcomes
  GROUP BY ALL
)
SELECT
  a.capture, a.topic, a.subscription, a.outcome, a.bucket, a.deliveries, a.timed, a.ack_latency_ns,
  a.acked_in_part, a.ack_latency_ns_min, a.ack_latency_ns_max,
  CASE WHEN a.oldest IS NOT NULL THEN greatest(e.end_us - micros(a.oldest), 0) END AS oldest_us
FROM added AS a
LEFT JOIN unit_ends AS e ON e.capture = a.capture
