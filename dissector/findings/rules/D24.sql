/*
number = "D24"
code = "topic_moved"
title = "A topic was moved to another broker or loaded anew"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "connecting"
worst = "measured_wait_s"
references = ["apache/pulsar PR 16059", "apache/pulsar PR 19813", "apache/pulsar PR 13915", "apache/pulsar#9792"]
fires = ["java-j24_unload.pcap", "cpp-c41_unload.pcap", "fake-f05_unload.pcap"]
silent = ["java-j21_seek.pcap", "cpp-s12_seek-bem.pcap", "java-j26_backlog_quota.pcap", "java-j01_plain.pcap"]

[needs]
pulsar_opens = "closed_by = 'broker'"

[thresholds.together_s]
value = 1.0
unit = "s"
why = "topics of one bundle, or of one broker, are closed within a second"

[thresholds.churn_moves]
value = 3
unit = "moves"
why = "a restart of the brokers one after the other moves a topic once or twice"

[thresholds.churn_s]
value = 600.0
unit = "s"
why = "load shedding looks every minute and moves a bundle seldom more than once in ten"

[text]
what = "The broker closed {producers} producers and {consumers} consumers of {topic} (and with it {other_topics} other topics) by itself; they were open again after {wait_s} s[, the first send was stored {first_receipt_s} s after the close]. {swallowed} sends {swallowed|was|were} never answered, {resent} {resent|was|were} sent again, {delivered_again} messages {delivered_again|was|were} delivered again."
known = "CLOSE_PRODUCER or CLOSE_CONSUMER of the broker, and the successful open of the same names behind it, are in the capture; nobody asked for a seek."
rival = "An administrator's reset of the cursor, which closes the consumers of one subscription in the same way."
decides = "The broker's log: unloading of the namespace bundle, and why."
do = "Nothing, if it was a restart or a single unload."

[variant.unload_churn]
severity = "warning"
title = "A topic is moved again and again"
what = "The broker closed and took back {topic} {moves_seen} times, {churn_moves} of them within {closest_s} s. Together its producers and consumers waited {wait_s} s; {swallowed} sends {swallowed|was|were} never answered, {resent} {resent|was|were} sent again, {delivered_again} messages {delivered_again|was|were} delivered again."
rival = "Tests that unload on purpose, or an administrator's resets of the cursor."
do = "Look at the load-shedding settings of the brokers (thresholds, loadBalancerSheddingEnabled), and at brokers that restart."
*/
WITH closes AS ( -- A producer or consumer that the broker closed without being asked.
  SELECT
    o.kind, o.capture, o.topic, o.name, o.subscription, o.client_ip, o.broker_ip, o.connection_id,
    o.id, o.incarnation, o.opened_ns, o.closed_frame_no, f.last_ts_ns AS closed_ns
  FROM pulsar_opens AS o
  JOIN frames AS f
    ON f.capture = o.capture AND f.connection_id = o.connection_id
    AND f.frame_no = o.closed_frame_no
  ANTI JOIN (
    SELECT capture, connection_id, consumer_id, incarnation
    FROM exchanges
    WHERE request_command = 'SEEK'
  ) AS e
    ON e.capture = o.capture AND e.connection_id = o.connection_id AND e.consumer_id = o.id
    AND e.incarnation = o.incarnation AND o.kind = 'consumer'
  WHERE
    o.closed_by = 'broker' AND o.refused_code IS NULL AND o.topic IS NOT NULL
    AND f.direction = 'to_client' AND f.command IN ('CLOSE_PRODUCER', 'CLOSE_CONSUMER')
),
back AS ( -- The same with the next successful open of the same name.
  SELECT
    c.kind, c.capture, c.topic, c.connection_id, c.id, c.incarnation, c.opened_ns,
    c.closed_frame_no, c.closed_ns, min(o.answered_ns) AS ready_ns,
    min_by(o.ready_frame_no, o.opened_ns) AS ready_frame_no,
    min_by(o.connection_id, o.opened_ns) AS back_connection,
    min_by(o.id, o.opened_ns) AS back_id, min_by(o.incarnation, o.opened_ns) AS back_incarnation
  FROM closes AS c
  JOIN pulsar_opens AS o
    ON o.capture = c.capture AND o.kind = c.kind AND o.topic = c.topic
    AND o.name IS NOT DISTINCT FROM c.name AND o.client_ip = c.client_ip
    AND o.subscription IS NOT DISTINCT FROM c.subscription
    AND o.opened_ns > c.closed_ns AND o.outcome = 'ok' AND o.ready_frame_no IS NOT NULL
  GROUP BY
    c.kind, c.capture, c.topic, c.connection_id, c.id, c.incarnation, c.opened_ns,
    c.closed_frame_no, c.closed_ns
),
costs AS (
  SELECT
    b.kind, b.capture, b.topic, b.closed_ns, b.closed_frame_no, b.opened_ns, b.ready_ns,
    b.ready_frame_no, s.swallowed, r.resent, r.first_receipt_ns, d.delivered_again
  FROM back AS b
  LEFT JOIN (
    SELECT b.capture, b.connection_id, b.id, b.incarnation, count(*) AS swallowed
    FROM back AS b
    JOIN exchanges AS e
      ON e.capture = b.capture AND e.connection_id = b.connection_id AND e.producer_id = b.id
      AND e.incarnation = b.incarnation AND e.kind = 'publish'
    WHERE e.outcome = 'dropped_after_close' AND b.kind = 'producer'
    GROUP BY b.capture, b.connection_id, b.id, b.incarnation
  ) AS s
    ON s.capture = b.capture AND s.connection_id = b.connection_id AND s.id = b.id
    AND s.incarnation = b.incarnation AND b.kind = 'producer'
  LEFT JOIN (
    SELECT
      b.capture, b.back_connection, b.back_id, b.back_incarnation,
      count(CASE WHEN e.attempt > 1 THEN 1 END) AS resent,
      min(CASE WHEN e.outcome = 'ok' THEN e.response_last_ns END) AS first_receipt_ns
    FROM back AS b
    JOIN exchanges AS e
      ON e.capture = b.capture AND e.connection_id = b.back_connection
      AND e.producer_id = b.back_id AND e.incarnation = b.back_incarnation AND e.kind = 'publish'
    WHERE b.kind = 'producer'
    GROUP BY b.capture, b.back_connection, b.back_id, b.back_incarnation
  ) AS r
    ON r.capture = b.capture AND r.back_connection = b.back_connection AND r.back_id = b.back_id
    AND r.back_incarnation = b.back_incarnation AND b.kind = 'producer'
  LEFT JOIN (
    SELECT
      b.capture, b.back_connection, b.back_id, b.back_incarnation,
      sum(e.message_count) AS delivered_again
    FROM back AS b
    JOIN deliveries AS e
      ON e.capture = b.capture AND e.connection_id = b.back_connection
      AND e.consumer_id = b.back_id AND e.incarnation = b.back_incarnation
    WHERE b.kind = 'consumer' AND e.redelivery_cause IN ('unload', 'reconnect')
    GROUP BY b.capture, b.back_connection, b.back_id, b.back_incarnation
  ) AS d
    ON d.capture = b.capture AND d.back_connection = b.back_connection AND d.back_id = b.back_id
    AND d.back_incarnation = b.back_incarnation AND b.kind = 'consumer'
),
-- What was opened behind the last close, or is closed long after it, is closed by the next move.
marked AS (
  SELECT
    c.*,
    CASE
      WHEN c.before_ns IS NULL THEN 1
      WHEN c.opened_ns > c.before_ns THEN 1
      WHEN c.closed_ns - c.before_ns > $together_s * 1000000000 THEN 1
      ELSE 0
    END AS begins
  FROM (
    SELECT
      c.*,
      lag(c.closed_ns) OVER (
        PARTITION BY c.capture, c.topic ORDER BY c.closed_ns, c.closed_frame_no
      ) AS before_ns
    FROM costs AS c
  ) AS c
),
numbered AS (
  SELECT
    m.*,
    sum(m.begins) OVER (
      PARTITION BY m.capture, m.topic ORDER BY m.closed_ns, m.closed_frame_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS move_no
  FROM marked AS m
),
moves AS (
  SELECT
    n.capture, n.topic, n.move_no, min(n.closed_ns) AS closed_ns, max(n.ready_ns) AS ready_ns,
    count(CASE WHEN n.kind = 'producer' THEN 1 END) AS producers,
    count(CASE WHEN n.kind = 'consumer' THEN 1 END) AS consumers,
    CAST(coalesce(sum(n.swallowed), 0) AS BIGINT) AS swallowed,
    CAST(coalesce(sum(n.resent), 0) AS BIGINT) AS resent,
    CAST(coalesce(sum(n.delivered_again), 0) AS BIGINT) AS delivered_again,
    min(n.first_receipt_ns) AS first_receipt_ns, min(n.closed_frame_no) AS closed_frame_no,
    max(n.ready_frame_no) AS ready_frame_no
  FROM numbered AS n
  GROUP BY n.capture, n.topic, n.move_no
),
placed AS (
  SELECT
    m.*,
    count(*) OVER (
      PARTITION BY m.capture, m.move_no ORDER BY m.closed_ns
      RANGE BETWEEN 1000000000 PRECEDING AND 1000000000 FOLLOWING
    ) AS together,
    m.closed_ns - lag(m.closed_ns) OVER (
      PARTITION BY m.capture, m.move_no ORDER BY m.closed_ns, m.topic
    ) AS behind_ns,
    lead(m.closed_ns, CAST($churn_moves - 1 AS INT)) OVER (
      PARTITION BY m.capture, m.topic ORDER BY m.move_no
    ) - m.closed_ns AS churn_ns
  FROM moves AS m
)
SELECT
  p.capture, p.closed_ns AS first_ns, p.ready_ns AS last_ns, '' AS variant,
  p.topic AS subject_topic, p.producers AS measured_producers, p.consumers AS measured_consumers,
  p.together - 1 AS measured_other_topics, CAST(1 AS BIGINT) AS measured_moves_seen,
  CAST(NULL AS DOUBLE) AS measured_closest_s, (p.ready_ns - p.closed_ns) / 1e9 AS measured_wait_s,
  (p.first_receipt_ns - p.closed_ns) / 1e9 AS measured_first_receipt_s,
  p.swallowed AS measured_swallowed, p.resent AS measured_resent,
  p.delivered_again AS measured_delivered_again,
  p.closed_frame_no AS frame_close, p.ready_frame_no AS frame_open_again
FROM placed AS p
WHERE p.behind_ns IS NULL OR p.behind_ns > $together_s * 1000000000
UNION ALL
SELECT
  p.capture, min(p.closed_ns) AS first_ns, max(p.ready_ns) AS last_ns, 'unload_churn' AS variant,
  p.topic AS subject_topic, CAST(sum(p.producers) AS BIGINT) AS measured_producers,
  CAST(sum(p.consumers) AS BIGINT) AS measured_consumers,
  CAST(0 AS BIGINT) AS measured_other_topics,
  count(*) AS measured_moves_seen, min(p.churn_ns) / 1e9 AS measured_closest_s,
  sum(p.ready_ns - p.closed_ns) / 1e9 AS measured_wait_s,
  CAST(NULL AS DOUBLE) AS measured_first_receipt_s,
  CAST(sum(p.swallowed) AS BIGINT) AS measured_swallowed,
  CAST(sum(p.resent) AS BIGINT) AS measured_resent,
  CAST(sum(p.delivered_again) AS BIGINT) AS measured_delivered_again,
  min(p.closed_frame_no) AS frame_close, max(p.ready_frame_no) AS frame_open_again
FROM placed AS p
GROUP BY p.capture, p.topic
HAVING min(p.churn_ns) <= $churn_s * 1000000000
