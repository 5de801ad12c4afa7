-- passed_deliveries: a delivery that was never acked although a later one to its consumer was
-- first: 1000 by at_us, capture, frame_no, connection_id
WITH first_passed AS (
  SELECT *
  FROM passed
  QUALIFY row_number() OVER (
    PARTITION BY capture
    ORDER BY at_us ASC NULLS LAST, frame_no ASC NULLS LAST, connection_id ASC
  ) <= 1000
)
SELECT
  p.capture, p.connection_id, p.consumer_id, p.incarnation, p.topic, p.subscription,
  p.consumer_name, p.ledger_id, p.entry_id, p.message_count, p.outcome, p.at_us, p.frame_no,
  f.last_packet AS packet, f.chunk_uuid,
  -- A client assembles a message only if each chunk came exactly once.
  c.chunks < c.chunk_count OR c.entries > c.chunk_count AS is_broken
FROM first_passed AS p
LEFT JOIN frames AS f USING (capture, connection_id, frame_no)
LEFT JOIN (
  SELECT
    capture, connection_id, consumer_id, incarnation, chunk_uuid, max(chunk_count) AS chunk_count,
    count(DISTINCT chunk_id) AS chunks,
    count(DISTINCT concat(CAST(ledger_id AS STRING), ':', CAST(entry_id AS STRING))) AS entries
  FROM frames
  WHERE
    command = 'MESSAGE' AND chunk_uuid IS NOT NULL
    AND (capture, connection_id) IN (SELECT capture, connection_id FROM first_passed)
  GROUP BY capture, connection_id, consumer_id, incarnation, chunk_uuid
) AS c
  ON c.capture = p.capture AND c.connection_id = p.connection_id
  AND c.consumer_id = p.consumer_id AND c.incarnation IS NOT DISTINCT FROM f.incarnation
  AND c.chunk_uuid = f.chunk_uuid
