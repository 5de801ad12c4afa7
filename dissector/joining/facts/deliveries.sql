-- new_deliveries: each delivery of a message, how it ended, and why the message was redelivered.
-- Inputs: acks, producers, consumers.

-- numbered_consumers: consumers by connection, id and incarnation. g: the number of the subscription;
-- t: the number of the topic; topic_n, subscription_n: the first frames with the topic and with the
-- subscription, of a consumer whose SUBSCRIBE was not captured.
CREATE TEMP TABLE topics AS
SELECT row_number() OVER (ORDER BY d, topic) AS t, d, topic FROM (
  SELECT k.d, p.topic FROM producers AS p JOIN numbered_connections AS k USING (capture,
    connection_id) WHERE p.topic IS NOT NULL
  UNION SELECT k.d, p.topic FROM consumers AS p JOIN numbered_connections AS k USING (capture,
    connection_id) WHERE p.topic IS NOT NULL
);

CREATE TEMP TABLE numbered_consumers AS
SELECT s.*, dense_rank() OVER (ORDER BY d, topic, subscription,
    CASE WHEN topic IS NULL OR subscription IS NULL THEN c END, CASE WHEN topic IS NULL
      OR subscription IS NULL THEN consumer_id END) AS g,
  coalesce(subscription_type IN ('Shared', 'Key_Shared'), false) AS is_shared,
  coalesce(topic LIKE 'non-persistent://%', false) AS is_volatile
FROM (
  SELECT k.c, k.d, k.ended, k.is_two_way, k.ended_packet,
    least(k.fin_packet_to_broker, k.fin_packet_to_client, k.ended_packet) AS left_packet, p.consumer_id, p.incarnation AS x,
    p.topic, t.t, p.subscription, p.subscription_type, p.name, p.opened_frame_no AS opened_n,
      CASE WHEN p.opened_frame_no <= (SELECT max(n) FROM before_end) THEN p.opened_frame_no
      ELSE o.last_packet END AS opened_packet, p.closed_by, p.refused_code, p.closed_frame_no,
    m.topic_n, m.subscription_n, lead(p.opened_frame_no) OVER (PARTITION BY k.c, p.consumer_id
      ORDER BY p.incarnation) AS reopened_n,
    CASE WHEN b.closed_n IS NOT NULL THEN b.closed_n WHEN p.closed_by = 'broker' THEN p.closed_frame_no WHEN r.outcome = 'ok'
      THEN r.response_frame_no ELSE lead(p.opened_frame_no) OVER (
      PARTITION BY k.c, p.consumer_id ORDER BY p.incarnation) END AS closed_n
  FROM consumers AS p JOIN numbered_connections AS k USING (capture, connection_id)
  LEFT JOIN topics AS t ON t.d = k.d AND t.topic = p.topic
  LEFT JOIN new_exchanges AS r ON r.capture = k.capture AND r.connection_id = k.connection_id
    AND r.request_frame_no = p.closed_frame_no
      AND r.request_command IN ('CLOSE_CONSUMER', 'UNSUBSCRIBE')
  LEFT JOIN numbered_frames AS o ON o.c = k.c AND o.n = p.opened_frame_no
  LEFT JOIN before_consumers AS b ON b.chain = k.connection_id AND b.consumer_id = p.consumer_id
    AND b.x = p.incarnation
  LEFT JOIN (
    SELECT c, consumer_id, incarnation AS x, min(n) FILTER (topic IS NOT NULL) AS topic_n,
      min(n) FILTER (subscription IS NOT NULL) AS subscription_n
    FROM numbered_frames WHERE command IN ('MESSAGE', 'FLOW', 'SUBSCRIBE') GROUP BY ALL
  ) AS m ON p.opened_frame_no IS NULL AND m.c = k.c AND m.consumer_id = p.consumer_id
    AND m.x = p.incarnation
) AS s;

-- late_frames: MESSAGEs and FLOWs of a consumer that was closed before, and not opened again: no bytes
-- are missing in which a SUBSCRIBE may be.
CREATE TEMP TABLE late_frames AS
SELECT f.c, f.n FROM numbered_frames AS f
JOIN numbered_consumers AS s ON s.c = f.c AND s.consumer_id = f.consumer_id AND s.x = f.incarnation
LEFT JOIN next_hidden_acks AS u ON u.c = f.c AND u.n = f.n
WHERE f.command IN ('MESSAGE', 'FLOW') AND s.closed_n < f.n AND s.is_two_way
  AND NOT coalesce(u.broker_before_spot >= s.closed_frame_no, false);

-- revived: closed consumers that are in use again, as of revived_n: their next SUBSCRIBE was lost.
CREATE TEMP TABLE revived AS
SELECT f.c, f.consumer_id, f.incarnation AS x, min(f.n) AS revived_n FROM numbered_frames AS f
JOIN numbered_consumers AS s ON s.c = f.c AND s.consumer_id = f.consumer_id AND s.x = f.incarnation
ANTI JOIN late_frames AS i ON i.c = f.c AND i.n = f.n
WHERE f.command IN ('MESSAGE', 'FLOW') AND s.closed_n < f.n
GROUP BY f.c, f.consumer_id, f.incarnation;

-- received: deliveries. previous_n, next_n: the previous and next delivery of the same entry to the same
-- subscription; is_replaced: the next one is another message, of a broker that began anew. is_late: see
-- late_frames.
CREATE TEMP TABLE received AS
WITH message_frames AS (
  SELECT f.c, f.n, f.consumer_id, f.incarnation AS x, s.g, s.t, f.ledger_id AS ledger,
    f.entry_id AS entry, f.last_packet, f.last_ts_ns, f.partition,
    f.status IN ('complete', 'cut_by_snaplen') AS is_timed,
    f.message_count AS messages, CASE WHEN f.is_batch THEN f.message_count END AS batch_size,
      f.redelivery_count, f.deliver_at_ms, f.checksum, f.crc32c_stored,
    CASE WHEN f.checksum IS DISTINCT FROM 'mismatch' THEN f.crc32c_stored END AS crc,
    CASE WHEN f.checksum IS DISTINCT FROM 'mismatch' THEN f.publish_time_ms END AS published_ms,
    f.ack_set, f.message_permits, i.n IS NOT NULL AS is_late,
    NOT s.is_volatile AND f.ledger_id >= 0 AND f.entry_id >= 0 AND NOT (f.ledger_id = 0
      AND f.entry_id = 0 AND s.topic IS NULL) AS has_id, false AS is_past
  FROM numbered_frames AS f JOIN numbered_consumers AS s ON s.c = f.c
    AND s.consumer_id = f.consumer_id AND s.x = f.incarnation
  LEFT JOIN late_frames AS i ON i.c = f.c AND i.n = f.n
  WHERE f.command = 'MESSAGE' AND f.consumer_id IS NOT NULL AND f.status <> 'malformed'
  UNION ALL BY NAME
  SELECT k.c, b.n, b.consumer_id, b.x, s.g, s.t, b.ledger, b.entry, b.crc, false AS is_late, true AS has_id,
    true AS is_past
  FROM before_deliveries AS b JOIN numbered_connections AS k ON k.connection_id = b.chain
  JOIN numbered_consumers AS s ON s.c = k.c AND s.consumer_id = b.consumer_id AND s.x = b.x
)
SELECT m.*,
  -- The broker charges only the remaining messages of a batch that it redelivers.
  CASE WHEN message_permits IS NOT NULL THEN message_permits
    WHEN len(ack_set) > 0 THEN list_sum(list_transform(ack_set, lambda word, place: bit_count(
    word & CASE WHEN messages - 64 * (place - 1) >= 64 OR messages IS NULL THEN -1
      WHEN messages - 64 * (place - 1) <= 0 THEN 0
      ELSE (1::BIGINT << (messages - 64 * (place - 1))) - 1 END)))::BIGINT
    ELSE messages END AS cost,
  CASE WHEN has_id THEN coalesce(b.next_n, lead(m.n) OVER same) END AS next_n,
  CASE WHEN b.next_n IS NOT NULL THEN b.is_replaced
    ELSE coalesce(CASE WHEN crc IS NOT NULL AND lead(crc) OVER same IS NOT NULL
      THEN crc <> lead(crc) OVER same
      ELSE published_ms <> lead(published_ms) OVER same END, false) END AS is_replaced,
  CASE WHEN has_id AND NOT coalesce(CASE WHEN crc IS NOT NULL AND lag(crc) OVER same IS NOT NULL
    THEN crc <> lag(crc) OVER same
    ELSE published_ms <> lag(published_ms) OVER same END, false) THEN lag(m.n) OVER same
      END AS previous_n,
  CASE WHEN has_id THEN lag(m.c) OVER same END AS previous_c
