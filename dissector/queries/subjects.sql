-- Views of clients, brokers, producers and consumers, for the rules (dissector/findings/rules).

-- pulsar_links: a Pulsar connection that is not in other_legs and was captured without gaps
-- materialized
-- The snap length may cut payloads, but no frame and no command: then frames fill the streams.
WITH hidden_frames AS (
  SELECT c.capture, c.connection_id
  FROM connections AS c
  LEFT JOIN frames AS f USING (capture, connection_id)
  WHERE c.snaplen_cut_bytes_to_broker > 0 OR c.snaplen_cut_bytes_to_client > 0
  GROUP BY
    c.capture, c.connection_id, c.stream_bytes_to_broker, c.stream_bytes_to_client
  HAVING
    coalesce(sum(CASE WHEN f.direction = 'to_broker' THEN f.frame_bytes END), 0)
    < c.stream_bytes_to_broker
    OR coalesce(sum(CASE WHEN f.direction = 'to_client' THEN f.frame_bytes END), 0)
    < c.stream_bytes_to_client
    OR count(
      CASE
        WHEN f.status = 'complete' THEN NULL
        WHEN f.command = 'SEND' AND f.sequence_id IS NOT NULL THEN NULL
        WHEN f.command = 'MESSAGE' AND f.entry_id IS NOT NULL THEN NULL
        ELSE 1
      END
    ) > 0
)
SELECT
  c.capture, c.connection_id, c.client_ip, c.client_port, c.broker_ip, c.broker_port,
  c.client_version, c.server_version, c.protocol_version, c.started, c.ended, c.closed_first_by,
  c.first_ts_ns, c.last_ts_ns
FROM connections AS c
ANTI JOIN other_legs AS t USING (capture, connection_id)
ANTI JOIN hidden_frames AS h USING (capture, connection_id)
WHERE c.protocol = 'pulsar' AND c.gaps_to_broker = 0 AND c.gaps_to_client = 0;

-- releases: a broker's version text, and its number: 4000003 is 4.0.3; null if there is none
-- materialized
SELECT
  v.server_version,
  TRY_CAST(regexp_extract(v.numbers, '^([0-9]+)', 1) AS BIGINT) * 1000000
  + TRY_CAST(regexp_extract(v.numbers, '[.]([0-9]+)[.]', 1) AS BIGINT) * 1000
  + TRY_CAST(regexp_extract(v.numbers, '([0-9]+)$', 1) AS BIGINT) AS release
FROM (
  SELECT DISTINCT
    server_version,
    regexp_extract(server_version, '[0-9]{1,4}[.][0-9]{1,3}[.][0-9]{1,3}', 0) AS numbers
  FROM connections
  WHERE server_version IS NOT NULL
) AS v;

-- pulsar_opens: a producer or consumer on a pulsar_link, with its PRODUCER or SUBSCRIBE and the answer
-- materialized
-- kind: producer or consumer. id and incarnation are unique per connection; clients reuse ids.
SELECT
  o.*, l.client_ip, l.client_port, l.broker_ip, l.broker_port, l.client_version, l.server_version,
  l.closed_first_by, l.ended, l.last_ts_ns AS link_last_ns,
  e.request_last_ns AS opened_ns, e.response_last_ns AS answered_ns, e.outcome
FROM (
  SELECT
    'producer' AS kind, p.capture, p.connection_id, p.producer_id AS id, p.incarnation, p.topic,
    p.name,
    p.opened_frame_no, p.ready_frame_no, p.closed_frame_no, p.closed_by, p.refused_code
  FROM producers AS p
  WHERE p.opened_frame_no IS NOT NULL
  UNION ALL BY NAME
  SELECT
    'consumer' AS kind, c.capture, c.connection_id, c.consumer_id AS id, c.incarnation, c.topic,
    c.name, c.subscription, c.subscription_type,
    c.opened_frame_no, c.ready_frame_no, c.closed_frame_no, c.closed_by, c.refused_code
  FROM consumers AS c
  WHERE c.opened_frame_no IS NOT NULL
) AS o
JOIN pulsar_links AS l ON l.capture = o.capture AND l.connection_id = o.connection_id
LEFT JOIN exchanges AS e
  ON e.capture = o.capture AND e.connection_id = o.connection_id AND e.kind = 'request'
  AND e.request_command IN ('PRODUCER', 'SUBSCRIBE') AND e.request_frame_no = o.opened_frame_no;

