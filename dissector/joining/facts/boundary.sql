-- The state that the next increment of a group needs: next_<table> for each table of before.sql and for
-- carried_frames and so on. Inputs: all facts; placed, and going_on: connections that continue.

CREATE TEMP TABLE continuing_connections AS
SELECT k.c FROM numbered_connections AS k JOIN main.placed AS p ON p.chain = k.connection_id
JOIN main.going_on AS g ON g.capture = p.capture AND g.connection_id = p.connection_id;

-- pending_requests: requests without an answer; of more than {carried} the oldest are given up.
CREATE TEMP TABLE pending_requests AS
SELECT c, asked, ask AS n, row_number() OVER (ORDER BY ask DESC) > {carried} AS is_given_up
FROM pairs SEMI JOIN continuing_connections USING (c) WHERE ask IS NOT NULL AND answer IS NULL;

-- pending_acks: acks that the broker may still refuse, or whose transaction has not ended.
CREATE TEMP TABLE pending_acks AS
SELECT c, n FROM pending_requests WHERE asked = 'ACK' AND NOT is_given_up
UNION SELECT c, n FROM ack_fates WHERE fate IS DISTINCT FROM 'ack_refused' AND ended_n IS NULL;

-- open_deliveries: deliveries whose row later frames may change.
CREATE TEMP TABLE open_deliveries AS
SELECT c, n FROM received SEMI JOIN continuing_connections USING (c) JOIN delivery_ends USING (c, n)
WHERE NOT is_past AND end_n IS NULL
UNION
-- A later ack may still count.
SELECT c, n FROM released_deliveries
WHERE next_n IS NULL AND until_ns >= (SELECT max(last_ts_ns) FROM numbered_frames)
  AND (c, n) NOT IN (SELECT c, n FROM late_acks WHERE messages_left = 0 OR is_doubtful)
UNION
SELECT e.c, e.n FROM delivery_ends AS e JOIN received AS d USING (c, n)
JOIN pending_acks AS a ON a.c = e.end_c AND a.n = e.end_n WHERE NOT d.is_past AND e.outcome = 'acked'
UNION
SELECT p.c, p.n FROM named_deliveries AS p JOIN received AS d USING (c, n)
JOIN pending_acks AS a ON a.c = p.said_c AND a.n = p.said_n
JOIN delivery_ends AS e ON e.c = p.c AND e.n = p.n
WHERE NOT d.is_past AND e.outcome = 'acked'
UNION
SELECT p.c, p.n FROM claims AS p JOIN received AS d USING (c, n)
JOIN pending_acks AS a ON a.c = p.said_c AND a.n = p.said_n
JOIN delivery_ends AS e ON e.c = p.c AND e.n = p.n
WHERE NOT d.is_past AND e.outcome = 'acked';

-- open_rows: frames whose exchange or delivery is not written yet; an answer waits 200 ms for its request.
CREATE TEMP TABLE open_rows AS
SELECT n FROM open_deliveries
UNION ALL
SELECT n FROM pending_requests WHERE NOT is_given_up
UNION ALL
SELECT p.answer FROM pairs AS p SEMI JOIN continuing_connections USING (c)
JOIN numbered_frames AS r ON r.c = p.c AND r.n = p.answer
WHERE p.ask IS NULL
  AND r.last_ts_ns + 200000000 >= (SELECT max(last_ts_ns) FROM numbered_frames);

-- carried_ack_frames: acks of open deliveries. needed_frames: all frames that the next increment needs.
CREATE TEMP TABLE carried_ack_frames AS
SELECT a.c, a.n FROM all_ack_ids AS a JOIN received AS d ON d.g = a.g AND d.ledger = a.ledger
  AND d.entry = a.entry SEMI JOIN open_deliveries AS o ON o.c = d.c AND o.n = d.n
