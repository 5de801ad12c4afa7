-- Exchanges, consumers and producers of Cursus across several captures. An answer has no id: it
-- belongs to the oldest request. Pairs stay as in their capture, unless an earlier capture of the
-- connection ended with an unanswered request: that shifts all later answers.
-- Inputs: placed, merged, handovers, gaps; connections, frames and exchanges of the group.

CREATE TABLE connection_parts AS SELECT * FROM placed WHERE read_by = 'cursus';

CREATE TABLE frame_turns AS
SELECT p.rank, p.chain, p.floor_ns, f.frame_no, f.last_ts_ns, coalesce(max(f.last_packet) OVER (
    PARTITION BY p.rank, p.chain ORDER BY f.frame_no
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), 0) AS turn
FROM frames AS f JOIN connection_parts AS p USING (capture, connection_id) WHERE f.protocol = 'cursus';

CREATE TABLE frame_order AS
SELECT rank, chain, frame_no, turn, row_number() OVER (ORDER BY {time}rank, turn, frame_no) AS n
FROM (SELECT *, greatest(floor_ns, max(last_ts_ns) OVER (PARTITION BY rank ORDER BY turn, frame_no
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) AS time FROM frame_turns);

-- is_passed_on: a broker forwarded the command, which counts where its client sent it.
CREATE TABLE cursus_frames AS
SELECT o.n, p.chain, p.rank, f.frame_no, f.command, f.direction, f.status, f.ts,
  f.first_ts_ns, f.last_ts_ns, f.retransmitted, f.topic, f.subscription, f.producer_name,
  f.consumer_name, f.partition, f.producer_epoch, f.sequence_id, f.highest_sequence_id, f.entry_id,
  f.error_code, f.error_text, f.detail,
  coalesce(f.direction = 'to_broker' AND f.detail LIKE '%"internal_token":%', false) AS is_passed_on
FROM frames AS f JOIN connection_parts AS p USING (capture, connection_id)
JOIN frame_order AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.frame_no
WHERE f.protocol = 'cursus';

-- captured_exchanges: exchanges as in their captures; ask, answer: order numbers of both frames.
CREATE TABLE captured_exchanges AS
SELECT e.* EXCLUDE (capture, connection_id, origin_capture), p.chain, p.rank,
  q.n AS ask, r.n AS answer
FROM exchanges AS e JOIN connection_parts AS p USING (capture, connection_id)
LEFT JOIN frame_order AS q ON q.rank = p.rank AND q.chain = p.chain AND q.frame_no = e.request_frame_no
LEFT JOIN frame_order AS r ON r.rank = p.rank AND r.chain = p.chain AND r.frame_no = e.response_frame_no;

-- connection_ends: one row per connection; over_n: the frame's order number behind which it ended.
-- is_two_way: packets of both directions were captured. Behind a STREAM a client sends no frame.
CREATE TABLE connection_ends AS
WITH packets AS (
  SELECT p.chain, p.rank,
    coalesce(c.ended_packet, greatest(c.fin_packet_to_broker, c.fin_packet_to_client)) AS packet
  FROM connection_parts AS p JOIN connections AS c USING (capture, connection_id)
),
passed AS (
  SELECT rank, turn, max(max(n)) OVER (PARTITION BY rank ORDER BY turn) AS n
  FROM frame_order GROUP BY rank, turn
),
starts AS (SELECT rank, min(n) AS n FROM frame_order GROUP BY rank),
ends AS (
  SELECT e.chain, min(coalesce(f.n + 0.5, s.n - 0.5)) AS n
  FROM packets AS e ASOF LEFT JOIN passed AS f ON f.rank = e.rank AND f.turn <= e.packet
  LEFT JOIN starts AS s ON s.rank = e.rank WHERE e.packet IS NOT NULL GROUP BY e.chain
)
SELECT p.chain, m.ended <> 'capture_end' AS is_over, e.n AS over_n,
  m.packets_to_broker > 0 AND m.packets_to_client > 0 AS is_two_way
FROM merged AS m JOIN connection_parts AS p ON p.capture = m.capture AND p.connection_id = m.connection_id
LEFT JOIN ends AS e ON e.chain = p.chain;

-- hidden_spots: spots, between two order numbers, where a frame may be hidden. Unreadable requests
-- at the beginning of a capture hide none.
CREATE TABLE hidden_spots AS
WITH inside AS (
  SELECT g.chain, g.rank, g.direction, max(o.n) AS n
  FROM gaps AS g LEFT JOIN frame_order AS o ON o.rank = g.rank AND o.chain = g.chain
    AND CASE WHEN g.turn IS NULL THEN o.frame_no <= g.frame_no
      ELSE o.turn < g.turn OR (o.turn = g.turn AND o.frame_no <= g.frame_no) END
  WHERE g.read_by = 'cursus' AND g.frames_missing <> 0
    AND NOT (g.direction = 'to_broker' AND g.turn IS NULL AND g.frame_no = 0)
  GROUP BY g.chain, g.rank, g.direction, g.turn, g.frame_no, g.stream_offset
),
firsts AS (SELECT rank, chain, min(n) AS n FROM frame_order GROUP BY rank, chain)
SELECT i.chain, i.direction, coalesce(i.n, f.n - 1, 0) + 0.5 AS spot
FROM inside AS i LEFT JOIN firsts AS f ON f.rank = i.rank AND f.chain = i.chain
UNION ALL
SELECT p.chain, s.direction, coalesce(f.n, (SELECT max(n) + 1 FROM frame_order)) - 0.5
FROM handovers AS s
JOIN connection_parts AS p ON p.capture = s.after_capture AND p.connection_id = s.after_connection_id
LEFT JOIN firsts AS f ON f.rank = p.rank AND f.chain = p.chain
WHERE s.missing > 0;

-- frames_to_pair: of each connection, the unanswered requests of the first capture with any (is_before)
-- and all later frames; also frames after a capture with a stream, or from one that begins within a
-- stream. A request not_awaited counts as unanswered, too, if no answer passed it.
CREATE TABLE frames_to_pair AS
WITH sides AS (
  SELECT chain, rank, min(CASE WHEN direction = 'to_broker' THEN n END) AS first_ask,
    max(CASE WHEN direction = 'to_broker' THEN n END) AS last_ask,
    max(CASE WHEN direction = 'to_client' AND command IS DISTINCT FROM 'KEEPALIVE' THEN n END)
      AS last_answer,
    min(CASE WHEN direction = 'to_client' AND command IN ('BATCH', 'STREAM_CONTROL', 'KEEPALIVE')
      THEN n END) AS first_push
  FROM cursus_frames GROUP BY chain, rank
),
boundaries AS (
  SELECT *, lead(rank) OVER so_far AS next_rank, lag(rank) OVER so_far IS NULL AS is_first,
    coalesce(first_push < coalesce(first_ask, 1::BIGINT << 62), false) AS begins_with_push
  FROM sides WINDOW so_far AS (PARTITION BY chain ORDER BY rank)
),
last_answered AS (
  SELECT chain, rank, max(ask) FILTER (answer IS NOT NULL) AS ask,
    bool_or(outcome = 'unanswered_at_end') AS others_wait FROM captured_exchanges GROUP BY chain, rank
),
unanswered AS (
  SELECT t.chain, t.rank, t.ask, b.next_rank FROM captured_exchanges AS t
  JOIN boundaries AS b ON b.chain = t.chain AND b.rank = t.rank AND b.next_rank IS NOT NULL
  LEFT JOIN last_answered AS a ON a.chain = t.chain AND a.rank = t.rank
  WHERE t.answer IS NULL AND CASE t.outcome
    WHEN 'unanswered_at_end' THEN true WHEN 'other_side_not_captured' THEN true
    WHEN 'not_awaited' THEN t.ask > coalesce(CASE WHEN a.others_wait THEN a.ask ELSE b.last_answer END, 0)
    WHEN 'lost_in_gap' THEN t.ask > coalesce(b.last_answer, 0) AND t.ask = b.last_ask END
),
starts AS (
  SELECT chain, min(rank) AS rank FROM (
    SELECT chain, next_rank AS rank FROM unanswered
    UNION ALL SELECT chain, CASE WHEN is_first THEN next_rank ELSE rank END FROM boundaries
      WHERE begins_with_push
    UNION ALL SELECT t.chain, b.next_rank FROM captured_exchanges AS t JOIN boundaries AS b
      ON b.chain = t.chain AND b.rank = t.rank
    WHERE t.request_command = 'STREAM' AND t.outcome IN ('ok', 'conn_closed', 'response_cut')
  ) WHERE rank IS NOT NULL GROUP BY chain
)
SELECT f.n, false AS is_before
FROM cursus_frames AS f JOIN starts AS s ON s.chain = f.chain AND f.rank >= s.rank
UNION ALL
SELECT w.ask, true FROM unanswered AS w JOIN starts AS s ON s.chain = w.chain AND w.rank < s.rank;

-- pairing_frames: requests, and frames that may answer one. A keepalive answers nothing, nor does the
-- first of the two frames that answer a READ_STREAM (is_half).
CREATE TABLE pairing_frames AS
WITH firsts AS (
  SELECT chain, min(n) FILTER (direction = 'to_broker') AS ask,
    bool_or(command = 'READ_STREAM') AS reads_streams
  FROM cursus_frames GROUP BY chain
),
unasked AS (
  SELECT s.chain, min(s.n) AS n FROM cursus_frames AS s SEMI JOIN frames_to_pair USING (n)
  JOIN firsts AS f ON f.chain = s.chain AND s.n < coalesce(f.ask, 1::BIGINT << 62)
  WHERE s.command IN ('BATCH', 'STREAM_CONTROL', 'KEEPALIVE') GROUP BY s.chain
)
SELECT s.n, s.chain, s.command, s.direction = 'to_broker' AS asks, s.topic, s.entry_id,
  s.sequence_id, u.n IS NOT NULL AS is_unasked_push,
  coalesce(s.direction = 'to_client' AND f.reads_streams AND s.command = 'RESPONSE_JSON'
    AND s.error_code IS NULL AND s.error_text IS NULL AND (s.status <> 'complete'
      OR s.detail LIKE '%"count":%' OR s.detail LIKE '%"key":%'), false) AS is_half
FROM cursus_frames AS s SEMI JOIN frames_to_pair USING (n) JOIN firsts AS f ON f.chain = s.chain
LEFT JOIN unasked AS u ON u.chain = s.chain AND s.n >= u.n
WHERE s.direction = 'to_broker' OR u.n = s.n OR s.command IS DISTINCT FROM 'KEEPALIVE';

-- lanes: pairing_frames between two gaps of the answering direction (segment), so that answers lost in
-- a gap shift no later pair. If requests are pipelined, batches and their answers are paired by their
-- first sequence number instead (lane).
CREATE TABLE lanes AS
WITH segments AS (
  SELECT m.*, coalesce(h.segment, 0) AS segment FROM pairing_frames AS m ASOF LEFT JOIN (
    SELECT chain, spot, row_number() OVER (PARTITION BY chain ORDER BY spot) AS segment
    FROM hidden_spots WHERE direction = 'to_client'
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

-- queue_positions: first in, first out. An answer without an unanswered request is an orphan: the
-- minimum of the balance so far counts these. queue_position: number of the request, or of the
-- request that is answered; null for an orphan. If a client never pipelines, an answer belongs to the
-- request right before it, even if an earlier answer was lost.
CREATE TABLE queue_positions AS
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
      THEN answers - orphans END AS queue_position
FROM lowest;

-- pairs: each request with the answer of the same queue position.
CREATE TABLE pairs AS
SELECT q.chain, q.n AS ask, q.is_pipelined,
  lead(q.n) OVER (PARTITION BY q.chain ORDER BY q.n) AS next_ask, r.n AS answer
FROM (FROM queue_positions WHERE asks) AS q
LEFT JOIN (FROM queue_positions WHERE NOT asks) AS r
  ON r.chain = q.chain AND r.lane = q.lane AND r.queue_position = q.queue_position;

-- pushes: first frame of each pushed stream, and its request, null if that was not captured.
CREATE TABLE pushes AS
SELECT chain, min(n) AS n, arg_min(ask, n) AS ask FROM (
  SELECT p.chain, p.answer AS n, p.ask FROM pairs AS p
  JOIN cursus_frames AS q ON q.n = p.ask AND q.command = 'STREAM'
  JOIN cursus_frames AS r ON r.n = p.answer
    AND (r.command IN ('BATCH', 'STREAM_CONTROL') OR r.command IS NULL)
  UNION ALL SELECT chain, n, NULL FROM pairing_frames WHERE is_unasked_push
  UNION ALL
  SELECT t.chain, coalesce(t.answer, c.n), t.ask FROM captured_exchanges AS t LEFT JOIN (
    SELECT chain, min(n) AS n FROM cursus_frames WHERE command = 'STREAM_CONTROL' GROUP BY chain
  ) AS c ON c.chain = t.chain AND c.n > t.ask
  ANTI JOIN frames_to_pair AS g ON g.n = t.ask WHERE t.request_command = 'STREAM' AND (t.response_command = 'BATCH'
    OR (t.outcome = 'conn_closed' AND c.n IS NOT NULL))
) GROUP BY chain;

-- valid_pairs: requests with answers that can be theirs: none after a push began, and after a gap only
-- if the commands match. any_spot, lost_spot: the next spot after a request where any frame, or its
-- answer, may be hidden. is_ended: the broker ended a stream with its first frame.
CREATE TABLE valid_pairs AS
WITH pair_gaps AS (
  SELECT p.*, h.spot AS any_spot, a.spot AS lost_spot
  FROM pairs AS p ASOF LEFT JOIN hidden_spots AS h ON h.chain = p.chain AND h.spot > p.ask
  ASOF LEFT JOIN (SELECT * FROM hidden_spots WHERE direction = 'to_client') AS a
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
FROM pair_gaps AS p JOIN cursus_frames AS q ON q.n = p.ask LEFT JOIN cursus_frames AS r ON r.n = p.answer
LEFT JOIN pushes AS u ON u.chain = p.chain;

-- decided_exchanges: exchanges with their outcomes, before comparison across connections.
CREATE TABLE decided_exchanges AS
WITH with_outcome AS (
  SELECT t.* EXCLUDE (rank, answer), t.rank AS request_rank, d.answer, d.any_spot, d.lost_spot,
    CASE
      WHEN r.n IS NOT NULL THEN CASE WHEN r.error_code IS NOT NULL OR r.error_text IS NOT NULL
          OR r.command = 'RESPONSE_ERROR' THEN 'error'
        WHEN r.status = 'cut_by_end' AND e.may_be_silent THEN 'not_awaited'
        WHEN r.status <> 'complete' THEN 'response_cut'
        WHEN t.outcome = 'dup_or_dropped' THEN 'dup_or_dropped' ELSE 'ok' END
      WHEN d.is_ended THEN 'conn_closed'
      WHEN e.is_never_awaited AND d.lost_spot IS NULL THEN 'not_awaited'
      WHEN NOT k.is_two_way THEN 'other_side_not_captured'
      WHEN d.lost_spot IS NOT NULL THEN 'lost_in_gap'
      WHEN d.push_n IS NOT NULL OR e.may_be_silent THEN 'not_awaited'
      WHEN k.is_over THEN 'conn_closed' ELSE 'unanswered_at_end' END AS new_outcome,
    coalesce(t.ask > d.push_n, false) AS is_behind_push,
    q.retransmitted OR q.status <> 'complete' AS is_request_torn,
    d.is_pipelined, d.next_ask,
    CASE WHEN d.answer IS NULL THEN CASE WHEN d.is_pipelined THEN ceil(d.lost_spot)::BIGINT
      WHEN d.lost_spot IS NOT NULL THEN d.next_ask END END AS lost_n
  FROM captured_exchanges AS t JOIN valid_pairs AS d ON d.ask = t.ask JOIN cursus_frames AS q ON q.n = t.ask
  JOIN connection_ends AS k ON k.chain = t.chain LEFT JOIN cursus_frames AS r ON r.n = d.answer
  CROSS JOIN LATERAL (SELECT t.request_command IN ('LEAVE_GROUP', 'HEARTBEAT_CLUSTER')
    AS is_never_awaited, t.request_command IN ('LEAVE_GROUP', 'HEARTBEAT_CLUSTER')
    OR (t.kind = 'publish' AND t.outcome = 'not_awaited') AS may_be_silent) AS e
),
with_answer AS (
  SELECT j.* REPLACE (new_outcome AS outcome, r.command AS response_command,
      r.frame_no AS response_frame_no, r.first_ts_ns AS response_first_ns,
      r.last_ts_ns AS response_last_ns, r.error_code AS error_code, r.error_text AS error_text,
      CASE WHEN r.command LIKE 'RESPONSE%' THEN r.entry_id END AS entry_id,
      CASE WHEN r.status IN ('complete', 'cut_by_snaplen') AND r.last_ts_ns >= j.request_last_ns
        THEN r.last_ts_ns - j.request_last_ns END AS latency_ns,
      is_request_torn OR coalesce(r.retransmitted OR r.status <> 'complete', false)
        OR coalesce(any_spot < coalesce(j.answer, CASE WHEN NOT is_pipelined
          AND lost_spot IS NOT NULL THEN next_ask END, 2e18), false) AS tainted),
    r.rank AS response_rank
  FROM with_outcome AS j LEFT JOIN cursus_frames AS r
    ON r.n = j.answer AND j.new_outcome <> 'not_awaited'
)
SELECT true AS is_paired_anew, * EXCLUDE (new_outcome, any_spot, lost_spot, is_request_torn, is_pipelined, next_ask)
  REPLACE (CASE WHEN latency_ns < 64 THEN latency_ns
    ELSE ((floor(log2(latency_ns))::BIGINT - 5) << 5)
      + (latency_ns >> (floor(log2(latency_ns))::BIGINT - 5)) END AS latency_bucket)
FROM with_answer
UNION ALL BY NAME
SELECT r.chain, true AS is_paired_anew, r.n AS answer, r.rank AS response_rank,
  CASE WHEN r.command = 'BATCH' THEN 'consume' WHEN r.command = 'RESPONSE_JSON'
    AND r.entry_id IS NOT NULL THEN 'publish' ELSE 'request' END AS kind,
  r.command AS response_command, r.frame_no AS response_frame_no,
  r.first_ts_ns AS response_first_ns, r.last_ts_ns AS response_last_ns,
  'orphan_response' AS outcome, r.error_code, r.error_text, r.topic, r.subscription,
  r.producer_name, r.sequence_id, nullif(greatest(r.highest_sequence_id, 0), 0)
    AS highest_sequence_id, CASE WHEN r.command LIKE 'RESPONSE%' THEN r.entry_id END AS entry_id,
  r.ts, r.retransmitted OR r.status <> 'complete' OR h.spot IS NOT NULL AS tainted
FROM pairing_frames AS m ANTI JOIN valid_pairs AS d ON d.answer = m.n JOIN cursus_frames AS r ON r.n = m.n
LEFT JOIN pushes AS u ON u.chain = m.chain
ASOF LEFT JOIN hidden_spots AS h ON h.chain = m.chain AND h.spot < m.n
WHERE NOT m.asks AND NOT m.is_half AND (u.n IS NULL OR m.n < u.n)
UNION ALL BY NAME
-- Exchanges that keep their pairs, with facts from the other captures: whether the rest of a frame is
-- no gap, whether the broker was captured, whether the connection ended.
SELECT t.* EXCLUDE (rank) REPLACE (
    t.tainted AND coalesce(NOT p.comes_from_to_broker AND NOT p.comes_from_to_client
      OR q.retransmitted OR q.status <> 'complete' OR r.retransmitted OR r.status <> 'complete'
      OR h.spot < coalesce(t.answer, 1::BIGINT << 62), false) AS tainted,
    CASE WHEN t.outcome = 'unanswered_at_end'
      OR (t.outcome = 'other_side_not_captured' AND k.is_two_way)
      THEN CASE WHEN k.is_over THEN 'conn_closed' ELSE 'unanswered_at_end' END
      ELSE t.outcome END AS outcome),
  CASE WHEN t.ask IS NOT NULL THEN t.rank END AS request_rank,
  CASE WHEN t.answer IS NOT NULL THEN t.rank END AS response_rank, false AS is_behind_push,
  false AS is_paired_anew
FROM captured_exchanges AS t ANTI JOIN frames_to_pair AS g ON g.n = coalesce(t.ask, t.answer)
JOIN connection_ends AS k ON k.chain = t.chain JOIN connection_parts AS p ON p.chain = t.chain AND p.rank = t.rank
LEFT JOIN cursus_frames AS q ON t.tainted AND q.n = t.ask
LEFT JOIN cursus_frames AS r ON t.tainted AND r.n = t.answer
ASOF LEFT JOIN hidden_spots AS h ON h.chain = t.chain AND h.spot > coalesce(t.ask, 0);

-- sent_batches: batches with a producer and sequence number; attempt: number of the copy.
CREATE TABLE sent_batches AS
SELECT e.ask, e.answer, e.outcome, f.topic, f.partition, f.producer_name, f.producer_epoch,
  f.sequence_id, f.highest_sequence_id, f.last_ts_ns, row_number() OVER same AS attempt,
  min(CASE WHEN e.outcome IN ('ok', 'dup_or_dropped') THEN e.answer END) OVER (same
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS stored_n
FROM decided_exchanges AS e JOIN cursus_frames AS f ON f.n = e.ask
WHERE e.kind = 'publish' AND f.topic IS NOT NULL AND f.producer_name IS NOT NULL
  AND f.sequence_id IS NOT NULL
WINDOW same AS (PARTITION BY f.topic, f.partition, f.producer_name, f.producer_epoch,
  f.sequence_id, f.highest_sequence_id ORDER BY e.ask);

-- outstanding_publishes: number of unanswered publishes of the connection at each publish.
CREATE TABLE outstanding_publishes AS
SELECT ask, outstanding FROM (
  SELECT ask, step, coalesce(sum(step) OVER (PARTITION BY chain ORDER BY n, step
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS outstanding
  FROM (
    SELECT chain, ask, ask AS n, 1 AS step FROM decided_exchanges
    WHERE is_paired_anew AND kind = 'publish' AND ask IS NOT NULL AND NOT is_behind_push
    UNION ALL SELECT chain, ask, coalesce(answer, lost_n), -1 FROM decided_exchanges
    WHERE is_paired_anew AND kind = 'publish' AND ask IS NOT NULL
      AND coalesce(answer, lost_n) IS NOT NULL
  )
) WHERE step = 1;

CREATE TABLE new_exchanges AS
WITH stored_once AS (
  SELECT e.topic, min(e.answer) AS n FROM decided_exchanges AS e JOIN cursus_frames AS f ON f.n = e.ask
  WHERE e.request_command = 'CREATE' AND e.outcome = 'ok'
    AND f.detail LIKE '%"idempotent":"true"%' GROUP BY e.topic
)
SELECT e.* REPLACE (
    CASE WHEN e.outcome = 'ok' AND o.n < e.answer AND s.stored_n < e.answer THEN 'dup_or_dropped'
      ELSE e.outcome END AS outcome,
    coalesce(s.attempt, e.attempt) AS attempt,
    CASE WHEN e.outcome <> 'other_side_not_captured'
      THEN CASE WHEN e.is_paired_anew AND NOT coalesce(x.is_before, false) THEN w.outstanding
        ELSE e.outstanding_before END END AS outstanding_before)
FROM decided_exchanges AS e LEFT JOIN sent_batches AS s ON s.ask = e.ask
LEFT JOIN stored_once AS o ON o.topic = e.topic LEFT JOIN outstanding_publishes AS w ON w.ask = e.ask
LEFT JOIN frames_to_pair AS x ON x.n = e.ask;

-- answered_requests: requests with their answers, without forwarded ones.
CREATE TABLE answered_requests AS
SELECT e.chain, e.request_command AS command, e.ask, e.answer, q.topic, q.subscription,
  q.consumer_name, q.detail AS asked, r.consumer_name AS given_name, r.detail AS replied,
  e.error_code, e.outcome IN ('ok', 'dup_or_dropped') AS is_good, e.outcome = 'error' AS is_refused,
  e.request_last_ns AS ns
FROM new_exchanges AS e JOIN cursus_frames AS q ON q.n = e.ask JOIN cursus_frames AS r ON r.n = e.answer
WHERE NOT q.is_passed_on;

-- new_consumers: members, from the JOIN_GROUP that admitted them to the next, or to LEAVE_GROUP.
CREATE TABLE new_consumers AS
WITH moves AS (
  SELECT chain, ask, answer, topic, subscription, coalesce(given_name, consumer_name) AS name,
    NULL AS left_n
  FROM answered_requests WHERE command = 'JOIN_GROUP' AND is_good AND subscription IS NOT NULL
  UNION ALL
  SELECT chain, NULL, answer, topic, subscription, consumer_name, ask
  FROM answered_requests WHERE command = 'LEAVE_GROUP' AND is_good
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
  FROM answered_requests WHERE command = 'JOIN_GROUP' AND is_refused AND error_code IS NOT NULL
)
SELECT m.*, 'observed' AS name_source, o.rank, o.frame_no AS order_no
FROM refused_and_admitted AS m LEFT JOIN frame_order AS o ON o.n = m.closed_frame_no;

CREATE TABLE new_producers AS
SELECT e.chain, f.topic, f.producer_name AS name, arg_max(f.producer_epoch, f.n) AS epoch,
  CASE WHEN bool_or(k.is_over) THEN 'connection' ELSE 'capture_end' END AS closed_by,
  'observed' AS name_source, NULL::BIGINT AS rank, NULL::BIGINT AS order_no
FROM new_exchanges AS e JOIN cursus_frames AS f ON f.n = e.ask JOIN connection_ends AS k ON k.chain = e.chain
WHERE e.kind = 'publish' AND f.topic IS NOT NULL AND f.producer_name IS NOT NULL
GROUP BY e.chain, f.topic, f.producer_name;