-- pulsar_consumers: a consumer on a pulsar_link, whether or not its SUBSCRIBE was captured
-- materialized
SELECT
  c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription,
  c.subscription_type, c.name AS consumer_name, c.priority_level, c.first_flow_permits,
  c.opened_frame_no, c.ready_frame_no, c.closed_frame_no, c.closed_by,
  l.client_ip, l.broker_ip, l.client_version, l.server_version
FROM consumers AS c
JOIN pulsar_links AS l USING (capture, connection_id);

-- consumer_seconds: a second in which the known balance of a pulsar_consumer changed
-- materialized
-- Every pause of a second or more lies between the last delivery of one row and the first of the
-- next, and these rows are a thousand times fewer than deliveries. last_…: values after the last
-- change of the second; times in µs.
SELECT p.*, l.client_ip, l.server_version, l.last_ts_ns AS link_last_ns
FROM (
  SELECT
    b.capture, b.connection_id, b.consumer_id, b.incarnation, b.second, max(b.topic) AS topic,
    max(b.subscription) AS subscription, max(b.subscription_type) AS subscription_type,
    min(b.at_us) AS first_us, max(b.at_us) AS last_us,
    count(CASE WHEN b.event = 'delivery' THEN 1 END) AS deliveries,
    min(CASE WHEN b.event = 'delivery' THEN b.at_us END) AS first_delivery_us,
    max(CASE WHEN b.event = 'delivery' THEN b.at_us END) AS last_delivery_us,
    min(CASE WHEN b.event = 'delivery' THEN b.frame_no END) AS first_delivery_frame_no,
    max(CASE WHEN b.event = 'delivery' THEN b.frame_no END) AS last_delivery_frame_no,
    count(CASE WHEN b.event = 'grant' AND b.delta > 0 THEN 1 END) AS grants,
    CAST(sum(CASE WHEN b.event = 'grant' THEN b.delta END) AS BIGINT) AS granted,
    min(CASE WHEN b.event = 'grant' AND b.delta > 0 THEN b.at_us END) AS first_grant_us,
    max(b.available_after) AS most_available, max(b.unacked_after) AS most_unacked,
    max_by(b.available_after, b.frame_no) AS last_available,
    max_by(b.unacked_after, b.frame_no) AS last_unacked
  FROM (
    SELECT
      capture, connection_id, consumer_id, incarnation, topic, subscription, subscription_type,
      frame_no, event, delta, available_after, unacked_after, micros(ts) AS at_us,
      floor_div(micros(ts), 1000000) AS second
    FROM permits
    WHERE baseline_known AND frame_no IS NOT NULL AND available_after IS NOT NULL
  ) AS b
  GROUP BY b.capture, b.connection_id, b.consumer_id, b.incarnation, b.second
) AS p
JOIN pulsar_links AS l ON l.capture = p.capture AND l.connection_id = p.connection_id;

-- transaction_states: a Pulsar transaction, derived from the frames that name it; times in µs
-- materialized
-- state: committed or aborted after END_TXN was answered, ending while it is unanswered,
-- end_refused, or open without END_TXN. Client, connection and beginning are those of NEW_TXN if it
-- was captured, else of the first frame. All rows are read, whatever is selected: END_TXN may
-- follow the selected time, and names no topic and no subscription.
SELECT
  n.capture, n.txn_most_bits, n.txn_least_bits, n.connection_id, n.frame_no AS first_frame_no,
  n.first_us, n.last_us, c.client_ip, q.txn_ttl_ms AS timeout_ms,
  CASE
    WHEN e.request_frame_no IS NULL THEN 'open'
    WHEN e.outcome = 'error' THEN 'end_refused'
    WHEN e.outcome IS DISTINCT FROM 'ok' THEN 'ending'
    WHEN e.action = 'COMMIT' THEN 'committed'
    ELSE 'aborted'
  END AS state,
  e.asked_us AS end_asked_us, e.ended_us, e.request_frame_no AS end_frame_no,
  e.error_code AS end_error, n.sends, n.acks, n.topic, n.first_send_frame_no,
  n.first_ack_frame_no, n.last_frame_no, coalesce(r.acks_refused, 0) AS acks_refused
