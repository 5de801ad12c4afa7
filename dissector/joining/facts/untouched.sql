-- untouched: Pulsar's connections that lie in one capture alone and share no producer, subscription or
-- transaction with another capture. Their rows are copied, except for the send times of their deliveries
-- if another capture has these.
-- Inputs: placed, handovers, merged; connections, frames, exchanges, deliveries, all_producers and
-- all_consumers of the group.

-- chain_names: the producers and subscriptions of each connection.
CREATE TEMP TABLE chain_names AS
SELECT DISTINCT p.chain, p.rank, 'producer' AS kind, t.topic, t.name
FROM all_producers AS t JOIN placed AS p USING (capture, connection_id)
WHERE p.read_by = 'pulsar' AND t.topic IS NOT NULL
UNION ALL
SELECT DISTINCT p.chain, p.rank, 'consumer', t.topic, t.subscription
FROM all_consumers AS t JOIN placed AS p USING (capture, connection_id)
WHERE p.read_by = 'pulsar' AND t.topic IS NOT NULL;

-- crossing_chains: connections whose rows depend, or may depend, on several captures. The receipts of their
-- sends may lie in another capture, so the consumers of their topics are among them.
CREATE TEMP TABLE crossing_chains AS
WITH parts AS (SELECT * FROM placed WHERE read_by = 'pulsar'),
split_chains AS (
  SELECT chain FROM parts GROUP BY chain HAVING count(*) > 1
  UNION
  SELECT p.chain FROM handovers AS h JOIN parts AS p
    ON (p.capture = h.before_capture AND p.connection_id = h.before_connection_id)
    OR (p.capture = h.after_capture AND p.connection_id = h.after_connection_id)
)
FROM split_chains
UNION
SELECT chain FROM chain_names WHERE kind = 'consumer' AND topic IN (
  SELECT topic FROM chain_names SEMI JOIN split_chains USING (chain) WHERE kind = 'producer'
)
UNION
SELECT p.chain FROM parts AS p JOIN connections AS c USING (capture, connection_id)
JOIN merged AS m USING (capture, connection_id)
WHERE m.leg IS DISTINCT FROM c.leg OR m.twin_connection_id IS DISTINCT FROM c.twin_connection_id
UNION
SELECT n.chain FROM chain_names AS n JOIN (
  SELECT kind, topic, name FROM chain_names WHERE name IS NOT NULL GROUP BY ALL
  HAVING min(rank) < max(rank)
) AS s ON s.kind = n.kind AND s.topic = n.topic AND s.name = n.name
UNION
SELECT p.chain FROM frames AS f JOIN parts AS p USING (capture, connection_id)
WHERE f.txn_most_bits IS NOT NULL AND f.command IN ('ACK', 'END_TXN', 'END_TXN_ON_SUBSCRIPTION')
UNION
-- The clock of all captures gives up requests in holes sooner than the clock of one; a dissection
-- evicts rows at its limits, joins do not.
SELECT p.chain FROM exchanges AS e JOIN parts AS p USING (capture, connection_id)
WHERE e.outcome IN ('evicted', 'unresolved_at_limit') OR (e.outcome = 'orphan_response' AND e.tainted)
UNION
SELECT p.chain FROM deliveries AS d JOIN parts AS p USING (capture, connection_id)
WHERE d.outcome IN ('evicted', 'unresolved_at_limit');

-- name_links: pairs of a connection and a name that it shares (a number below 0): copies of a message are
-- counted together, and so are consumers of a subscription.
CREATE TEMP TABLE name_links AS
WITH numbered AS (
  SELECT chain, -dense_rank() OVER (ORDER BY kind, topic, name) AS shared FROM chain_names
  WHERE name IS NOT NULL
)
SELECT chain AS a, shared AS b FROM numbered UNION ALL SELECT shared, chain FROM numbered;

CREATE TEMP TABLE touched_chains AS
WITH RECURSIVE reached AS (
  SELECT chain AS a FROM crossing_chains UNION SELECT t.b FROM reached JOIN name_links AS t USING (a)
)
SELECT a AS chain FROM reached WHERE a >= 0;

-- remote_consumers: the other consumers' connections, with topics of which other captures have sends.
CREATE TEMP TABLE remote_consumers AS
SELECT DISTINCT n.chain, n.topic FROM chain_names AS n JOIN (
  SELECT topic, min(rank) AS least, max(rank) AS greatest FROM chain_names
  WHERE kind = 'producer' GROUP BY topic
) AS s ON s.topic = n.topic AND (s.least <> n.rank OR s.greatest <> n.rank)
WHERE n.kind = 'consumer' AND n.chain NOT IN (FROM touched_chains);

-- remote_entries: entries of these topics, with the times of their send and of their last receipt.
CREATE TEMP TABLE remote_entries AS
SELECT e.topic, coalesce(m.leg = 'broker' AND m.twin_connection_id IS NOT NULL, false)
    AS is_behind_proxy,
  e.ledger_id, e.entry_id, arg_max(e.request_last_ns, e.response_last_ns) AS sent_ns,
  max(e.response_last_ns) AS stored_ns, min(p.rank) AS least, max(p.rank) AS greatest
