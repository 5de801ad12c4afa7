-- Deliveries of Cursus: groups commit offsets; no record is acknowledged by itself. A read position is
-- a group in a partition: group, topic and partition number.
-- Inputs: the tables of cursus.sql; deliveries, messages and acks of the group.

-- commits: the offset that a group wants to read next, as of the commit's answer (n).
CREATE TABLE commits AS
WITH transactions AS (
  SELECT *, regexp_extract(asked, '"transactional_id":"([^"]*)"', 1) AS txn FROM answered_requests
  WHERE command IN ('SEND_OFFSETS_TO_TXN', 'END_TXN') AND is_good
),
staged AS (
  SELECT answer, subscription, topic, txn, unnest(map_entries(coalesce(TRY_CAST(CASE
    WHEN json_valid(asked) THEN json_extract(asked, '$.offsets') END AS MAP(VARCHAR, BIGINT)),
    MAP {}))) AS next
  FROM transactions WHERE command = 'SEND_OFFSETS_TO_TXN'
),
transaction_ends AS (
  SELECT *, asked LIKE '%"result":"commit"%' AS is_commit,
    lag(answer) OVER (PARTITION BY txn ORDER BY answer) AS before_n
  FROM transactions WHERE command = 'END_TXN'
)
SELECT *, concat_ws(chr(0), subscription, coalesce(topic, chr(1)), partition) AS read_position
FROM (
SELECT d.answer AS n, d.ask, d.ns, a.subscription, a.topic, a.partition,
  coalesce(a.entry_id + 1, 0) AS following
FROM answered_requests AS d JOIN cursus_frames AS f ON f.n = d.ask
JOIN connection_parts AS p ON p.chain = f.chain AND p.rank = f.rank
JOIN acks AS a ON a.capture = p.capture AND a.connection_id = p.connection_id
  AND a.frame_no = f.frame_no
WHERE d.command IN ('COMMIT_OFFSET', 'BATCH_COMMIT') AND d.is_good AND a.subscription IS NOT NULL
UNION ALL
SELECT e.answer, e.ask, e.ns, s.subscription, s.topic,
  TRY_CAST(ltrim(s.next.key, 'P') AS BIGINT), s.next.value
FROM transaction_ends AS e JOIN staged AS s ON s.txn = e.txn AND s.answer < e.answer
  AND s.answer > coalesce(e.before_n, 0)
WHERE e.is_commit AND s.subscription IS NOT NULL
);

-- batch_deliveries: batches sent to clients, with the group of the request. A stream without a captured
-- request belongs to the topic's only group, if that was named before or commits later. is_asked: its
-- group had been named, or something of the client was captured.
CREATE TABLE batch_deliveries AS
WITH named AS (
  SELECT o.n, p.chain, p.rank, p.capture, p.connection_id, d.frame_no, d.ts, d.topic, d.partition,
    d.entry_id, d.batch_size, d.message_count, f.last_ts_ns, f.producer_name, f.producer_epoch,
    d.entry_id + d.message_count - 1 AS last,
    x.answer IS NULL OR x.request_command = 'STREAM' AS is_push, q.subscription, q.consumer_name
  FROM deliveries AS d JOIN connection_parts AS p USING (capture, connection_id)
  JOIN frame_order AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = d.frame_no
  JOIN cursus_frames AS f ON f.n = o.n LEFT JOIN new_exchanges AS x ON x.answer = o.n
  LEFT JOIN pushes AS u ON u.chain = p.chain AND o.n >= u.n AND x.answer IS NULL
  LEFT JOIN cursus_frames AS q ON q.n = coalesce(x.ask, u.ask)
),
only_groups AS (
  SELECT topic, any_value(subscription) AS subscription, min(n) AS n FROM cursus_frames
  WHERE direction = 'to_broker' AND topic IS NOT NULL AND subscription IS NOT NULL
    AND NOT is_passed_on
  GROUP BY topic HAVING count(DISTINCT subscription) = 1
),
last_commits AS (
  SELECT subscription, topic, partition, max(n) AS n FROM commits GROUP BY ALL
)
SELECT m.* REPLACE (coalesce(m.subscription, CASE WHEN m.is_push
    AND (g.n < m.n OR c.n > m.n) THEN g.subscription END) AS subscription),
  k.is_two_way, k.is_two_way OR m.subscription IS NOT NULL OR coalesce(g.n < m.n, false) AS is_asked
