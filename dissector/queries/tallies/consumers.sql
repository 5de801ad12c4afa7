-- consumers: a consumer incarnation: its grants, deliveries and balance; times in µs
-- keys: capture, connection_id, consumer_id, incarnation, topic, subscription, subscription_type,
--   consumer_name
-- sums: grants, granted, deliveries, delivered, known_rows, unknown_rows, known_granted,
--   known_delivered, start_balance, first_grant, observed_us, occupied, exhausted_us, confirmed,
--   confirmed_us, unconfirmed, unconfirmed_us, open_stall, open_stall_us, quiet, quiet_us
-- least: available_min
-- greatest: available_max, unacked_max, confirmed_us_max, unconfirmed_us_max,
--   open_stall_us_max, quiet_us_max
-- Stalls and silences are those of a second or more. A SUBSCRIBE that was refused makes no
-- consumer, unless it was used all the same. occupied: used permits times the time they were.
WITH changes AS (
  SELECT
    c.*, coalesce(g.first_grant, 0) AS first_grant,
    c.event <> 'reset' AND c.available_after IS NOT NULL AS is_known,
    CASE WHEN c.is_open OR c.is_exhausted THEN greatest(c.until_us - c.at_us, 0) ELSE 0 END
      AS passed_us
  FROM permit_changes AS c
  LEFT JOIN first_grants AS g
    ON g.capture = c.capture AND g.connection_id = c.connection_id
    AND g.consumer_id = c.consumer_id AND g.incarnation = c.incarnation
),
found AS (
  SELECT
    capture, connection_id, consumer_id, incarnation,
    count(CASE WHEN event = 'grant' THEN 1 END) AS grants,
    sum(CASE WHEN event = 'grant' THEN delta END) AS granted,
    count(CASE WHEN event = 'delivery' THEN 1 END) AS deliveries,
    sum(CASE WHEN event = 'delivery' THEN -delta END) AS delivered,
    count(CASE WHEN is_known THEN 1 END) AS known_rows,
    count(CASE WHEN event <> 'reset' AND NOT is_known THEN 1 END) AS unknown_rows,
    sum(CASE WHEN event = 'grant' AND is_known THEN delta END) AS known_granted,
    sum(CASE WHEN event = 'delivery' AND is_known THEN -delta END) AS known_delivered,
    min_by(
      CASE WHEN is_known THEN available_after - coalesce(delta, 0) END,
      CASE WHEN is_known THEN place END
    ) AS start_balance,
    max(first_grant) AS first_grant,
    sum(passed_us) AS observed_us,
    sum(greatest(first_grant - available_after, 0) * passed_us) AS occupied,
    sum(CASE WHEN is_exhausted THEN passed_us END) AS exhausted_us,
    min(CASE WHEN is_known THEN available_after END) AS available_min,
    max(CASE WHEN is_known THEN available_after END) AS available_max,
    max(CASE WHEN event <> 'reset' THEN unacked_after END) AS unacked_max
  FROM changes
  GROUP BY capture, connection_id, consumer_id, incarnation
),
spans AS (
  SELECT
    capture, connection_id, consumer_id, incarnation,
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
  GROUP BY capture, connection_id, consumer_id, incarnation
)
SELECT
  f.capture, f.connection_id, f.consumer_id, f.incarnation,
  n.topic, n.subscription, n.subscription_type, n.consumer_name,
  f.grants, f.granted, f.deliveries, f.delivered, f.known_rows, f.unknown_rows, f.known_granted,
  f.known_delivered, f.start_balance, f.first_grant, f.observed_us, f.occupied, f.exhausted_us,
  f.available_min, f.available_max, f.unacked_max,
  s.confirmed, s.confirmed_us, s.confirmed_us_max, s.unconfirmed, s.unconfirmed_us,
  s.unconfirmed_us_max, s.open_stall, s.open_stall_us, s.open_stall_us_max, s.quiet,
  s.quiet_us, s.quiet_us_max
FROM found AS f
LEFT JOIN spans AS s
  ON s.capture = f.capture AND s.connection_id = f.connection_id
  AND s.consumer_id = f.consumer_id AND s.incarnation = f.incarnation
LEFT JOIN permit_names AS n
  ON n.capture = f.capture AND n.connection_id = f.connection_id
  AND n.consumer_id = f.consumer_id AND n.incarnation = f.incarnation
WHERE
  f.grants + f.deliveries > 0
  OR NOT EXISTS (
    SELECT 1
    FROM consumers AS r
    WHERE
      r.refused_code IS NOT NULL AND r.capture = f.capture AND r.connection_id = f.connection_id
      AND r.consumer_id = f.consumer_id AND r.incarnation = f.incarnation
  )