FROM (
  SELECT
    capture, txn_most_bits, txn_least_bits, min_by(connection_id, frame_no) AS connection_id,
    min(frame_no) AS frame_no, max(frame_no) AS last_frame_no, min(micros(ts)) AS first_us,
    max(micros(ts)) AS last_us, count(CASE WHEN command = 'SEND' THEN 1 END) AS sends,
    count(CASE WHEN command = 'ACK' THEN 1 END) AS acks,
    min(CASE WHEN command = 'SEND' THEN topic END) AS topic,
    min(CASE WHEN command = 'SEND' THEN frame_no END) AS first_send_frame_no,
    min(CASE WHEN command = 'ACK' THEN frame_no END) AS first_ack_frame_no
  FROM whole_frames
  WHERE
    txn_least_bits IS NOT NULL AND txn_most_bits IS NOT NULL AND command <> 'MESSAGE'
  GROUP BY capture, txn_most_bits, txn_least_bits
) AS n
JOIN whole_legs AS c USING (capture, connection_id)
LEFT JOIN (
  SELECT
    coalesce(a.response_capture, a.own_capture) AS capture,
    coalesce(a.response_connection_id, a.own_connection_id) AS connection_id, a.response_frame_no,
    TRY_CAST(regexp_extract(f.detail, '"txn_ttl_millis":([0-9]+)', 1) AS BIGINT) AS txn_ttl_ms
  FROM whole_exchanges AS a
  JOIN whole_frames AS f
    ON f.capture = a.own_capture AND f.connection_id = a.own_connection_id
    AND f.frame_no = a.request_frame_no
  WHERE a.request_command = 'NEW_TXN'
) AS q
  ON q.capture = n.capture AND q.connection_id = n.connection_id
  AND q.response_frame_no = n.frame_no
LEFT JOIN (
  SELECT
    f.capture, f.txn_most_bits, f.txn_least_bits, max(f.frame_no) AS request_frame_no,
    max_by(regexp_extract(f.detail, '"txn_action":"([A-Z]+)"', 1), f.frame_no) AS action,
    max_by(a.outcome, CASE WHEN a.outcome IS NOT NULL THEN f.frame_no END) AS outcome,
    max_by(a.error_code, CASE WHEN a.error_code IS NOT NULL THEN f.frame_no END) AS error_code,
    max(micros(f.ts)) AS asked_us, max(floor_div(a.response_last_ns, 1000)) AS ended_us
  FROM whole_frames AS f
  LEFT JOIN whole_exchanges AS a
    ON a.own_capture = f.capture AND a.own_connection_id = f.connection_id
    AND a.request_frame_no = f.frame_no AND a.request_command = 'END_TXN'
  WHERE f.command = 'END_TXN' AND f.txn_least_bits IS NOT NULL
  GROUP BY f.capture, f.txn_most_bits, f.txn_least_bits
) AS e USING (capture, txn_most_bits, txn_least_bits)
LEFT JOIN (
  SELECT a.capture, a.txn_most_bits, a.txn_least_bits, count(DISTINCT a.frame_no) AS acks_refused
  FROM whole_acks AS a
  JOIN whole_exchanges AS x
    ON x.own_capture = a.capture AND x.own_connection_id = a.connection_id
    AND x.request_frame_no = a.frame_no AND x.kind = 'ack' AND x.outcome = 'error'
  WHERE a.txn_least_bits IS NOT NULL
  GROUP BY a.capture, a.txn_most_bits, a.txn_least_bits
) AS r USING (capture, txn_most_bits, txn_least_bits);

-- selected_transactions: a transaction that reaches the selected time and has a frame in frames_around
SELECT s.*
FROM transaction_states AS s
SEMI JOIN frames_around AS f
  ON f.capture = s.capture AND f.txn_most_bits = s.txn_most_bits
  AND f.txn_least_bits = s.txn_least_bits AND f.command <> 'MESSAGE'
WHERE reaches_selection(s.first_us, coalesce(s.ended_us, s.last_us));

-- aborted_sends: a SEND in a transaction that was aborted
-- materialized
SELECT f.capture, f.connection_id, f.frame_no
FROM whole_frames AS f
JOIN units AS u USING (capture)
SEMI JOIN (
  SELECT v.unit, t.txn_most_bits, t.txn_least_bits
  FROM transaction_states AS t
  JOIN units AS v USING (capture)
  WHERE t.state = 'aborted'
) AS a
  ON a.unit = u.unit AND a.txn_most_bits = f.txn_most_bits AND a.txn_least_bits = f.txn_least_bits
WHERE f.command = 'SEND' AND f.txn_least_bits IS NOT NULL;

