-- undelivered: entries of a topic that were stored since a subscription asked for messages
-- keys: topic, subscription
-- sums: stored, undelivered
-- least: oldest_ns
-- Of topics that nobody subscribed here: all of them, without a subscription. What a subscription
-- got is counted; only where something is missing, or was there before, are the entries of a topic
-- put in order. No entry meets every subscription of its topic, of which there may be thousands.
WITH stored AS (
  SELECT
    u.unit, p.topic, p.ledger_id, p.entry_id, min(p.capture) AS capture,
    min(p.response_last_ns) AS stored_ns
  FROM single_exchanges AS p
  JOIN units AS u ON u.capture = p.capture
  WHERE
    p.kind = 'publish' AND p.outcome = 'ok' AND p.ledger_id IS NOT NULL
    AND p.entry_id IS NOT NULL AND p.topic LIKE 'persistent://%'
  GROUP BY u.unit, p.topic, p.ledger_id, p.entry_id
),
topics AS (
  SELECT unit, topic, min(capture) AS capture, count(*) AS entries, min(stored_ns) AS first_ns
  FROM stored
  GROUP BY unit, topic
),
grants AS (
  SELECT capture, connection_id, consumer_id, incarnation, min(micros(ts)) AS granted_us
  FROM permits
  WHERE event = 'grant' AND delta > 0
  GROUP BY capture, connection_id, consumer_id, incarnation
),
subscriptions AS ( -- Since their first permits; began_us: when the first entry was stored.
  SELECT
    u.unit, c.topic, c.subscription, min(g.granted_us) AS since_us,
    min(floor_div(t.first_ns, 1000)) AS began_us
  FROM permit_consumers AS c
  JOIN units AS u ON u.capture = c.capture
  JOIN topics AS t ON t.unit = u.unit AND t.topic = c.topic
  LEFT JOIN grants AS g
    ON g.capture = c.capture AND g.connection_id = c.connection_id
    AND g.consumer_id = c.consumer_id AND g.incarnation = c.incarnation
  WHERE c.subscription IS NOT NULL
  GROUP BY u.unit, c.topic, c.subscription
),
-- Entries that a subscription got of those that were stored behind its first permits.
got AS (
  SELECT
    s.unit, s.topic, s.subscription, e.ledger_id, e.entry_id, min(e.stored_ns) AS stored_ns
  FROM received AS d
  JOIN units AS u ON u.capture = d.capture
  JOIN subscriptions AS s
    ON s.unit = u.unit AND s.topic = d.named_topic AND s.subscription = d.named_subscription
  JOIN stored AS e
    ON e.unit = s.unit AND e.topic = s.topic AND e.ledger_id = d.ledger_id
    AND e.entry_id = d.entry_id AND floor_div(e.stored_ns, 1000) >= s.since_us
  GROUP BY s.unit, s.topic, s.subscription, e.ledger_id, e.entry_id
),
counted AS (
  SELECT unit, topic, subscription, count(*) AS entries
  FROM got
  GROUP BY unit, topic, subscription
),
-- Those to which something may be missing, or whose topic had entries before.
open_ones AS (
  SELECT s.unit, s.topic, s.subscription, s.since_us
  FROM subscriptions AS s
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
  FROM stored AS e
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
    FROM got AS g
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
FROM subscriptions AS s
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
ANTI JOIN subscriptions AS s ON s.unit = t.unit AND s.topic = t.topic
