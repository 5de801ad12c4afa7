-- undelivered: entries of a topic that were stored since a subscription's first permits
-- keys: topic, subscription
-- sums: stored, undelivered
-- least: oldest_ns
-- A topic without subscriptions here has one row with all its entries. The entries of a topic are
-- sorted only if some are missing or older than the subscription. Entries are not joined with all
-- subscriptions of their topic, of which there may be thousands.
WITH topics AS (
  SELECT topic_no, min(capture_no) AS capture_no, count(*) AS entries, min(stored_ns) AS first_ns
  FROM stored_entries
  WHERE is_in
  GROUP BY topic_no
),
delivered_counts AS (
  SELECT subscription_no, count(*) AS entries
  FROM delivered_entries
  WHERE is_in
  GROUP BY subscription_no
),
-- Subscriptions with possibly missing entries, or with older entries in their topic.
incomplete_subscriptions AS (
  SELECT s.topic_no, s.subscription_no, s.since_us
  FROM taking_subscriptions AS s
  JOIN topics AS t USING (topic_no)
  LEFT JOIN delivered_counts AS c USING (subscription_no)
  WHERE
    s.since_us IS NOT NULL
    AND (s.since_us > s.began_us OR coalesce(c.entries, 0) < t.entries)
),
topic_events AS ( -- Entries of their topics and subscription starts; a start sorts before an entry of its time.
  SELECT
    e.topic_no, CAST(NULL AS BIGINT) AS subscription_no, floor_div(e.stored_ns, 1000) AS at_us,
    e.stored_ns, e.ledger_id, e.entry_id, 1 AS is_entry
  FROM stored_entries AS e
  JOIN (SELECT DISTINCT topic_no FROM incomplete_subscriptions) AS o USING (topic_no)
  WHERE e.is_in
  UNION ALL
  SELECT topic_no, subscription_no, since_us, NULL, NULL, NULL, 0 FROM incomplete_subscriptions
),
event_positions AS (
  SELECT
    *,
    sum(is_entry) OVER (
      PARTITION BY topic_no
      ORDER BY at_us, is_entry, stored_ns, ledger_id, entry_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS place
  FROM topic_events
),
first_gaps AS ( -- The first position that is missing in the sequence of delivered entries.
  SELECT
    n.subscription_no,
    min(CASE WHEN n.place > n.entries_before + n.number THEN n.entries_before + n.number END)
      AS place
  FROM (
    SELECT
      b.subscription_no, b.place AS entries_before, e.place,
      row_number() OVER (PARTITION BY b.subscription_no ORDER BY e.place) AS number
    FROM delivered_entries AS g
    JOIN event_positions AS b ON b.subscription_no = g.subscription_no AND b.is_entry = 0
    JOIN event_positions AS e
      ON e.topic_no = g.topic_no AND e.ledger_id = g.ledger_id AND e.entry_id = g.entry_id
    WHERE g.is_in
  ) AS n
  GROUP BY n.subscription_no
),
subscription_counts AS (
  SELECT
    t.capture_no, t.topic_no, s.subscription, t.entries - coalesce(b.place, 0) AS stored,
    t.entries - coalesce(b.place, 0) - coalesce(c.entries, 0) AS undelivered,
    o.stored_ns AS oldest_ns
  FROM taking_subscriptions AS s
  JOIN topics AS t USING (topic_no)
  LEFT JOIN delivered_counts AS c USING (subscription_no)
  LEFT JOIN event_positions AS b USING (subscription_no)
  LEFT JOIN first_gaps AS m USING (subscription_no)
  LEFT JOIN event_positions AS o
    ON o.topic_no = s.topic_no AND o.is_entry = 1
    AND o.place = coalesce(m.place, b.place + coalesce(c.entries, 0) + 1)
  WHERE s.since_us IS NOT NULL AND t.entries > coalesce(b.place, 0)
  UNION ALL
  SELECT t.capture_no, t.topic_no, CAST(NULL AS STRING), t.entries, t.entries, t.first_ns
  FROM topics AS t
  ANTI JOIN taking_subscriptions AS s USING (topic_no)
)
SELECT n.capture, t.topic, f.subscription, f.stored, f.undelivered, f.oldest_ns
FROM subscription_counts AS f
JOIN numbered_captures AS n USING (capture_no)
JOIN stored_topics AS t USING (topic_no)
