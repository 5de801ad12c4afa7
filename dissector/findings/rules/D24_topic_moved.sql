/*
number = "D24"
code = "topic_moved"
title = "The broker closed a topic, and its clients opened it again"
severity = "info"
verdict = "pattern"
protocol = "pulsar"
section = "connecting"
worst = "measured_wait_s"
apart_s = 0.0
references = ["apache/pulsar PR 16059", "apache/pulsar PR 19813", "apache/pulsar PR 13915", "apache/pulsar#9792", "apache/pulsar-client-cpp#405"]
fires = ["java-j24_unload.pcap", "cpp-c41_unload.pcap", "fake-f05_unload.pcap", "t09-migration-twin.pcap", "live-broker_restart.pcap"]
real = ["java-j24_unload.pcap", "cpp-c41_unload.pcap", "live-broker_restart.pcap"]
silent = ["java-j21_seek.pcap", "cpp-s12_seek-bem.pcap", "java-j26_backlog_quota.pcap", "java-j01_plain.pcap", "t09-migration-stuck-30s.pcap"]

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

[thresholds.gone_s]
value = 10.0
unit = "s"
why = "clients open again what the broker closed within a second, unless they are told not to"

[text]
what = "The broker closed {producers} producers and {consumers} consumers of {topic}[ (and with it {other_topics} other topics)] by itself; they were open again after {wait_s} s at the same address[, the first send was stored {first_receipt_s} s after the close].[ {swallowed} sends {swallowed|was|were} never answered.][ {resent} sends {resent|was|were} repeated.][ {delivered_again} messages {delivered_again|was|were} delivered again.][ {unacked} messages that were unacknowledged at the close did not come again to this client.][ It was the longest of {moves_more} such closes of the topic in the capture.]"
known = "CLOSE_PRODUCER or CLOSE_CONSUMER of the broker, and the successful open of the same names behind it, are in the capture; nobody asked for a seek."
rival = "An unload or a restart, which lose no message, or a deletion of the topic, which its clients then created anew, empty: all of them close in this way."
decides = "The broker's log: unloading of the namespace bundle, or deletion of the topic, and who asked for it."
do = "Look for the reason in the broker's log. Nothing is to be done after a restart or a single unload; after a deletion the messages and subscriptions of before are gone."

[variant.loaded_anew]
verdict = "proven"
title = "A topic was closed and loaded anew"
known = "CLOSE_PRODUCER or CLOSE_CONSUMER of the broker, and the successful open of the same names behind it, are in the capture; nobody asked for a seek. Messages of before came again, so that the topic was not deleted."
rival = "A broker that closed it for a fault of its own, such as a failed write, rather than for an unload."
decides = "The broker's log: unloading of the namespace bundle, and why."
do = "Nothing, if it was a restart or a single unload."

[variant.consumers]
title = "The broker closed a topic's consumers, and they came back"
rival = "An unload, a restart or a deletion of the topic, if its producers are not in this capture; or an administrator's reset of the cursor, which closes the consumers of one subscription in the same way."
decides = "The broker's log: unloading of the namespace bundle, reset of the cursor, or deletion of the topic, and who asked for it."

[variant.moved]
verdict = "proven"
title = "A topic was moved to another broker"
what = "The broker closed {producers} producers and {consumers} consumers of {topic}[ (and with it {other_topics} other topics)] by itself; they were open again after {wait_s} s at {broker_to} (before: {broker_from})[, the first send was stored {first_receipt_s} s after the close].[ {swallowed} sends {swallowed|was|were} never answered.][ {resent} sends {resent|was|were} repeated.][ {delivered_again} messages {delivered_again|was|were} delivered again.][ It was the longest of {moves_more} such closes of the topic in the capture.]"
rival = "Two addresses of one broker, or two proxies before it."
decides = "The brokers' logs: unloading of the namespace bundle, and why: load shedding, a restart or an administrator."
do = "Nothing, if it was a restart or a single unload."

[variant.migrated]
verdict = "proven"
title = "A topic was migrated to another cluster"
what = "The broker closed {producers} producers and {consumers} consumers of {topic}[ (and with it {other_topics} other topics)] by itself and told where to go, {migrated_to}; they were open again after {wait_s} s at {broker_to} (before: {broker_from})[, the first send was stored {first_receipt_s} s after the close].[ {swallowed} sends {swallowed|was|were} never answered.][ {resent} sends {resent|was|were} repeated.]"
known = "TOPIC_MIGRATED (frame {migrated}), the broker's close and the successful open of the same names behind it are in the capture."
rival = "None: the broker said so."
decides = "Nothing is open."
do = "Nothing, if the cluster is meant to be migrated."

[variant.terminated]
verdict = "proven"
title = "A topic was terminated while it was in use"
what = "The broker closed {producers} producers and {consumers} consumers of {topic} by itself, and refused {command} of {client_ip} behind it: {error_code}[, '{error_text}']."
known = "CLOSE_PRODUCER or CLOSE_CONSUMER of the broker, the refusal (frame {refusal}) behind it, and no successful open are in the capture."
rival = "None: the broker says that nothing more can be sent to it."
decides = "Who terminated the topic: the broker's log."
do = "Find out who terminated it. It stays so: producers have to go to another topic; consumers can still read what is there."

[variant.deleted]
verdict = "proven"
title = "A topic was closed and is not there any more"
what = "The broker closed {producers} producers and {consumers} consumers of {topic} by itself, and refused {command} of {client_ip} behind it: {error_code}[, '{error_text}']."
known = "CLOSE_PRODUCER or CLOSE_CONSUMER of the broker, the refusal (frame {refusal}) behind it, and no successful open are in the capture."
rival = "A topic whose whole namespace was deleted, or that brokers delete by themselves when nobody uses it."
decides = "The broker's log: deletion of the topic, and who asked for it."
do = "Find out who deleted it: its messages and subscriptions are gone. Clients create it anew only where the namespace lets them (allowAutoTopicCreation)."

[variant.not_reopened]
whole = "a client may open it again behind the window"
title = "The broker closed a topic, and its client did not open it again"
what = "The broker closed {producers} producers and {consumers} consumers of {topic} by itself; {client_ip} did not ask for it again, though its connection went on for {wait_s} s.[ The broker had told it where to go: {migrated_to}.]"
known = "CLOSE_PRODUCER or CLOSE_CONSUMER of the broker is in the capture, and no LOOKUP, PRODUCER or SUBSCRIBE of this client for the topic behind it."
rival = "A topic that was deleted or terminated, or a broker that fenced the client; or an application that was about to close it anyhow; or a lookup over HTTP that is not decoded, and an open elsewhere."
decides = "The broker's log at the time of the close, and the client's log: a client gives up what it is told not to open again."
do = "Look for the reason of the close in the broker's log, and whether the application knows that it has no producer or consumer any more."

[variant.unload_churn]
severity = "warning"
verdict = "proven"
title = "A topic is closed and taken back again and again"
what = "The broker closed and took back {topic} {moves_seen} times, {churn_moves} of them within {closest_s} s. Together its producers and consumers waited {wait_s} s;[ {swallowed} sends {swallowed|was|were} never answered.][ {resent} sends {resent|was|were} repeated.][ {delivered_again} messages {delivered_again|was|were} delivered again.]"
rival = "Tests or people that unload or delete it on purpose[, or that reset the cursor, since no producer was closed with the {only_consumers} consumers]."
do = "Look at the load-shedding settings of the brokers (thresholds, loadBalancerSheddingEnabled), and at brokers that restart."
*/
WITH closes AS ( -- Producers and consumers that the broker closed without a request.
  SELECT
    o.kind, o.capture, o.topic, o.name, o.subscription, o.client_ip, o.connection_id, o.id,
    o.incarnation, o.opened_ns, o.opened_frame_no, o.closed_frame_no, o.link_last_ns,
    f.last_ts_ns AS closed_ns, concat(o.broker_ip, ':', CAST(o.broker_port AS STRING)) AS broker
  FROM pulsar_opens AS o
  JOIN frames AS f
    ON f.capture = o.capture AND f.connection_id = o.connection_id
    AND f.frame_no = o.closed_frame_no
  ANTI JOIN unsteady_clocks AS u ON u.capture = o.capture -- Nobody knows what came first.
  ANTI JOIN (
    SELECT capture, connection_id, consumer_id, incarnation
    FROM exchanges
    WHERE request_command = 'SEEK'
  ) AS e
    ON e.capture = o.capture AND e.connection_id = o.connection_id AND e.consumer_id = o.id
    AND e.incarnation = o.incarnation AND o.kind = 'consumer'
  WHERE
    o.closed_by = 'broker' AND o.refused_code IS NULL AND o.ready_frame_no IS NOT NULL
    AND o.topic IS NOT NULL
    AND f.direction = 'to_client' AND f.command IN ('CLOSE_PRODUCER', 'CLOSE_CONSUMER')
),
migrations AS ( -- TOPIC_MIGRATED before the close.
  SELECT
    c.capture, c.connection_id, c.kind, c.id, c.incarnation, max(m.frame_no) AS migrated_no,
    max_by(
      nullif(regexp_extract(m.detail, '"brokerServiceUrl(Tls)?":"([^"]*)"', 2), ''), m.frame_no
    ) AS migrated_to
  FROM closes AS c
  JOIN frames AS m
    ON m.capture = c.capture AND m.connection_id = c.connection_id
    AND m.command = 'TOPIC_MIGRATED' AND m.frame_no > c.opened_frame_no
    AND m.frame_no <= c.closed_frame_no
    AND c.id = CASE c.kind WHEN 'producer' THEN m.producer_id ELSE m.consumer_id END
  GROUP BY c.capture, c.connection_id, c.kind, c.id, c.incarnation
),
successful_reopens AS ( -- The closes with the next successful open of the same name.
  SELECT
    c.kind, c.capture, c.topic, c.connection_id, c.id, c.incarnation, c.opened_ns,
    c.closed_frame_no, c.closed_ns, c.broker, min(o.answered_ns) AS ready_ns,
    min_by(o.ready_frame_no, o.opened_frame_no) AS ready_frame_no,
    min_by(o.connection_id, o.opened_frame_no) AS back_connection,
    min_by(concat(o.broker_ip, ':', CAST(o.broker_port AS STRING)), o.opened_frame_no) AS back_broker,
    min_by(o.id, o.opened_frame_no) AS back_id, min_by(o.incarnation, o.opened_frame_no) AS back_incarnation
  FROM closes AS c
  JOIN pulsar_opens AS o
    ON o.capture = c.capture AND o.kind = c.kind AND o.topic = c.topic
    AND o.name IS NOT DISTINCT FROM c.name AND o.client_ip = c.client_ip
    AND o.subscription IS NOT DISTINCT FROM c.subscription
    AND o.opened_ns > c.closed_ns AND o.outcome = 'ok' AND o.ready_frame_no IS NOT NULL
  GROUP BY ALL
),
later_requests AS ( -- Requests for the topic after a close without a later successful open.
  SELECT
    c.kind, c.capture, c.topic, c.client_ip, c.connection_id, c.id, c.incarnation, c.closed_ns,
    c.closed_frame_no, c.link_last_ns, max(t.migrated_to) AS migrated_to,
    max(t.migrated_no) AS migrated_no, count(e.request_frame_no) AS questions,
    max(CASE WHEN e.error_code IS NOT NULL THEN e.response_last_ns END) AS answered_ns,
    max(CASE WHEN e.error_code IS NOT NULL THEN e.response_frame_no END) AS answer_no,
    max_by(e.request_command, CASE WHEN e.error_code IS NOT NULL THEN e.response_frame_no END)
      AS command,
    max_by(e.error_code, CASE WHEN e.error_code IS NOT NULL THEN e.response_frame_no END)
      AS error_code,
    max_by(e.error_text, CASE WHEN e.error_code IS NOT NULL THEN e.response_frame_no END)
      AS error_text
  FROM closes AS c
  ANTI JOIN successful_reopens AS b
    ON b.capture = c.capture AND b.topic = c.topic AND b.ready_ns > c.closed_ns
  LEFT JOIN migrations AS t USING (capture, connection_id, kind, id, incarnation)
  LEFT JOIN exchanges AS e
    ON e.capture = c.capture AND e.topic = c.topic AND e.client_ip = c.client_ip
    AND e.request_last_ns > c.closed_ns
    AND e.request_command IN ('LOOKUP', 'PARTITIONED_METADATA', 'PRODUCER', 'SUBSCRIBE')
  GROUP BY ALL
),
unreopened_names AS (
  SELECT
    a.*,
    CASE
      WHEN a.error_code = 'TopicTerminatedError' THEN 'terminated'
      WHEN a.error_code = 'TopicNotFound' THEN 'deleted'
      ELSE 'not_reopened'
    END AS variant
  FROM later_requests AS a
  WHERE
    a.error_code IN ('TopicTerminatedError', 'TopicNotFound')
    OR (a.questions = 0 AND a.link_last_ns - a.closed_ns >= $gone_s * 1000000000)
),
costs AS (
  SELECT
    b.kind, b.capture, b.topic, b.closed_ns, b.closed_frame_no, b.opened_ns, b.ready_ns,
    b.ready_frame_no, b.broker, b.back_broker, t.migrated_no, t.migrated_to, s.swallowed,
    r.resent, r.first_receipt_ns, d.delivered_again, u.unacked
  FROM successful_reopens AS b
  LEFT JOIN migrations AS t USING (capture, connection_id, kind, id, incarnation)
  LEFT JOIN (
    SELECT b.capture, b.connection_id, b.id, b.incarnation, count(*) AS swallowed
    FROM successful_reopens AS b
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
    FROM successful_reopens AS b
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
      sum(CASE WHEN e.redelivery_cause IN ('unload', 'reconnect') THEN e.message_count END)
        AS delivered_again
    FROM successful_reopens AS b
    JOIN deliveries AS e
      ON e.capture = b.capture AND e.connection_id = b.back_connection
      AND e.consumer_id = b.back_id AND e.incarnation = b.back_incarnation
    WHERE b.kind = 'consumer'
    GROUP BY b.capture, b.back_connection, b.back_id, b.back_incarnation
  ) AS d
    ON d.capture = b.capture AND d.back_connection = b.back_connection AND d.back_id = b.back_id
    AND d.back_incarnation = b.back_incarnation AND b.kind = 'consumer'
  LEFT JOIN ( -- Nothing is said of these before something came to the consumer that is back.
    SELECT b.capture, b.connection_id, b.id, b.incarnation, sum(e.message_count) AS unacked
    FROM successful_reopens AS b
    JOIN deliveries AS e
      ON e.capture = b.capture AND e.connection_id = b.connection_id AND e.consumer_id = b.id
      AND e.incarnation = b.incarnation
    WHERE b.kind = 'consumer' AND e.outcome IN ('consumer_closed', 'conn_closed', 'unacked_at_end')
    GROUP BY b.capture, b.connection_id, b.id, b.incarnation
  ) AS u
    ON u.capture = b.capture AND u.connection_id = b.connection_id AND u.id = b.id
    AND u.incarnation = b.incarnation AND b.kind = 'consumer' AND d.back_id IS NOT NULL
),
-- A name opened after the last close, or closed long after it, begins the next move.
move_starts AS (
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
numbered_moves AS (
  SELECT
    m.*,
    sum(m.begins) OVER (
      PARTITION BY m.capture, m.topic ORDER BY m.closed_ns, m.closed_frame_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS move_no
  FROM move_starts AS m
),
moves AS (
  SELECT
    n.capture, n.topic, n.move_no, min(n.closed_ns) AS closed_ns, max(n.ready_ns) AS ready_ns,
    count(CASE WHEN n.kind = 'producer' THEN 1 END) AS producers,
    count(CASE WHEN n.kind = 'consumer' THEN 1 END) AS consumers,
    CAST(coalesce(sum(n.swallowed), 0) AS BIGINT) AS swallowed,
    CAST(coalesce(sum(n.resent), 0) AS BIGINT) AS resent,
    CAST(coalesce(sum(n.delivered_again), 0) AS BIGINT) AS delivered_again,
    CAST(sum(n.unacked) AS BIGINT) AS unacked,
    min(n.first_receipt_ns) AS first_receipt_ns, min(n.closed_frame_no) AS closed_frame_no,
    max(n.ready_frame_no) AS ready_frame_no, min(n.migrated_no) AS migrated_no,
    min(n.migrated_to) AS migrated_to, min_by(n.broker, n.closed_frame_no) AS broker_from,
    min_by(n.back_broker, (CASE WHEN n.back_broker <> n.broker THEN 0 ELSE 1 END, n.ready_frame_no))
      AS broker_to
  FROM numbered_moves AS n
  GROUP BY n.capture, n.topic, n.move_no
),
classified_moves AS (
  SELECT
    m.*,
    CASE
      WHEN m.migrated_no IS NOT NULL THEN 'migrated'
      WHEN m.broker_to <> m.broker_from THEN 'moved'
      WHEN m.producers = 0 THEN 'consumers'
      WHEN m.delivered_again > 0 THEN 'loaded_anew'
      ELSE ''
    END AS variant,
    count(*) OVER (PARTITION BY m.capture, m.topic) AS moves_seen,
    lead(m.closed_ns, CAST($churn_moves - 1 AS INT)) OVER (
      PARTITION BY m.capture, m.topic ORDER BY m.move_no
    ) - m.closed_ns AS churn_ns
  FROM moves AS m
),
move_sweeps AS ( -- Topics that are closed in quick succession become one finding.
  SELECT
    p.*, count(*) OVER (PARTITION BY p.capture, p.variant, p.move_no, p.sweep) AS together,
    row_number() OVER (
      PARTITION BY p.capture, p.variant, p.move_no, p.sweep ORDER BY p.closed_ns, p.topic
    ) AS place
  FROM (
    SELECT
      b.*,
      sum(b.begins) OVER (
        PARTITION BY b.capture, b.variant, b.move_no ORDER BY b.closed_ns, b.topic
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS sweep
    FROM (
      SELECT
        m.*,
        CASE
          WHEN
            m.closed_ns - lag(m.closed_ns) OVER (
              PARTITION BY m.capture, m.variant, m.move_no ORDER BY m.closed_ns, m.topic
            ) <= $together_s * 1000000000 THEN 0
          ELSE 1
        END AS begins
      FROM classified_moves AS m
    ) AS b
  ) AS p
)
SELECT
  p.capture, p.closed_ns AS first_ns, p.ready_ns AS last_ns, p.variant,
  p.topic AS subject_topic, NULL AS subject_client_ip,
  p.producers AS measured_producers, p.consumers AS measured_consumers,
  NULL AS measured_only_consumers,
  p.together - 1 AS measured_other_topics, p.moves_seen AS measured_moves_seen,
  CASE WHEN p.moves_seen > 1 THEN p.moves_seen END AS measured_moves_more,
  NULL AS measured_closest_s, (p.ready_ns - p.closed_ns) / 1e9 AS measured_wait_s,
  (p.first_receipt_ns - p.closed_ns) / 1e9 AS measured_first_receipt_s,
  p.swallowed AS measured_swallowed, p.resent AS measured_resent,
  p.delivered_again AS measured_delivered_again,
  CASE WHEN p.delivered_again = 0 AND p.unacked > 0 THEN p.unacked END AS measured_unacked,
  p.broker_from AS measured_broker_from, p.broker_to AS measured_broker_to,
  p.migrated_to AS measured_migrated_to, NULL AS measured_command,
  NULL AS measured_error_code, NULL AS measured_error_text,
  p.closed_frame_no AS frame_close, p.migrated_no AS frame_migrated,
  NULL AS frame_refusal, p.ready_frame_no AS frame_open_again
FROM move_sweeps AS p
WHERE p.place = 1
UNION ALL BY NAME
SELECT
  p.capture, min(p.closed_ns) AS first_ns, max(p.ready_ns) AS last_ns, 'unload_churn' AS variant,
  p.topic AS subject_topic,
  CAST(sum(p.producers) AS BIGINT) AS measured_producers,
  CAST(sum(p.consumers) AS BIGINT) AS measured_consumers,
  CAST(CASE WHEN sum(p.producers) = 0 THEN sum(p.consumers) END AS BIGINT)
    AS measured_only_consumers,
  CAST(0 AS BIGINT) AS measured_other_topics,
  count(*) AS measured_moves_seen,
  min(p.churn_ns) / 1e9 AS measured_closest_s,
  sum(p.ready_ns - p.closed_ns) / 1e9 AS measured_wait_s,
  CAST(sum(p.swallowed) AS BIGINT) AS measured_swallowed,
  CAST(sum(p.resent) AS BIGINT) AS measured_resent,
  CAST(sum(p.delivered_again) AS BIGINT) AS measured_delivered_again,
  min(p.closed_frame_no) AS frame_close,
  max(p.ready_frame_no) AS frame_open_again
FROM classified_moves AS p
GROUP BY p.capture, p.topic
HAVING min(p.churn_ns) <= $churn_s * 1000000000
UNION ALL BY NAME
SELECT
  g.capture, min(g.closed_ns) AS first_ns, max(coalesce(g.answered_ns, g.link_last_ns)) AS last_ns, g.variant,
  g.topic AS subject_topic, g.client_ip AS subject_client_ip,
  count(CASE WHEN g.kind = 'producer' THEN 1 END) AS measured_producers,
  count(CASE WHEN g.kind = 'consumer' THEN 1 END) AS measured_consumers,
  CAST(0 AS BIGINT) AS measured_other_topics, CAST(1 AS BIGINT) AS measured_moves_seen,
  max(g.link_last_ns - g.closed_ns) / 1e9 AS measured_wait_s,
  CAST(0 AS BIGINT) AS measured_swallowed,
  CAST(0 AS BIGINT) AS measured_resent, CAST(0 AS BIGINT) AS measured_delivered_again,
  max(g.migrated_to) AS measured_migrated_to,
  max_by(g.command, g.answer_no) AS measured_command,
  max_by(g.error_code, g.answer_no) AS measured_error_code,
  nullif(max_by(g.error_text, g.answer_no), '') AS measured_error_text,
  min(g.closed_frame_no) AS frame_close, max(g.migrated_no) AS frame_migrated,
  max(g.answer_no) AS frame_refusal
FROM unreopened_names AS g
GROUP BY g.capture, g.variant, g.topic, g.client_ip
