-- balances: least, greatest and last balance per step of time, of the consumer that is drawn
-- keys: capture, connection_id, consumer_id, incarnation, at_ns
-- sums:
-- least: available_min
-- greatest: available_max, available_last
-- Of a capture it is the most hindered one, then the busiest, then the first, if its balance says
-- how it used its permits (see the section permit_utilization).
WITH judged AS (
  SELECT
    capture, connection_id, consumer_id, incarnation,
    sum(CASE WHEN is_exhausted THEN greatest(until_us - at_us, 0) ELSE 0 END) AS exhausted_us,
    sum(CASE WHEN event = 'grant' THEN delta ELSE 0 END) AS granted
  FROM permit_changes
  GROUP BY capture, connection_id, consumer_id, incarnation
  HAVING
    count(CASE WHEN event <> 'reset' THEN available_after END) > 0
    AND (
      sum(CASE WHEN event = 'delivery' AND available_after IS NOT NULL THEN -delta END) <> 0
      OR count(CASE WHEN event = 'delivery' THEN 1 END) = 0
      OR count(CASE WHEN event <> 'reset' AND available_after IS NULL THEN 1 END) = 0
    )
),
ranked AS (
  SELECT
    j.*,
    row_number() OVER (
      PARTITION BY capture
      ORDER BY
        exhausted_us DESC, granted DESC, connection_id ASC NULLS LAST,
        consumer_id ASC NULLS LAST, incarnation ASC NULLS LAST
    ) AS place
  FROM judged AS j
),
drawn AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.available_after, p.place,
    floor_div(p.at_us * 1000, s.step_ns) * s.step_ns AS at_ns
  FROM permit_places AS p
  JOIN ranked AS r
    ON r.capture = p.capture AND r.connection_id = p.connection_id
    AND r.consumer_id = p.consumer_id AND r.incarnation = p.incarnation
  JOIN steps AS s ON s.capture = p.capture
  WHERE r.place = 1 AND p.event <> 'reset' AND p.available_after IS NOT NULL
)
SELECT
  capture, connection_id, consumer_id, incarnation, at_ns,
  min(available_after) AS available_min,
  max(available_after) AS available_max,
  max_by(available_after, place) AS available_last
FROM drawn
GROUP BY capture, connection_id, consumer_id, incarnation, at_ns