-- stored_topics: a topic that was published to, and a number, by which sorting is faster than by names
-- materialized
SELECT row_number() OVER (ORDER BY p.unit, p.topic) AS topic_no, p.unit, p.topic
FROM (
  SELECT DISTINCT n.unit, e.topic
  FROM exchanges_around AS e
  JOIN numbered_captures AS n USING (capture)
  WHERE e.kind = 'publish' AND e.topic LIKE 'persistent://%'
) AS p;

-- stored_entries: an entry of a topic that the broker confirmed as stored
-- materialized
-- Entries of aborted transactions are excluded: no consumer receives them. is_in: it was sent in
-- the selected time.
SELECT
  t.topic_no, p.ledger_id, p.entry_id, min(n.capture_no) AS capture_no,
  min(p.response_last_ns) AS stored_ns,
  bool_or(is_selected(floor_div(p.request_last_ns, 1000))) AS is_in
FROM single_exchanges_around AS p
JOIN numbered_captures AS n USING (capture)
JOIN stored_topics AS t ON t.unit = n.unit AND t.topic = p.topic
ANTI JOIN aborted_sends AS a
  ON a.capture = p.own_capture AND a.connection_id = p.own_connection_id
  AND a.frame_no = p.request_frame_no
WHERE
  p.kind = 'publish' AND p.outcome = 'ok' AND p.ledger_id IS NOT NULL AND p.entry_id IS NOT NULL
GROUP BY t.topic_no, p.ledger_id, p.entry_id;

-- taking_subscriptions: a subscription of a topic with stored entries, since its first permits
-- materialized
-- began_us: when the first entry of the topic was stored.
SELECT
  row_number() OVER (ORDER BY t.topic_no, c.subscription) AS subscription_no, t.topic_no, t.unit,
  t.topic, c.subscription, min(g.granted_us) AS since_us,
  min(floor_div(e.first_ns, 1000)) AS began_us
FROM permit_consumers AS c
JOIN units AS u USING (capture)
JOIN stored_topics AS t ON t.unit = u.unit AND t.topic = c.topic
JOIN (
  SELECT topic_no, min(stored_ns) AS first_ns FROM stored_entries GROUP BY topic_no
) AS e ON e.topic_no = t.topic_no
LEFT JOIN (
  SELECT capture, connection_id, consumer_id, incarnation, min(micros(ts)) AS granted_us
  FROM permits_around
  WHERE event = 'grant' AND delta > 0
  GROUP BY capture, connection_id, consumer_id, incarnation
) AS g USING (capture, connection_id, consumer_id, incarnation)
WHERE c.subscription IS NOT NULL
GROUP BY t.topic_no, t.unit, t.topic, c.subscription;

-- delivered_entries: a delivered entry that was stored since the subscription's first permits
-- materialized
-- acked_us: the first acknowledgement of one of its deliveries. is_in: the entry was sent in the
-- selected time; it may be delivered later.
SELECT
  s.subscription_no, e.ledger_id, e.entry_id, s.topic_no, e.is_in, e.stored_ns, d.capture_no,
  d.delivered_us, d.acked_us
FROM (
  SELECT
    t.subscription_no, r.ledger_id, r.entry_id, min(n.capture_no) AS capture_no,
    min(micros(r.ts)) AS delivered_us,
    min(CASE WHEN r.outcome = 'acked' THEN micros(r.ts) + floor_div(r.ack_latency_ns, 1000) END)
      AS acked_us
  FROM received_around AS r
  JOIN numbered_captures AS n USING (capture)
  JOIN taking_subscriptions AS t
    ON t.unit = n.unit AND t.topic = r.named_topic AND t.subscription = r.named_subscription
  GROUP BY t.subscription_no, r.ledger_id, r.entry_id
) AS d
JOIN taking_subscriptions AS s USING (subscription_no)
JOIN stored_entries AS e
  ON e.topic_no = s.topic_no AND e.ledger_id = d.ledger_id AND e.entry_id = d.entry_id
  AND floor_div(e.stored_ns, 1000) >= s.since_us;