FROM exchanges AS e JOIN placed AS p USING (capture, connection_id)
JOIN merged AS m ON m.capture = p.head_capture AND m.connection_id = p.head_connection_id
WHERE e.topic IN (SELECT topic FROM remote_consumers) AND p.read_by = 'pulsar'
  AND e.kind = 'publish' AND e.response_command = 'SEND_RECEIPT' AND e.ledger_id >= 0
  AND e.entry_id >= 0 AND e.response_frame_no > e.request_frame_no
  AND NOT coalesce(e.topic LIKE 'non-persistent://%', false)
GROUP BY ALL;

-- remote_entry_deliveries: deliveries of entries of which other captures have sends. is_late: the receipt may have come
-- behind the delivery's end, whose time is in no row.
CREATE TEMP TABLE remote_entry_deliveries AS
WITH remote_deliveries AS (
  SELECT d.capture, d.connection_id, d.frame_no, d.ack_frame_no, d.outcome, p.chain, f.last_ts_ns,
    f.status IN ('complete', 'cut_by_snaplen') AS is_timed, s.sent_ns, s.stored_ns
  FROM deliveries AS d JOIN placed AS p USING (capture, connection_id)
  JOIN merged AS m USING (capture, connection_id)
  JOIN remote_consumers AS x ON x.chain = p.chain AND x.topic = d.topic
  JOIN remote_entries AS s ON s.topic = d.topic AND s.ledger_id = d.ledger_id AND s.entry_id = d.entry_id
    AND s.is_behind_proxy = coalesce(m.leg = 'broker' AND m.twin_connection_id IS NOT NULL, false)
    AND (s.least <> p.rank OR s.greatest <> p.rank)
  JOIN frames AS f
    ON f.capture = d.capture AND f.connection_id = d.connection_id AND f.frame_no = d.frame_no
),
late_receipts AS (SELECT * FROM remote_deliveries WHERE stored_ns > last_ts_ns),
ack_ends AS (
  SELECT d.capture, d.frame_no,
    CASE WHEN e.request_frame_no IS NULL THEN a.last_ts_ns ELSE e.response_last_ns END AS end_ns
  FROM late_receipts AS d
  JOIN frames AS a ON a.capture = d.capture AND a.frame_no = d.ack_frame_no AND a.command = 'ACK'
  LEFT JOIN exchanges AS e
    ON e.capture = d.capture AND e.request_frame_no = d.ack_frame_no AND e.kind = 'ack'
),
ending_frames AS (
  SELECT f.capture, f.connection_id, f.frame_no, f.last_ts_ns AS ns
  FROM frames AS f SEMI JOIN late_receipts USING (capture, connection_id)
  WHERE f.command IN ('REDELIVER_UNACKNOWLEDGED_MESSAGES', 'CLOSE_CONSUMER', 'UNSUBSCRIBE',
    'SUBSCRIBE', 'SUCCESS', 'ERROR')
),
other_ends AS (
  SELECT d.capture, d.frame_no, d.stored_ns >= e.ns AS is_late
  FROM (
    FROM late_receipts WHERE outcome NOT IN ('acked', 'discarded', 'unacked_at_end', 'conn_closed')
  ) AS d
  ASOF LEFT JOIN ending_frames AS e ON e.capture = d.capture AND e.connection_id = d.connection_id
    AND e.frame_no > d.frame_no
)
SELECT d.capture, d.connection_id, d.frame_no, d.chain,
  CASE WHEN d.is_timed AND d.last_ts_ns >= d.sent_ns AND NOT coalesce(d.stored_ns > a.end_ns, false)
    THEN d.last_ts_ns - d.sent_ns END AS since_ns, coalesce(e.is_late, false) AS is_late
FROM remote_deliveries AS d LEFT JOIN ack_ends AS a USING (capture, frame_no)
LEFT JOIN other_ends AS e USING (capture, frame_no);

CREATE TABLE untouched AS
WITH RECURSIVE reached AS (
  SELECT chain AS a FROM touched_chains UNION SELECT chain FROM remote_entry_deliveries WHERE is_late
  UNION SELECT t.b FROM reached JOIN name_links AS t USING (a)
)
SELECT capture, connection_id, chain, chain NOT IN (SELECT chain FROM remote_consumers) AS keeps_deliveries
FROM placed WHERE read_by = 'pulsar' AND chain NOT IN (SELECT a FROM reached);

-- sending_connections: untouched connections whose sends were delivered on touched ones.
CREATE TABLE sending_connections AS
SELECT * FROM placed WHERE chain IN (SELECT chain FROM untouched) AND chain IN (
  SELECT chain FROM chain_names WHERE kind = 'producer' AND topic IN (
    SELECT topic FROM chain_names WHERE kind = 'consumer' AND chain NOT IN (SELECT chain FROM untouched)
  )
);

-- dated: the deliveries of untouched connections whose send times other captures have.
CREATE VIEW dated AS
SELECT d.* REPLACE (CASE WHEN g.frame_no IS NULL THEN d.publish_to_delivery_ns ELSE g.since_ns END
  AS publish_to_delivery_ns)
FROM deliveries AS d JOIN untouched AS u USING (capture, connection_id)
LEFT JOIN remote_entry_deliveries AS g USING (capture, connection_id, frame_no)
WHERE NOT u.keeps_deliveries;