FROM named AS m JOIN connection_ends AS k ON k.chain = m.chain LEFT JOIN only_groups AS g ON g.topic = m.topic
LEFT JOIN last_commits AS c ON c.topic = g.topic AND c.subscription = g.subscription
  AND c.partition IS NOT DISTINCT FROM m.partition;

-- awaiting_commit: deliveries that a commit can cover, with the last commit before them. top: last
-- offset read before. is_late: committed before the frame's turn in the order.
CREATE TABLE awaiting_commit AS
WITH positioned AS (
  SELECT *, concat_ws(chr(0), coalesce(subscription, chr(1)), coalesce(topic, chr(1)), partition)
    AS read_position
  FROM batch_deliveries WHERE entry_id IS NOT NULL AND (is_push OR subscription IS NOT NULL)
)
SELECT d.*, max(d.last) OVER (PARTITION BY d.read_position ORDER BY d.n
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top,
  c.following AS committed, c.ns AS commit_ns, c.ask AS commit_ask,
  coalesce(d.last_ts_ns <= c.ns AND greatest(d.entry_id, d.last) < c.following, false) AS is_late
FROM positioned AS d ASOF LEFT JOIN commits AS c ON c.read_position = d.read_position AND c.n < d.n;

-- crowded_positions: positions with too many redeliveries to compare each with all earlier deliveries.
CREATE TABLE crowded_positions AS
SELECT read_position FROM awaiting_commit LEFT JOIN (
  SELECT read_position, count(*) AS commits FROM commits GROUP BY read_position
) USING (read_position)
GROUP BY read_position, commits
HAVING (count(*) + coalesce(commits, 0)) * count(*) FILTER (entry_id <= top) > {compared};

-- redelivered_offsets: redelivery_n: first redelivery after a delivery; is_repeat: whether some of the
-- delivery's offsets were delivered before. At a crowded position deliveries overlap if they begin at
-- the same offset, and each one not above all earlier offsets is a repeat.
CREATE TABLE redelivered_offsets AS
WITH overlap_pairs AS (
  SELECT d.n AS before_n, a.n AS redelivery_n, a.is_late
  FROM awaiting_commit AS a JOIN awaiting_commit AS d ON d.read_position = a.read_position AND d.n < a.n
    AND d.entry_id <= a.last AND d.last >= a.entry_id
  WHERE a.is_asked AND a.entry_id <= a.top AND a.read_position NOT IN (FROM crowded_positions)
  UNION ALL
  SELECT lag(n) OVER (PARTITION BY read_position, entry_id ORDER BY n), n, is_late
  FROM awaiting_commit SEMI JOIN crowded_positions USING (read_position)
  QUALIFY is_asked AND entry_id <= top
)
SELECT n, min(redelivery_n) AS redelivery_n, bool_or(is_repeat) AS is_repeat FROM (
  SELECT before_n AS n, redelivery_n, false AS is_repeat FROM overlap_pairs WHERE NOT is_late
  UNION ALL SELECT redelivery_n, NULL, true FROM overlap_pairs
) GROUP BY n;

-- delivery_ends: the first later commit that covers a delivery, mostly the next one, or its redelivery.
CREATE TABLE delivery_ends AS
WITH next_commits AS (
  SELECT d.n, d.read_position, d.last, c.n AS commit_n, c.following > d.last AS is_far
  FROM awaiting_commit AS d ASOF JOIN commits AS c ON c.read_position = d.read_position AND c.n > d.n WHERE NOT d.is_late
),
reaching AS (
  SELECT n, read_position, last, min(commit_n) OVER (PARTITION BY read_position ORDER BY reach DESC, n IS NOT NULL
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_n
  FROM (
    SELECT n, read_position, last, last AS reach, NULL AS commit_n FROM next_commits WHERE NOT is_far
    UNION ALL SELECT NULL, read_position, NULL, following - 1, n FROM commits
      WHERE read_position IN (SELECT read_position FROM next_commits WHERE NOT is_far)
  )
),
later AS (
  SELECT r.n, min(c.n) AS commit_n FROM reaching AS r JOIN commits AS c ON c.read_position = r.read_position
    AND c.n > r.n AND c.following > r.last
  WHERE r.n IS NOT NULL AND r.first_n < r.n AND r.read_position NOT IN (FROM crowded_positions) GROUP BY r.n
),
acked AS (
  SELECT n, commit_n FROM next_commits WHERE is_far
  UNION ALL SELECT n, first_n FROM reaching WHERE first_n > n
  UNION ALL FROM later
),
ends AS (
  SELECT d.n, d.read_position, d.entry_id, d.message_count, d.is_late,
    CASE WHEN a.commit_n < coalesce(o.redelivery_n, 2e18) THEN a.commit_n END AS commit_n, o.redelivery_n,
    coalesce(least(a.commit_n, o.redelivery_n), 1::BIGINT << 62) AS end_n
  FROM awaiting_commit AS d LEFT JOIN acked AS a ON a.n = d.n LEFT JOIN redelivered_offsets AS o ON o.n = d.n
)
SELECT e.n, e.end_n, CASE WHEN e.is_late OR e.commit_n IS NOT NULL THEN 'acked'
    WHEN e.redelivery_n IS NOT NULL THEN 'redelivery_requested' END AS outcome,
  c.ask AS commit_ask, c.ns AS commit_ns,
  -- The messages that the last commit before its end covers.
  CASE WHEN p.n > e.n THEN greatest(least(e.message_count, p.following - e.entry_id), 0)
    ELSE 0 END AS part_acked
FROM ends AS e LEFT JOIN commits AS c ON c.read_position = e.read_position AND c.n = e.commit_n
  AND c.following > e.entry_id
ASOF LEFT JOIN commits AS p ON p.read_position = e.read_position AND p.n < e.end_n
QUALIFY row_number() OVER (PARTITION BY e.n ORDER BY c.following DESC) = 1;

-- hidden_commits: the last time (ns) by which a commit of a group may be hidden: in missing bytes or
-- requests, or behind missing answers; of any group (null) if the connection named none or several.
-- A client that only sent batches commits nothing, and after a STREAM requests are ignored.
CREATE TABLE hidden_commits AS
WITH clock AS (
  SELECT rank, frame_no, max(last_ts_ns) OVER (PARTITION BY rank ORDER BY frame_no
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS ns FROM cursus_frames
),
starts AS (SELECT rank, chain, min(n) AS n, min(first_ts_ns) AS ns FROM cursus_frames GROUP BY ALL),
first_requests AS (SELECT chain, min(n) AS n FROM cursus_frames WHERE direction = 'to_broker' GROUP BY chain),
request_gaps AS (
  SELECT p.rank, p.chain, e.behind_frame_no, e.ts_ns
  FROM all_events AS e JOIN connection_parts AS p USING (capture, connection_id)
  LEFT JOIN rests AS r ON r.capture = e.capture AND r.connection_id = e.connection_id
    AND r.direction = e.direction
  WHERE e.event IN ('gap', 'skipped') AND NOT e.is_inside AND e.direction IS DISTINCT FROM 'to_client'
    AND NOT (p.comes_from_to_broker AND e.stream_offset = 0 AND e.event = 'skipped'
      AND coalesce(e.bytes <= r.bytes, true))
),
hidden_requests AS (
  SELECT h.chain, coalesce(o.n, s.n - 1, 0) AS n, greatest(c.ns, h.ts_ns) AS ns
  FROM request_gaps AS h
  ASOF LEFT JOIN frame_order AS o ON o.rank = h.rank AND o.chain = h.chain
    AND o.frame_no <= h.behind_frame_no
  ASOF LEFT JOIN clock AS c ON c.rank = h.rank AND c.frame_no <= h.behind_frame_no
  LEFT JOIN starts AS s ON s.rank = h.rank AND s.chain = h.chain
  UNION ALL
  SELECT p.chain, coalesce(s.n - 1, 1::BIGINT << 62), coalesce(s.ns, 1::BIGINT << 62)
  FROM handovers AS h
  JOIN connection_parts AS p ON p.capture = h.after_capture AND p.connection_id = h.after_connection_id
  LEFT JOIN starts AS s ON s.rank = p.rank AND s.chain = p.chain
  WHERE h.missing > 0 AND h.direction = 'to_broker'
  UNION ALL
  SELECT x.chain, x.answer, x.response_last_ns
  FROM new_exchanges AS x LEFT JOIN first_requests AS f ON f.chain = x.chain
  WHERE x.outcome = 'orphan_response' AND coalesce(f.n > x.answer, true)
    AND coalesce(x.response_command = 'RESPONSE_OK', true)
  UNION ALL
  SELECT chain, n, last_ts_ns FROM cursus_frames
  WHERE direction = 'to_broker' AND status <> 'complete' AND coalesce(command, 'UNKNOWN')
    IN ('UNKNOWN', 'COMMIT_OFFSET', 'BATCH_COMMIT', 'SEND_OFFSETS_TO_TXN', 'END_TXN')
),
named_groups AS (
  SELECT chain, subscription, min(n) AS n, row_number() OVER (PARTITION BY chain ORDER BY min(n))
    AS groups FROM cursus_frames
  WHERE direction = 'to_broker' AND subscription IS NOT NULL GROUP BY chain, subscription
),
first_batches AS (
  SELECT chain, min(n) AS n FROM cursus_frames WHERE direction = 'to_broker' AND command = 'BATCH'
  GROUP BY chain
)
SELECT subscription, max(ns) AS ns FROM (
SELECT CASE WHEN a.groups = 1 THEN a.subscription END AS subscription, h.ns
FROM hidden_requests AS h ASOF LEFT JOIN named_groups AS a ON a.chain = h.chain AND a.n <= h.n
LEFT JOIN first_batches AS b ON b.chain = h.chain LEFT JOIN pushes AS u ON u.chain = h.chain
WHERE coalesce(u.n > h.n, true) AND (a.groups IS NOT NULL OR coalesce(b.n > h.n, true))
UNION ALL
SELECT subscription, request_last_ns FROM new_exchanges
WHERE request_command IN ('COMMIT_OFFSET', 'BATCH_COMMIT', 'SEND_OFFSETS_TO_TXN', 'END_TXN')
  AND outcome IN ('lost_in_gap', 'response_cut', 'other_side_not_captured')
) GROUP BY subscription;

-- reassignments: frames that reassign the partitions of a group, or inform a member of it.
CREATE TABLE reassignments AS
WITH joins AS (
  SELECT subscription, answer AS n,
    TRY_CAST(regexp_extract(replied, '"generation":"?([0-9]+)', 1) AS BIGINT) AS generation
  FROM answered_requests WHERE command = 'JOIN_GROUP' AND is_good AND subscription IS NOT NULL
)
SELECT subscription, n FROM (
  SELECT *, last_value(generation IGNORE NULLS) OVER (PARTITION BY subscription ORDER BY n
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM joins
) WHERE generation IS NULL OR generation IS DISTINCT FROM before
UNION ALL SELECT subscription, answer FROM answered_requests WHERE command = 'LEAVE_GROUP' AND is_good
UNION ALL SELECT subscription, answer FROM answered_requests
WHERE error_code IN ('GEN_MISMATCH', 'NOT_OWNER', 'member_not_found', 'REBALANCE_REQUIRED')
UNION ALL SELECT q.subscription, f.n
FROM cursus_frames AS f JOIN pushes AS u ON u.chain = f.chain AND f.n >= u.n JOIN cursus_frames AS q ON q.n = u.ask
WHERE f.command = 'STREAM_CONTROL'
  AND regexp_matches(f.detail, '"reason":"(replaced|removed|timeout)"');

-- causes: why offsets are redelivered; a delivery that continues a redelivery has the same cause.
CREATE TABLE causes AS
WITH not_committed AS (
  SELECT d.*, coalesce(o.is_repeat, false) AS is_repeat FROM awaiting_commit AS d
  LEFT JOIN redelivered_offsets AS o ON o.n = d.n WHERE NOT d.is_late
),
with_previous AS (
  SELECT *, lag(n) OVER same AS last_n, lag(is_repeat) OVER same AS last_is_repeat,
    lag(last) OVER same AS last_offset, lag(consumer_name) OVER same AS last_consumer,
    lag(chain) OVER same AS last_chain, lag(is_push) OVER same AS last_push
  FROM not_committed WINDOW same AS (PARTITION BY read_position ORDER BY n)
),
own_causes AS (
  SELECT b.*, is_two_way AND coalesce(is_repeat AND last_is_repeat AND entry_id > last_offset
      AND last_consumer IS NOT DISTINCT FROM consumer_name
      AND (last_chain = chain OR NOT is_push), false) AS is_continued,
    CASE WHEN NOT is_two_way THEN 'unknown' WHEN entry_id < committed THEN 'reset'
      WHEN d.n > coalesce(last_n, 0) THEN 'rebalance'
      WHEN last_n IS NULL OR last_chain = chain THEN 'no_commit'
      WHEN NOT (last_push OR is_push) AND last_consumer IS NOT DISTINCT FROM consumer_name
        THEN 'no_commit' ELSE 'reconnect' END AS cause
  FROM with_previous AS b ASOF LEFT JOIN reassignments AS d ON d.subscription = b.subscription AND d.n < b.n
)
SELECT n, last_n, last_chain, is_repeat,
  last_value(CASE WHEN NOT is_continued THEN cause END IGNORE NULLS) OVER (
    PARTITION BY read_position ORDER BY n) AS cause
FROM own_causes;

-- published: time since the batch of a delivery's first record was sent, among batches with rising
-- sequence numbers.
CREATE TABLE published AS
WITH first_sends AS (
  SELECT *, greatest(coalesce(highest_sequence_id, sequence_id), sequence_id) AS highest,
    max(sequence_id) OVER (PARTITION BY topic, partition, producer_name, producer_epoch
      ORDER BY ask ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top
  FROM sent_batches WHERE attempt = 1
),
rising AS (FROM first_sends WHERE sequence_id > coalesce(top, sequence_id - 1)),
records AS (
  SELECT c.n, c.last_ts_ns, c.topic, c.partition, c.producer_name, c.producer_epoch, m.sequence_id
  FROM batch_deliveries AS c JOIN messages AS m ON m.capture = c.capture
    AND m.connection_id = c.connection_id AND m.frame_no = c.frame_no AND m.batch_index = 0
  WHERE m.producer_name = c.producer_name AND c.message_count > 0
)
SELECT a.n, a.last_ts_ns - r.last_ts_ns AS since_ns
FROM records AS a ASOF JOIN rising AS r ON r.topic = a.topic AND r.partition = a.partition
  AND r.producer_name = a.producer_name AND r.producer_epoch = a.producer_epoch
  AND r.sequence_id <= a.sequence_id
WHERE r.ask < a.n AND a.sequence_id <= r.highest AND a.last_ts_ns >= r.last_ts_ns;

CREATE TABLE new_deliveries AS
SELECT c.chain, c.n, c.rank, c.frame_no, c.ts, c.topic, c.subscription, c.consumer_name,
  c.entry_id, c.partition, c.batch_size, c.message_count,
  CASE WHEN told = 'acked' THEN c.message_count WHEN told <> 'unknown_gap'
    THEN coalesce(e.part_acked, 0) END AS messages_acked,
  coalesce(u.is_repeat, false) AS is_redelivered, CASE WHEN u.is_repeat THEN u.cause END
    AS redelivery_cause, b.frame_no AS previous_frame_no, b.rank AS previous_rank,
  CASE WHEN u.is_repeat THEN u.last_chain END AS previous_connection_id,
  o.told AS outcome,
  a.frame_no AS ack_frame_no, a.rank AS ack_rank, t.latency_ns AS ack_latency_ns,
  s.since_ns AS publish_to_delivery_ns
FROM batch_deliveries AS c LEFT JOIN awaiting_commit AS d ON d.n = c.n LEFT JOIN delivery_ends AS e ON e.n = c.n
LEFT JOIN causes AS u ON u.n = c.n LEFT JOIN connection_ends AS k ON k.chain = c.chain
LEFT JOIN frame_order AS a ON e.outcome = 'acked' AND a.n = coalesce(e.commit_ask, d.commit_ask)
LEFT JOIN frame_order AS b ON u.is_repeat AND b.n = u.last_n
LEFT JOIN published AS s ON s.n = c.n
CROSS JOIN LATERAL (SELECT CASE WHEN e.outcome = 'acked'
  AND coalesce(e.commit_ns, d.commit_ns) >= c.last_ts_ns
  THEN coalesce(e.commit_ns, d.commit_ns) - c.last_ts_ns END AS latency_ns) AS t
LEFT JOIN hidden_commits AS h ON h.subscription = c.subscription
CROSS JOIN (SELECT max(ns) FILTER (subscription IS NULL) AS all_ns, max(ns) AS any_ns
  FROM hidden_commits) AS i
CROSS JOIN LATERAL (SELECT CASE WHEN d.n IS NULL THEN NULL WHEN e.outcome = 'acked' THEN 'acked'
  WHEN NOT c.is_two_way OR e.outcome IS NULL AND c.last_ts_ns <= CASE WHEN c.subscription IS NULL THEN i.any_ns
    ELSE greatest(h.ns, i.all_ns) END THEN 'unknown_gap'
  WHEN k.is_over AND coalesce(k.over_n < e.end_n, true) THEN 'conn_closed'
  ELSE coalesce(e.outcome, 'unacked_at_end') END AS told) AS o;
