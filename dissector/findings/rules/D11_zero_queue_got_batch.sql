/*
number = "D11"
code = "zero_queue_got_batch"
title = "A consumer with a queue of 0 closed itself at a batch"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_batch_messages"
references = ["apache/pulsar#11850", "apache/pulsar PR 18706"]
fires = []
silent = ["late_acks-24.pcap.gz", "java-j10_exclusive_rq0.pcap", "cpp-s07_shared_rq1.pcap", "java-j01_plain.pcap"]

[needs]
consumers = "first_flow_permits = 1 AND closed_by = 'client'"

[thresholds.closed_s]
value = 0.1
unit = "s"
why = "the client closes itself when it takes the batch apart, within milliseconds; applications close consumers with a queue of 1 at any time"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} had asked for one message at a time, got a batch of {batch_messages}, and closed itself {closed_after_s} s later."
known = "Each of its {grants} FLOWs was of one permit; the batch is the last that came to it, it acknowledged none of it, and CLOSE_CONSUMER is the client's."
rival = "An application that closed its consumer just then, with a queue of 1, which also asks for one message at a time."
decides = "The client's log: a consumer with a queue of 0 says that it cannot take batches."
do = "Give the consumer a queue of 1 or more, or switch off batching at the producer."
*/
WITH batches AS (
  SELECT
    d.capture, d.connection_id, d.consumer_id, d.incarnation, d.frame_no, d.message_count,
    d.messages_acked, micros(d.ts) AS at_us
  FROM deliveries AS d
  WHERE
    d.message_count > 1 AND d.outcome IN ('consumer_closed', 'conn_closed')
    AND d.messages_acked = 0
    AND (d.capture, d.connection_id, d.consumer_id, d.incarnation) IN (
      SELECT capture, connection_id, consumer_id, incarnation
      FROM consumers
      WHERE first_flow_permits = 1 AND closed_by = 'client' AND closed_frame_no IS NOT NULL
      ORDER BY capture, connection_id, consumer_id, incarnation
      LIMIT 10000
    )
),
sums AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation,
    count(CASE WHEN p.event = 'grant' THEN 1 END) AS grants,
    max(CASE WHEN p.event = 'grant' THEN p.delta END) AS largest,
    max(CASE WHEN p.event = 'delivery' THEN p.frame_no END) AS last_frame_no,
    max(CASE WHEN p.event = 'grant' THEN p.frame_no END) AS last_grant_frame_no
  FROM permits AS p
  WHERE
    (p.capture, p.connection_id, p.consumer_id, p.incarnation) IN (
      SELECT capture, connection_id, consumer_id, incarnation FROM batches
    )
  GROUP BY p.capture, p.connection_id, p.consumer_id, p.incarnation
)
SELECT
  b.capture, b.at_us * 1000 AS first_ns, f.last_ts_ns AS last_ns, c.topic AS subject_topic,
  c.subscription AS subject_subscription, c.consumer_name AS subject_consumer_name,
  c.client_ip AS subject_client_ip, b.message_count AS measured_batch_messages,
  s.grants AS measured_grants, (f.last_ts_ns - b.at_us * 1000) / 1e9 AS measured_closed_after_s,
  s.last_grant_frame_no AS frame_last_flow, b.frame_no AS frame_batch,
  c.closed_frame_no AS frame_close
FROM batches AS b
JOIN sums AS s USING (capture, connection_id, consumer_id, incarnation)
JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
JOIN (
  SELECT capture, connection_id, frame_no, last_ts_ns
  FROM frames
  WHERE
    command = 'CLOSE_CONSUMER'
    AND (capture, connection_id) IN (SELECT capture, connection_id FROM batches)
) AS f
  ON f.capture = c.capture AND f.connection_id = c.connection_id
  AND f.frame_no = c.closed_frame_no
WHERE
  s.largest = 1 AND s.last_frame_no = b.frame_no
  AND f.last_ts_ns - b.at_us * 1000 BETWEEN 0 AND $closed_s * 1000000000
