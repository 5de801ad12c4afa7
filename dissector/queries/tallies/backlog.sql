-- backlog: entries that were stored, came and were acknowledged per step of time, for all subscriptions
-- keys: at_ns
-- sums: stored, delivered, acknowledged
-- at_ns: when the step begins. An entry counts for each subscription that took messages when it was
-- stored: how many there are stands beside it, so that no entry meets each of them. A consumer may
-- have an entry before the producer has the receipt: then it was stored, too.
WITH marks AS (
  SELECT capture, unit, topic, stored_ns, floor_div(stored_ns, 1000) AS at_us, 1 AS is_entry
  FROM stored_entries
  UNION ALL
  SELECT NULL, unit, topic, NULL, since_us, 0 FROM taking_subscriptions WHERE since_us IS NOT NULL
),
weighed AS (
  SELECT
    capture, stored_ns, is_entry,
    sum(1 - is_entry) OVER (
      PARTITION BY unit, topic
      ORDER BY at_us, is_entry
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS subscriptions
  FROM marks
),
changes AS (
  SELECT
    capture, stored_ns AS happened_ns, subscriptions AS stored, 0 AS delivered, 0 AS acknowledged
  FROM weighed
  WHERE is_entry = 1 AND subscriptions > 0
  UNION ALL
  SELECT capture, greatest(try_multiply(delivered_us, 1000), stored_ns), 0, 1, 0 FROM delivered_entries
  UNION ALL
  SELECT capture, greatest(try_multiply(acked_us, 1000), stored_ns), 0, 0, 1
  FROM delivered_entries
  WHERE acked_us IS NOT NULL
)
SELECT
  c.capture, try_multiply(floor_div(c.happened_ns, s.step_ns), s.step_ns) AS at_ns,
  sum(c.stored) AS stored, sum(c.delivered) AS delivered, sum(c.acknowledged) AS acknowledged
FROM changes AS c
JOIN steps AS s ON s.capture = c.capture
GROUP BY ALL