FROM message_frames AS m LEFT JOIN before_frames AS b ON b.n = m.n AND b.is_open
WINDOW same AS (PARTITION BY g, ledger, entry ORDER BY m.n);

-- ack_fates: acks that do not count: the broker refused them, or their transaction was aborted or has
-- not ended.
CREATE TEMP TABLE ack_fates AS
WITH endings AS (
  SELECT k.d, q.txn_most_bits AS most, q.txn_least_bits AS least, q.txn_action, q.n,
    CASE WHEN q.command = 'END_TXN' THEN r.n ELSE q.n END AS ended_n
  FROM numbered_frames AS q JOIN numbered_connections AS k ON k.c = q.c
  LEFT JOIN pairs AS p ON p.asked = 'END_TXN' AND p.c = q.c AND p.ask = q.n
  LEFT JOIN numbered_frames AS r ON r.c = p.c AND r.n = p.answer
  WHERE q.command IN ('END_TXN', 'END_TXN_ON_SUBSCRIPTION') AND r.error_code IS NULL
),
transactions AS (
  SELECT d, most, least, arg_min(txn_action, n) AS action, min(ended_n) AS ended_n FROM endings
  GROUP BY d, most, least
)
SELECT f.c, f.n, CASE WHEN is_refused THEN 'ack_refused'
    WHEN f.txn_most_bits IS NULL OR f.txn_least_bits IS NULL OR e.action = 'COMMIT' THEN NULL
    WHEN e.action = 'ABORT' THEN 'ack_rolled_back' ELSE 'ack_uncommitted' END AS fate,
  CASE WHEN is_refused THEN r.n END AS refused_n, e.ended_n
FROM numbered_frames AS f JOIN numbered_connections AS k ON k.c = f.c
LEFT JOIN pairs AS p ON p.asked = 'ACK' AND p.c = f.c AND p.ask = f.n
LEFT JOIN numbered_frames AS r ON r.c = p.c AND r.n = p.answer
LEFT JOIN transactions AS e ON e.d = k.d AND e.most = f.txn_most_bits AND e.least = f.txn_least_bits
CROSS JOIN LATERAL (SELECT r.error_code IS NOT NULL
  AND coalesce(r.n < e.ended_n OR f.n > e.ended_n, true) AS is_refused) AS i
WHERE f.command = 'ACK' AND (r.error_code IS NOT NULL OR f.txn_most_bits IS NOT NULL);

-- all_ack_ids: the entries that consumers acked, nacked or discarded. is_only: the only cumulative id of
-- its frame. ack_ids: ids that count or may count; a discard counts whatever the broker answers.
CREATE TEMP TABLE all_ack_ids AS
SELECT y.fate, y.refused_n, y.ended_n, k.c, a.frame_no AS n, a.consumer_id, a.incarnation AS x, s.g, s.is_shared,
  s.subscription_type, a.action, a.ack_type, a.ledger_id AS ledger, a.entry_id AS entry,
  a.batch_size, a.ack_set, a.validation_error IS NOT NULL AS is_discard,
  a.request_id IS NOT NULL OR (a.txn_most_bits IS NOT NULL AND a.txn_least_bits IS NOT NULL)
    AS is_undecided,
  a.validation_error IS NULL AND coalesce(len(a.ack_set), 0) > 0 AS is_part, a.txn_most_bits,
    a.txn_least_bits,
  a.ack_type = 'Cumulative' AND m.frame_no IS NULL AS is_only
FROM acks AS a JOIN numbered_connections AS k USING (capture, connection_id)
JOIN numbered_consumers AS s ON s.c = k.c AND s.consumer_id = a.consumer_id AND s.x = a.incarnation
LEFT JOIN ack_fates AS y ON y.c = k.c AND y.n = a.frame_no
LEFT JOIN (
  SELECT capture, connection_id, frame_no FROM acks WHERE ack_type = 'Cumulative'
  GROUP BY ALL HAVING count(*) > 1
) AS m USING (capture, connection_id, frame_no);

CREATE TEMP VIEW ack_ids AS
SELECT * FROM all_ack_ids WHERE fate IS DISTINCT FROM 'ack_refused' OR is_discard;

-- said_deliveries: each id with the delivery that it names, in whole or in part.
CREATE TEMP TABLE said_deliveries AS
SELECT d.c, d.n, a.n AS said_n, a.c AS said_c, a.action, a.is_discard, a.is_part, a.batch_size,
  a.ack_set, a.txn_most_bits, a.txn_least_bits, a.fate, a.refused_n, a.ended_n, a.ack_type,
  a.is_undecided
FROM all_ack_ids AS a JOIN received AS d ON d.g = a.g AND d.ledger = a.ledger AND d.entry = a.entry
WHERE d.has_id AND a.n > d.n AND (d.next_n IS NULL OR a.n < d.next_n)
  AND (a.ack_type IS DISTINCT FROM 'Cumulative' OR (a.is_part AND a.is_only AND NOT a.is_shared
    AND a.c = d.c AND a.consumer_id = d.consumer_id AND a.x = d.x))
  AND (a.action = 'ack' OR (a.c = d.c AND a.consumer_id = d.consumer_id
    AND (a.action = 'nack' OR a.subscription_type IS NULL OR a.is_shared)));

-- named_deliveries: the rows of said_deliveries that count or may count.
CREATE TEMP VIEW named_deliveries AS
SELECT * FROM said_deliveries WHERE fate IS DISTINCT FROM 'ack_refused' OR is_discard;

-- counted_deliveries: deliveries without an id of their own: each further ack of the id is paired with
-- the oldest delivery that is left.
CREATE TEMP TABLE counted_deliveries AS
SELECT d.c, d.n, a.n AS said_n, a.c AS said_c, a.is_discard FROM (
  SELECT *, row_number() OVER (PARTITION BY c, consumer_id, x, ledger, entry ORDER BY n) AS place
    FROM received WHERE NOT has_id
) AS d JOIN (
  SELECT *, row_number() OVER (PARTITION BY c, consumer_id, x, ledger, entry ORDER BY n) AS place
    FROM ack_ids WHERE action = 'ack' AND ack_type IS DISTINCT FROM 'Cumulative'
) AS a ON a.c = d.c AND a.consumer_id = d.consumer_id AND a.x = d.x AND a.ledger = d.ledger
  AND a.entry = d.entry AND a.place = d.place AND a.n > d.n;

-- cumulative_ids: cumulative acks. kind: plain acks count, committed ones count from their commit on,
-- uncommitted ones may count; of undone ones each matters for itself.
CREATE TEMP TABLE cumulative_ids AS
SELECT c, consumer_id, x, ledger, entry, n, is_discard, is_part, txn_most_bits, txn_least_bits, fate,
  refused_n, ended_n, CASE WHEN txn_most_bits IS NULL OR txn_least_bits IS NULL THEN n
    WHEN fate IS NULL AND ended_n IS NOT NULL THEN greatest(n, ended_n) END AS counts_n,
  CASE WHEN fate = 'ack_uncommitted' THEN 'uncommitted' WHEN fate IS NOT NULL THEN 'undone'
    WHEN txn_most_bits IS NULL OR txn_least_bits IS NULL THEN 'plain'
    WHEN ended_n IS NULL THEN 'committing' ELSE 'committed' END AS kind
FROM all_ack_ids WHERE action = 'ack' AND is_only AND NOT is_shared;

CREATE TEMP TABLE doubtful_consumers AS
SELECT DISTINCT c, consumer_id, x FROM all_ack_ids WHERE fate IS NOT NULL OR txn_most_bits IS NOT NULL
UNION SELECT d.c, d.consumer_id, d.x FROM said_deliveries AS p JOIN received AS d USING (c, n)
WHERE p.fate IS NOT NULL OR p.txn_most_bits IS NOT NULL;

