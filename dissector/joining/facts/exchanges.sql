-- new_exchanges: each request with its answer, or one without the other.
-- c: the connection; n: a frame's number; asked: the request's command; ask, answer: the numbers of the
-- request's and the answer's frame; a, b: the request's key; x: the incarnation.
-- request_commands: each request command, its answer, and how both are paired.
CREATE TEMP TABLE request_commands AS
SELECT * FROM (VALUES
  ('CONNECT', 'CONNECTED', 'turn', 'request'), ('PING', 'PONG', 'turn', 'ping'),
  ('AUTH_CHALLENGE', 'AUTH_RESPONSE', 'turn', 'auth'),
  ('PRODUCER', 'PRODUCER_SUCCESS', 'id', 'request'), ('CLOSE_PRODUCER', 'SUCCESS', 'id', 'request'),
  ('SUBSCRIBE', 'SUCCESS', 'id', 'request'), ('ACK', 'ACK_RESPONSE', 'id', 'ack'),
  ('UNSUBSCRIBE', 'SUCCESS', 'id', 'request'), ('CLOSE_CONSUMER', 'SUCCESS', 'id', 'request'),
  ('CONSUMER_STATS', 'CONSUMER_STATS_RESPONSE', 'id', 'request'),
    ('SEEK', 'SUCCESS', 'id', 'request'),
  ('GET_LAST_MESSAGE_ID', 'GET_LAST_MESSAGE_ID_RESPONSE', 'id', 'request'),
  ('PARTITIONED_METADATA', 'PARTITIONED_METADATA_RESPONSE', 'id', 'request'),
  ('LOOKUP', 'LOOKUP_RESPONSE', 'id', 'request'),
  ('GET_TOPICS_OF_NAMESPACE', 'GET_TOPICS_OF_NAMESPACE_RESPONSE', 'id', 'request'),
  ('GET_SCHEMA', 'GET_SCHEMA_RESPONSE', 'id', 'request'),
  ('GET_OR_CREATE_SCHEMA', 'GET_OR_CREATE_SCHEMA_RESPONSE', 'id', 'request'),
  ('NEW_TXN', 'NEW_TXN_RESPONSE', 'id', 'request'),
  ('ADD_PARTITION_TO_TXN', 'ADD_PARTITION_TO_TXN_RESPONSE', 'id', 'request'),
  ('ADD_SUBSCRIPTION_TO_TXN', 'ADD_SUBSCRIPTION_TO_TXN_RESPONSE', 'id', 'request'),
  ('END_TXN', 'END_TXN_RESPONSE', 'id', 'request'),
  ('END_TXN_ON_PARTITION', 'END_TXN_ON_PARTITION_RESPONSE', 'id', 'request'),
  ('END_TXN_ON_SUBSCRIPTION', 'END_TXN_ON_SUBSCRIPTION_RESPONSE', 'id', 'request'),
  ('TC_CLIENT_CONNECT_REQUEST', 'TC_CLIENT_CONNECT_RESPONSE', 'id', 'request'),
  ('WATCH_TOPIC_LIST', 'WATCH_TOPIC_LIST_SUCCESS', 'id', 'request'),
  ('WATCH_TOPIC_LIST_CLOSE', 'SUCCESS', 'id', 'request'),
  ('SCALABLE_TOPIC_SUBSCRIBE', 'SCALABLE_TOPIC_SUBSCRIBE_RESPONSE', 'id', 'request')
) AS t(command, answer, pairing, kind);

-- requests_and_answers: requests except sends, and their answers. side: the request's direction;
-- asked is null for SUCCESS and ERROR, which name no command.
CREATE TEMP TABLE requests_and_answers AS
SELECT f.c, f.n, f.command, f.direction AS side, a.kind, a.pairing, a.command AS asked,
  CASE a.pairing WHEN 'id' THEN f.request_id ELSE 0 END AS id, 1 AS step, f.last_ts_ns
FROM numbered_frames AS f JOIN request_commands AS a ON a.command = f.command
WHERE f.status <> 'malformed' AND (a.pairing = 'turn' OR (f.request_id IS NOT NULL
  AND f.request_id <> -1
  AND NOT (f.command IN ('CLOSE_PRODUCER', 'CLOSE_CONSUMER') AND f.direction = 'to_client')))
UNION ALL
SELECT f.c, f.n, f.command, CASE f.direction WHEN 'to_client' THEN 'to_broker' ELSE 'to_client' END,
  a.kind, a.pairing, a.command, CASE a.pairing WHEN 'id' THEN f.request_id ELSE 0 END, -1,
    f.last_ts_ns
