-- entries: distinct entries that a receipt confirmed, that were delivered, or one of both
-- keys:
-- sums: confirmed, delivered, either
-- BookKeeper gives a ledger's number only once; entries of non-persistent topics have no id. 32 entries of
-- a ledger are one row, with a bit for each: rows of all of them took twice as long. An entry counts in
-- the first capture that has it.
WITH seen AS (
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
  FROM seen AS s
  ANTI JOIN twins AS t ON t.capture = s.capture AND t.connection_id = s.connection_id
  JOIN numbered_captures AS n ON n.capture = s.capture
  WHERE
    s.entry_id IS NOT NULL
    AND coalesce(s.topic, '') NOT LIKE 'non-persistent://%'
  GROUP BY n.unit_no, n.capture_no, s.ledger_id, floor_div(s.entry_id, 32)
),
firsts AS (
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
summed AS (
  SELECT
    capture_no, sum(bit_count(either & confirmed)) AS confirmed,
    sum(bit_count(either & delivered)) AS delivered, sum(bit_count(either)) AS either
  FROM firsts
  WHERE either <> 0
  GROUP BY capture_no
)
SELECT n.capture, s.confirmed, s.delivered, s.either
FROM summed AS s
JOIN numbered_captures AS n ON n.capture_no = s.capture_no
