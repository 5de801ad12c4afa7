-- entries: distinct entries that a receipt confirmed, that were delivered, or one of both
-- keys:
-- sums: confirmed, delivered, either
-- BookKeeper gives a ledger's number only once; entries of non-persistent topics have no id.
WITH seen AS (
  SELECT capture, connection_id, topic, ledger_id, entry_id, 1 AS is_confirmed, 0 AS is_delivered
  FROM exchanges
  WHERE kind = 'publish' AND outcome = 'ok'
  UNION ALL
  SELECT capture, connection_id, topic, ledger_id, entry_id, 0, 1
  FROM deliveries
),
entries AS (
  SELECT
    u.unit, s.ledger_id, s.entry_id, min(s.capture) AS capture,
    max(s.is_confirmed) AS confirmed, max(s.is_delivered) AS delivered
  FROM seen AS s
  JOIN units AS u ON u.capture = s.capture
  WHERE
    s.ledger_id IS NOT NULL AND s.entry_id IS NOT NULL
    AND coalesce(s.topic, '') NOT LIKE 'non-persistent://%'
    AND NOT EXISTS (
      SELECT 1 FROM twins AS t WHERE t.capture = s.capture AND t.connection_id = s.connection_id
    )
  GROUP BY u.unit, s.ledger_id, s.entry_id
)
SELECT capture, sum(confirmed) AS confirmed, sum(delivered) AS delivered, count(*) AS either
FROM entries
GROUP BY capture
