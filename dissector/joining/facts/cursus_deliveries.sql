-- Deliveries of Cursus: groups commit offsets, and nothing is acknowledged one by one. A place is
-- what a group reads of a partition: its name, topic and number.
-- Inputs: what cursus.sql makes; deliveries, messages and acks of the group.

-- commits: the offset that a group wants to read next, from the answer to it on.
CREATE TABLE commits AS
WITH transactions AS (
  SELECT *, regexp_extract(asked, '"transactional_id":"([^"]*)"', 1) AS txn FROM done
  WHERE command IN ('SEND_OFFSETS_TO_TXN', 'END_TXN') AND is_good
),
staged AS (
  SELECT answer, subscription, topic, txn, unnest(map_entries(coalesce(TRY_CAST(CASE
    WHEN json_valid(asked) THEN json_extract(asked, '$.offsets') END AS MAP(VARCHAR, BIGINT)),
    MAP {}))) AS next
  FROM transactions WHERE command = 'SEND_OFFSETS_TO_TXN'
),
endings AS (
  SELECT *, asked LIKE '%"result":"commit"%' AS is_commit,
    lag(answer) OVER (PARTITION BY txn ORDER BY answer) AS before_n
  FROM transactions WHERE command = 'END_TXN'
)
SELECT *, concat_ws(chr(0), subscription, coalesce(topic, chr(1)), partition) AS place
FROM (
SELECT d.answer AS n, d.ask, d.ns, a.subscription, a.topic, a.partition,
  coalesce(a.entry_id + 1, 0) AS following
FROM done AS d JOIN said AS f ON f.n = d.ask
JOIN parts AS p ON p.chain = f.chain AND p.rank = f.rank
JOIN acks AS a ON a.capture = p.capture AND a.connection_id = p.connection_id
  AND a.frame_no = f.frame_no
WHERE d.command IN ('COMMIT_OFFSET', 'BATCH_COMMIT') AND d.is_good AND a.subscription IS NOT NULL
UNION ALL
SELECT e.answer, e.ask, e.ns, s.subscription, s.topic,
  TRY_CAST(ltrim(s.next.key, 'P') AS BIGINT), s.next.value
FROM endings AS e JOIN staged AS s ON s.txn = e.txn AND s.answer < e.answer
  AND s.answer > coalesce(e.before_n, 0)
WHERE e.is_commit AND s.subscription IS NOT NULL
);

-- came: batches that clients were given, for the group of the request. Of a stream whose request
-- was not seen the group is the topic's only one, once that is known or has committed.
CREATE TABLE came AS
WITH named AS (
  SELECT o.n, p.chain, p.rank, p.capture, p.connection_id, d.frame_no, d.ts, d.topic, d.partition,
    d.entry_id, d.batch_size, d.message_count, f.last_ts_ns, f.producer_name, f.producer_epoch,
    d.entry_id + d.message_count - 1 AS last,
    x.answer IS NULL OR x.request_command = 'STREAM' AS is_push, q.subscription, q.consumer_name
  FROM deliveries AS d JOIN parts AS p USING (capture, connection_id)
  JOIN orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = d.frame_no
  JOIN said AS f ON f.n = o.n LEFT JOIN new_exchanges AS x ON x.answer = o.n
  LEFT JOIN pushes AS u ON u.chain = p.chain AND o.n >= u.n AND x.answer IS NULL
  LEFT JOIN said AS q ON q.n = coalesce(x.ask, u.ask)
),
only_groups AS (
  SELECT topic, any_value(subscription) AS subscription, min(n) AS n FROM said
  WHERE direction = 'to_broker' AND topic IS NOT NULL AND subscription IS NOT NULL
    AND NOT is_passed_on
  GROUP BY topic HAVING count(DISTINCT subscription) = 1
),
last_commits AS (
  SELECT subscription, topic, partition, max(n) AS n FROM commits GROUP BY ALL
)
SELECT m.* REPLACE (coalesce(m.subscription, CASE WHEN m.is_push
    AND (g.n < m.n OR c.n > m.n) THEN g.subscription END) AS subscription)