-- request_turns: a redelivery request for an id, or any delivery of a requested id; times in µs
WITH requested_ids AS (
  SELECT
    u.unit, a.capture, a.named_topic AS topic, a.named_subscription AS subscription, a.ledger_id,
    a.entry_id, micros(a.ts) AS at_us
  FROM acknowledged AS a
  JOIN units AS u USING (capture)
  WHERE
    a.action IN ('redeliver', 'nack') AND a.ledger_id IS NOT NULL AND a.entry_id IS NOT NULL
    AND a.ts IS NOT NULL
)
SELECT *, 1 AS is_request, CAST(NULL AS BIGINT) AS given_us FROM requested_ids
UNION ALL
SELECT
  u.unit, d.capture, d.named_topic, d.named_subscription, d.ledger_id, d.entry_id, micros(d.ts),
  0, micros(d.ts)
FROM received_around AS d
JOIN units AS u USING (capture)
WHERE
  (u.unit, d.named_topic, d.named_subscription, d.ledger_id, d.entry_id) IN (
    SELECT unit, topic, subscription, ledger_id, entry_id FROM requested_ids
  );

-- exchange_kinds: the exchanges of a kind, command and outcome; rules check whether any exist
-- materialized
SELECT
  capture, kind, request_command, outcome, error_code, count(*) AS exchanges,
  max(latency_ns) AS slowest_ns, max(attempt) AS most_attempts,
  max(try_subtract(request_first_ns, try_multiply(publish_time_ms, 1000000))) AS oldest_ns,
  min(try_subtract(request_first_ns, try_multiply(publish_time_ms, 1000000))) AS youngest_ns
FROM exchanges
GROUP BY capture, kind, request_command, outcome, error_code;

-- delivery_kinds: the deliveries of an outcome and cause; rules check whether any exist
-- materialized
SELECT
  capture, outcome, is_redelivered, redelivery_cause, checksum, count(*) AS deliveries,
  max(deliver_at_ms) AS latest_due_ms, max(publish_to_delivery_ns) AS slowest_ns
FROM deliveries
GROUP BY capture, outcome, is_redelivered, redelivery_cause, checksum;

-- unsent_topics: a topic with consumers but without captured sends
-- materialized
SELECT t.capture, t.topic
FROM (
  SELECT DISTINCT capture, topic
  FROM consumers
  WHERE topic LIKE 'persistent://%' AND topic IS NOT NULL
) AS t
ANTI JOIN (
  SELECT DISTINCT capture, topic FROM exchanges WHERE kind = 'publish' AND topic IS NOT NULL
) AS s USING (capture, topic);

-- subscription_silences: five seconds or more without a delivery to a subscription; times in µs
-- materialized
SELECT
  s.capture, s.topic, s.subscription, s.last_frame_no, s.began_us, s.opened_us, s.ends_us,
  s.next_us, s.next_frame_no
FROM (
  SELECT
    r.*, lead(r.first_us) OVER following AS next_us,
    lead(r.first_frame_no) OVER following AS next_frame_no
  FROM (
    SELECT
      capture, topic, subscription, second, count(first_delivery_us) AS consumers,
      min(first_delivery_us) AS first_us, min(first_delivery_frame_no) AS first_frame_no,
      max(last_delivery_frame_no) AS last_frame_no,
      coalesce(max(last_delivery_us), min(first_grant_us)) AS began_us,
      min(min(first_grant_us)) OVER whole AS opened_us, min(second) OVER whole AS first_second,
      max(max(floor_div(link_last_ns, 1000))) OVER whole AS ends_us
    FROM consumer_seconds
    WHERE subscription IS NOT NULL AND topic LIKE 'persistent://%'
    GROUP BY capture, topic, subscription, second
    WINDOW whole AS (PARTITION BY capture, topic, subscription)
  ) AS r
  WHERE r.consumers > 0 OR r.second = r.first_second
  WINDOW following AS (PARTITION BY r.capture, r.topic, r.subscription ORDER BY r.second)
) AS s
WHERE coalesce(s.next_us, s.ends_us) - s.began_us >= 5000000;

