-- backlog: entries stored, delivered and acknowledged per step of time, for all subscriptions
-- keys: at_ns
-- sums: stored, delivered, acknowledged
-- at_ns: when the step begins; null for events before the selected time. An entry counts for each
-- subscription that had permits when it was stored: those from before the topic's first entry, and
-- the running count of later ones, which avoids a join of entries with subscriptions. An entry
-- delivered before the producer has the receipt counts as delivered at the time of the receipt.
WITH subscription_counts AS (
  SELECT
    topic_no, count(CASE WHEN since_us <= began_us THEN 1 END) AS subscriptions,
    count(CASE WHEN since_us > began_us THEN 1 END) AS others
  FROM taking_subscriptions
  GROUP BY topic_no
),
topic_events AS (
  SELECT
    e.capture_no, e.topic_no, e.stored_ns, floor_div(e.stored_ns, 1000) AS at_us, 1 AS is_entry
  FROM stored_entries AS e
  JOIN subscription_counts AS t ON t.topic_no = e.topic_no AND t.others > 0
  UNION ALL
  SELECT NULL, topic_no, NULL, since_us, 0 FROM taking_subscriptions WHERE since_us > began_us
),
weighted_entries AS (
  SELECT
    capture_no, topic_no, stored_ns, is_entry,
    sum(1 - is_entry) OVER (
      PARTITION BY topic_no
      ORDER BY at_us, is_entry
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS more
  FROM topic_events
),
changes AS (
  SELECT
    e.capture_no, e.stored_ns AS happened_ns, t.subscriptions AS stored, 0 AS delivered,
    0 AS acknowledged
  FROM stored_entries AS e
  JOIN subscription_counts AS t USING (topic_no)
  WHERE t.others = 0 AND t.subscriptions > 0
  UNION ALL
  SELECT w.capture_no, w.stored_ns, t.subscriptions + w.more, 0, 0
  FROM weighted_entries AS w
  JOIN subscription_counts AS t USING (topic_no)
  WHERE w.is_entry = 1 AND t.subscriptions + w.more > 0
  UNION ALL
  SELECT capture_no, greatest(try_multiply(delivered_us, 1000), stored_ns), 0, 1, 0
  FROM delivered_entries
  UNION ALL
  SELECT capture_no, greatest(try_multiply(acked_us, 1000), stored_ns), 0, 0, 1
  FROM delivered_entries
  WHERE acked_us IS NOT NULL
),
step_counts AS (
  SELECT
    c.capture_no,
    CASE
      WHEN is_selected(floor_div(c.happened_ns, 1000))
        THEN try_multiply(floor_div(c.happened_ns, n.step_ns), n.step_ns)
    END AS at_ns,
    sum(c.stored) AS stored, sum(c.delivered) AS delivered, sum(c.acknowledged) AS acknowledged
  FROM changes AS c
  JOIN (
    SELECT k.capture_no, s.step_ns
    FROM numbered_captures AS k
    JOIN steps AS s USING (capture)
  ) AS n USING (capture_no)
  WHERE is_not_behind(floor_div(c.happened_ns, 1000))
  GROUP BY ALL
)
SELECT n.capture, c.at_ns, c.stored, c.delivered, c.acknowledged
FROM step_counts AS c
JOIN numbered_captures AS n USING (capture_no)
