-- entries: distinct entries that were confirmed, delivered, or either
-- keys:
-- sums: confirmed, delivered, either
-- BookKeeper never reuses a ledger id; entries of non-persistent topics have no id. 32 entries of a
-- ledger share a row, one bit each: a row per entry took twice as long. An entry counts in its
-- first capture.
WITH entry_copies AS (
  SELECT
    capture, connection_id, topic, ledger_id, entry_id, 1 AS is_confirmed, 0 AS is_delivered
  FROM confirmed_entries
  UNION ALL
  SELECT capture, connection_id, topic, ledger_id, entry_id, 0, 1
  FROM deliveries
  WHERE ledger_id IS NOT NULL
),
blocks AS (
  SELECT
    n.unit_no, n.capture_no, s.ledger_id, floor_div(s.entry_id, 32) AS block,
    bit_or(CAST(s.is_confirmed AS BIGINT) << CAST(s.entry_id & 31 AS INT)) AS confirmed,
    bit_or(CAST(s.is_delivered AS BIGINT) << CAST(s.entry_id & 31 AS INT)) AS delivered
  FROM entry_copies AS s
  ANTI JOIN twins AS t USING (capture, connection_id)
  JOIN numbered_captures AS n USING (capture)
  WHERE
    s.entry_id IS NOT NULL
    AND coalesce(s.topic, '') NOT LIKE 'non-persistent://%'
  GROUP BY n.unit_no, n.capture_no, s.ledger_id, floor_div(s.entry_id, 32)
),
first_copies AS (
  SELECT
    capture_no,
    (confirmed | delivered) & ~coalesce(bit_or(confirmed | delivered) OVER before, 0) AS either,
    bit_or(confirmed) OVER whole AS confirmed, bit_or(delivered) OVER whole AS delivered
  FROM blocks
  WINDOW
    whole AS (PARTITION BY unit_no, ledger_id, block),
    before AS (
      PARTITION BY unit_no, ledger_id, block ORDER BY capture_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
capture_counts AS (
  SELECT
    capture_no, sum(bit_count(either & confirmed)) AS confirmed,
    sum(bit_count(either & delivered)) AS delivered, sum(bit_count(either)) AS either
  FROM first_copies
  WHERE either <> 0
  GROUP BY capture_no
)
SELECT n.capture, s.confirmed, s.delivered, s.either
FROM capture_counts AS s
JOIN numbered_captures AS n USING (capture_no)
