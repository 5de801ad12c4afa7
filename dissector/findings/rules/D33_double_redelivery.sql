/*
number = "D33"
code = "double_redelivery"
title = "A delivery was asked for again twice"
severity = "warning"
verdict = "proven"
protocol = "pulsar"
section = "redelivery"
worst = "measured_ids"
references = ["apache/pulsar#6451", "apache/pulsar#6869", "apache/pulsar PR 20750", "apache/pulsar#23060", "apache/pulsar PR 23943", "apache/pulsar PR 7021"]
fires = []
silent = ["cpp-s08_nack-proxy-any.pcap", "java-j12_nack.pcap", "cpp-s09_ack_timeout.pcap", "cpp-s11_dlq.pcap", "java-j16_dlq_retry.pcap", "rust-single.pcap"]

[needs]
acks = "action IN ('redeliver', 'nack')"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} asked twice for the same delivery of {ids} entries: two REDELIVER commands, {apart_s} s apart at most, name the message id, and it was not delivered in between."
known = "Both requests are in the capture, and everything delivered on the connection between them."
rival = "An application that refuses a message twice by itself."
decides = "Whether the client has an ack timeout beside its negative acks: a message that was refused has to leave the timeout's list, and in some versions it stays (apache/pulsar#23060)."
do = "Switch the ack timeout off where negative acks are used, or update the client. The broker may deliver, and count, such an entry twice: limits of dead-letter policies are reached early."

[variant.redeliver_all]
title = "A shared consumer asked for everything again"
what = "Consumer {consumer_name} of {subscription} on {topic} sent {ids} REDELIVER commands without a message id: all that it holds unacknowledged comes again. {caused} deliveries followed on the connection within {apart_s} s as redeliveries."
known = "The command names no id. The subscription is of a type that has its own list of unacknowledged messages for each consumer."
rival = "An application that calls redeliverUnacknowledgedMessages on purpose."
decides = "Whether the application calls it, or its client does so for an empty list by mistake (apache/pulsar PR 7021)."
do = "Refuse single messages instead (negative acknowledge), and update the client if the application does not call it."
*/
WITH redelivery_requests AS (
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.topic, a.subscription,
    a.ledger_id, a.entry_id, a.frame_no, micros(a.ts) AS at_us,
    lag(a.frame_no) OVER entry AS before_frame, lag(micros(a.ts)) OVER entry AS before_us
  FROM acks AS a
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    a.action IN ('redeliver', 'nack') AND a.ack_set IS NULL AND a.entry_id IS NOT NULL
    AND a.topic LIKE 'persistent://%'
  WINDOW entry AS (
    PARTITION BY
      a.capture, a.connection_id, a.consumer_id, a.incarnation, a.ledger_id, a.entry_id
    ORDER BY a.frame_no
  )
),
double_deliveries AS (
  SELECT q.*
  FROM (
    SELECT
      s.capture, s.connection_id, s.consumer_id, s.incarnation, s.topic, s.subscription,
      s.ledger_id, s.entry_id, s.frame_no, s.before_frame, s.at_us, s.before_us,
      count(CASE WHEN d.frame_no > s.before_frame AND d.frame_no < s.frame_no THEN 1 END)
        AS between
    FROM redelivery_requests AS s
    JOIN deliveries AS d
      USING (capture, connection_id, consumer_id, incarnation, ledger_id, entry_id)
    WHERE s.before_frame IS NOT NULL AND s.before_frame < s.frame_no AND d.batch_size IS NULL
    GROUP BY ALL
  ) AS q
  WHERE q.between = 0
),
empty_requests AS ( -- A REDELIVER without ids is one row without an id.
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.frame_no,
    micros(a.ts) * 1000 AS last_ts_ns
  FROM acks AS a
  WHERE a.action = 'redeliver' AND a.entry_id IS NULL AND a.ledger_id IS NULL
),
requests_for_all AS (
  SELECT
    e.capture, e.connection_id, e.consumer_id, e.incarnation, e.frame_no, e.last_ts_ns,
    count(d.frame_no) AS caused, min(d.frame_no) AS caused_frame,
    max(micros(d.ts)) * 1000 AS until_ns
  FROM empty_requests AS e
  JOIN deliveries AS d USING (capture, connection_id, consumer_id, incarnation)
  WHERE
    d.previous_frame_no < e.frame_no AND d.frame_no > e.frame_no
    AND micros(d.ts) * 1000 <= e.last_ts_ns + 1000000000 AND d.is_redelivered
    AND d.redelivery_cause = 'explicit'
  GROUP BY e.capture, e.connection_id, e.consumer_id, e.incarnation, e.frame_no, e.last_ts_ns
)
SELECT
  t.capture, min(t.before_us) * 1000 AS first_ns, max(t.at_us) * 1000 AS last_ns, '' AS variant,
  t.topic AS subject_topic, t.subscription AS subject_subscription,
  c.consumer_name AS subject_consumer_name, c.client_ip AS subject_client_ip,
  count(*) AS measured_ids, max(t.at_us - t.before_us) / 1e6 AS measured_apart_s,
  NULL AS measured_caused, min_by(t.before_frame, t.frame_no) AS frame_first_request,
  min(t.frame_no) AS frame_second_request, NULL AS frame_first_caused
FROM double_deliveries AS t
JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
GROUP BY t.capture, t.topic, t.subscription, c.consumer_name, c.client_ip
UNION ALL BY NAME
SELECT
  e.capture, min(e.last_ts_ns) AS first_ns, max(e.until_ns) AS last_ns,
  'redeliver_all' AS variant, c.topic AS subject_topic, c.subscription AS subject_subscription,
  c.consumer_name AS subject_consumer_name, c.client_ip AS subject_client_ip,
  count(*) AS measured_ids, max(e.until_ns - e.last_ts_ns) / 1e9 AS measured_apart_s,
  sum(e.caused) AS measured_caused, min(e.frame_no) AS frame_first_request,
  max(e.frame_no) AS frame_second_request, min(e.caused_frame) AS frame_first_caused
FROM requests_for_all AS e
JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
WHERE c.subscription_type IN ('Shared', 'Key_Shared')
GROUP BY e.capture, c.topic, c.subscription, c.consumer_name, c.client_ip
