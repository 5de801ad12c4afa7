-- The exchanges, consumers and producers of Cursus of several captures. An answer has no id: it is
-- that of the oldest request. Pairs stay as their capture has them, but for those behind a border at
-- which something waited: where one waits, all that follow shift.
-- Inputs: placed, merged, handovers, gaps; connections, frames and exchanges of the group.

CREATE TABLE parts AS SELECT * FROM placed WHERE read_by = 'cursus';

CREATE TABLE turns AS
SELECT p.rank, p.chain, p.floor_ns, f.frame_no, f.last_ts_ns, coalesce(max(f.last_packet) OVER (
    PARTITION BY p.rank, p.chain ORDER BY f.frame_no
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), 0) AS turn
FROM frames AS f JOIN parts AS p USING (capture, connection_id) WHERE f.protocol = 'cursus';

CREATE TABLE orders AS
SELECT rank, chain, frame_no, turn, row_number() OVER (ORDER BY {time}rank, turn, frame_no) AS n
FROM (SELECT *, greatest(floor_ns, max(last_ts_ns) OVER (PARTITION BY rank ORDER BY turn, frame_no
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) AS time FROM turns);

-- said: frames. is_passed_on: by a broker; such a command counts where its client sent it.
CREATE TABLE said AS
SELECT o.n, p.chain, p.rank, f.frame_no, f.command, f.direction, f.status, f.ts,
  f.first_ts_ns, f.last_ts_ns, f.retransmitted, f.topic, f.subscription, f.producer_name,
  f.consumer_name, f.partition, f.producer_epoch, f.sequence_id, f.highest_sequence_id, f.entry_id,
  f.error_code, f.error_text, f.detail,
  coalesce(f.direction = 'to_broker' AND f.detail LIKE '%"internal_token":%', false) AS is_passed_on
FROM frames AS f JOIN parts AS p USING (capture, connection_id)
JOIN orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.frame_no
WHERE f.protocol = 'cursus';

-- told: exchanges as their captures have them, by the numbers of both frames.
CREATE TABLE told AS
SELECT e.* EXCLUDE (capture, connection_id, origin_capture), p.chain, p.rank,
  q.n AS ask, r.n AS answer
FROM exchanges AS e JOIN parts AS p USING (capture, connection_id)
LEFT JOIN orders AS q ON q.rank = p.rank AND q.chain = p.chain AND q.frame_no = e.request_frame_no
LEFT JOIN orders AS r ON r.rank = p.rank AND r.chain = p.chain AND r.frame_no = e.response_frame_no;

-- lives: connections; over_n: behind which frame it ended.
CREATE TABLE lives AS
WITH packets AS (
  SELECT p.chain, p.rank,
    coalesce(c.ended_packet, greatest(c.fin_packet_to_broker, c.fin_packet_to_client)) AS packet
  FROM parts AS p JOIN connections AS c USING (capture, connection_id)
),
passed AS (
  SELECT rank, turn, max(max(n)) OVER (PARTITION BY rank ORDER BY turn) AS n
  FROM orders GROUP BY rank, turn
),
starts AS (SELECT rank, min(n) AS n FROM orders GROUP BY rank),
ends AS (
  SELECT e.chain, min(coalesce(f.n + 0.5, s.n - 0.5)) AS n
  FROM packets AS e ASOF LEFT JOIN passed AS f ON f.rank = e.rank AND f.turn <= e.packet
  LEFT JOIN starts AS s ON s.rank = e.rank WHERE e.packet IS NOT NULL GROUP BY e.chain
)
SELECT p.chain, m.ended <> 'capture_end' AS is_over, e.n AS over_n,
  m.frames_to_client > 0 OR m.stream_bytes_to_client > 0 OR m.fin_packet_to_client IS NOT NULL
    AS sees_client
FROM merged AS m JOIN parts AS p ON p.capture = m.capture AND p.connection_id = m.connection_id
LEFT JOIN ends AS e ON e.chain = p.chain;

-- hidden: where an answer may be hidden, between two numbers. Requests that cannot be read at the
-- beginning of a capture hide none.
CREATE TABLE hidden AS
WITH inside AS (
  SELECT g.chain, g.rank, g.direction, max(o.n) AS n
  FROM gaps AS g LEFT JOIN orders AS o ON o.rank = g.rank AND o.chain = g.chain
    AND CASE WHEN g.turn IS NULL THEN o.frame_no <= g.frame_no
      ELSE o.turn < g.turn OR (o.turn = g.turn AND o.frame_no <= g.frame_no) END
  WHERE g.read_by = 'cursus' AND g.frames_missing <> 0
    AND NOT (g.direction = 'to_broker' AND g.turn IS NULL AND g.frame_no = 0)
  GROUP BY g.chain, g.rank, g.direction, g.turn, g.frame_no, g.stream_offset
),
firsts AS (SELECT rank, chain, min(n) AS n FROM orders GROUP BY rank, chain)
SELECT i.chain, i.direction, coalesce(i.n, f.n - 1, 0) + 0.5 AS spot
FROM inside AS i LEFT JOIN firsts AS f ON f.rank = i.rank AND f.chain = i.chain
UNION ALL
SELECT p.chain, s.direction, coalesce(f.n, (SELECT max(n) + 1 FROM orders)) - 0.5
FROM handovers AS s
JOIN parts AS p ON p.capture = s.after_capture AND p.connection_id = s.after_connection_id
LEFT JOIN firsts AS f ON f.rank = p.rank AND f.chain = p.chain
WHERE s.missing > 0;

-- again: frames that are paired again: what waits when the first capture of a connection ends that
-- leaves something open, and all behind it. Streams go on, too, and so does what begins in the middle.
-- A batch that no answer passed over yet waits if others do.
CREATE TABLE again AS
WITH sides AS (
  SELECT chain, rank, min(CASE WHEN direction = 'to_broker' THEN n END) AS first_ask,
    max(CASE WHEN direction = 'to_broker' THEN n END) AS last_ask,
    max(CASE WHEN direction = 'to_client' AND command IS DISTINCT FROM 'KEEPALIVE' THEN n END)
      AS last_answer,
    min(CASE WHEN direction = 'to_client' AND command IN ('BATCH', 'STREAM_CONTROL', 'KEEPALIVE')
      THEN n END) AS first_push
  FROM said GROUP BY chain, rank
),
borders AS (
  SELECT *, lead(rank) OVER so_far AS next_rank, lag(rank) OVER so_far IS NULL AS is_first,
    coalesce(first_push < coalesce(first_ask, 1::BIGINT << 62), false) AS is_push
  FROM sides WINDOW so_far AS (PARTITION BY chain ORDER BY rank)
),
answered AS (
  SELECT chain, rank, max(ask) FILTER (answer IS NOT NULL) AS ask,
    bool_or(outcome = 'unanswered_at_end') AS others_wait FROM told GROUP BY chain, rank
),
waiting AS (
  SELECT t.chain, t.rank, t.ask, b.next_rank FROM told AS t
  JOIN borders AS b ON b.chain = t.chain AND b.rank = t.rank AND b.next_rank IS NOT NULL
  LEFT JOIN answered AS a ON a.chain = t.chain AND a.rank = t.rank
  WHERE t.answer IS NULL AND CASE t.outcome
    WHEN 'unanswered_at_end' THEN true WHEN 'other_side_not_captured' THEN true
    WHEN 'not_awaited' THEN t.ask > coalesce(CASE WHEN a.others_wait THEN a.ask ELSE b.last_answer END, 0)
    WHEN 'lost_in_gap' THEN t.ask > coalesce(b.last_answer, 0) AND t.ask = b.last_ask END
),
starts AS (
  SELECT chain, min(rank) AS rank FROM (
    SELECT chain, next_rank AS rank FROM waiting
    UNION ALL SELECT chain, CASE WHEN is_first THEN next_rank ELSE rank END FROM borders
      WHERE is_push
    UNION ALL SELECT t.chain, b.next_rank FROM told AS t JOIN borders AS b
      ON b.chain = t.chain AND b.rank = t.rank
    WHERE t.request_command = 'STREAM' AND t.outcome IN ('ok', 'conn_closed', 'response_cut')
  ) WHERE rank IS NOT NULL GROUP BY chain
)
SELECT f.n, false AS is_before
FROM said AS f JOIN starts AS s ON s.chain = f.chain AND f.rank >= s.rank
UNION ALL
SELECT w.ask, true FROM waiting AS w JOIN starts AS s ON s.chain = w.chain AND w.rank < s.rank;

-- marks: what asks, and what may answer. A sign of life answers nothing, the first of the two
-- frames that answer a READ_STREAM not yet (is_half).
CREATE TABLE marks AS
WITH firsts AS (
  SELECT chain, min(n) FILTER (direction = 'to_broker') AS ask,
    bool_or(command = 'READ_STREAM') AS reads_streams
  FROM said GROUP BY chain
),
unasked AS (
  SELECT s.chain, min(s.n) AS n FROM said AS s SEMI JOIN again USING (n)
  JOIN firsts AS f ON f.chain = s.chain AND s.n < coalesce(f.ask, 1::BIGINT << 62)
  WHERE s.command IN ('BATCH', 'STREAM_CONTROL', 'KEEPALIVE') GROUP BY s.chain
)
SELECT s.n, s.chain, s.command, s.direction = 'to_broker' AS asks, s.topic, s.entry_id,
  s.sequence_id, u.n IS NOT NULL AS is_unasked_push,
  coalesce(s.direction = 'to_client' AND f.reads_streams AND s.command = 'RESPONSE_JSON'
    AND s.error_code IS NULL AND s.error_text IS NULL AND (s.status <> 'complete'
      OR s.detail LIKE '%"count":%' OR s.detail LIKE '%"key":%'), false) AS is_half
FROM said AS s SEMI JOIN again USING (n) JOIN firsts AS f ON f.chain = s.chain
LEFT JOIN unasked AS u ON u.chain = s.chain AND s.n >= u.n
WHERE s.direction = 'to_broker' OR u.n = s.n OR s.command IS DISTINCT FROM 'KEEPALIVE';

-- lanes: marks between two holes of the answering direction (segment), and which of them wait
-- together: what holes took shifts no pair behind them. Where several requests wait at once before a
-- hole, batches and their answers are known by their first sequence number (lane).
CREATE TABLE lanes AS
WITH segments AS (
  SELECT m.*, coalesce(h.segment, 0) AS segment FROM marks AS m ASOF LEFT JOIN (
    SELECT chain, spot, row_number() OVER (PARTITION BY chain ORDER BY spot) AS segment
    FROM hidden WHERE direction = 'to_client'
  ) AS h ON h.chain = m.chain AND h.spot < m.n
  WHERE NOT m.is_unasked_push AND NOT m.is_half
),
balances AS (
  SELECT *, sum(CASE WHEN asks THEN 1 ELSE -1 END) OVER (
    PARTITION BY chain, segment ORDER BY n) AS waits FROM segments
),
lowest AS (
  SELECT *, greatest(0, -min(waits) OVER (PARTITION BY chain, segment ORDER BY n)) AS orphans
  FROM balances
)
SELECT chain, n, asks, max(waits + orphans) OVER of_chain > 1 AS is_pipelined,
  CASE WHEN max(segment) OVER of_chain = 0 THEN ''
    WHEN sequence_id IS NOT NULL AND CASE WHEN asks THEN command = 'BATCH'
      ELSE command = 'RESPONSE_JSON' AND entry_id IS NOT NULL END THEN concat('batch ', sequence_id)
    ELSE concat('segment ', segment) END AS lane
FROM lowest WINDOW of_chain AS (PARTITION BY chain);

-- places: first in, first out. An answer when nothing waits is an orphan: the lowest that the
-- balance ever was counts these. place: which request it is, or answers; null for an orphan. Of a
-- client that asks one thing at a time an answer is that of the request right before it, even if an
-- earlier one was lost.
CREATE TABLE places AS
WITH balances AS (
  SELECT *, sum(CASE WHEN asks THEN 1 ELSE -1 END) OVER so_far AS waits,
    count(*) FILTER (asks) OVER so_far AS asked, count(*) FILTER (NOT asks) OVER so_far AS answers,
    lead(n) OVER (PARTITION BY chain ORDER BY n) AS after_n
  FROM lanes WINDOW so_far AS (PARTITION BY chain, lane ORDER BY n)
),
lowest AS (
  SELECT *, greatest(0, -min(waits) OVER so_far) AS orphans
  FROM balances WINDOW so_far AS (PARTITION BY chain, lane ORDER BY n)
)
SELECT chain, n, asks, is_pipelined, CASE WHEN is_pipelined THEN lane ELSE '' END AS lane,
  CASE WHEN NOT is_pipelined THEN CASE WHEN asks THEN after_n ELSE n END
    WHEN asks THEN asked
    WHEN orphans = coalesce(lag(orphans) OVER (PARTITION BY chain, lane ORDER BY n), 0)
      THEN answers - orphans END AS place
FROM lowest;

-- pairs: each request with the answer that has its place.
CREATE TABLE pairs AS
SELECT q.chain, q.n AS ask, q.is_pipelined,
  lead(q.n) OVER (PARTITION BY q.chain ORDER BY q.n) AS next_ask, r.n AS answer
FROM (FROM places WHERE asks) AS q
LEFT JOIN (FROM places WHERE NOT asks) AS r
  ON r.chain = q.chain AND r.lane = q.lane AND r.place = q.place;

-- pushes: from which frame on a connection is one, and of which request, null if that was not seen.
CREATE TABLE pushes AS
SELECT chain, min(n) AS n, arg_min(ask, n) AS ask FROM (
  SELECT p.chain, p.answer AS n, p.ask FROM pairs AS p
  JOIN said AS q ON q.n = p.ask AND q.command = 'STREAM'
  JOIN said AS r ON r.n = p.answer
    AND (r.command IN ('BATCH', 'STREAM_CONTROL') OR r.command IS NULL)
  UNION ALL SELECT chain, n, NULL FROM marks WHERE is_unasked_push
  UNION ALL
  SELECT t.chain, coalesce(t.answer, c.n), t.ask FROM told AS t LEFT JOIN (
    SELECT chain, min(n) AS n FROM said WHERE command = 'STREAM_CONTROL' GROUP BY chain
  ) AS c ON c.chain = t.chain AND c.n > t.ask
  ANTI JOIN again AS g ON g.n = t.ask WHERE t.request_command = 'STREAM' AND (t.response_command = 'BATCH'
    OR (t.outcome = 'conn_closed' AND c.n IS NOT NULL))
) GROUP BY chain;

-- found: what is left of the pairs: behind a push nothing is answered, and behind a hole only what
-- can be. any_spot, lost_spot: the next place behind a request where anything may be hidden, or its
-- answer. is_ended: the broker ended a stream with its first frame.
CREATE TABLE found AS
WITH near AS (
  SELECT p.*, h.spot AS any_spot, a.spot AS lost_spot
  FROM pairs AS p ASOF LEFT JOIN hidden AS h ON h.chain = p.chain AND h.spot > p.ask
  ASOF LEFT JOIN (SELECT * FROM hidden WHERE direction = 'to_client') AS a
    ON a.chain = p.chain AND a.spot > p.ask
)
SELECT p.chain, p.ask, p.is_pipelined, p.next_ask, p.any_spot, p.lost_spot, u.n AS push_n,
  coalesce(q.command = 'STREAM' AND r.command = 'STREAM_CONTROL', false) AS is_ended,
  CASE WHEN p.answer <= coalesce(u.n, p.answer)
    AND NOT coalesce(q.command = 'STREAM' AND r.command = 'STREAM_CONTROL', false)
    AND (NOT coalesce(p.lost_spot < p.answer, false) OR CASE
      WHEN r.command = 'BATCH' THEN q.command IN ('CONSUME', 'STREAM', 'READ_STREAM')
        AND (q.topic IS NULL OR q.topic = r.topic)
      WHEN r.command = 'RESPONSE_JSON' AND r.entry_id IS NOT NULL
        THEN CASE WHEN q.command IN ('BATCH', 'INTERNAL_BATCH')
          THEN q.sequence_id IS NULL OR q.sequence_id = r.sequence_id
          ELSE q.command IN ('PUBLISH', 'TXN_PUBLISH', 'APPEND_STREAM') END
      WHEN r.command = 'RESPONSE_JSON' THEN q.command NOT IN ('BATCH', 'PUBLISH', 'TXN_PUBLISH',
        'APPEND_STREAM', 'COMMIT_OFFSET', 'BATCH_COMMIT', 'HEARTBEAT')
      WHEN r.command = 'RESPONSE_OK'
        THEN q.command NOT IN ('BATCH', 'CONSUME', 'STREAM', 'READ_STREAM')
      ELSE true END) THEN p.answer END AS answer
FROM near AS p JOIN said AS q ON q.n = p.ask LEFT JOIN said AS r ON r.n = p.answer
LEFT JOIN pushes AS u ON u.chain = p.chain;

-- settled: exchanges with their outcome, but for what several connections tell together.
CREATE TABLE settled AS
WITH joined AS (
  SELECT t.* EXCLUDE (rank, answer), t.rank AS request_rank, d.answer, d.any_spot, d.lost_spot,
    CASE
      WHEN r.n IS NOT NULL THEN CASE WHEN r.error_code IS NOT NULL OR r.error_text IS NOT NULL
          OR r.command = 'RESPONSE_ERROR' THEN 'error'
        WHEN r.status = 'cut_by_end' AND e.may_be_silent THEN 'not_awaited'
        WHEN r.status <> 'complete' THEN 'response_cut'
        WHEN t.outcome = 'dup_or_dropped' THEN 'dup_or_dropped' ELSE 'ok' END
      WHEN d.is_ended THEN 'conn_closed'
      WHEN e.is_never_awaited AND d.lost_spot IS NULL THEN 'not_awaited'
      WHEN NOT k.sees_client THEN 'other_side_not_captured'
      WHEN d.lost_spot IS NOT NULL THEN 'lost_in_gap'
      WHEN d.push_n IS NOT NULL OR e.may_be_silent THEN 'not_awaited'
      WHEN k.is_over THEN 'conn_closed' ELSE 'unanswered_at_end' END AS found_outcome,
    coalesce(t.ask > d.push_n, false) AS is_behind_push,
    q.retransmitted OR q.status <> 'complete' AS is_request_torn,
    d.is_pipelined, d.next_ask,
    CASE WHEN d.answer IS NULL THEN CASE WHEN d.is_pipelined THEN ceil(d.lost_spot)::BIGINT
      WHEN d.lost_spot IS NOT NULL THEN d.next_ask END END AS lost_n
  FROM told AS t JOIN found AS d ON d.ask = t.ask JOIN said AS q ON q.n = t.ask
  JOIN lives AS k ON k.chain = t.chain LEFT JOIN said AS r ON r.n = d.answer
  CROSS JOIN LATERAL (SELECT t.request_command IN ('LEAVE_GROUP', 'HEARTBEAT_CLUSTER')
    AS is_never_awaited, t.request_command IN ('LEAVE_GROUP', 'HEARTBEAT_CLUSTER')
    OR (t.kind = 'publish' AND t.outcome = 'not_awaited') AS may_be_silent) AS e
),
answered AS (
  SELECT j.* REPLACE (found_outcome AS outcome, r.command AS response_command,
      r.frame_no AS response_frame_no, r.first_ts_ns AS response_first_ns,
      r.last_ts_ns AS response_last_ns, r.error_code AS error_code, r.error_text AS error_text,
      CASE WHEN r.command LIKE 'RESPONSE%' THEN r.entry_id END AS entry_id,
      CASE WHEN r.status IN ('complete', 'cut_by_snaplen') AND r.last_ts_ns >= j.request_last_ns
        THEN r.last_ts_ns - j.request_last_ns END AS latency_ns,
      is_request_torn OR coalesce(r.retransmitted OR r.status <> 'complete', false)
        OR coalesce(any_spot < coalesce(j.answer, CASE WHEN NOT is_pipelined
          AND lost_spot IS NOT NULL THEN next_ask END, 2e18), false) AS tainted),
    r.rank AS response_rank
  FROM joined AS j LEFT JOIN said AS r
    ON r.n = j.answer AND j.found_outcome <> 'not_awaited'
)
SELECT true AS is_again, * EXCLUDE (found_outcome, any_spot, lost_spot, is_request_torn, is_pipelined, next_ask)
  REPLACE (CASE WHEN latency_ns < 64 THEN latency_ns
    ELSE ((floor(log2(latency_ns))::BIGINT - 5) << 5)
      + (latency_ns >> (floor(log2(latency_ns))::BIGINT - 5)) END AS latency_bucket)
FROM answered
UNION ALL BY NAME
SELECT r.chain, true AS is_again, r.n AS answer, r.rank AS response_rank,
  CASE WHEN r.command = 'BATCH' THEN 'consume' WHEN r.command = 'RESPONSE_JSON'
    AND r.entry_id IS NOT NULL THEN 'publish' ELSE 'request' END AS kind,
  r.command AS response_command, r.frame_no AS response_frame_no,
  r.first_ts_ns AS response_first_ns, r.last_ts_ns AS response_last_ns,
  'orphan_response' AS outcome, r.error_code, r.error_text, r.topic, r.subscription,
  r.producer_name, r.sequence_id, nullif(greatest(r.highest_sequence_id, 0), 0)
    AS highest_sequence_id, CASE WHEN r.command LIKE 'RESPONSE%' THEN r.entry_id END AS entry_id,
  r.ts, r.retransmitted OR r.status <> 'complete' OR h.spot IS NOT NULL AS tainted
FROM marks AS m ANTI JOIN found AS d ON d.answer = m.n JOIN said AS r ON r.n = m.n
LEFT JOIN pushes AS u ON u.chain = m.chain
ASOF LEFT JOIN hidden AS h ON h.chain = m.chain AND h.spot < m.n
WHERE NOT m.asks AND NOT m.is_half AND (u.n IS NULL OR m.n < u.n)
UNION ALL BY NAME
-- What a capture that begins or ends amid a connection could not know alone: that the rest of a
-- frame is no hole, that the broker was heard, that the connection ended.
SELECT t.* EXCLUDE (rank) REPLACE (
    t.tainted AND coalesce(NOT p.comes_from_to_broker AND NOT p.comes_from_to_client
      OR q.retransmitted OR q.status <> 'complete' OR r.retransmitted OR r.status <> 'complete'
      OR h.spot < coalesce(t.answer, 1::BIGINT << 62), false) AS tainted,
    CASE WHEN t.outcome = 'unanswered_at_end'
      OR (t.outcome = 'other_side_not_captured' AND k.sees_client)
      THEN CASE WHEN k.is_over THEN 'conn_closed' ELSE 'unanswered_at_end' END
      ELSE t.outcome END AS outcome),
  CASE WHEN t.ask IS NOT NULL THEN t.rank END AS request_rank,
  CASE WHEN t.answer IS NOT NULL THEN t.rank END AS response_rank, false AS is_behind_push,
  false AS is_again
FROM told AS t ANTI JOIN again AS g ON g.n = coalesce(t.ask, t.answer)
JOIN lives AS k ON k.chain = t.chain JOIN parts AS p ON p.chain = t.chain AND p.rank = t.rank
LEFT JOIN said AS q ON t.tainted AND q.n = t.ask
LEFT JOIN said AS r ON t.tainted AND r.n = t.answer
ASOF LEFT JOIN hidden AS h ON h.chain = t.chain AND h.spot > coalesce(t.ask, 0);

-- sent: batches that say which they are; attempt: of the same batch.
CREATE TABLE sent AS
SELECT e.ask, e.answer, e.outcome, f.topic, f.partition, f.producer_name, f.producer_epoch,
  f.sequence_id, f.highest_sequence_id, f.last_ts_ns, row_number() OVER same AS attempt,
  min(CASE WHEN e.outcome IN ('ok', 'dup_or_dropped') THEN e.answer END) OVER (same
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS stored_n
FROM settled AS e JOIN said AS f ON f.n = e.ask
WHERE e.kind = 'publish' AND f.topic IS NOT NULL AND f.producer_name IS NOT NULL
  AND f.sequence_id IS NOT NULL
WINDOW same AS (PARTITION BY f.topic, f.partition, f.producer_name, f.producer_epoch,
  f.sequence_id, f.highest_sequence_id ORDER BY e.ask);

-- waiting: how many publishes of a connection wait at each of them.
CREATE TABLE waiting AS
SELECT ask, outstanding FROM (
  SELECT ask, step, coalesce(sum(step) OVER (PARTITION BY chain ORDER BY n, step
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS outstanding
  FROM (
    SELECT chain, ask, ask AS n, 1 AS step FROM settled
    WHERE is_again AND kind = 'publish' AND ask IS NOT NULL AND NOT is_behind_push
    UNION ALL SELECT chain, ask, coalesce(answer, lost_n), -1 FROM settled
    WHERE is_again AND kind = 'publish' AND ask IS NOT NULL
      AND coalesce(answer, lost_n) IS NOT NULL
  )
) WHERE step = 1;

CREATE TABLE new_exchanges AS
WITH stored_once AS (
  SELECT e.topic, min(e.answer) AS n FROM settled AS e JOIN said AS f ON f.n = e.ask
  WHERE e.request_command = 'CREATE' AND e.outcome = 'ok'
    AND f.detail LIKE '%"idempotent":"true"%' GROUP BY e.topic
)
SELECT e.* REPLACE (
    CASE WHEN e.outcome = 'ok' AND o.n < e.answer AND s.stored_n < e.answer THEN 'dup_or_dropped'
      ELSE e.outcome END AS outcome,
    coalesce(s.attempt, e.attempt) AS attempt,
    CASE WHEN e.is_again AND NOT coalesce(x.is_before, false) THEN w.outstanding ELSE e.outstanding_before END AS outstanding_before)
FROM settled AS e LEFT JOIN sent AS s ON s.ask = e.ask
LEFT JOIN stored_once AS o ON o.topic = e.topic LEFT JOIN waiting AS w ON w.ask = e.ask
LEFT JOIN again AS x ON x.n = e.ask;

-- done: what brokers answered to members of groups and to transactions.
CREATE TABLE done AS
SELECT e.chain, e.request_command AS command, e.ask, e.answer, q.topic, q.subscription,
  q.consumer_name, q.detail AS asked, r.consumer_name AS given_name, r.detail AS replied,
  e.error_code, e.outcome IN ('ok', 'dup_or_dropped') AS is_good, e.outcome = 'error' AS is_refused,
  e.request_last_ns AS ns
FROM new_exchanges AS e JOIN said AS q ON q.n = e.ask JOIN said AS r ON r.n = e.answer
WHERE NOT q.is_passed_on;

-- new_consumers: members, from the JOIN_GROUP that admitted them to the next, or to LEAVE_GROUP.
CREATE TABLE new_consumers AS
WITH moves AS (
  SELECT chain, ask, answer, topic, subscription, coalesce(given_name, consumer_name) AS name,
    NULL AS left_n
  FROM done WHERE command = 'JOIN_GROUP' AND is_good AND subscription IS NOT NULL
  UNION ALL
  SELECT chain, NULL, answer, topic, subscription, consumer_name, ask
  FROM done WHERE command = 'LEAVE_GROUP' AND is_good
),
members AS (
  SELECT chain, ask AS opened_frame_no, answer AS ready_frame_no, topic, subscription, name,
    count(ask) OVER same - 1 AS incarnation, lead(left_n) OVER same AS closed_frame_no,
    CASE WHEN lead(answer) OVER same IS NULL THEN 'capture_end' ELSE 'client' END AS closed_by
  FROM moves WINDOW same AS (PARTITION BY subscription, topic, name ORDER BY answer)
),
refused_and_admitted AS (
  FROM members WHERE opened_frame_no IS NOT NULL
  UNION ALL BY NAME
  SELECT chain, ask AS opened_frame_no, topic, subscription, consumer_name AS name,
    0 AS incarnation, error_code AS refused_code
  FROM done WHERE command = 'JOIN_GROUP' AND is_refused AND error_code IS NOT NULL
)
SELECT m.*, 'observed' AS name_source, o.rank, o.frame_no AS order_no
FROM refused_and_admitted AS m LEFT JOIN orders AS o ON o.n = m.closed_frame_no;

CREATE TABLE new_producers AS
SELECT e.chain, f.topic, f.producer_name AS name, arg_max(f.producer_epoch, f.n) AS epoch,
  CASE WHEN bool_or(k.is_over) THEN 'connection' ELSE 'capture_end' END AS closed_by,
  'observed' AS name_source, NULL::BIGINT AS rank, NULL::BIGINT AS order_no
FROM new_exchanges AS e JOIN said AS f ON f.n = e.ask JOIN lives AS k ON k.chain = e.chain
WHERE e.kind = 'publish' AND f.topic IS NOT NULL AND f.producer_name IS NOT NULL
GROUP BY e.chain, f.topic, f.producer_name;
