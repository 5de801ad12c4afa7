-- undelivered: entries of a topic that were stored since a subscription asked for messages
-- keys: topic, subscription
-- sums: stored, undelivered
-- least: oldest_ns
-- Of topics that nobody subscribed here: all of them, without a subscription. Entries are numbered in
-- the order of their receipts, and those that a subscription got are counted along: no entry meets
-- every subscription of its topic, of which there may be thousands.
WITH stored AS (
  SELECT
    e.*,
    row_number() OVER (
      PARTITION BY e.unit, e.topic ORDER BY e.stored_ns, e.ledger_id, e.entry_id
    ) AS place
  FROM (
    SELECT
      u.unit, p.topic, p.ledger_id, p.entry_id, min(p.capture) AS capture,
      min(p.response_last_ns) AS stored_ns
    FROM exchanges AS p
    ANTI JOIN twins AS t ON t.capture = p.capture AND t.connection_id = p.connection_id
    JOIN units AS u ON u.capture = p.capture
    WHERE
      p.kind = 'publish' AND p.outcome = 'ok' AND p.ledger_id IS NOT NULL
      AND p.entry_id IS NOT NULL AND p.topic LIKE 'persistent://%'
    GROUP BY u.unit, p.topic, p.ledger_id, p.entry_id
  ) AS e
),
topics AS (
  SELECT unit, topic, min(capture) AS capture, count(*) AS entries, min(stored_ns) AS first_ns
  FROM stored
  GROUP BY unit, topic
),
subscriptions AS ( -- Since their first permits.
  SELECT
    u.unit, c.topic, c.subscription,
    min(CASE WHEN p.event = 'grant' AND p.delta > 0 THEN micros(p.ts) END) AS since_us
  FROM permits AS p
  JOIN permit_consumers AS c
    ON c.capture = p.capture AND c.connection_id = p.connection_id
    AND c.consumer_id = p.consumer_id AND c.incarnation = p.incarnation
  JOIN units AS u ON u.capture = p.capture
  WHERE c.topic IS NOT NULL AND c.subscription IS NOT NULL
  GROUP BY u.unit, c.topic, c.subscription
),
marks AS (
  SELECT
    unit, topic, CAST(NULL AS STRING) AS subscription, floor_div(stored_ns, 1000) AS at_us,
    1 AS entries
  FROM stored
  UNION ALL
  SELECT unit, topic, subscription, since_us, 0 FROM subscriptions WHERE since_us IS NOT NULL
),
begun AS ( -- With the entries that were there before them.
  SELECT m.unit, m.topic, m.subscription, m.entries_before
  FROM (
    SELECT
      *,
      sum(entries) OVER (
        PARTITION BY unit, topic ORDER BY at_us, entries
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS entries_before
    FROM marks
  ) AS m
  WHERE m.entries = 0
),
got AS (
  SELECT
    u.unit, d.named_topic AS topic, d.named_subscription AS subscription, d.ledger_id, d.entry_id
  FROM received AS d
  JOIN units AS u ON u.capture = d.capture
  WHERE d.ledger_id IS NOT NULL
  GROUP BY u.unit, d.named_topic, d.named_subscription, d.ledger_id, d.entry_id
),
delivered AS ( -- Where the numbers of what came leave the row, the first is missing.
  SELECT
    n.unit, n.topic, n.subscription, count(*) AS entries,
    min(CASE WHEN n.place > n.entries_before + n.number THEN n.entries_before + n.number END)
      AS missing
  FROM (
    SELECT
      b.unit, b.topic, b.subscription, b.entries_before, e.place,
      row_number() OVER (PARTITION BY b.unit, b.topic, b.subscription ORDER BY e.place) AS number
    FROM got AS g
    JOIN begun AS b
      ON b.unit = g.unit AND b.topic = g.topic AND b.subscription = g.subscription
    JOIN stored AS e
      ON e.unit = g.unit AND e.topic = g.topic AND e.ledger_id = g.ledger_id
      AND e.entry_id = g.entry_id AND e.place > b.entries_before
  ) AS n
  GROUP BY n.unit, n.topic, n.subscription
)
SELECT
  t.capture, t.topic, b.subscription, t.entries - b.entries_before AS stored,
  t.entries - b.entries_before - coalesce(d.entries, 0) AS undelivered, o.stored_ns AS oldest_ns
FROM begun AS b
JOIN topics AS t ON t.unit = b.unit AND t.topic = b.topic AND t.entries > b.entries_before
LEFT JOIN delivered AS d
  ON d.unit = b.unit AND d.topic = b.topic AND d.subscription = b.subscription
LEFT JOIN stored AS o
  ON o.unit = b.unit AND o.topic = b.topic
  AND o.place = coalesce(d.missing, b.entries_before + coalesce(d.entries, 0) + 1)
UNION ALL
SELECT
  t.capture, t.topic, CAST(NULL AS STRING), t.entries, t.entries, t.first_ns
FROM topics AS t
ANTI JOIN subscriptions AS s ON s.unit = t.unit AND s.topic = t.topic