-- first_reaches: of each kind the consumer's first cumulative ack that covers the delivery. Kind
-- `counting`, all acks that are not refused, is of every consumer; the others are of doubtful_consumers.
CREATE TEMP TABLE first_reaches AS
WITH kinds AS (
  SELECT 'counting' AS of_kind, c, consumer_id, x, ledger, entry, n, is_part FROM cumulative_ids
  WHERE fate IS DISTINCT FROM 'ack_refused' OR is_discard
  UNION ALL
  SELECT kind, c, consumer_id, x, ledger, entry, n, is_part FROM cumulative_ids
  SEMI JOIN doubtful_consumers USING (c, consumer_id, x)
  WHERE kind IN ('plain', 'committed', 'uncommitted')
),
acks_and_entries AS (
  SELECT of_kind, c, consumer_id, x, ledger, entry, n AS ack_n, NULL AS n, NULL AS next_n,
    CASE WHEN is_part THEN 2 ELSE 0 END AS place FROM kinds
  UNION ALL SELECT k.of_kind, c, consumer_id, x, r.ledger, r.entry, NULL, r.n, r.next_n, 1
  FROM received AS r JOIN (SELECT DISTINCT of_kind, c, consumer_id, x FROM kinds) AS k
    USING (c, consumer_id, x)
),
first_reaching AS (
  SELECT *, min(ack_n) OVER (PARTITION BY of_kind, c, consumer_id, x
    ORDER BY ledger DESC, entry DESC, place
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_n FROM acks_and_entries
),
later_reaching AS (
  SELECT r.of_kind, r.c, r.n, min(a.n) AS first_n FROM first_reaching AS r JOIN kinds AS a
    ON a.of_kind = r.of_kind AND a.c = r.c AND a.consumer_id = r.consumer_id AND a.x = r.x
    AND a.n > r.n AND (a.ledger > r.ledger OR (a.ledger = r.ledger AND (a.entry > r.entry
      OR (a.entry = r.entry AND NOT a.is_part))))
  WHERE r.place = 1 AND r.first_n < r.n GROUP BY r.of_kind, r.c, r.n
)
SELECT of_kind AS kind, r.c, r.n, coalesce(a.first_n, r.first_n) AS said_n
FROM first_reaching AS r LEFT JOIN later_reaching AS a USING (of_kind, c, n)
WHERE r.place = 1 AND coalesce(a.first_n, r.first_n) > r.n AND (r.next_n IS NULL
  OR coalesce(a.first_n, r.first_n) < r.next_n);

-- cumulative_ends: the first cumulative ack that covers the delivery.
CREATE TEMP VIEW cumulative_ends AS
SELECT c, n, said_n FROM first_reaches WHERE kind = 'counting';

-- reaching: the cumulative acks that decide whole deliveries: the first of each kind; before it counts,
-- acks that may be undone or count sooner; and all acks that name the entry itself.
CREATE TEMP TABLE reaching AS
WITH doubtful_deliveries AS (
  SELECT d.*, f.plain_n, f.committed_n, f.uncommitted_n,
    least(f.plain_n, e.counts_n) AS counts_n
  FROM received AS d SEMI JOIN doubtful_consumers USING (c, consumer_id, x)
  LEFT JOIN (
    SELECT c, n, min(said_n) FILTER (kind = 'plain') AS plain_n,
      min(said_n) FILTER (kind = 'committed') AS committed_n,
      min(said_n) FILTER (kind = 'uncommitted') AS uncommitted_n
    FROM first_reaches GROUP BY c, n
  ) AS f USING (c, n)
  LEFT JOIN cumulative_ids AS e ON e.c = d.c AND e.n = f.committed_n
),
deciding_acks AS (
  SELECT c, n, unnest([plain_n, committed_n, uncommitted_n]) AS said_n FROM doubtful_deliveries
  UNION
  SELECT d.c, d.n, a.n FROM doubtful_deliveries AS d JOIN cumulative_ids AS a
    ON a.c = d.c AND a.consumer_id = d.consumer_id AND a.x = d.x AND a.n > d.n
    AND a.n < least(d.next_n, d.counts_n, 9e18) AND (a.ledger > d.ledger
      OR (a.ledger = d.ledger AND a.entry > d.entry))
  WHERE a.kind IN ('undone', 'committing', 'committed')
  UNION
  SELECT d.c, d.n, a.n FROM doubtful_deliveries AS d JOIN cumulative_ids AS a
    ON a.c = d.c AND a.consumer_id = d.consumer_id AND a.x = d.x AND a.ledger = d.ledger
    AND a.entry = d.entry AND a.n > d.n AND (d.next_n IS NULL OR a.n < d.next_n)
  WHERE NOT a.is_part
)
SELECT f.c, f.n, f.said_n, f.c AS said_c, false AS is_part, NULL::BIGINT AS batch_size,
  NULL::BIGINT[] AS ack_set, a.txn_most_bits, a.txn_least_bits, a.fate, a.refused_n, a.ended_n,
  a.is_discard
FROM deciding_acks AS f JOIN cumulative_ids AS a ON a.c = f.c AND a.n = f.said_n;

-- claims: the deciding acks of deliveries with an ack that may not count, up to the next delivery of the
-- entry. undone_n: the frame that refused it or rolled it back; counts_n: the frame from which on its
-- messages count as acked. A discard is one more ack of messages that are acked already.
CREATE TEMP TABLE claims AS
WITH acks_of_deliveries AS (
  SELECT c, n, said_n, said_c, is_part, batch_size, ack_set, txn_most_bits, txn_least_bits, fate,
    refused_n, ended_n, is_discard
  FROM said_deliveries WHERE action = 'ack'
  UNION ALL BY NAME FROM reaching
)
SELECT *,
  CASE WHEN fate = 'ack_refused' THEN refused_n
    WHEN fate = 'ack_rolled_back' AND ended_n > said_n THEN ended_n END AS undone_n,
  CASE WHEN txn_most_bits IS NULL OR txn_least_bits IS NULL THEN said_n
    WHEN fate IS NULL AND ended_n IS NOT NULL THEN greatest(said_n, ended_n) END AS counts_n
FROM acks_of_deliveries SEMI JOIN (
  FROM acks_of_deliveries WHERE fate IS NOT NULL OR txn_most_bits IS NOT NULL
) AS doubtful USING (c, n);

CREATE TEMP MACRO has_bit(words, bit) AS (coalesce(words[bit // 64 + 1], 0) >> (bit % 64)) & 1 = 1;

-- claimed_bits: claims by the messages (bit) that they ack. Batches larger than a dissection's limit
-- (MAX_BATCH_WORDS) have none.
CREATE TEMP TABLE claimed_bits AS
WITH sizes AS (
  SELECT c, n, coalesce(max(nullif(batch_size, 0)), 64 * max(len(ack_set)), 1) AS bits
  FROM claims GROUP BY c, n
),
messages AS (
  SELECT d.c, d.n, d.ack_set AS came_set,
    unnest(range(greatest(coalesce(d.messages, s.bits), 1))) AS bit
  FROM received AS d JOIN sizes AS s ON s.c = d.c AND s.n = d.n
  WHERE coalesce(d.messages, s.bits) <= 65536
)
SELECT m.c, m.n, m.bit, p.said_n, p.undone_n, p.counts_n, p.fate
FROM messages AS m LEFT JOIN claims AS p ON p.c = m.c AND p.n = m.n
  AND (NOT p.is_part OR NOT has_bit(p.ack_set, m.bit))
WHERE coalesce(len(m.came_set), 0) = 0 OR has_bit(m.came_set, m.bit);

-- claimed_left: how many messages of a delivery are not acked, from frame at_n on.
CREATE TEMP TABLE claimed_left AS
WITH steps AS (
  SELECT c, n, bit, at_n, sum(step) AS step FROM (
    SELECT c, n, bit, said_n AS at_n, 1 AS step FROM claimed_bits WHERE said_n IS NOT NULL
    UNION ALL SELECT c, n, bit, undone_n, -1 FROM claimed_bits WHERE undone_n IS NOT NULL
  ) GROUP BY ALL
),
bit_states AS (
  SELECT c, n, bit, at_n,
    (sum(step) OVER (PARTITION BY c, n, bit ORDER BY at_n) > 0)::BIGINT AS is_acked FROM steps
),
newly_acked AS (
  SELECT c, n, at_n, sum(is_acked - was_acked) AS messages FROM (
    SELECT *, coalesce(lag(is_acked) OVER (PARTITION BY c, n, bit ORDER BY at_n), 0) AS was_acked
    FROM bit_states
  ) GROUP BY ALL
)
SELECT t.c, t.n, t.at_n, b.messages - sum(t.messages) OVER (PARTITION BY t.c, t.n ORDER BY t.at_n)
  AS messages_left
FROM newly_acked AS t JOIN (
  SELECT c, n, count(DISTINCT bit) AS messages FROM claimed_bits GROUP BY c, n
) AS b ON b.c = t.c AND b.n = t.n;

-- seeks: seeks of a subscription; undone_n: the frame with which the broker refused it; done_n: the
-- one with which it said that it did it, and had closed the consumers.
CREATE TEMP TABLE seeks AS
SELECT s.g, f.n, CASE WHEN x.outcome = 'error' THEN x.response_frame_no END AS undone_n,
  CASE WHEN x.outcome = 'ok' THEN x.response_frame_no END AS done_n FROM numbered_frames AS f
  JOIN numbered_consumers AS s ON s.c = f.c AND s.consumer_id = f.consumer_id
  AND s.x = f.incarnation
JOIN numbered_connections AS k ON k.c = f.c
LEFT JOIN new_exchanges AS x ON x.capture = k.capture AND x.connection_id = k.connection_id
  AND x.request_frame_no = f.n
WHERE f.command = 'SEEK';

-- commits: requests to commit a transaction; refused_n: the frame that refused it.
CREATE TEMP TABLE commits AS
SELECT k.d, f.txn_most_bits AS most, f.txn_least_bits AS least, f.n,
  CASE WHEN r.error_code IS NOT NULL THEN r.n END AS refused_n
FROM numbered_frames AS f JOIN numbered_connections AS k ON k.c = f.c
LEFT JOIN pairs AS p ON p.asked = 'END_TXN' AND p.c = f.c AND p.ask = f.n
LEFT JOIN numbered_frames AS r ON r.c = p.c AND r.n = p.answer
WHERE f.command = 'END_TXN' AND f.txn_action = 'COMMIT';

-- set_aside: from begin_n to until_n every message of a delivery is acked, some by acks that may be
-- undone. undone_by: why it is open again from until_n on; a redelivery without a seek proves that acks
-- without a commit were undone. waits_for: its outcome if nothing undoes it.
CREATE TEMP TABLE set_aside AS
WITH turns AS (
  SELECT c, n, at_n, messages_left = 0 AS is_aside,
    coalesce(lag(messages_left) OVER (PARTITION BY c, n ORDER BY at_n) = 0, false) AS was_aside
  FROM claimed_left
),
spans AS (
  SELECT c, n, at_n AS begin_n, is_aside, lead(at_n) OVER (PARTITION BY c, n ORDER BY at_n) AS until_n
  FROM turns WHERE is_aside <> was_aside
),
undisturbed_outcomes AS (
  SELECT c, n, CASE WHEN bool_and(counts) THEN NULL WHEN bool_and(may_count) THEN 'ack_uncommitted'
    ELSE 'ack_rolled_back' END AS waits_for FROM (
    SELECT c, n, bool_or(fate IS NULL AND said_n IS NOT NULL) AS counts,
      bool_or(said_n IS NOT NULL AND coalesce(fate = 'ack_uncommitted', true)) AS may_count
    FROM claimed_bits GROUP BY c, n, bit
  ) GROUP BY c, n
),
redelivered_claims AS (
  SELECT c, n, NOT bool_and(counts) AS is_given_up FROM (
    SELECT b.c, b.n, b.bit, coalesce(bool_or((b.counts_n < d.next_n OR m.n IS NOT NULL)
      AND coalesce(b.undone_n > d.next_n, true)), false) AS counts
    FROM claimed_bits AS b JOIN received AS d ON d.c = b.c AND d.n = b.n
    LEFT JOIN claims AS p ON p.c = b.c AND p.n = b.n AND p.said_n = b.said_n
    LEFT JOIN numbered_connections AS k ON k.c = p.said_c
    LEFT JOIN commits AS m ON m.d = k.d AND m.most = p.txn_most_bits AND m.least = p.txn_least_bits
      AND m.n < d.next_n AND coalesce(m.refused_n > d.next_n, true)
    JOIN numbered_consumers AS h ON h.c = d.c AND h.consumer_id = d.consumer_id AND h.x = d.x
    LEFT JOIN received AS e ON e.g = d.g AND e.n = d.next_n
    WHERE d.next_n IS NOT NULL AND NOT d.is_replaced AND NOT EXISTS (FROM seeks AS k
      WHERE k.g = d.g AND (k.n > d.n AND k.n < d.next_n AND coalesce(k.undone_n > d.next_n, true)
        OR k.done_n > d.n AND k.done_n < d.next_n AND (coalesce(h.closed_n < d.next_n, false)
          OR coalesce(h.closed_by = 'client' AND h.closed_frame_no < d.next_n, false)
          OR coalesce(h.left_packet
            <= e.last_packet, false))))
    GROUP BY b.c, b.n, b.bit
  ) GROUP BY c, n
)
SELECT s.c, s.n, s.begin_n, a.c AS begin_c,
  CASE WHEN g.is_given_up AND coalesce(d.next_n < s.until_n, true) THEN d.next_n ELSE s.until_n END
    AS until_n,
  CASE WHEN g.is_given_up AND coalesce(d.next_n < s.until_n, true) THEN 'ack_rolled_back'
    ELSE u.fate END AS undone_by,
  o.waits_for
FROM spans AS s JOIN received AS d ON d.c = s.c AND d.n = s.n
JOIN undisturbed_outcomes AS o ON o.c = s.c AND o.n = s.n
LEFT JOIN redelivered_claims AS g ON g.c = s.c AND g.n = s.n AND d.next_n > s.begin_n
LEFT JOIN (SELECT DISTINCT c, n, said_n, said_c AS ac FROM claims) AS z
  ON z.c = s.c AND z.n = s.n AND z.said_n = s.begin_n
LEFT JOIN numbered_connections AS a ON a.c = z.ac
LEFT JOIN (SELECT c, n, undone_n, any_value(fate) AS fate FROM claims GROUP BY c, n, undone_n) AS u
  ON u.c = s.c AND u.n = s.n AND u.undone_n = s.until_n
WHERE s.is_aside;

-- narrowed: the remaining messages of a batch after each partial ack of a table: the bits that are 1 in
-- all acks so far.
CREATE TEMP MACRO narrowed(part_acks) AS TABLE
WITH partial_acks AS (
  SELECT p.c, p.n, p.said_n, p.said_c, p.ack_set, d.ack_set AS came_set, d.cost,
    coalesce(d.messages, nullif(p.batch_size, 0), 64 * len(p.ack_set)) AS bits
  FROM query_table(part_acks) AS p JOIN received AS d ON d.c = p.c AND d.n = p.n
),
words AS (
  SELECT *, unnest(range((bits + 63) // 64)) AS w FROM partial_acks
),
masked AS (
  SELECT *, CASE WHEN bits - 64 * w >= 64 THEN -1 ELSE (1::BIGINT << (bits - 64 * w)) - 1
    END AS mask FROM words
),
narrowed_words AS (
  SELECT c, n, said_n, said_c, cost, w,
    bit_and(coalesce(ack_set[w + 1], 0)) OVER so_far & mask & came AS word
  FROM (SELECT *, CASE WHEN len(came_set) > 0 THEN coalesce(came_set[w + 1], 0) ELSE -1 END AS came
    FROM masked) WINDOW so_far AS (PARTITION BY c, n, w ORDER BY said_n)
)
SELECT c, n, said_n, said_c, least(sum(bit_count(word))::BIGINT, any_value(cost)) AS messages_left
FROM (SELECT DISTINCT * FROM narrowed_words) GROUP BY c, n, said_n, said_c;

-- batch_part_acks, batch_acks: the partial acks of deliveries without claims.
CREATE TEMP TABLE batch_part_acks AS
FROM said_deliveries
WHERE is_part AND action = 'ack' AND (c, n) NOT IN (SELECT c, n FROM claims);

CREATE TEMP TABLE batch_acks AS FROM narrowed('batch_part_acks');

-- sweeps: requests to redeliver all messages of a consumer.
CREATE TEMP TABLE sweeps AS
SELECT f.c, f.consumer_id, f.incarnation AS x, f.n FROM numbered_frames AS f
  JOIN numbered_consumers AS s ON s.c = f.c AND s.consumer_id = f.consumer_id
  AND s.x = f.incarnation
LEFT JOIN (SELECT DISTINCT c, n FROM ack_ids WHERE ledger IS NOT NULL) AS i ON i.c = f.c
  AND i.n = f.n
WHERE f.command = 'REDELIVER_UNACKNOWLEDGED_MESSAGES'
  AND ((i.n IS NULL AND f.status = 'complete') OR s.subscription_type IN ('Exclusive', 'Failover'));

-- first_sweeps: the first of each consumer. swept_deliveries: deliveries with the next one behind them.
CREATE TEMP TABLE first_sweeps AS
SELECT c, consumer_id, x, min(n) AS n FROM sweeps GROUP BY c, consumer_id, x;

CREATE TEMP TABLE swept_deliveries AS
SELECT c, n, sweep_n FROM (
  SELECT c, n, is_sweep, min(CASE WHEN is_sweep THEN n END) OVER (PARTITION BY c, consumer_id, x
    ORDER BY n DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS sweep_n
  FROM (
    SELECT c, consumer_id, x, n, true AS is_sweep FROM sweeps
    UNION ALL SELECT c, consumer_id, x, n, false FROM received WHERE (c, consumer_id,
      x) IN (SELECT c, consumer_id, x FROM sweeps)
  )
) WHERE NOT is_sweep AND sweep_n IS NOT NULL;

-- acked_ends: the first ack, nack or sweep that ended each delivery. fate: of an ack that does not count.
CREATE TEMP TABLE acked_ends AS
WITH plain_ends AS (
  SELECT c, n, said_n AS end_n, said_c AS end_c, CASE WHEN action <> 'ack'
    THEN 'redelivery_requested' WHEN is_discard THEN 'discarded' ELSE 'acked' END AS outcome
  FROM named_deliveries WHERE NOT is_part OR action <> 'ack'
  UNION ALL SELECT c, n, said_n, said_c, CASE WHEN is_discard THEN 'discarded' ELSE 'acked' END
    FROM counted_deliveries
  UNION ALL SELECT u.c, u.n, u.said_n, u.c, CASE WHEN a.is_discard THEN 'discarded' ELSE 'acked' END
    FROM cumulative_ends AS u JOIN ack_ids AS a ON a.c = u.c AND a.n = u.said_n
  UNION ALL SELECT c, n, said_n, said_c, 'acked' FROM batch_acks WHERE messages_left = 0
  UNION ALL SELECT c, n, sweep_n, c, 'redelivery_requested' FROM swept_deliveries
),
-- Of deliveries with claims: the spans of set_aside after which they are not open again.
final_claims AS (
  SELECT s.c, s.n, s.begin_n AS end_n, s.begin_c AS end_c, 'acked' AS outcome,
    CASE WHEN s.until_n IS NULL THEN s.waits_for ELSE s.undone_by END AS fate
  FROM set_aside AS s ANTI JOIN (FROM claims WHERE is_discard) AS b
    ON b.c = s.c AND b.n = s.n AND b.said_n = s.begin_n JOIN received AS d ON d.c = s.c AND d.n = s.n
  JOIN numbered_consumers AS k ON k.c = d.c AND k.consumer_id = d.consumer_id AND k.x = d.x
  LEFT JOIN numbered_frames AS f ON f.n = s.until_n
  WHERE s.until_n IS NULL OR s.undone_by = 'ack_rolled_back' OR k.closed_n < s.until_n
    OR f.last_packet > k.ended_packet
),
all_sweeps AS (
  SELECT d.c, d.n, w.n AS end_n, d.c AS end_c, 'redelivery_requested' AS outcome
  FROM (FROM received SEMI JOIN claims USING (c, n)) AS d
  JOIN sweeps AS w ON w.c = d.c AND w.consumer_id = d.consumer_id AND w.x = d.x AND w.n > d.n
),
possible_ends AS (
  SELECT *, NULL AS fate FROM plain_ends
  WHERE outcome <> 'acked' OR (c, n) NOT IN (SELECT c, n FROM claims)
  UNION ALL BY NAME FROM all_sweeps
  UNION ALL BY NAME FROM final_claims
)
SELECT w.c, w.n, min(w.end_n) AS end_n, arg_min(w.end_c, w.end_n) AS end_c,
  arg_min(w.outcome, w.end_n) AS outcome, arg_min_null(w.fate, w.end_n) AS fate
FROM possible_ends AS w LEFT JOIN set_aside AS s ON w.outcome <> 'acked' AND s.c = w.c AND s.n = w.n
  AND w.end_n > s.begin_n AND coalesce(w.end_n < s.until_n, true)
WHERE s.n IS NULL GROUP BY w.c, w.n;

-- delivery_ends: every delivery with its end, also if only its consumer or connection ended.
CREATE TEMP TABLE delivery_ends AS
WITH closed_deliveries AS (
  -- A consumer in use behind its end (its next SUBSCRIBE was lost) ends when its id is opened again.
  -- What is late ends at once, behind its own frame.
  SELECT d.c, d.n, d.consumer_id, d.x, e.end_c, g.closed_n, e.end_n, s.ended_packet,
    CASE WHEN e.end_n < coalesce(g.closed_n, 2e18)
      AND NOT coalesce(a.last_packet > s.ended_packet, false) THEN e.outcome END AS outcome,
    CASE WHEN d.is_late OR greatest(s.closed_n, s.reopened_n) > d.n OR (s.closed_by = 'client' AND s.closed_n IS NULL
      AND s.ended <> 'capture_end') THEN 'consumer_closed'
      WHEN s.ended = 'capture_end' THEN 'unacked_at_end' ELSE 'conn_closed' END AS otherwise,
    s.is_two_way, u.broker_spot, e.fate
  FROM received AS d JOIN numbered_consumers AS s ON s.c = d.c AND s.consumer_id = d.consumer_id
    AND s.x = d.x
  CROSS JOIN LATERAL (SELECT CASE WHEN s.closed_n > d.n THEN s.closed_n WHEN d.is_late THEN d.n
    WHEN s.closed_n < d.n AND s.reopened_n > d.n THEN s.reopened_n END AS closed_n) AS g
  LEFT JOIN acked_ends AS e ON e.c = d.c AND e.n = d.n
  LEFT JOIN numbered_frames AS a ON a.c = e.end_c AND a.n = e.end_n AND e.end_c <> d.c
  LEFT JOIN next_hidden_acks AS u ON u.c = d.c AND u.n = d.n
  WHERE NOT d.is_past
),
-- The last ack that was undone before the delivery ended.
undone_acks AS (
  SELECT d.c, d.n, arg_max(p.fate, p.undone_n) AS fate, max(a.begin_n) AS begin_n
  FROM closed_deliveries AS d JOIN claims AS p ON p.c = d.c AND p.n = d.n
    AND p.undone_n < coalesce(d.closed_n, 2e18)
  LEFT JOIN numbered_frames AS f ON f.n = p.undone_n AND d.closed_n IS NULL
  LEFT JOIN set_aside AS a ON a.c = d.c AND a.n = d.n AND a.until_n <= p.undone_n
  WHERE d.outcome IS NULL AND NOT coalesce(f.last_packet > d.ended_packet, false)
  GROUP BY d.c, d.n
)
SELECT c, n, CASE WHEN outcome IS NOT NULL THEN end_n ELSE closed_n END AS end_n, CASE
  WHEN outcome IS NOT NULL THEN end_c END AS end_c,
  CASE WHEN outcome IS NOT NULL THEN outcome WHEN NOT is_two_way
    OR broker_spot < coalesce(closed_n, 2e18) THEN 'unknown_gap'
    ELSE coalesce(t.fate, otherwise) END AS outcome,
  CASE WHEN outcome = 'acked' THEN d.fate END AS fate, t.begin_n AS refused_n, d.ended_packet
FROM closed_deliveries AS d LEFT JOIN undone_acks AS t USING (c, n)
UNION ALL BY NAME
SELECT k.c, b.n, b.n AS end_n, CASE WHEN b.outcome IN ('ack_rolled_back', 'ack_uncommitted')
  THEN 'acked' ELSE b.outcome END AS outcome, b.outcome AS fate
FROM before_deliveries AS b JOIN numbered_connections AS k ON k.connection_id = b.chain;

-- group_gaps: spots that may hide deliveries of a subscription. A consumer receives nothing before it was
-- opened.
CREATE TEMP TABLE group_gaps AS
SELECT DISTINCT s.g, u.spot FROM hidden_acks AS u JOIN numbered_consumers AS s ON s.c = u.c
WHERE u.direction <> 'to_broker' AND coalesce(u.spot > s.opened_n, true);

-- released_deliveries: deliveries that ended without an ack, and none that waits for an answer or a
-- commit: their consumer had left, or had asked for the entry again. The broker counts a plain ack up to
-- until_ns and the next delivery of the entry, which may be hidden from gap_n on.
CREATE TEMP TABLE released_deliveries AS
SELECT e.c, e.n, e.end_n, e.ended_packet, d.last_ts_ns + {late} AS until_ns, d.next_n,
  d.g, d.ledger, d.entry, h.spot AS gap_n
FROM delivery_ends AS e JOIN received AS d USING (c, n)
ASOF LEFT JOIN group_gaps AS h ON h.g = d.g AND h.spot > d.n
JOIN numbered_consumers AS s ON s.c = d.c AND s.consumer_id = d.consumer_id AND s.x = d.x
WHERE e.outcome IN ('redelivery_requested', 'consumer_closed', 'conn_closed') AND d.has_id
  AND NOT d.is_past AND s.topic IS NOT NULL AND s.subscription IS NOT NULL
  AND NOT coalesce(e.end_n < s.topic_n OR e.end_n < s.subscription_n, false)
  AND NOT EXISTS (FROM said_deliveries AS p JOIN numbered_frames AS a ON a.c = p.said_c AND a.n = p.said_n
    WHERE p.c = e.c AND p.n = e.n AND p.action = 'ack' AND p.is_undecided AND NOT p.is_discard
      AND CASE WHEN e.end_n IS NULL THEN a.last_packet <= e.ended_packet ELSE p.said_n < e.end_n END);

-- late_reaches: the first cumulative ack of each that covers it. Mostly it is the first one that covers
-- the id at all.
CREATE TEMP TABLE late_reaches AS
WITH reaching_acks AS (
  SELECT a.g, a.c, a.n, a.ledger, a.entry, a.is_part, f.last_packet, f.first_ts_ns
  FROM all_ack_ids AS a JOIN numbered_frames AS f ON f.c = a.c AND f.n = a.n
  WHERE a.action = 'ack' AND a.is_only AND NOT a.is_shared AND NOT a.is_discard AND NOT a.is_undecided
),
acks_and_entries AS (
  SELECT g, ledger, entry, n AS ack_n, NULL AS c, NULL AS n, CASE WHEN is_part THEN 2 ELSE 0 END AS place
  FROM reaching_acks
  UNION ALL SELECT g, ledger, entry, NULL, c, n, 1 FROM released_deliveries SEMI JOIN reaching_acks USING (g)
),
first_reaching AS (
  SELECT *, min(ack_n) OVER (PARTITION BY g ORDER BY ledger DESC, entry DESC, place
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS first_n FROM acks_and_entries
),
candidates AS (
  SELECT c, n, first_n AS ack_n FROM first_reaching WHERE place = 1 AND first_n > n
  UNION ALL
  SELECT r.c, r.n, a.n FROM (
    SELECT e.c, e.n, r.g, r.ledger, r.entry, r.end_n FROM first_reaching AS e
    JOIN released_deliveries AS r USING (c, n)
    WHERE e.place = 1 AND e.first_n <= coalesce(r.end_n, 2e18)
  ) AS r JOIN reaching_acks AS a ON a.g = r.g AND a.n > coalesce(r.end_n, r.n)
    AND (a.ledger > r.ledger OR (a.ledger = r.ledger AND (a.entry > r.entry
      OR (a.entry = r.entry AND NOT a.is_part))))
)
SELECT r.c, r.n, min(a.n) AS said_n, arg_min(a.first_ts_ns, a.n) AS first_ts_ns,
  coalesce(min(a.n) > any_value(r.gap_n), false) AS is_doubtful
FROM candidates AS k JOIN released_deliveries AS r USING (c, n)
JOIN reaching_acks AS a ON a.g = r.g AND a.n = k.ack_n
WHERE CASE WHEN r.end_n IS NULL THEN a.last_packet > r.ended_packet ELSE a.n > r.end_n END
  AND (r.next_n IS NULL OR a.n < r.next_n) AND a.first_ts_ns <= r.until_ns
GROUP BY r.c, r.n;

-- plain_late_acks: the plain acks that name these, with the ones from before their end.
CREATE TEMP TABLE plain_late_acks AS
SELECT p.*, i.is_late, a.first_ts_ns, coalesce(p.said_n > r.gap_n, false) AS is_doubtful
FROM said_deliveries AS p JOIN released_deliveries AS r ON r.c = p.c AND r.n = p.n
JOIN numbered_frames AS a ON a.c = p.said_c AND a.n = p.said_n
CROSS JOIN LATERAL (SELECT CASE WHEN r.end_n IS NULL THEN a.last_packet > r.ended_packet
  ELSE p.said_n > r.end_n END AS is_late) AS i
WHERE p.action = 'ack' AND NOT p.is_discard AND (NOT i.is_late OR (NOT p.is_undecided
  AND p.ack_type IS DISTINCT FROM 'Cumulative' AND a.first_ts_ns <= r.until_ns));

CREATE TEMP TABLE late_part_acks AS FROM plain_late_acks WHERE is_part;

-- late_acks: the acks that count behind the end of a delivery. messages_left: behind the ack. is_doubtful:
-- they may be of a delivery that a gap hides.
CREATE TEMP TABLE late_acks AS
SELECT p.c, p.n, p.said_n, any_value(p.first_ts_ns) AS first_ts_ns,
  min(CASE WHEN p.is_part THEN b.messages_left ELSE 0 END) AS messages_left,
  any_value(p.is_doubtful) AS is_doubtful
FROM plain_late_acks AS p
LEFT JOIN narrowed('late_part_acks') AS b ON b.c = p.c AND b.n = p.n AND b.said_n = p.said_n
WHERE p.is_late GROUP BY p.c, p.n, p.said_n
UNION ALL SELECT c, n, said_n, first_ts_ns, 0, is_doubtful FROM late_reaches;

-- published: the time at which the SEND of an entry was complete, by the entry of its receipt.
CREATE TEMP TABLE published AS
SELECT t, no_topic_c, ledger, entry, arg_max(sent_ns, n) AS sent_ns, max(n) AS n FROM (
  SELECT t.t, CASE WHEN r.topic IS NULL THEN r.c END AS no_topic_c, r.ledger_id AS ledger,
    r.entry_id AS entry, q.last_ts_ns AS sent_ns, r.n
  FROM pairs AS p JOIN numbered_frames AS r ON r.c = p.c AND r.n = p.answer
    JOIN numbered_frames AS q ON q.c = p.c AND q.n = p.ask
  JOIN numbered_connections AS k ON k.c = r.c LEFT JOIN topics AS t ON t.d = k.d
    AND t.topic = r.topic
  WHERE p.asked = 'SEND' AND p.answer > p.ask AND r.command = 'SEND_RECEIPT' AND r.ledger_id >= 0
    AND r.entry_id >= 0
    AND NOT coalesce(r.topic LIKE 'non-persistent://%', r.ledger_id = 0 AND r.entry_id = 0)
  UNION ALL
  SELECT t.t, CASE WHEN b.topic IS NULL THEN k.c END, b.ledger, b.entry, b.sent_ns, b.n
  FROM before_published AS b JOIN numbered_connections AS k ON k.connection_id = b.chain
    LEFT JOIN topics AS t ON t.d = k.d AND t.topic = b.topic
) GROUP BY ALL;

CREATE TEMP TABLE switches AS
SELECT c, consumer_id, incarnation AS x, n, NOT is_active AS is_away
  FROM numbered_frames AS f WHERE command = 'ACTIVE_CONSUMER_CHANGE';

-- causes: why an entry was redelivered, the first cause that applies.
CREATE TEMP TABLE causes AS
WITH redelivered AS (
  SELECT d.c, d.n, d.g, d.consumer_id, d.x, d.last_packet, d.previous_n, d.previous_c,
    b.consumer_id AS previous_consumer_id, b.x AS previous_x,
    h.subscription_type = 'Failover' OR s.subscription_type = 'Failover' AS is_failover,
    CASE WHEN o.end_n < d.n THEN o.outcome END AS outcome_before, o.end_n, o.end_c,
      CASE WHEN o.end_n < d.n THEN o.fate END AS past_fate,
      h.closed_by AS left_by,
    coalesce(h.ended_packet <= d.last_packet, false) AS is_cut_off, o.outcome AS last_outcome,
    d.previous_c = d.c AND b.consumer_id = d.consumer_id AND b.x = d.x AS is_same,
    coalesce(left_n < d.n, false) OR coalesce(h.closed_by = 'client'
      AND h.closed_frame_no < d.n AND NOT is_behind, false)
      OR coalesce(h.left_packet <= d.last_packet, false) AS has_left,
    b.consumer_id = d.consumer_id AND h.name IS NOT DISTINCT FROM s.name AND s.opened_n IS NOT NULL
      AND (
      coalesce(left_n <= s.opened_n, false) OR coalesce(h.closed_by = 'client'
        AND h.closed_frame_no <= s.opened_n AND NOT is_behind, false)
      OR coalesce(h.left_packet <= s.opened_packet, false)) AS came_back,
    coalesce(h.closed_by = 'broker' AND h.refused_code IS NULL AND h.closed_n <= d.n
      AND NOT is_behind AND NOT coalesce(h.closed_frame_no < h.closed_n, false), false)
      AS broker_closed,
    coalesce(u.broker_spot < h.closed_n, false) AS may_be_sought,
    is_behind AND coalesce(left_n < d.n, false) AS is_unseen, coalesce(r.revived_n, 0) AS revived_n
  FROM received AS d JOIN received AS b ON b.c = d.previous_c AND b.n = d.previous_n
  LEFT JOIN next_hidden_acks AS u ON u.c = b.c AND u.n = b.n
  JOIN numbered_consumers AS h ON h.c = b.c AND h.consumer_id = b.consumer_id AND h.x = b.x
  JOIN numbered_consumers AS s ON s.c = d.c AND s.consumer_id = d.consumer_id AND s.x = d.x
  JOIN delivery_ends AS o ON o.c = b.c AND o.n = b.n
  LEFT JOIN revived AS r ON r.c = b.c AND r.consumer_id = b.consumer_id AND r.x = b.x
    AND r.revived_n <= d.n
  -- A consumer in use behind its end (its next SUBSCRIBE was lost) leaves when its id is opened again.
  CROSS JOIN LATERAL (SELECT coalesce(h.closed_n < b.n, false) AND NOT b.is_late OR r.c IS NOT NULL AS is_behind,
    CASE WHEN is_behind THEN h.reopened_n ELSE h.closed_n END AS left_n) AS i
),
seek_redeliveries AS (
  SELECT DISTINCT a.c, a.n FROM redelivered AS a JOIN seeks AS k ON k.g = a.g
    AND (k.n > a.previous_n AND k.n < a.n AND coalesce(k.undone_n > a.n, true)
      OR a.has_left AND k.done_n > a.previous_n AND k.done_n < a.n)
),
aborted_acks AS (
  SELECT DISTINCT a.c, a.n FROM redelivered AS a
  JOIN claims AS p ON p.c = a.previous_c AND p.n = a.previous_n AND p.said_n < a.n
    AND p.txn_most_bits IS NOT NULL AND NOT coalesce(p.fate = 'ack_refused' AND p.undone_n < a.n,
      false)
  JOIN numbered_connections AS k ON k.c = p.said_c LEFT JOIN commits AS m ON m.d = k.d
    AND m.most = p.txn_most_bits AND m.least = p.txn_least_bits AND m.n < a.n
    AND coalesce(m.refused_n > a.n, true)
  LEFT JOIN set_aside AS s ON s.c = p.c AND s.n = p.n AND s.begin_n < a.n
    AND coalesce(s.until_n > a.n, true)
  WHERE m.n IS NULL AND s.n IS NULL AND a.outcome_before IS NULL AND NOT a.is_cut_off
  UNION
  SELECT a.c, a.n FROM redelivered AS a LEFT JOIN set_aside AS s
    ON s.c = a.previous_c AND s.n = a.previous_n AND s.begin_n = a.end_n
  WHERE a.outcome_before = 'ack_rolled_back'
    OR (a.is_cut_off AND a.last_outcome = 'ack_rolled_back') OR a.past_fate IN ('ack_rolled_back',
    'ack_uncommitted') AND (s.n IS NULL OR s.until_n <= a.n)
),
switched_consumers AS (
  SELECT a.c, a.n, max(CASE WHEN w.is_away AND w.n > a.previous_n AND w.c = a.previous_c
    AND w.consumer_id = a.previous_consumer_id AND w.x = a.previous_x
    THEN 1 ELSE 0 END) AS was_passed,
    max(CASE WHEN w.is_away = false AND w.n > greatest(a.previous_n, a.revived_n) AND w.c = a.previous_c
    AND w.consumer_id = a.previous_consumer_id AND w.x = a.previous_x
    THEN 1 ELSE 0 END) AS was_chosen
  FROM redelivered AS a JOIN switches AS w ON w.n < a.n AND ((w.c = a.c
    AND w.consumer_id = a.consumer_id AND w.x = a.x)
    OR (w.c = a.previous_c AND w.consumer_id = a.previous_consumer_id AND w.x = a.previous_x))
  GROUP BY a.c, a.n
),
sweep_requests AS (
  SELECT DISTINCT a.c, a.n FROM redelivered AS a JOIN first_sweeps AS w ON w.n < a.n
    AND w.c = a.previous_c AND w.consumer_id = a.previous_consumer_id AND w.x = a.previous_x
)
SELECT a.c, a.n, CASE WHEN k.c IS NOT NULL THEN 'seek'
  WHEN a.outcome_before = 'redelivery_requested' THEN 'explicit' WHEN aborted_acks.c IS NOT NULL
  THEN 'txn_abort'
  WHEN (coalesce(a.is_failover, false) OR switched_consumers.c IS NOT NULL)
    AND (coalesce(switched_consumers.was_passed, 0) = 1 OR (NOT a.is_same AND NOT (a.has_left
    AND a.came_back))) THEN 'failover_switch'
  WHEN NOT a.has_left THEN CASE WHEN switched_consumers.was_chosen = 1 THEN 'failover_switch'
    WHEN sweep_requests.c IS NOT NULL THEN 'explicit' ELSE 'unknown' END
  WHEN a.broker_closed THEN CASE WHEN a.may_be_sought AND a.outcome_before = 'acked' THEN 'unknown'
    ELSE 'unload' END
  WHEN a.is_unseen THEN 'unknown' WHEN a.came_back THEN 'reconnect' ELSE 'consumer_gone' END AS cause
FROM redelivered AS a LEFT JOIN seek_redeliveries AS k USING (c, n) LEFT JOIN aborted_acks
  ON aborted_acks.c = a.c AND aborted_acks.n = a.n
LEFT JOIN switched_consumers ON switched_consumers.c = a.c AND switched_consumers.n = a.n LEFT JOIN sweep_requests
  ON sweep_requests.c = a.c AND sweep_requests.n = a.n;

-- left_over: for partly acked batches, the number of messages without an ack that counts.
CREATE TEMP TABLE left_over AS
WITH ends AS (
  SELECT o.c, o.n, CASE WHEN o.outcome <> 'acked' THEN o.ended_packet END AS ended_packet,
    CASE WHEN o.fate IN ('ack_refused', 'ack_rolled_back') THEN s.until_n
    WHEN o.outcome = 'acked' THEN NULL ELSE o.end_n END AS over_n
  FROM delivery_ends AS o LEFT JOIN set_aside AS s ON s.c = o.c AND s.n = o.n
    AND s.begin_n = o.end_n AND o.outcome = 'acked'
),
bits AS (
  SELECT b.c, b.n, b.bit, bool_or(b.counts_n < coalesce(o.over_n, 2e18)
    AND NOT coalesce(f.last_packet > o.ended_packet, false)
    AND coalesce(b.undone_n > o.over_n, u.last_packet > o.ended_packet, b.undone_n IS NULL))
      AS is_acked
  FROM claimed_bits AS b JOIN ends AS o ON o.c = b.c AND o.n = b.n
  LEFT JOIN numbered_frames AS f ON f.n = b.counts_n AND o.over_n IS NULL
  LEFT JOIN numbered_frames AS u ON u.n = b.undone_n AND o.over_n IS NULL
  GROUP BY b.c, b.n, b.bit
)
SELECT c, n, count(*) FILTER (NOT coalesce(is_acked, false)) AS messages_open FROM bits
WHERE (c, n) NOT IN (SELECT c, n FROM late_acks) GROUP BY c, n
UNION ALL
SELECT p.c, p.n, min(p.messages_left) FROM batch_acks AS p JOIN delivery_ends AS o
  ON o.c = p.c AND o.n = p.n
LEFT JOIN numbered_frames AS f ON f.c = p.said_c AND f.n = p.said_n AND p.said_c <> p.c
WHERE p.said_n <= coalesce(o.end_n, 2e18) AND NOT coalesce(f.last_packet > o.ended_packet, false)
  AND (p.c, p.n) NOT IN (SELECT c, n FROM late_acks)
GROUP BY p.c, p.n
UNION ALL SELECT c, n, min(messages_left) FROM late_acks WHERE NOT is_doubtful GROUP BY c, n;

CREATE TEMP TABLE new_deliveries AS
WITH delivery_causes AS (
  SELECT d.c, d.n, CASE WHEN e.n IS NOT NULL THEN e.redelivery_cause WHEN y.cause IS NOT NULL
      THEN y.cause WHEN d.redelivery_count > 0 THEN CASE
      -- The capture has the SEND, so no delivery is older. A request for all also reaches messages
      -- that the broker had counted, but not yet written to the connection.
      WHEN d.has_id AND coalesce(p.n, v.n) < d.n AND w.n < d.n THEN 'explicit'
      WHEN d.has_id AND (z.spot < d.n OR coalesce(p.n, v.n) < d.n)
      THEN 'unknown' ELSE 'pre_capture' END END AS cause,
    CASE WHEN e.n IS NULL THEN d.previous_n ELSE e.previous_n END AS previous_n,
    CASE WHEN e.n IS NOT NULL THEN e.previous_chain WHEN d.previous_n IS NOT NULL
      THEN b.connection_id END AS previous_connection_id
  FROM received AS d LEFT JOIN causes AS y ON y.c = d.c AND y.n = d.n
  LEFT JOIN numbered_connections AS b ON b.c = d.previous_c
  LEFT JOIN (SELECT g, min(spot) AS spot FROM group_gaps GROUP BY g) AS z ON z.g = d.g
  LEFT JOIN published AS p ON p.t = d.t AND p.ledger = d.ledger AND p.entry = d.entry
  LEFT JOIN published AS v ON v.no_topic_c = d.c AND v.ledger = d.ledger AND v.entry = d.entry
  LEFT JOIN first_sweeps AS w ON w.c = d.c AND w.consumer_id = d.consumer_id AND w.x = d.x
  LEFT JOIN before_frames AS e ON e.n = d.n AND e.is_open
  WHERE NOT d.is_past
)
SELECT k.connection_id, d.n AS frame_no, make_timestamptz(d.last_ts_ns // 1000) AS ts,
  CASE WHEN NOT coalesce(o.end_n < s.topic_n, false) THEN s.topic END AS topic,
  CASE WHEN NOT coalesce(o.end_n < s.subscription_n, false) THEN s.subscription END AS subscription,
  CASE WHEN NOT coalesce(o.end_n < s.subscription_n, false) THEN s.subscription_type
    END AS subscription_type, d.consumer_id, d.x AS incarnation,
  CASE WHEN NOT coalesce(o.end_n < s.subscription_n, false) THEN s.name END AS consumer_name,
  d.ledger AS ledger_id, d.entry AS entry_id, d.partition, d.batch_size,
  d.cost AS message_count, CASE WHEN d.cost IS NOT NULL AND e.told <> 'unknown_gap' THEN greatest(d.cost
    - CASE WHEN q.n IS NOT NULL OR (o.outcome = 'acked' AND o.fate IS NULL) THEN 0
    ELSE least(coalesce(l.messages_open, d.cost), d.cost) END, 0) END AS messages_acked,
  d.ack_set, coalesce(d.redelivery_count, 0) AS redelivery_count,
  y.cause IS NOT NULL AS is_redelivered, y.cause AS redelivery_cause,
  y.previous_n AS previous_frame_no,
  e.told AS outcome,
  CASE WHEN q.n IS NOT NULL THEN q.said_n WHEN o.outcome IN ('acked', 'discarded') THEN o.end_n
    WHEN o.outcome IN ('ack_refused', 'ack_rolled_back') THEN o.refused_n END AS ack_frame_no,
  CASE WHEN q.n IS NOT NULL THEN CASE WHEN d.is_timed AND q.first_ts_ns >= d.last_ts_ns
    THEN q.first_ts_ns - d.last_ts_ns END
    WHEN o.outcome = 'acked' AND o.fate IS NULL AND had_id AND d.is_timed AND a.first_ts_ns >= d.last_ts_ns
    THEN a.first_ts_ns - d.last_ts_ns END AS ack_latency_ns,
  CASE WHEN had_id AND d.is_timed AND d.last_ts_ns >= coalesce(p.sent_ns, v.sent_ns)
    THEN d.last_ts_ns - coalesce(p.sent_ns, v.sent_ns) END AS publish_to_delivery_ns,
  d.deliver_at_ms, d.checksum, d.crc32c_stored,
  y.previous_connection_id, k.capture
FROM received AS d JOIN numbered_connections AS k ON k.c = d.c JOIN numbered_consumers AS s
  ON s.c = d.c AND s.consumer_id = d.consumer_id AND s.x = d.x
JOIN delivery_ends AS o ON o.c = d.c AND o.n = d.n JOIN delivery_causes AS y ON y.c = d.c AND y.n = d.n
-- While the topic is unknown, the entry 0:0 may also be of a non-persistent topic, which has no ids.
CROSS JOIN LATERAL (SELECT d.has_id AND NOT (d.ledger = 0 AND d.entry = 0
  AND coalesce(o.end_n < s.topic_n, false)) AS had_id) AS i
LEFT JOIN numbered_frames AS a ON a.command = 'ACK' AND a.c = o.end_c AND a.n = o.end_n
LEFT JOIN left_over AS l ON l.c = d.c AND l.n = d.n
LEFT JOIN (
  SELECT c, n, min(said_n) AS said_n, arg_min(first_ts_ns, said_n) AS first_ts_ns FROM late_acks
  WHERE messages_left = 0 AND NOT is_doubtful GROUP BY c, n
) AS q ON q.c = d.c AND q.n = d.n
LEFT JOIN (SELECT DISTINCT c, n FROM late_acks WHERE is_doubtful) AS z ON z.c = d.c AND z.n = d.n
CROSS JOIN LATERAL (SELECT CASE WHEN q.n IS NOT NULL THEN 'acked' WHEN z.n IS NOT NULL THEN 'unknown_gap'
  ELSE coalesce(o.fate, o.outcome) END AS told) AS e
-- A receipt counts if it comes before the delivery's end; if the ack is answered, before that answer.
LEFT JOIN pairs AS w ON w.asked = 'ACK' AND w.c = o.end_c AND w.ask = o.end_n
LEFT JOIN published AS p ON p.t = d.t AND p.ledger = d.ledger AND p.entry = d.entry
  AND p.n < coalesce(w.answer, CASE WHEN w.ask IS NULL THEN o.end_n END, 2e18)
LEFT JOIN published AS v ON p.t IS NULL AND v.no_topic_c = d.c AND v.ledger = d.ledger
  AND v.entry = d.entry AND v.n < coalesce(w.answer, CASE WHEN w.ask IS NULL THEN o.end_n END, 2e18);
