-- balances: least, greatest and last balance per step of time, of the consumer that is drawn
-- keys: capture, connection_id, consumer_id, incarnation, at_ns
-- sums:
-- least: available_min
-- greatest: available_max, available_last
-- The chart shows one consumer per capture: the one longest without permits, then the busiest, then
-- the first, if its balance shows how it used its permits (see the section permit_utilization).
WITH drawn_consumers AS (
  SELECT n.*
  FROM permit_sums AS s
  JOIN permit_consumers AS n ON n.consumer_no = s.consumer_no
  WHERE
    s.known_rows > 0 AND (s.known_delivered <> 0 OR s.deliveries = 0 OR s.unknown_rows = 0)
  QUALIFY row_number() OVER (
    PARTITION BY n.capture
    ORDER BY
      coalesce(s.exhausted_us, 0) DESC, coalesce(s.granted, 0) DESC,
      n.connection_id ASC NULLS LAST, n.consumer_id ASC NULLS LAST, n.incarnation ASC NULLS LAST
  ) = 1
),
balance_changes AS (
  SELECT
    r.capture, r.connection_id, r.consumer_id, r.incarnation, p.available_after, p.place,
    try_multiply(floor_div(try_multiply(p.at_us, 1000), s.step_ns), s.step_ns) AS at_ns
  FROM permit_changes AS p
  JOIN drawn_consumers AS r USING (consumer_no)
  JOIN steps AS s ON s.capture = r.capture
  WHERE p.kind <> 2 AND p.available_after IS NOT NULL AND is_selected(p.at_us)
)
SELECT
  capture, connection_id, consumer_id, incarnation, at_ns,
  min(available_after) AS available_min,
  max(available_after) AS available_max,
  max_by(available_after, place) AS available_last
FROM balance_changes
GROUP BY capture, connection_id, consumer_id, incarnation, at_ns