FROM numbered_frames AS f JOIN request_commands AS a ON a.answer = f.command
  AND a.answer <> 'SUCCESS'
WHERE f.status <> 'malformed' AND (a.pairing = 'turn' OR f.request_id IS NOT NULL)
  AND coalesce(f.is_ready, true)
UNION ALL
SELECT c, n, command, 'to_broker', 'request', 'id', NULL, request_id, -1, last_ts_ns
  FROM numbered_frames AS f
WHERE command IN ('SUCCESS', 'ERROR') AND status <> 'malformed' AND request_id IS NOT NULL;

-- generic_answers: the command that a SUCCESS or ERROR answers: of the requests with its id and without
-- another answer, the oldest one before it or shortly behind.
CREATE TEMP TABLE generic_answers AS
SELECT g.c, g.n, min(struct_pack(is_early := q.n > g.n, n := q.n, asked := q.asked)).asked AS asked
FROM requests_and_answers AS g JOIN (
  SELECT *, lead(n) OVER (PARTITION BY c, id, asked ORDER BY n) AS next_n
  FROM requests_and_answers WHERE step = 1
) AS q ON q.c = g.c AND q.id = CASE g.id
  WHEN -1 THEN 0 ELSE g.id END
  AND (q.n < g.n OR q.last_ts_ns <= g.last_ts_ns + 200000000)
  AND q.side = 'to_broker' AND (q.pairing = 'turn') = (g.id = -1)
  AND (g.command = 'ERROR' OR q.asked IN (SELECT command FROM request_commands
    WHERE answer = 'SUCCESS'))
LEFT JOIN requests_and_answers AS r ON r.c = q.c AND r.id = q.id AND r.asked = q.asked
  AND r.step = -1 AND r.n > q.n AND r.n < coalesce(q.next_n, 2e18)
WHERE g.asked IS NULL AND g.step = -1 AND r.n IS NULL
GROUP BY g.c, g.n;

-- turns: for requests that are answered in turn, the number of holes before the last request. Behind a
-- hole, which may hide answers, a new request begins a queue of its own.
CREATE TEMP TABLE turns AS
WITH in_turn AS (
  SELECT c, asked, side, n, step FROM requests_and_answers
  WHERE pairing = 'turn' AND asked <> 'CONNECT'
),
turns_with_holes AS (
  SELECT *, count(*) FILTER (step = 0) OVER (PARTITION BY c, asked, side ORDER BY n) AS holes FROM (
    FROM in_turn
    UNION ALL
    SELECT h.c, t.asked, t.side, h.spot, 0 FROM hidden_answers AS h
    JOIN (SELECT DISTINCT c, asked, side FROM in_turn) AS t ON t.c = h.c AND h.direction <> t.side
  )
)
SELECT c, n, step, max(CASE step WHEN 1 THEN holes END) OVER (
  PARTITION BY c, asked, side ORDER BY n) AS holes FROM turns_with_holes;

-- marks: all requests (step 1) and answers (step -1) by the key that pairs them; all commands that
-- SUCCESS answers share one key per id.
CREATE TEMP VIEW marks AS
SELECT c, 'SEND' AS asked, producer_id AS a, sequence_id AS b, incarnation AS x, n,
  CASE command WHEN 'SEND' THEN 1 ELSE -1 END AS step, last_ts_ns
FROM numbered_frames AS f WHERE command IN ('SEND', 'SEND_RECEIPT', 'SEND_ERROR')
  AND status <> 'malformed'
  AND producer_id IS NOT NULL AND sequence_id IS NOT NULL
UNION ALL
SELECT t.c, CASE WHEN coalesce(t.asked, g.asked) IN (SELECT command FROM request_commands
    WHERE answer = 'SUCCESS') THEN 'SUCCESS' ELSE coalesce(t.asked, g.asked, t.command) END, CASE t.side WHEN 'to_broker' THEN 0 ELSE 1 END,
  CASE WHEN g.asked = 'CONNECT' THEN 0 ELSE t.id END, coalesce(o.holes, 0), t.n, t.step,
  t.last_ts_ns
FROM requests_and_answers AS t LEFT JOIN generic_answers AS g ON g.c = t.c AND g.n = t.n
  AND t.asked IS NULL
LEFT JOIN turns AS o ON o.c = t.c AND o.n = t.n AND o.step = t.step;

