-- Rows that earlier increments wrote of messages that are sent or delivered again in these captures.
-- Inputs: numbered_frames, orders, placed, ranks; past_exchanges and past_deliveries, those rows.

INSERT INTO before_attempts BY NAME
SELECT p.chain, e.topic, e.producer_name, e.sequence_id, e.chunk_id, e.crc32c_stored,
  max(e.attempt) AS attempts
FROM past_exchanges AS e SEMI JOIN (
  SELECT topic, producer_name, sequence_id FROM numbered_frames WHERE command = 'SEND'
) USING (topic, producer_name, sequence_id)
JOIN main.placed AS p USING (capture, connection_id)
WHERE e.kind = 'publish' AND e.attempt IS NOT NULL
GROUP BY ALL;

INSERT INTO before_published BY NAME
SELECT e.topic, p.chain, e.ledger_id AS ledger, e.entry_id AS entry, e.request_last_ns AS sent_ns,
  e.order_no AS n
FROM past_exchanges AS e SEMI JOIN (
  SELECT ledger_id, entry_id FROM numbered_frames WHERE command = 'MESSAGE'
) USING (ledger_id, entry_id)
JOIN main.placed AS p USING (capture, connection_id)
WHERE e.kind = 'publish' AND e.response_command = 'SEND_RECEIPT' AND e.ledger_id >= 0
  AND e.entry_id >= 0 AND e.response_last_ns >= e.request_last_ns
  AND NOT coalesce(e.topic LIKE 'non-persistent://%', e.ledger_id = 0 AND e.entry_id = 0);

CREATE TEMP TABLE earlier_deliveries AS
SELECT d.order_no AS n, p.chain, r.rank, d.frame_no, d.consumer_id, d.incarnation AS x,
  d.ledger_id AS ledger, d.entry_id AS entry, d.outcome,
  CASE WHEN d.checksum IS DISTINCT FROM 'mismatch' THEN d.crc32c_stored END AS crc
FROM past_deliveries AS d SEMI JOIN (
  SELECT ledger_id, entry_id FROM numbered_frames WHERE command = 'MESSAGE'
) USING (ledger_id, entry_id)
JOIN main.placed AS p USING (capture, connection_id)
JOIN main.ranks AS r ON r.capture = d.own_capture
WHERE d.ledger_id >= 0 AND d.entry_id >= 0
  AND NOT coalesce(d.topic LIKE 'non-persistent://%', d.ledger_id = 0 AND d.entry_id = 0);

INSERT INTO before_deliveries BY NAME SELECT * EXCLUDE (rank, frame_no) FROM earlier_deliveries;

INSERT INTO orders BY NAME
SELECT rank, chain, frame_no, n FROM earlier_deliveries ANTI JOIN orders AS o USING (n);
