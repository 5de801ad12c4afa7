-- undelivered: entries of a topic that were stored since a subscription asked for messages
-- keys: topic, subscription
-- sums: stored, undelivered
-- least: oldest_ns
-- Of topics that nobody subscribed here: all of them, without a subscription. What a subscription
-- got is counted; only where something is missing, or was there before, are the entries of a topic
-- put in order. No entry meets every subscription of its topic, of which there may be thousands.
WITH topics AS (
  SELECT unit, topic, min(capture) AS capture, count(*) AS entries, min(stored_ns) AS first_ns
  FROM stored_entries
  GROUP BY unit, topic
),
counted AS (
  SELECT unit, topic, subscription, count(*) AS entries
  FROM delivered_entries
  GROUP BY unit, topic, subscription
),
-- Those to which something may be missing, or whose topic had entries before.
open_ones AS (
  SELECT s.unit, s.topic, s.subscription, s.since_us
  FROM taking_subscriptions AS s
  JOIN topics AS t ON t.unit = s.unit AND t.topic = s.topic
  LEFT JOIN counted AS c
    ON c.unit = s.unit AND c.topic = s.topic AND c.subscription = s.subscription
  WHERE
    s.since_us IS NOT NULL
    AND (s.since_us > s.began_us OR coalesce(c.entries, 0) < t.entries)
),
marks AS ( -- In order, entries of their topics, and when they began: these before what is as old.
  SELECT
    e.unit, e.topic, CAST(NULL AS STRING) AS subscription, floor_div(e.stored_ns, 1000) AS at_us,
    e.stored_ns, e.ledger_id, e.entry_id, 1 AS is_entry
  FROM stored_entries AS e
  JOIN (SELECT DISTINCT unit, topic FROM open_ones) AS o
    ON o.unit = e.unit AND o.topic = e.topic
  UNION ALL
  SELECT unit, topic, subscription, since_us, NULL, NULL, NULL, 0 FROM open_ones
),
placed AS (
  SELECT
    *,
    sum(is_entry) OVER (
      PARTITION BY unit, topic
      ORDER BY at_us, is_entry, stored_ns, ledger_id, entry_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS place
  FROM marks
),
missing AS ( -- Where the places of what came leave the row, the first is missing.
  SELECT
    n.unit, n.topic, n.subscription,
    min(CASE WHEN n.place > n.entries_before + n.number THEN n.entries_before + n.number END)
      AS place
  FROM (
    SELECT
      b.unit, b.topic, b.subscription, b.place AS entries_before, e.place,
      row_number() OVER (PARTITION BY b.unit, b.topic, b.subscription ORDER BY e.place) AS number
    FROM delivered_entries AS g
    JOIN placed AS b
      ON b.unit = g.unit AND b.topic = g.topic AND b.subscription = g.subscription
      AND b.is_entry = 0
    JOIN placed AS e
      ON e.unit = g.unit AND e.topic = g.topic AND e.ledger_id = g.ledger_id
      AND e.entry_id = g.entry_id
  ) AS n
  GROUP BY n.unit, n.topic, n.subscription
)
SELECT
  t.capture, t.topic, s.subscription, t.entries - coalesce(b.place, 0) AS stored,
  t.entries - coalesce(b.place, 0) - coalesce(c.entries, 0) AS undelivered,
  o.stored_ns AS oldest_ns
FROM taking_subscriptions AS s
JOIN topics AS t ON t.unit = s.unit AND t.topic = s.topic
LEFT JOIN counted AS c
  ON c.unit = s.unit AND c.topic = s.topic AND c.subscription = s.subscription
LEFT JOIN placed AS b
  ON b.unit = s.unit AND b.topic = s.topic AND b.subscription = s.subscription
LEFT JOIN missing AS m
  ON m.unit = s.unit AND m.topic = s.topic AND m.subscription = s.subscription
LEFT JOIN placed AS o
  ON o.unit = s.unit AND o.topic = s.topic AND o.is_entry = 1
  AND o.place = coalesce(m.place, b.place + coalesce(c.entries, 0) + 1)
WHERE s.since_us IS NOT NULL AND t.entries > coalesce(b.place, 0)
UNION ALL
SELECT t.capture, t.topic, CAST(NULL AS STRING), t.entries, t.entries, t.first_ns
FROM topics AS t
ANTI JOIN taking_subscriptions AS s ON s.unit = t.unit AND s.topic = t.topic
