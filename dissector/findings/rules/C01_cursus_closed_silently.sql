/*
number = "C01"
code = "cursus_closed_silently"
title = "A Cursus broker closed a connection instead of answering"
severity = "warning"
verdict = "proven"
protocol = "cursus"
section = "connecting"
worst = "measured_requests"
references = ["cursus: docs/protocol-spec.md", "cursus: pkg/server"]
fires = ["go-batch_gzip.pcap", "tls-mixed.pcap", "v010-publisher_consumer.pcap"]
real = ["go-batch_gzip.pcap", "tls-mixed.pcap", "v010-publisher_consumer.pcap"]
silent = ["go-consume_polling.pcap", "go-produce_singles_acks_1.pcap", "java-produce.pcap", "py-produce.pcap"]

[needs]
exchange_kinds = "outcome = 'conn_closed'"

[thresholds.at_once_s]
value = 1.0
unit = "s"
why = "a broker that refuses by closing does so as soon as it has read the request; idle ones are closed after a minute"

[thresholds.loop_opens]
value = 5
unit = "connections"
why = "clients try a refused command two or three times"

[thresholds.loop_s]
value = 60.0
unit = "s"
why = "clients that wait longer each time try less often"

[text]
what = "{broker_ip}:{broker_port} closed {connections} connections of {client_ip} without an answer to {command}[ (topic {topic})]; {requests} requests {requests|was|were} lost so, the quickest close came {after_ms} ms behind the request."
known = "The request (frame {first_request}), no answer to it, and that the broker closed first are in the capture, which has no hole in these connections; no error was answered on them, nor was an answer captured before its request."
rival = "A broker that was stopped or killed at that moment."
decides = "The broker's log at that time: it reads every frame with one compression and one protocol, and closes on what it cannot read (a plain command where it expects gzip, clear text where it expects TLS), and on a producer's old epoch or a gap in its sequence."
do = "Compare the compression and TLS settings of client and broker; for a batch, look at the producer's epoch and sequence."

[variant.loop]
severity = "error"
title = "A Cursus client meets a closed connection again and again"
what = "{broker_ip}:{broker_port} closed {connections} connections of {client_ip} without an answer to {command}[ (topic {topic})], {loop_opens} of them within {closest_s} s; {requests} requests {requests|was|were} lost so, the quickest close came {after_ms} ms behind the request."

[variant.once]
severity = "info"
title = "A Cursus broker closed one connection instead of answering"
rival = "A broker that was stopped, restarted or killed at that moment: one close alone does not tell."
*/
WITH pending_requests AS (
  SELECT
    e.capture, e.connection_id, e.topic, e.client_ip, e.request_command, e.request_frame_no,
    e.request_last_ns, c.broker_ip, c.broker_port, c.last_ts_ns
  FROM exchanges AS e
  JOIN connections AS c USING (capture, connection_id)
  WHERE
    e.outcome = 'conn_closed' AND e.request_last_ns IS NOT NULL
    AND c.last_ts_ns - e.request_last_ns <= $at_once_s * 1000000000 AND c.protocol = 'cursus'
    AND c.closed_first_by = 'broker' AND c.ended IN ('fin', 'rst') AND c.gaps_to_broker = 0
    AND c.gaps_to_client = 0
),
silent_closes AS (
  SELECT l.*
  FROM pending_requests AS l
  ANTI JOIN (
    SELECT capture, connection_id FROM exchanges WHERE outcome IN ('error', 'orphan_response')
  ) AS r ON r.capture = l.capture AND r.connection_id = l.connection_id
),
timed_closes AS (
  SELECT
    u.*,
    lead(u.request_last_ns, CAST($loop_opens - 1 AS INT)) OVER (
      PARTITION BY u.capture, u.client_ip, u.broker_ip, u.broker_port, u.request_command, u.topic
      ORDER BY u.request_last_ns, u.request_frame_no
    ) - u.request_last_ns AS loop_ns
  FROM silent_closes AS u
)
SELECT
  t.capture, min(t.request_last_ns) AS first_ns, max(t.last_ts_ns) AS last_ns,
  CASE
    WHEN
      count(DISTINCT t.connection_id) >= $loop_opens
      AND min(t.loop_ns) <= $loop_s * 1000000000 THEN 'loop'
    WHEN max(a.connections) = 1 THEN 'once'
    ELSE ''
  END AS variant,
  t.client_ip AS subject_client_ip, t.broker_ip AS subject_broker_ip,
  CAST(t.broker_port AS STRING) AS subject_broker_port, t.request_command AS subject_command,
  t.topic AS subject_topic, count(*) AS measured_requests,
  count(DISTINCT t.connection_id) AS measured_connections,
  min(t.loop_ns) / 1e9 AS measured_closest_s,
  min(t.last_ts_ns - t.request_last_ns) / 1e6 AS measured_after_ms,
  min(t.request_frame_no) AS frame_first_request, max(t.request_frame_no) AS frame_last_request
FROM timed_closes AS t
JOIN (
  SELECT capture, client_ip, broker_ip, broker_port, count(DISTINCT connection_id) AS connections
  FROM silent_closes
  GROUP BY capture, client_ip, broker_ip, broker_port
) AS a USING (capture, client_ip, broker_ip, broker_port)
GROUP BY
  t.capture, t.client_ip, t.broker_ip, t.broker_port, t.request_command, t.topic
