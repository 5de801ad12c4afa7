-- entries: distinct entries that a receipt confirmed, that were delivered, or one of both
-- keys:
-- sums: confirmed, delivered, either
-- BookKeeper gives a ledger's number only once; entries of non-persistent topics have no id.
WITH seen AS (
  SELECT capture, connection_id, topic, ledger_id, entry_id, 1 AS is_confirmed, 0 AS is_delivered
  FROM exchanges
  WHERE kind = 'publish' AND outcome = 'ok' AND ledger_id IS NOT NULL
  UNION ALL
  SELECT capture, connection_id, topic, ledger_id, entry_id, 0, 1
  FROM deliveries
  WHERE ledger_id IS NOT NULL
),
entries AS (
  SELECT
    min(n.capture_no) AS capture_no,
    max(s.is_confirmed) AS confirmed, max(s.is_delivered) AS delivered
  FROM seen AS s
  ANTI JOIN twins AS t ON t.capture = s.capture AND t.connection_id = s.connection_id
  JOIN numbered_captures AS n ON n.capture = s.capture
  WHERE
    s.entry_id IS NOT NULL
    AND coalesce(s.topic, '') NOT LIKE 'non-persistent://%'
  GROUP BY n.unit_no, s.ledger_id, s.entry_id
),
summed AS (
  SELECT
    capture_no, sum(confirmed) AS confirmed, sum(delivered) AS delivered, count(*) AS either
  FROM entries
  GROUP BY capture_no
)
SELECT n.capture, s.confirmed, s.delivered, s.either
FROM summed AS s
JOIN numbered_captures AS n ON n.capture_no = s.capture_no
