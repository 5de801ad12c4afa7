-- consumers: a consumer incarnation: its grants, deliveries and balance; times in µs
-- keys: capture, connection_id, consumer_id, incarnation, topic, subscription, subscription_type,
--   consumer_name
-- sums: grants, granted, deliveries, delivered, known_rows, unknown_rows, known_granted,
--   known_delivered, start_balance, first_grant, observed_us, occupied, exhausted_us, confirmed,
--   confirmed_us, unconfirmed, unconfirmed_us, open_stall, open_stall_us, quiet, quiet_us
-- least: available_min, oldest_unacked_frame_no
-- greatest: available_max, unacked_max, available_last, unacked_last, last_grant_us,
--   last_delivery_us, last_ack_us, confirmed_us_max, unconfirmed_us_max,
--   open_stall_us_max, quiet_us_max
-- Stalls and silences last a second or more. A consumer whose SUBSCRIBE was refused is left out
-- unless it was used nevertheless.
WITH spans AS (
  SELECT
    consumer_no,
    count(CASE WHEN confirmed THEN 1 END) AS confirmed,
    sum(CASE WHEN confirmed THEN lasted_us END) AS confirmed_us,
    max(CASE WHEN confirmed THEN lasted_us END) AS confirmed_us_max,
    count(CASE WHEN NOT confirmed THEN 1 END) AS unconfirmed,
    sum(CASE WHEN NOT confirmed THEN lasted_us END) AS unconfirmed_us,
    max(CASE WHEN NOT confirmed THEN lasted_us END) AS unconfirmed_us_max,
    count(CASE WHEN is_exhausted AND NOT is_ended THEN 1 END) AS open_stall,
    sum(CASE WHEN is_exhausted AND NOT is_ended THEN lasted_us END) AS open_stall_us,
    max(CASE WHEN is_exhausted AND NOT is_ended THEN lasted_us END) AS open_stall_us_max,
    count(CASE WHEN NOT is_exhausted THEN 1 END) AS quiet,
    sum(CASE WHEN NOT is_exhausted THEN lasted_us END) AS quiet_us,
    max(CASE WHEN NOT is_exhausted THEN lasted_us END) AS quiet_us_max
  FROM permit_spans
  WHERE lasted_us >= 1000000
  GROUP BY consumer_no
)
SELECT
  n.capture, n.connection_id, n.consumer_id, n.incarnation, n.topic, n.subscription,
  n.subscription_type, n.consumer_name,
  f.grants, f.granted, f.deliveries, f.delivered, f.known_rows, f.unknown_rows, f.known_granted,
  f.known_delivered, f.start_balance, f.first_grant, f.observed_us, f.occupied, f.exhausted_us,
  f.available_min, f.available_max, f.unacked_max, f.available_last, f.unacked_last,
  f.last_grant_us, g.last_delivery_us, g.last_ack_us,
  nullif(g.oldest_unacked_frame_no, -1) AS oldest_unacked_frame_no,
  s.confirmed, s.confirmed_us, s.confirmed_us_max, s.unconfirmed, s.unconfirmed_us,
  s.unconfirmed_us_max, s.open_stall, s.open_stall_us, s.open_stall_us_max, s.quiet,
  s.quiet_us, s.quiet_us_max
FROM permit_sums AS f
JOIN permit_consumers AS n USING (consumer_no)
LEFT JOIN spans AS s USING (consumer_no)
LEFT JOIN consumer_latest AS g
  ON g.capture = n.capture AND g.connection_id = n.connection_id
  AND g.consumer_id = n.consumer_id AND g.incarnation = n.incarnation
WHERE
  f.grants + f.deliveries > 0
  OR NOT EXISTS (
    SELECT 1
    FROM consumers AS r
    WHERE
      r.refused_code IS NOT NULL AND r.capture = n.capture AND r.connection_id = n.connection_id
      AND r.consumer_id = n.consumer_id AND r.incarnation = n.incarnation
  )