-- pairing_keys: the marks of each key; nearly all have one request and then one answer.
CREATE TEMP TABLE pairing_keys AS
SELECT c, asked, a, b, x, count(*) FILTER (step = 1) AS asks,
  count(*) FILTER (step = -1) AS answers,
  min(n) FILTER (step = 1) AS ask, min(n) FILTER (step = -1) AS answer
FROM marks GROUP BY c, asked, a, b, x;

-- other_keys: answers that are paired by another key. An error, and some receipts, name a batch by its
-- last id if no request has the first one; a receipt of a replicator's copy names the source's entry.
CREATE TEMP TABLE other_keys AS
WITH replicating_producers AS (SELECT DISTINCT c, producer_id AS a FROM numbered_frames AS f
  WHERE command = 'SEND' AND repl_source_ledger_id IS NOT NULL),
unmatched_answers AS (
  SELECT k.c, k.a, k.b, k.x, r.n, r.highest_sequence_id AS highest, k.asks = 0 AS is_lost
  FROM pairing_keys AS k JOIN numbered_frames AS r ON r.c = k.c AND r.producer_id = k.a
    AND r.sequence_id = k.b AND r.incarnation = k.x
  WHERE k.asked = 'SEND' AND k.answers > 0 AND (k.asks = 0 OR (k.c,
    k.a) IN (FROM replicating_producers))
    AND r.command IN ('SEND_RECEIPT', 'SEND_ERROR')
),
sends AS (
  SELECT c, producer_id AS a, incarnation AS x, sequence_id AS b, n,
    repl_source_ledger_id AS ledger, repl_source_entry_id AS entry,
    CASE WHEN repl_source_ledger_id IS NOT NULL THEN NULL WHEN highest_sequence_id > 0
      THEN highest_sequence_id
      WHEN message_count > 1 THEN sequence_id + message_count - 1 END AS last
  FROM numbered_frames AS f WHERE command = 'SEND' AND (c, producer_id) IN (SELECT c, a
    FROM unmatched_answers)
)
SELECT l.c, l.n, l.a, l.x, l.b AS named, min(s.b) AS b FROM unmatched_answers AS l JOIN sends AS s
  ON s.c = l.c AND s.a = l.a AND s.x = l.x AND s.n < l.n
  AND ((l.is_lost AND s.last = l.b) OR (s.ledger = l.b AND s.entry = coalesce(l.highest, 0)))
GROUP BY l.c, l.n, l.a, l.x, l.b;

-- queued_marks: the marks of keys with more than one request and then one answer.
CREATE TEMP TABLE queued_marks AS
WITH queued_key_list AS (
  SELECT c, asked, a, b, x FROM pairing_keys WHERE asks > 1 OR answers > 1 OR answer < ask
  UNION SELECT c, 'SEND', a, b, x FROM other_keys
  UNION SELECT c, 'SEND', a, named, x FROM other_keys
)
SELECT m.* FROM marks AS m JOIN queued_key_list AS k ON k.c = m.c AND k.asked = m.asked
  AND k.a = m.a AND k.b = m.b AND k.x = m.x
WHERE NOT EXISTS (SELECT 1 FROM other_keys AS s WHERE s.c = m.c AND s.n = m.n)
UNION ALL
SELECT s.c, 'SEND', s.a, s.b, s.x, s.n, -1, f.last_ts_ns FROM other_keys AS s
  JOIN numbered_frames AS f ON f.c = s.c AND f.n = s.n;