WHERE a.n > d.n
UNION
SELECT end_c, end_n FROM acked_ends SEMI JOIN open_deliveries USING (c, n)
UNION
SELECT said_c, said_n FROM claims SEMI JOIN open_deliveries USING (c, n)
UNION
-- If the broker refuses the first one, the next one counts.
SELECT a.c, a.n FROM cumulative_ids AS a JOIN pending_acks AS p ON p.c = a.c AND p.n = a.n
SEMI JOIN (FROM received SEMI JOIN open_deliveries USING (c, n)) AS d
  ON d.c = a.c AND d.consumer_id = a.consumer_id AND d.x = a.x AND d.n < a.n
UNION
SELECT f.c, f.said_n FROM first_reaches AS f SEMI JOIN open_deliveries AS d ON d.c = f.c AND d.n = f.n;

CREATE TEMP TABLE needed_frames AS
WITH needed_requests AS (
  SELECT n FROM carried_ack_frames
  UNION
  SELECT q.n FROM numbered_frames AS q SEMI JOIN (
    SELECT a.txn_most_bits, a.txn_least_bits FROM all_ack_ids AS a SEMI JOIN carried_ack_frames USING (c, n)
    UNION SELECT f.txn_most_bits, f.txn_least_bits FROM numbered_frames AS f
      SEMI JOIN carried_ack_frames USING (c, n)
  ) AS x ON x.txn_most_bits = q.txn_most_bits AND x.txn_least_bits = q.txn_least_bits
  WHERE q.command IN ('END_TXN', 'END_TXN_ON_SUBSCRIPTION')
  UNION
  SELECT n FROM numbered_frames WHERE command = 'SEEK'
)
SELECT n FROM open_rows
UNION SELECT n FROM needed_requests
UNION SELECT p.answer FROM pairs AS p SEMI JOIN needed_requests AS q ON q.n = p.ask
  WHERE p.answer IS NOT NULL
UNION SELECT n FROM switches
UNION SELECT sweep_n FROM swept_deliveries SEMI JOIN open_deliveries USING (c, n)
UNION SELECT max(n) FROM sweeps SEMI JOIN continuing_connections USING (c) GROUP BY c, consumer_id, x;

CREATE TEMP VIEW next_before_end AS
SELECT max(b.increments) + 1 AS increments, greatest(max(b.n), (SELECT max(n) FROM orders)) AS n
FROM before_end AS b;

CREATE TEMP VIEW next_before_frames AS
SELECT k.n, o.n IS NOT NULL AS is_open, e.attempt, e.outstanding_before AS outstanding,
  d.redelivery_cause, d.previous_frame_no AS previous_n, d.previous_connection_id AS previous_chain,
  r.next_n, r.is_replaced
FROM needed_frames AS k LEFT JOIN open_rows AS o USING (n)
LEFT JOIN new_exchanges AS e ON e.request_frame_no = k.n
LEFT JOIN new_deliveries AS d ON d.frame_no = k.n LEFT JOIN received AS r ON r.n = k.n;

CREATE TEMP VIEW next_before_consumers AS
SELECT k.connection_id AS chain, s.consumer_id, s.x, s.closed_n, b.available, b.unacked,
  b.open_unread, b.was_unread, m.c IS NOT NULL OR coalesce(e.has_message, false) AS has_message
FROM numbered_consumers AS s JOIN numbered_connections AS k USING (c)
LEFT JOIN (
  SELECT c, consumer_id, x, sum(delta) AS available, sum(held) AS unacked,
    sum(unread) AS open_unread, bool_or(is_unknown) AS was_unread
  FROM balance_changes GROUP BY c, consumer_id, x
) AS b USING (c, consumer_id, x)
LEFT JOIN (SELECT DISTINCT c, consumer_id, x FROM received) AS m USING (c, consumer_id, x)
LEFT JOIN before_consumers AS e ON e.chain = k.connection_id AND e.consumer_id = s.consumer_id
  AND e.x = s.x;