FROM named AS m LEFT JOIN only_groups AS g ON g.topic = m.topic
LEFT JOIN last_commits AS c ON c.topic = g.topic AND c.subscription = g.subscription
  AND c.partition IS NOT DISTINCT FROM m.partition;

-- kept: those that wait for a commit, with the last commit before them. top: how far was read
-- before. is_late: held back for long, and committed meanwhile.
CREATE TABLE kept AS
WITH places AS (
  SELECT *, concat_ws(chr(0), coalesce(subscription, chr(1)), coalesce(topic, chr(1)), partition)
    AS place
  FROM came WHERE entry_id IS NOT NULL AND (is_push OR subscription IS NOT NULL)
)
SELECT d.*, max(d.last) OVER (PARTITION BY d.place ORDER BY d.n
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top,
  c.following AS committed, c.ns AS commit_ns, c.ask AS commit_ask,
  coalesce(d.last_ts_ns <= c.ns AND greatest(d.entry_id, d.last) < c.following, false) AS is_late
FROM places AS d ASOF LEFT JOIN commits AS c ON c.place = d.place AND c.n < d.n;

-- crowded: places where too much comes again to hold all of it against all that came before.
CREATE TABLE crowded AS
SELECT place FROM kept LEFT JOIN (
  SELECT place, count(*) AS commits FROM commits GROUP BY place
) USING (place)
GROUP BY place, commits
HAVING (count(*) + coalesce(commits, 0)) * count(*) FILTER (entry_id <= top) > {compared};

-- come_again: offsets that come again. again_n: the first time behind a delivery; is_again: whether
-- some of it came before. At a crowded place what begins at the same offset is the same, and what is
-- not above all that came before has come before.
CREATE TABLE come_again AS
WITH meetings AS (
  SELECT d.n AS before_n, a.n AS again_n, a.is_late
  FROM kept AS a JOIN kept AS d ON d.place = a.place AND d.n < a.n
    AND d.entry_id <= a.last AND d.last >= a.entry_id
  WHERE a.entry_id <= a.top AND a.place NOT IN (FROM crowded)
  UNION ALL
  SELECT lag(n) OVER (PARTITION BY place, entry_id ORDER BY n), n, is_late
  FROM kept SEMI JOIN crowded USING (place) QUALIFY entry_id <= top
)
SELECT n, min(again_n) AS again_n, bool_or(is_again) AS is_again FROM (
  SELECT before_n AS n, again_n, false AS is_again FROM meetings WHERE NOT is_late
  UNION ALL SELECT again_n, NULL, true FROM meetings
) GROUP BY n;

-- endings: the first commit behind a delivery that goes as far, mostly the next one.
CREATE TABLE endings AS
WITH next_commits AS (
  SELECT d.n, d.place, d.last, c.n AS commit_n, c.following > d.last AS is_far
  FROM kept AS d ASOF JOIN commits AS c ON c.place = d.place AND c.n > d.n WHERE NOT d.is_late
),
reaching AS (
  SELECT n, place, last, min(commit_n) OVER (PARTITION BY place ORDER BY reach DESC, n IS NOT NULL
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_n
  FROM (
    SELECT n, place, last, last AS reach, NULL AS commit_n FROM next_commits WHERE NOT is_far
    UNION ALL SELECT NULL, place, NULL, following - 1, n FROM commits
      WHERE place IN (SELECT place FROM next_commits WHERE NOT is_far)
  )
),
later AS (
  SELECT r.n, min(c.n) AS commit_n FROM reaching AS r JOIN commits AS c ON c.place = r.place
    AND c.n > r.n AND c.following > r.last
  WHERE r.n IS NOT NULL AND r.first_n < r.n AND r.place NOT IN (FROM crowded) GROUP BY r.n
),
acked AS (
  SELECT n, commit_n FROM next_commits WHERE is_far
  UNION ALL SELECT n, first_n FROM reaching WHERE first_n > n
  UNION ALL FROM later
),
ends AS (
  SELECT d.n, d.place, d.entry_id, d.message_count, d.is_late,
    CASE WHEN a.commit_n < coalesce(o.again_n, 2e18) THEN a.commit_n END AS commit_n, o.again_n,
    coalesce(least(a.commit_n, o.again_n), 1::BIGINT << 62) AS end_n
  FROM kept AS d LEFT JOIN acked AS a ON a.n = d.n LEFT JOIN come_again AS o ON o.n = d.n
)
SELECT e.n, e.end_n, CASE WHEN e.is_late OR e.commit_n IS NOT NULL THEN 'acked'
    WHEN e.again_n IS NOT NULL THEN 'redelivery_requested' END AS outcome,
  c.ask AS commit_ask, c.ns AS commit_ns,
  -- What the last commit before its end took of it.
  CASE WHEN p.n > e.n THEN greatest(least(e.message_count, p.following - e.entry_id), 0)
    ELSE 0 END AS part_acked
FROM ends AS e LEFT JOIN commits AS c ON c.place = e.place AND c.n = e.commit_n
  AND c.following > e.entry_id
ASOF LEFT JOIN commits AS p ON p.place = e.place AND p.n < e.end_n
QUALIFY row_number() OVER (PARTITION BY e.n ORDER BY c.following DESC) = 1;

-- hidden_commits: by when a commit of a group may be hidden: in bytes or a request that are missing,
-- or behind an answer that is; of any group (null) where its connection named none before, or several.
-- A client that only sent batches commits nothing, and behind a STREAM nothing is read.
CREATE TABLE hidden_commits AS
WITH clock AS (
  SELECT rank, frame_no, max(last_ts_ns) OVER (PARTITION BY rank ORDER BY frame_no
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS ns FROM said
),
starts AS (SELECT rank, chain, min(n) AS n, min(first_ts_ns) AS ns FROM said GROUP BY ALL),
heard AS (SELECT chain, min(n) AS n FROM said WHERE direction = 'to_broker' GROUP BY chain),
holes AS (
  SELECT p.rank, p.chain, e.behind_frame_no, e.ts_ns
  FROM all_events AS e JOIN parts AS p USING (capture, connection_id)
  LEFT JOIN rests AS r ON r.capture = e.capture AND r.connection_id = e.connection_id
    AND r.direction = e.direction
  WHERE e.event IN ('gap', 'skipped') AND NOT e.is_inside AND e.direction IS DISTINCT FROM 'to_client'
    AND NOT (p.comes_from_to_broker AND e.stream_offset = 0 AND e.event = 'skipped'
      AND coalesce(e.bytes <= r.bytes, true))
),
places AS (
  SELECT h.chain, coalesce(o.n, s.n - 1, 0) AS n, greatest(c.ns, h.ts_ns) AS ns
  FROM holes AS h
  ASOF LEFT JOIN orders AS o ON o.rank = h.rank AND o.chain = h.chain
    AND o.frame_no <= h.behind_frame_no
  ASOF LEFT JOIN clock AS c ON c.rank = h.rank AND c.frame_no <= h.behind_frame_no
  LEFT JOIN starts AS s ON s.rank = h.rank AND s.chain = h.chain
  UNION ALL
  SELECT p.chain, coalesce(s.n - 1, 1::BIGINT << 62), coalesce(s.ns, 1::BIGINT << 62)
  FROM handovers AS h
  JOIN parts AS p ON p.capture = h.after_capture AND p.connection_id = h.after_connection_id
  LEFT JOIN starts AS s ON s.rank = p.rank AND s.chain = p.chain
  WHERE h.missing > 0 AND h.direction = 'to_broker'
  UNION ALL
  SELECT x.chain, x.answer, x.response_last_ns
  FROM new_exchanges AS x LEFT JOIN heard AS f ON f.chain = x.chain
  WHERE x.outcome = 'orphan_response' AND coalesce(f.n > x.answer, true)
    AND coalesce(x.response_command = 'RESPONSE_OK', true)
  UNION ALL
  SELECT chain, n, last_ts_ns FROM said
  WHERE direction = 'to_broker' AND status <> 'complete' AND coalesce(command, 'UNKNOWN')
    IN ('UNKNOWN', 'COMMIT_OFFSET', 'BATCH_COMMIT', 'SEND_OFFSETS_TO_TXN', 'END_TXN')
),
asked AS (
  SELECT chain, subscription, min(n) AS n, row_number() OVER (PARTITION BY chain ORDER BY min(n))
    AS groups FROM said
  WHERE direction = 'to_broker' AND subscription IS NOT NULL GROUP BY chain, subscription
),
sending AS (
  SELECT chain, min(n) AS n FROM said WHERE direction = 'to_broker' AND command = 'BATCH'
  GROUP BY chain
)
SELECT subscription, max(ns) AS ns FROM (
SELECT CASE WHEN a.groups = 1 THEN a.subscription END AS subscription, h.ns
FROM places AS h ASOF LEFT JOIN asked AS a ON a.chain = h.chain AND a.n <= h.n
LEFT JOIN sending AS b ON b.chain = h.chain LEFT JOIN pushes AS u ON u.chain = h.chain
WHERE coalesce(u.n > h.n, true) AND (a.groups IS NOT NULL OR coalesce(b.n > h.n, true))
UNION ALL
SELECT subscription, request_last_ns FROM new_exchanges
WHERE request_command IN ('COMMIT_OFFSET', 'BATCH_COMMIT', 'SEND_OFFSETS_TO_TXN', 'END_TXN')
  AND outcome IN ('lost_in_gap', 'response_cut', 'other_side_not_captured')
) GROUP BY subscription;

-- dealt: what deals the partitions of a group anew, or tells a member that they were.
CREATE TABLE dealt AS
WITH joins AS (
  SELECT subscription, answer AS n,
    TRY_CAST(regexp_extract(replied, '"generation":"?([0-9]+)', 1) AS BIGINT) AS generation
  FROM done WHERE command = 'JOIN_GROUP' AND is_good AND subscription IS NOT NULL
)
SELECT subscription, n FROM (
  SELECT *, last_value(generation IGNORE NULLS) OVER (PARTITION BY subscription ORDER BY n
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM joins
) WHERE generation IS NULL OR generation IS DISTINCT FROM before
UNION ALL SELECT subscription, answer FROM done WHERE command = 'LEAVE_GROUP' AND is_good
UNION ALL SELECT subscription, answer FROM done
WHERE error_code IN ('GEN_MISMATCH', 'NOT_OWNER', 'member_not_found', 'REBALANCE_REQUIRED')
UNION ALL SELECT q.subscription, f.n
FROM said AS f JOIN pushes AS u ON u.chain = f.chain AND f.n >= u.n JOIN said AS q ON q.n = u.ask
WHERE f.command = 'STREAM_CONTROL'
  AND regexp_matches(f.detail, '"reason":"(replaced|removed|timeout)"');

-- causes: why offsets come again; what follows on such a delivery has its cause.
CREATE TABLE causes AS
WITH opened AS (
  SELECT d.*, coalesce(o.is_again, false) AS is_again FROM kept AS d
  LEFT JOIN come_again AS o ON o.n = d.n WHERE NOT d.is_late
),
beside AS (
  SELECT *, lag(n) OVER same AS last_n, lag(is_again) OVER same AS last_again,
    lag(last) OVER same AS last_offset, lag(consumer_name) OVER same AS last_consumer,
    lag(chain) OVER same AS last_chain, lag(is_push) OVER same AS last_push
  FROM opened WINDOW same AS (PARTITION BY place ORDER BY n)
),
own AS (
  SELECT b.*, coalesce(is_again AND last_again AND entry_id > last_offset
      AND last_consumer IS NOT DISTINCT FROM consumer_name
      AND (last_chain = chain OR NOT is_push), false) AS goes_on,
    CASE WHEN entry_id < committed THEN 'reset' WHEN d.n > coalesce(last_n, 0) THEN 'rebalance'
      WHEN last_n IS NULL OR last_chain = chain THEN 'no_commit'
      WHEN NOT (last_push OR is_push) AND last_consumer IS NOT DISTINCT FROM consumer_name
        THEN 'no_commit' ELSE 'reconnect' END AS cause
  FROM beside AS b ASOF LEFT JOIN dealt AS d ON d.subscription = b.subscription AND d.n < b.n
)
SELECT n, last_n, last_chain, is_again,
  last_value(CASE WHEN NOT goes_on THEN cause END IGNORE NULLS) OVER (
    PARTITION BY place ORDER BY n) AS cause
FROM own;

-- published: when the batch of a delivery's first record was sent, of those whose sequence numbers
-- rise.
CREATE TABLE published AS
WITH first_sends AS (
  SELECT *, greatest(coalesce(highest_sequence_id, sequence_id), sequence_id) AS highest,
    max(sequence_id) OVER (PARTITION BY topic, partition, producer_name, producer_epoch
      ORDER BY ask ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS top
  FROM sent WHERE attempt = 1
),
rising AS (FROM first_sends WHERE sequence_id > coalesce(top, sequence_id - 1)),
records AS (
  SELECT c.n, c.last_ts_ns, c.topic, c.partition, c.producer_name, c.producer_epoch, m.sequence_id
  FROM came AS c JOIN messages AS m ON m.capture = c.capture
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
  CASE WHEN e.outcome = 'acked' THEN c.message_count ELSE coalesce(e.part_acked, 0) END
    AS messages_acked,
  coalesce(u.is_again, false) AS is_redelivered, CASE WHEN u.is_again THEN u.cause END
    AS redelivery_cause, b.frame_no AS previous_frame_no, b.rank AS previous_rank,
  CASE WHEN u.is_again THEN u.last_chain END AS previous_connection_id,
  CASE WHEN d.n IS NULL THEN NULL WHEN e.outcome = 'acked' THEN 'acked'
    WHEN e.outcome IS NULL AND c.last_ts_ns <= CASE WHEN c.subscription IS NULL THEN i.any_ns
      ELSE greatest(h.ns, i.all_ns) END THEN 'unknown_gap'
    WHEN k.is_over AND coalesce(k.over_n < e.end_n, true) THEN 'conn_closed'
    ELSE coalesce(e.outcome, 'unacked_at_end') END AS outcome,
  a.frame_no AS ack_frame_no, a.rank AS ack_rank, t.latency_ns AS ack_latency_ns,
  s.since_ns AS publish_to_delivery_ns
FROM came AS c LEFT JOIN kept AS d ON d.n = c.n LEFT JOIN endings AS e ON e.n = c.n
LEFT JOIN causes AS u ON u.n = c.n LEFT JOIN lives AS k ON k.chain = c.chain
LEFT JOIN orders AS a ON e.outcome = 'acked' AND a.n = coalesce(e.commit_ask, d.commit_ask)
LEFT JOIN orders AS b ON u.is_again AND b.n = u.last_n
LEFT JOIN published AS s ON s.n = c.n
CROSS JOIN LATERAL (SELECT CASE WHEN e.outcome = 'acked'
  AND coalesce(e.commit_ns, d.commit_ns) >= c.last_ts_ns
  THEN coalesce(e.commit_ns, d.commit_ns) - c.last_ts_ns END AS latency_ns) AS t
LEFT JOIN hidden_commits AS h ON h.subscription = c.subscription
CROSS JOIN (SELECT max(ns) FILTER (subscription IS NULL) AS all_ns, max(ns) AS any_ns
  FROM hidden_commits) AS i;
