-- undelivered: entries of a topic that were stored since a subscription asked for messages
-- keys: topic, subscription
-- sums: stored, undelivered
-- least: oldest_ns
-- Of topics that nobody subscribed here: all of them, without a subscription.
WITH stored AS (
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
got AS (
  SELECT
    u.unit, d.named_topic AS topic, d.named_subscription AS subscription, d.ledger_id, d.entry_id
  FROM received AS d
  JOIN units AS u ON u.capture = d.capture
  WHERE d.ledger_id IS NOT NULL
  GROUP BY u.unit, d.named_topic, d.named_subscription, d.ledger_id, d.entry_id
)
SELECT
  min(e.capture) AS capture, e.topic, s.subscription,
  count(*) AS stored,
  count(CASE WHEN g.entry_id IS NULL THEN 1 END) AS undelivered,
  min(CASE WHEN g.entry_id IS NULL THEN e.stored_ns END) AS oldest_ns
FROM stored AS e
LEFT JOIN subscriptions AS s ON s.unit = e.unit AND s.topic = e.topic
LEFT JOIN got AS g
  ON g.unit = e.unit AND g.topic = e.topic AND g.subscription = s.subscription
  AND g.ledger_id = e.ledger_id AND g.entry_id = e.entry_id
WHERE s.topic IS NULL OR floor_div(e.stored_ns, 1000) >= s.since_us
GROUP BY e.unit, e.topic, s.subscription