-- early_answers: an answer that was captured shortly before its request: no request waits (waits, the
-- balance of its key, falls below all earlier ones), and the request comes next. Time is the largest
-- stamp so far, because bytes behind a hole may come late.
CREATE TEMP TABLE early_answers AS
WITH running_balances AS (
  SELECT *, sum(step) OVER (PARTITION BY c, asked, a, b, x ORDER BY n) AS waits FROM queued_marks
),
lowest_balances AS (
  SELECT *, coalesce(min(waits) OVER (PARTITION BY c, asked, a, b, x
    ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before,
    lead(step) OVER later AS next_step, lead(n) OVER later AS ask,
      lead(last_ts_ns) OVER later AS ask_ts_ns
  FROM running_balances WINDOW later AS (PARTITION BY c, asked, a, b, x ORDER BY n)
),
early_candidates AS (
  SELECT k.capture, b.* FROM lowest_balances AS b JOIN numbered_connections AS k USING (c)
  WHERE step = -1 AND waits < least(before, 0) AND next_step = 1
    AND ask_ts_ns <= b.last_ts_ns + 200000000
),
-- If a hole may hide an earlier request of the same key, the answer belongs to that request.
hidden_by_side AS (
  SELECT c, spot, 'to_broker' AS side FROM hidden_answers WHERE direction IS DISTINCT FROM 'to_client'
  UNION ALL
  SELECT c, spot, 'to_client' FROM hidden_answers WHERE direction IS DISTINCT FROM 'to_broker'
),
answers_to_hidden AS (
  SELECT b.c, b.n FROM early_candidates AS b JOIN numbered_frames AS q ON q.c = b.c AND q.n = b.ask
  ASOF JOIN hidden_by_side AS h ON h.c = b.c AND h.side = q.direction AND h.spot < b.ask
  WHERE (b.asked IN ('PING', 'AUTH_CHALLENGE', 'CONNECT') OR q.chunk_id > 0) AND h.spot < b.n
),
stamps AS (
  SELECT k.capture, f.n, max(f.last_ts_ns) OVER (PARTITION BY k.capture ORDER BY f.n) AS now_ns
  FROM numbered_frames AS f JOIN numbered_connections AS k USING (c)
  WHERE k.capture IN (SELECT capture FROM early_candidates)
)
SELECT c, asked, a, b, x, b.n AS answer, ask FROM early_candidates AS b
JOIN stamps AS s ON s.capture = b.capture AND s.n = b.n
JOIN stamps AS t ON t.capture = b.capture AND t.n = b.ask
ANTI JOIN answers_to_hidden AS o ON o.c = b.c AND o.n = b.n
WHERE t.now_ns <= s.now_ns + 200000000;

-- queue_places: first in, first out. An answer is an orphan if no request waits; the lowest balance so
-- far counts the orphans. place: the number of the request within its key, or of the answered request;
-- null for an orphan.
CREATE TEMP TABLE queue_places AS
WITH running_balances AS (
  SELECT m.*, sum(step) OVER so_far AS waits, count(*) FILTER (step = 1) OVER so_far AS asks,
    count(*) FILTER (step = -1) OVER so_far AS answers
  FROM queued_marks AS m
  WHERE NOT EXISTS (SELECT 1 FROM early_answers AS e WHERE e.c = m.c AND e.answer = m.n)
    AND NOT EXISTS (SELECT 1 FROM early_answers AS e WHERE e.c = m.c AND e.ask = m.n)
  WINDOW so_far AS (PARTITION BY m.c, m.asked, m.a, m.b, m.x ORDER BY m.n)
),
lowest_balances AS (
  SELECT *, greatest(0, -min(waits) OVER (PARTITION BY c, asked, a, b, x ORDER BY n)) AS orphans
    FROM running_balances
)
SELECT c, asked, a, b, x, step, n, CASE WHEN step = 1 THEN asks
  WHEN orphans = coalesce(lag(orphans) OVER (PARTITION BY c, asked, a, b, x ORDER BY n), 0)
    THEN answers - orphans END AS place
FROM lowest_balances;

-- queued_keys: keys whose requests and answers are paired by queueing.
CREATE TEMP TABLE queued_keys AS
SELECT DISTINCT c, asked, a, b, x FROM (
  SELECT c, asked, a, b, x FROM queue_places UNION ALL SELECT c, asked, a, b, x FROM early_answers
  UNION ALL SELECT c, 'SEND', a, b, x FROM other_keys UNION ALL SELECT c, 'SEND', a, named, x
    FROM other_keys
);

-- pairs: each request with its answer, or one without the other.
CREATE TEMP TABLE pairs AS
SELECT k.c, k.asked, k.a, k.x, k.ask, k.answer FROM pairing_keys AS k
WHERE NOT EXISTS (SELECT 1 FROM queued_keys AS o WHERE o.c = k.c AND o.asked = k.asked AND o.a = k.a
  AND o.b = k.b AND o.x = k.x)
UNION ALL
SELECT c, asked, a, x, ask, answer FROM early_answers
UNION ALL
SELECT q.c, q.asked, q.a, q.x, q.n, r.n FROM queue_places AS q
LEFT JOIN queue_places AS r ON r.c = q.c AND r.asked = q.asked AND r.a = q.a AND r.b = q.b
  AND r.x = q.x AND r.step = -1 AND r.place = q.place
WHERE q.step = 1
UNION ALL
SELECT c, asked, a, x, NULL, n FROM queue_places WHERE step = -1 AND place IS NULL;
-- sources: producers by topic and name, numbered; their attempts are counted together.
CREATE TEMP TABLE sources AS
SELECT row_number() OVER (ORDER BY d, topic, producer_name) AS source, d, topic, producer_name
FROM (SELECT DISTINCT k.d, f.topic, f.producer_name FROM numbered_frames AS f
  JOIN numbered_connections AS k ON k.c = f.c WHERE command = 'SEND' AND topic IS NOT NULL
  AND producer_name IS NOT NULL);

-- repeated_sends: sends of a sequence id that occurs several times, with the attempt's number; all
-- other sends are first attempts.
CREATE TEMP TABLE repeated_sends AS
WITH sends AS (
  SELECT f.c, f.n, s.source, f.sequence_id, f.chunk_id, f.crc32c_stored FROM numbered_frames AS f
    JOIN numbered_connections AS k ON k.c = f.c JOIN sources AS s ON s.d = k.d AND s.topic = f.topic
    AND s.producer_name = f.producer_name
  WHERE f.command = 'SEND' AND f.sequence_id IS NOT NULL AND f.producer_id IS NOT NULL
    AND f.n > (SELECT max(n) FROM before_end)
),
sent_before AS (
  SELECT s.source, b.sequence_id, b.chunk_id, b.crc32c_stored, max(b.attempts) AS attempts
  FROM before_attempts AS b JOIN numbered_connections AS k ON k.connection_id = b.chain
  JOIN sources AS s ON s.d = k.d AND s.topic = b.topic AND s.producer_name = b.producer_name
  GROUP BY ALL
),
repeated_keys AS (
  SELECT source, sequence_id FROM sends GROUP BY source, sequence_id HAVING count(*) > 1
  UNION SELECT source, sequence_id FROM sent_before
)
SELECT c, n, coalesce(b.attempts, 0) + row_number() OVER (PARTITION BY t.source, t.sequence_id,
  t.chunk_id, t.crc32c_stored ORDER BY n) AS attempt
FROM sends AS t LEFT JOIN sent_before AS b ON b.source = t.source AND b.sequence_id = t.sequence_id
  AND b.chunk_id IS NOT DISTINCT FROM t.chunk_id
  AND b.crc32c_stored IS NOT DISTINCT FROM t.crc32c_stored
WHERE (t.source, t.sequence_id) IN (FROM repeated_keys);

-- send_events: sends (1), their answers (-1) and the openings of their producers (0). Producers get their
-- answers in order. is_oldest: with the answer to the oldest send that waits, or when the producer is
-- opened, it is known which sends wait. is_newest: with the answer to the newest send none of them does.
CREATE TEMP TABLE send_events AS
WITH ordered_sends AS (
  SELECT *, CASE WHEN answer IS NOT NULL THEN greatest(ask, answer) END AS answered_n,
    max(coalesce(answered_n, 9e18)) OVER (PARTITION BY c, a, x ORDER BY ask
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS all_n
  FROM pairs WHERE asked = 'SEND' AND ask IS NOT NULL
),
events AS (
  SELECT c, a, x, ask AS n, 1 AS step, ask, false AS is_ok, false AS is_oldest FROM ordered_sends
  UNION ALL
  SELECT p.c, p.a, p.x, p.answered_n, -1, p.ask,
    p.ask < p.answer AND r.status = 'complete' AND r.command = 'SEND_RECEIPT'
      AND r.error_code IS NULL AND NOT (coalesce(r.ledger_id, -1) = -1 AND coalesce(r.entry_id, -1) = -1)
      AND coalesce(h.broker_spot > p.answer, true) AS is_answered,
    is_answered AND p.answered_n = p.all_n
  FROM ordered_sends AS p JOIN numbered_frames AS r ON r.c = p.c AND r.n = p.answer
  LEFT JOIN next_hidden_answers AS h ON h.c = p.c AND h.n = p.ask
  UNION ALL
  SELECT k.c, p.producer_id, p.incarnation, p.ready_frame_no, 0, NULL, false, true
  FROM producers AS p JOIN numbered_connections AS k USING (capture, connection_id)
  WHERE p.ready_frame_no IS NOT NULL
  UNION ALL
  SELECT k.c, b.producer_id, b.x, b.known_n, 0, NULL, NOT b.is_oldest, b.is_oldest
  FROM before_producers AS b JOIN numbered_connections AS k ON k.connection_id = b.chain
  WHERE b.known_n IS NOT NULL
)
SELECT * EXCLUDE (is_ok), is_ok AND coalesce(ask = max(ask) OVER (PARTITION BY c, a, x
  ORDER BY n, step DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), true) AS is_newest
FROM events;

-- outstanding_sends: how many sends of a producer wait at each of its sends; null if that was not known
-- yet, or sends or answers may be hidden since.
CREATE TEMP TABLE outstanding_sends AS
WITH ordered_sends AS (
  SELECT *, max(CASE WHEN is_newest OR is_oldest THEN 2 * n + is_oldest::BIGINT END) OVER so_far AS known,
    known // 2 AS known_n, sum(CASE WHEN ask IS NOT NULL THEN step::DOUBLE END) OVER so_far AS waiting
  FROM send_events WINDOW so_far AS (PARTITION BY c, a, x ORDER BY n, step DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
newer_sends AS (
  SELECT *, sum(CASE WHEN ask > known_n THEN step::DOUBLE END) OVER (
    PARTITION BY c, a, x, known ORDER BY n, step DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer
  FROM ordered_sends
)
SELECT w.c, w.n, CASE WHEN coalesce(h.before_spot <= w.known_n, true) AND known_n IS NOT NULL
  THEN coalesce(CASE WHEN known % 2 = 1 THEN waiting ELSE newer END, 0)::BIGINT END AS outstanding
FROM newer_sends AS w LEFT JOIN next_hidden_answers AS h ON h.c = w.c AND h.n = w.n
WHERE w.step = 1;

-- reopened_producers: when producers were opened again (by the answer, or their first SEND), and
-- whether the broker had closed them.
CREATE TEMP TABLE reopened_producers AS
SELECT k.c, p.producer_id AS a, p.incarnation AS x, p.closed_by = 'broker'
  AND p.refused_code IS NULL AS is_broker_closed,
  max(CASE WHEN p.ready_frame_no IS NOT NULL OR u.c IS NOT NULL
    THEN p.incarnation END) OVER (PARTITION BY k.c, p.producer_id) AS last_x,
  min(least(p.ready_frame_no, u.n)) OVER (PARTITION BY k.c, p.producer_id
      ORDER BY p.incarnation DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reopened_n
FROM producers AS p JOIN numbered_connections AS k USING (capture, connection_id)
LEFT JOIN (SELECT c, producer_id, incarnation, min(n) AS n FROM (
    SELECT c, producer_id, incarnation, n FROM numbered_frames WHERE command = 'SEND'
    UNION ALL SELECT k.c, b.producer_id, b.x, NULL FROM before_producers AS b
    JOIN numbered_connections AS k ON k.connection_id = b.chain) GROUP BY ALL) AS u
  ON u.c = k.c AND u.producer_id = p.producer_id AND u.incarnation = p.incarnation;

-- late_topics: the topic of producers that sent before their topic was known, from later frames.
CREATE TEMP TABLE late_topics AS
SELECT c, producer_id AS a, incarnation AS x, arg_max(topic, n) AS topic FROM numbered_frames
WHERE command IN ('SEND', 'SEND_RECEIPT', 'SEND_ERROR') AND producer_id IS NOT NULL
GROUP BY ALL HAVING bool_or(command = 'SEND' AND topic IS NULL);

-- clock: the largest stamp so far, with the frames between which it holds; only of captures in which
-- it decides about an orphan.
CREATE TEMP TABLE clock AS
WITH running_stamps AS (
  SELECT k.capture, f.n, max(f.last_ts_ns) OVER (PARTITION BY k.capture ORDER BY f.n) AS now_ns
  FROM numbered_frames AS f JOIN numbered_connections AS k ON k.c = f.c
  WHERE k.capture IN (SELECT k.capture FROM hidden_answers AS h JOIN pairs AS p ON p.c = h.c
    JOIN numbered_connections AS k ON k.c = h.c WHERE p.ask IS NULL)
)
SELECT capture, now_ns, min(n) AS n, max(n) AS last_n FROM running_stamps GROUP BY capture, now_ns;

-- shadowed_orphans: answers whose request may lie in a hole. An answer waits for its request for 200 ms,
-- or to the end of the connection; holes within that time count.
CREATE TEMP TABLE shadowed_orphans AS
WITH orphans AS (
  SELECT p.c, p.answer, a.capture, a.now_ns + 200000000 AS deadline_ns
  FROM pairs AS p JOIN numbered_connections AS k ON k.c = p.c
  JOIN clock AS a ON a.capture = k.capture AND p.answer BETWEEN a.n AND a.last_n
  WHERE p.ask IS NULL
),
abandoned_orphans AS (
  SELECT o.c, o.answer, g.n AS given_up_n FROM orphans AS o
  ASOF LEFT JOIN clock AS g ON g.capture = o.capture AND g.now_ns > o.deadline_ns
)
SELECT DISTINCT o.c, o.answer FROM abandoned_orphans AS o JOIN hidden_answers AS h ON h.c = o.c
WHERE h.spot < coalesce(o.given_up_n, 2e18);

CREATE TEMP TABLE new_exchanges AS
WITH asking_frames AS (
  SELECT * FROM numbered_frames WHERE command NOT IN ('MESSAGE', 'FLOW', 'SEND_RECEIPT')
),
answering_frames AS (
  SELECT * FROM numbered_frames WHERE command NOT IN ('MESSAGE', 'FLOW', 'SEND', 'ACK')
),
paired_frames AS (
  SELECT p.c, p.asked, p.ask, p.answer, k.ended, k.is_two_way, k.capture,
    k.connection_id, k.client_ip, k.broker_ip,
    q.direction AS asks_to, q.first_ts_ns AS request_first_ns, q.last_ts_ns AS request_last_ns,
      q.retransmitted AS q_again, q.status AS q_status,
    r.first_ts_ns AS response_first_ns, r.last_ts_ns AS response_last_ns,
      r.retransmitted AS r_again, r.status AS r_status,
    q.command AS request_command, r.command AS response_command, r.error_code, r.error_text,
      r.detail AS r_detail,
    CASE WHEN p.asked = 'SEND' OR q.n IS NULL OR r.n < q.n THEN coalesce(CASE WHEN r.n < q.n
      THEN q.topic ELSE r.topic END, q.topic, y.topic) ELSE coalesce(r.topic, q.topic)
      END AS topic,
    CASE WHEN q.n IS NULL THEN r.subscription ELSE q.subscription END AS subscription,
    CASE WHEN q.n IS NULL THEN r.producer_name WHEN p.asked = 'SEND' THEN q.producer_name
      ELSE coalesce(r.producer_name, q.producer_name) END AS producer_name,
    coalesce(q.producer_id, CASE WHEN q.n IS NULL THEN r.producer_id END) AS producer_id,
    coalesce(q.consumer_id, CASE WHEN q.n IS NULL THEN r.consumer_id END) AS consumer_id,
    coalesce(q.incarnation, CASE WHEN q.n IS NULL THEN r.incarnation END) AS incarnation,
    CASE WHEN p.asked = 'SEND' THEN coalesce(q.sequence_id, CASE WHEN q.n IS NULL
      THEN r.sequence_id END) END AS sequence_id,
    CASE WHEN p.asked = 'SEND' THEN coalesce(q.highest_sequence_id, CASE WHEN q.n IS NULL
      THEN r.highest_sequence_id END) END AS highest,
    CASE WHEN p.asked = 'SEND' THEN q.chunk_id END AS chunk_id, CASE WHEN p.asked = 'SEND'
      THEN q.crc32c_stored END AS crc32c_stored,
    CASE WHEN p.asked = 'SEND' THEN CASE WHEN q.chunk_count > 1 THEN CASE
      WHEN q.chunk_id = q.chunk_count - 1 THEN 1 ELSE 0 END ELSE q.message_count END
      END AS message_count,
    CASE WHEN p.asked = 'SEND' AND q.replicated_from IS NULL THEN q.publish_time_ms END
      AS publish_time_ms,
    q.frame_bytes AS request_bytes, r.ledger_id AS r_ledger, r.entry_id AS r_entry,
    CASE WHEN p.asked = 'SEND' AND q.topic IS NOT NULL AND q.producer_name IS NOT NULL
      THEN coalesce(b.attempt, t.attempt, 1) END AS attempt,
    CASE WHEN b.is_open THEN b.outstanding ELSE w.outstanding END AS outstanding, a.any_spot, CASE WHEN q.direction = 'to_broker' THEN a.client_spot
      ELSE a.broker_spot END AS answer_spot, e.c IS NOT NULL AS is_shadowed,
    coalesce(o.is_broker_closed, false) OR coalesce(o.last_x > p.x, false) AS is_dropped,
      o.reopened_n
  FROM pairs AS p JOIN numbered_connections AS k ON k.c = p.c
  LEFT JOIN asking_frames AS q ON q.c = p.c AND q.n = p.ask
  LEFT JOIN answering_frames AS r ON r.c = p.c AND r.n = p.answer
  LEFT JOIN repeated_sends AS t ON t.c = p.c AND t.n = p.ask
  LEFT JOIN outstanding_sends AS w ON w.c = p.c AND w.n = p.ask
  LEFT JOIN before_frames AS b ON b.n = p.ask
  LEFT JOIN next_hidden_answers AS a ON a.c = p.c AND a.n = p.ask
  LEFT JOIN late_topics AS y ON p.asked = 'SEND' AND p.answer IS NULL AND y.c = p.c AND y.a = p.a
    AND y.x = p.x
  LEFT JOIN shadowed_orphans AS e ON e.c = p.c AND e.answer = p.answer
  LEFT JOIN reopened_producers AS o ON p.asked = 'SEND' AND p.answer IS NULL AND o.c = p.c
    AND o.a = p.a AND o.x = p.x
),
timed_pairs AS (
  SELECT *, CASE WHEN ask < answer AND r_status IN ('complete', 'cut_by_snaplen')
    AND response_last_ns >= request_last_ns
    THEN response_last_ns - request_last_ns END AS latency_ns
  FROM paired_frames
)
SELECT t.connection_id,
  CASE WHEN asked = 'SEND' THEN 'publish' ELSE coalesce(g.kind, 'request') END AS kind,
  request_command, response_command, ask AS request_frame_no, answer AS response_frame_no,
  request_first_ns, request_last_ns, response_first_ns, response_last_ns, latency_ns,
  CASE WHEN latency_ns < 64 THEN latency_ns ELSE ((floor(log2(latency_ns))::BIGINT - 5) << 5)
      + (latency_ns >> (floor(log2(latency_ns))::BIGINT - 5)) END AS latency_bucket,
  CASE WHEN q_status <> 'cut_by_end' AND request_last_ns >= request_first_ns
    THEN request_last_ns - request_first_ns END AS transmit_ns,
  CASE WHEN ask IS NULL THEN 'orphan_response'
    WHEN answer IS NOT NULL THEN CASE WHEN r_status <> 'complete' THEN 'response_cut'
      WHEN response_command IN ('SEND_ERROR', 'ERROR') OR error_code IS NOT NULL
        OR (response_command IN ('LOOKUP_RESPONSE', 'PARTITIONED_METADATA_RESPONSE')
          AND r_detail LIKE '%"response":"Failed"%') THEN 'error'
      WHEN response_command = 'SEND_RECEIPT' AND r_ledger = -1 AND r_entry = -1
        THEN 'dup_or_dropped' ELSE 'ok' END
    WHEN NOT is_two_way THEN 'other_side_not_captured'
    WHEN answer_spot < coalesce(reopened_n, 2e18) THEN 'lost_in_gap'
    WHEN is_dropped THEN 'dropped_after_close'
    WHEN ended <> 'capture_end' THEN 'conn_closed' ELSE 'unanswered_at_end' END AS outcome,
  error_code, error_text,
  CASE WHEN ask IS NULL THEN is_shadowed OR r_again OR r_status <> 'complete'
    ELSE q_again OR q_status = 'cut_by_gap' OR coalesce(r_again OR r_status <> 'complete'
      OR answer < ask, false)
      OR coalesce(any_spot < CASE WHEN answer IS NULL THEN coalesce(reopened_n, 2e18)
        ELSE greatest(answer, ask) END, false) END AS tainted,
  topic, subscription, producer_name, producer_id, consumer_id, incarnation, sequence_id,
  CASE WHEN highest > 0 THEN highest END AS highest_sequence_id, chunk_id, crc32c_stored, attempt,
    message_count, request_bytes,
  CASE WHEN is_two_way THEN outstanding END AS outstanding_before,
  CASE WHEN response_command = 'SEND_RECEIPT' AND r_ledger <> -1 THEN r_ledger END AS ledger_id,
  CASE WHEN response_command = 'SEND_RECEIPT' AND r_entry <> -1 THEN r_entry END AS entry_id,
  client_ip, broker_ip, make_timestamptz(coalesce(request_last_ns, response_last_ns) // 1000) AS ts,
  publish_time_ms, capture
FROM timed_pairs AS t LEFT JOIN (SELECT command, kind FROM request_commands) AS g
  ON g.command = t.asked;
