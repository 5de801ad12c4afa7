-- passed_deliveries: a delivery that nobody acked although a later one to its consumer was
-- first: 1000 by at_us, capture, frame_no, connection_id
SELECT
  p.capture, p.connection_id, p.consumer_id, p.incarnation, p.topic, p.subscription,
  p.consumer_name, p.ledger_id, p.entry_id, p.message_count, p.outcome, p.at_us, p.frame_no,
  f.last_packet AS packet, f.chunk_id
FROM (
  SELECT
    q.*,
    row_number() OVER (
      PARTITION BY q.capture
      ORDER BY q.at_us ASC NULLS LAST, q.frame_no ASC NULLS LAST, q.connection_id ASC
    ) AS place
  FROM passed AS q
) AS p
LEFT JOIN frames AS f
  ON f.capture = p.capture AND f.connection_id = p.connection_id AND f.frame_no = p.frame_no
WHERE p.place <= 1000