CREATE TEMP VIEW next_before_producers AS
SELECT chain, producer_id, x, max(known_n) AS known_n, arg_max(is_oldest, known_n) AS is_oldest FROM (
  SELECT k.connection_id AS chain, f.producer_id, f.incarnation AS x, NULL AS known_n, NULL AS is_oldest
  FROM numbered_frames AS f JOIN numbered_connections AS k USING (c) WHERE f.command = 'SEND'
  UNION ALL SELECT k.connection_id, e.a, e.x, e.n, e.is_oldest FROM send_events AS e
    JOIN numbered_connections AS k USING (c) WHERE (e.is_oldest OR e.is_newest) AND e.step <> 0
  UNION ALL FROM before_producers
) GROUP BY ALL;

CREATE TEMP VIEW next_before_spots AS
WITH needed_spots AS (
  SELECT 'acks' AS hides, c, max(spot) AS spot FROM hidden_acks GROUP BY c
  UNION SELECT 'acks', c, unnest([max(spot), min(spot)]) FROM hidden_acks
    WHERE direction <> 'to_broker' GROUP BY c
  UNION SELECT 'acks', c, broker_spot FROM next_hidden_acks SEMI JOIN open_rows USING (n)
  UNION SELECT 'answers', c, max(spot) FROM hidden_answers GROUP BY c
  UNION SELECT 'answers', c, unnest([any_spot, client_spot, broker_spot]) FROM next_hidden_answers
    SEMI JOIN open_rows USING (n)
)
SELECT DISTINCT h.hides, k.connection_id AS chain, h.direction, h.spot
FROM hidden AS h SEMI JOIN needed_spots USING (hides, c, spot) JOIN numbered_connections AS k USING (c);

CREATE TEMP VIEW next_before_published AS
SELECT t.topic, k.connection_id AS chain, p.ledger, p.entry, p.sent_ns, p.n
FROM published AS p JOIN received AS d ON d.ledger = p.ledger AND d.entry = p.entry
  AND CASE WHEN p.t IS NULL THEN p.no_topic_c = d.c ELSE p.t = d.t END
SEMI JOIN open_deliveries AS o ON o.c = d.c AND o.n = d.n
JOIN numbered_connections AS k ON k.c = d.c LEFT JOIN topics AS t ON t.t = p.t;

CREATE TEMP VIEW next_before_ranges AS
SELECT (SELECT max(increments) FROM before_end) AS increment, * EXCLUDE is_new
FROM ranges
UNION ALL FROM before_ranges;

CREATE TEMP VIEW next_before_attempts AS
SELECT k.connection_id AS chain, f.topic, f.producer_name, f.sequence_id, f.chunk_id,
  f.crc32c_stored, e.attempt AS attempts
FROM new_exchanges AS e SEMI JOIN open_rows AS o ON o.n = e.request_frame_no
JOIN numbered_frames AS f ON f.n = e.request_frame_no JOIN numbered_connections AS k ON k.c = f.c
WHERE e.attempt IS NOT NULL;

CREATE TEMP VIEW next_carried_frames AS
FROM frames SEMI JOIN needed_frames AS k ON k.n = frames.frame_no;

CREATE TEMP VIEW next_carried_acks AS
FROM acks SEMI JOIN carried_ack_frames AS k ON k.n = acks.frame_no;

CREATE TEMP VIEW next_carried_handles AS
SELECT h.* EXCLUDE (begins, incarnation, topic_before, name_before, subscription_before)
  REPLACE (coalesce(h.first_flow_permits, m.first_flow_permits) AS first_flow_permits)
FROM handles AS h JOIN merged_handles AS m USING (kind, chain, id, incarnation);

CREATE TEMP VIEW next_carried_places AS
SELECT DISTINCT rank, chain, frame_no, n FROM orders SEMI JOIN (
  SELECT n FROM needed_frames UNION ALL SELECT previous_n FROM next_before_frames
  UNION ALL SELECT unnest([opened_frame_no, ready_frame_no, closed_frame_no, answer_n])
    FROM handles
) USING (n);

CREATE TEMP VIEW next_carried_connections AS FROM connections;
