-- logical: messages by bucket of the time from their first send to their first ok receipt
-- keys: topic, producer_name, client_ip, broker_ip, bucket
-- sums: logicals, logical_ns
-- least: logical_ns_min
-- greatest: logical_ns_max
-- A send is the same message as an earlier one within its topic and producer, if both are known;
-- else within one incarnation of a producer. It counts where its first answered attempt came from.
WITH settled AS (
  SELECT
    capture, topic, producer_name, client_ip, broker_ip, latency_ns AS logical_ns, bucket
  FROM publishes
  WHERE is_request AND is_first AND is_timed
),
waiting AS (
  SELECT
    u.unit, p.capture, p.connection_id, p.producer_id, p.incarnation, p.topic, p.producer_name,
    p.client_ip, p.broker_ip, p.sequence_id, p.chunk_id, p.crc32c_stored, p.attempt,
    p.request_last_ns,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.capture END AS own_capture,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.connection_id END AS own_connection,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.producer_id END AS own_producer,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.incarnation END AS own_incarnation,
    CASE WHEN p.outcome = 'ok' THEN p.response_last_ns END AS answered_ns
  FROM publishes AS p
  JOIN units AS u ON u.capture = p.capture
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
  FROM waiting AS w
  WINDOW message AS (
    PARTITION BY
      unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
      sequence_id, chunk_id, crc32c_stored
  )
),
later AS (
  SELECT
    capture, topic, producer_name, client_ip, broker_ip, answered_ns - first_sent_ns AS logical_ns
  FROM attempts
  WHERE place = 1 AND first_attempt = 1 AND answered_ns - first_sent_ns >= 0
),
both_kinds AS (
  SELECT * FROM settled
  UNION ALL
  SELECT *, histogram_bucket(logical_ns) AS bucket FROM later
)
SELECT
  capture, topic, producer_name, client_ip, broker_ip, bucket,
  count(*) AS logicals,
  sum(logical_ns) AS logical_ns,
  min(logical_ns) AS logical_ns_min,
  max(logical_ns) AS logical_ns_max
FROM both_kinds
GROUP BY capture, topic, producer_name, client_ip, broker_ip, bucket