-- withheld: a time without deliveries to a subscription that had permits while an entry waited
-- materialized
-- It lasts at least five seconds. The entry is the first one stored after all that the subscription
-- had received, while one of its consumers was open; kind: plain entries come before delayed ones
-- and those in a transaction. The consumer is the one that waited longest with permits left, an
-- active one first. The broker sent a frame on its connection at least five seconds after the
-- begin, so the client had read everything sent before. Times in µs.
-- holes: entries that the subscription did not receive although it received later ones; strangers:
-- consumers that the capture does not name. stopped_unacked, left_unacked: unacknowledged messages
-- of the subscription at the begin, and five seconds before the end; acked_us: the first
-- acknowledgement of one of these. usual_us: the median wait of its entries.
-- The LIMITs bound the cost of a hostile capture, and tell engines that these rows are few.
WITH silent_subscriptions AS ( -- Subscriptions with silences, without gaps in their connections and without SEEK.
  SELECT s.capture, s.topic, s.subscription, min(s.opened_us) AS opened_us
  FROM subscription_silences AS s
  ANTI JOIN (
    SELECT c.capture, c.topic, c.subscription
    FROM consumers AS c
    ANTI JOIN pulsar_links AS l USING (capture, connection_id)
    UNION
    SELECT capture, topic, subscription
    FROM exchanges
    WHERE kind = 'request' AND request_command = 'SEEK'
  ) AS h USING (capture, topic, subscription)
  GROUP BY s.capture, s.topic, s.subscription
),
first_deliveries AS (
  SELECT
    d.capture, d.topic, d.subscription, d.ledger_id, d.entry_id, min(micros(d.ts)) AS got_us,
    min(floor_div(d.publish_to_delivery_ns, 1000)) AS waited_us
  FROM deliveries AS d
  WHERE
    (d.capture, d.topic, d.subscription) IN (SELECT capture, topic, subscription FROM silent_subscriptions)
  GROUP BY d.capture, d.topic, d.subscription, d.ledger_id, d.entry_id
),
entry_deliveries AS ( -- Entries, their first delivery, and the first delivery of a later entry.
  SELECT
    e.*, g.got_us,
    min(g.got_us) OVER (
      PARTITION BY e.capture, e.topic, e.subscription ORDER BY e.ledger_id, e.entry_id
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS later_us
  FROM (
    SELECT
      a.capture, a.topic, a.subscription, e.ledger_id, e.entry_id,
      min(floor_div(e.response_last_ns, 1000)) AS stored_us,
      min_by(e.connection_id, e.request_frame_no) AS connection_id,
      min(e.request_frame_no) AS send_frame_no, min(e.response_frame_no) AS receipt_frame_no,
      max(e.chunk_id) AS chunk_id
    FROM silent_subscriptions AS a
    JOIN (
      SELECT
        capture, topic, connection_id, ledger_id, entry_id, request_frame_no, response_frame_no,
        response_last_ns, chunk_id
      FROM exchanges
      WHERE
        kind = 'publish' AND outcome = 'ok' AND ledger_id IS NOT NULL
        AND request_frame_no IS NOT NULL
        AND (capture, topic) IN (SELECT capture, topic FROM silent_subscriptions)
    ) AS e
      ON e.capture = a.capture AND e.topic = a.topic AND e.response_last_ns >= a.opened_us * 1000
    GROUP BY a.capture, a.topic, a.subscription, e.ledger_id, e.entry_id
  ) AS e
  LEFT JOIN first_deliveries AS g
    ON g.capture = e.capture AND g.topic = e.topic AND g.subscription = e.subscription
    AND g.ledger_id = e.ledger_id AND g.entry_id = e.entry_id
),
late_entries AS (
  SELECT
    k.*, f.deliver_at_ms * 1000 AS due_us, f.chunk_uuid,
    f.txn_least_bits IS NOT NULL AS is_of_transaction
  FROM entry_deliveries AS k
  JOIN (
    SELECT capture, connection_id, frame_no, deliver_at_ms, chunk_uuid, txn_least_bits
    FROM frames
    WHERE
      (capture, connection_id, frame_no) IN (
        SELECT capture, connection_id, send_frame_no
        FROM entry_deliveries
        WHERE got_us IS NULL OR got_us - stored_us >= 5000000
        ORDER BY ledger_id, entry_id
        LIMIT 1000000
      )
  ) AS f
    ON f.capture = k.capture AND f.connection_id = k.connection_id AND f.frame_no = k.send_frame_no
  WHERE k.got_us IS NULL OR k.got_us - k.stored_us >= 5000000
),
first_late_entries AS (
  SELECT
    s.*, l.ledger_id, l.entry_id, l.stored_us, l.send_frame_no, l.receipt_frame_no, l.chunk_id,
    l.chunk_uuid,
    CASE
      WHEN l.is_of_transaction THEN 'transaction'
      WHEN l.due_us > coalesce(s.next_us, s.ends_us) - 5000000 THEN 'delayed'
      ELSE 'plain'
    END AS kind,
    CASE
      WHEN l.due_us <= coalesce(s.next_us, s.ends_us) - 5000000
        THEN greatest(l.stored_us, l.due_us)
      ELSE l.stored_us
    END AS ready_us
  FROM subscription_silences AS s
  JOIN late_entries AS l
    ON l.capture = s.capture AND l.topic = s.topic AND l.subscription = s.subscription
  WHERE
    (l.got_us IS NULL OR l.got_us > s.began_us) AND (l.later_us IS NULL OR l.later_us > s.began_us)
    AND l.stored_us <= coalesce(s.next_us, s.ends_us) - 5000000
  QUALIFY row_number() OVER (
    PARTITION BY s.capture, s.topic, s.subscription, s.began_us
    ORDER BY
      CASE
        WHEN l.is_of_transaction OR l.due_us > coalesce(s.next_us, s.ends_us) - 5000000 THEN 1
        ELSE 0
      END,
      l.ledger_id, l.entry_id
  ) = 1
  ORDER BY s.began_us, s.capture, s.topic, s.subscription
  LIMIT 10000
),
permit_holders AS ( -- Consumers of the subscription at that time, and since when they have permits.
  SELECT
    w.capture, w.topic, w.subscription, w.began_us, c.connection_id, c.consumer_id, c.incarnation,
    max(c.client_ip) AS client_ip, max(c.server_version) AS server_version,
    max(c.subscription_type) AS subscription_type,
    max_by(c.last_available, c.second) AS available,
    CASE
      WHEN
        max_by(
          CASE WHEN c.second <= floor_div(w.began_us, 1000000) THEN c.last_available END,
          CASE WHEN c.second <= floor_div(w.began_us, 1000000) THEN c.second END
        ) > 0
        THEN max(CASE WHEN c.second <= floor_div(w.began_us, 1000000) THEN c.last_us END)
      ELSE min(c.last_us) FILTER (
        WHERE c.second > floor_div(w.began_us, 1000000) AND c.last_available > 0
      )
    END AS had_us
  FROM first_late_entries AS w
  JOIN consumer_seconds AS c USING (capture, topic, subscription)
  WHERE w.next_us IS NULL OR c.second < floor_div(w.next_us, 1000000)
  GROUP BY ALL
),
client_activity AS (
  SELECT
    h.capture, h.topic, h.subscription, h.began_us, h.connection_id, h.consumer_id,
    h.incarnation, n.name AS consumer_name, n.opened_frame_no, h.client_ip, h.server_version,
    h.subscription_type, h.available, w.last_frame_no, w.next_us, w.next_frame_no, w.ledger_id,
    w.entry_id, w.send_frame_no, w.receipt_frame_no, w.chunk_id, w.chunk_uuid, w.kind,
    w.stored_us,
    greatest(w.ready_us, h.had_us, h.began_us) AS start_us,
    max(micros(f.ts)) FILTER (
      WHERE f.direction = 'to_client' AND f.status = 'complete' AND (w.next_us IS NULL
        OR micros(f.ts) < w.next_us)
    ) AS alive_us,
    max(f.frame_no) FILTER (
      WHERE f.direction = 'to_client' AND f.status = 'complete' AND (w.next_us IS NULL
        OR micros(f.ts) < w.next_us)
    ) AS alive_frame_no,
    max(CASE WHEN f.frame_no = n.closed_frame_no THEN micros(f.ts) END) AS closed_us,
    max_by(
      CASE
        WHEN
          f.command = 'ACTIVE_CONSUMER_CHANGE' AND f.consumer_id = h.consumer_id
          AND (w.next_us IS NULL OR micros(f.ts) < w.next_us)
          THEN f.detail
      END,
      CASE
        WHEN
          f.command = 'ACTIVE_CONSUMER_CHANGE' AND f.consumer_id = h.consumer_id
          AND (w.next_us IS NULL OR micros(f.ts) < w.next_us)
          THEN f.frame_no
      END
    ) AS activity
  FROM permit_holders AS h
  JOIN first_late_entries AS w USING (capture, topic, subscription, began_us)
  JOIN (
    SELECT
      capture, connection_id, frame_no, ts, direction, status, command, consumer_id, detail
    FROM frames
    WHERE
      (capture, connection_id) IN (
        SELECT capture, connection_id
        FROM permit_holders
        ORDER BY capture, connection_id
        LIMIT 100000
      )
  ) AS f USING (capture, connection_id)
  LEFT JOIN consumers AS n
    ON n.capture = h.capture AND n.connection_id = h.connection_id
    AND n.consumer_id = h.consumer_id AND n.incarnation = h.incarnation
  WHERE h.available > 0 AND h.had_us IS NOT NULL
  GROUP BY
    h.capture, h.topic, h.subscription, h.began_us, h.connection_id, h.consumer_id,
    h.incarnation, n.name, n.opened_frame_no, h.client_ip, h.server_version,
    h.subscription_type, h.available, w.last_frame_no, w.next_us, w.next_frame_no, w.ledger_id,
    w.entry_id, w.send_frame_no, w.receipt_frame_no, w.chunk_id, w.chunk_uuid, w.kind,
    w.stored_us, w.ready_us, h.had_us
),
longest_waits AS (
  SELECT
    h.*, least(coalesce(h.next_us, h.alive_us), coalesce(h.closed_us, h.alive_us)) AS end_us,
    coalesce(h.activity LIKE '%false%', FALSE) AS is_inactive
  FROM client_activity AS h
  WHERE
    h.alive_us - h.start_us >= 5000000
    AND least(coalesce(h.next_us, h.alive_us), coalesce(h.closed_us, h.alive_us)) - h.start_us
    >= 5000000
  QUALIFY row_number() OVER (
    PARTITION BY h.capture, h.topic, h.subscription, h.began_us
    ORDER BY
      CASE WHEN h.activity LIKE '%false%' THEN 1 ELSE 0 END,
      least(coalesce(h.next_us, h.alive_us), coalesce(h.closed_us, h.alive_us)) - h.start_us
        DESC,
      h.connection_id, h.consumer_id, h.incarnation
  ) = 1
),
unacked_counts AS (
  SELECT
    c.capture, c.topic, c.subscription, c.began_us,
    sum(d.message_count) AS stopped_unacked,
    sum(
      CASE WHEN d.ack_us IS NULL OR d.ack_us > c.end_us - 5000000 THEN d.message_count END
    ) AS left_unacked,
    min(d.ack_us) AS acked_us
  FROM longest_waits AS c
  JOIN (
    SELECT
      d.capture, d.topic, d.subscription, d.message_count, micros(d.ts) AS at_us,
      micros(d.ts) + floor_div(d.ack_latency_ns, 1000) AS ack_us
    FROM deliveries AS d
    WHERE
      d.outcome NOT IN ('redelivery_requested', 'ack_rolled_back')
      AND (d.capture, d.topic, d.subscription) IN (SELECT capture, topic, subscription FROM longest_waits)
  ) AS d USING (capture, topic, subscription)
  WHERE d.at_us <= c.began_us AND (d.ack_us IS NULL OR d.ack_us > c.began_us)
  GROUP BY c.capture, c.topic, c.subscription, c.began_us
),
usual_waits AS (
  SELECT g.capture, g.topic, g.subscription, median(g.waited_us) AS usual_us
  FROM first_deliveries AS g
  GROUP BY g.capture, g.topic, g.subscription
),
skipped_counts AS (
  SELECT k.capture, k.topic, k.subscription, count(*) AS holes
  FROM late_entries AS k
  WHERE
    k.got_us IS NULL AND k.later_us IS NOT NULL AND k.due_us IS NULL AND NOT k.is_of_transaction
  GROUP BY k.capture, k.topic, k.subscription
)
SELECT
  c.*, CAST(coalesce(u.stopped_unacked, 0) AS BIGINT) AS stopped_unacked,
  CAST(coalesce(u.left_unacked, 0) AS BIGINT) AS left_unacked, u.acked_us, m.usual_us,
  coalesce(p.holes, 0) AS holes, coalesce(n.strangers, 0) AS strangers
FROM longest_waits AS c
LEFT JOIN unacked_counts AS u
  ON u.capture = c.capture AND u.topic = c.topic AND u.subscription = c.subscription
  AND u.began_us = c.began_us
LEFT JOIN usual_waits AS m
  ON m.capture = c.capture AND m.topic = c.topic AND m.subscription = c.subscription
LEFT JOIN skipped_counts AS p
  ON p.capture = c.capture AND p.topic = c.topic AND p.subscription = c.subscription
LEFT JOIN (
  SELECT capture, topic, count(*) AS strangers
  FROM consumers
  WHERE subscription IS NULL AND topic IS NOT NULL
  GROUP BY capture, topic
) AS n ON n.capture = c.capture AND n.topic = c.topic;
