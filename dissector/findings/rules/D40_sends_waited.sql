/*
number = "D40"
code = "sends_waited"
title = "Messages waited in the client although its producer was open"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "send_latency"
worst = "measured_waited_s"
references = ["apache/pulsar#5264", "apache/pulsar#15559", "streamnative/pulsar-rs#164"]
fires = ["java-j73_broker_restart-bem.pcap", "fake-f12_slow_receipts.pcap", "live-broker_restart.pcap"]
real = ["java-j73_broker_restart-bem.pcap", "live-broker_restart.pcap"]
silent = ["java-j01_plain.pcap", "java-j02_pipelined.pcap", "java-j24_unload.pcap", "cpp-c41_unload.pcap", "java-j38_throttled.pcap"]

[needs]
exchange_kinds = "oldest_ns >= $waited_s * 1000000000 OR youngest_ns < 0"

[thresholds.waited_s]
value = 1.0
unit = "s"
why = "a client that has a broker sends within milliseconds, and a change of brokers takes tenths of a second"

[thresholds.sends]
value = 3
unit = "sends"
why = "one or two may have been refused, and sent again"

[thresholds.alone_s]
value = 10.0
unit = "s"
why = "a single send that waits so long is worth a word"

[text]
what = "{sends_seen} sends of {client_ip} to {topic} waited up to {waited_s} s in the client, or until they were sent again; half of them were confirmed {half_s} s or more after they were published, {times} times what their last receipts took."
known = "Publish times are in the metadata, by the client's clock[, taken as {ahead_s} s ahead of the capture's]; the producer was open while they waited."
rival = "An application that holds what it has published, as one does that creates its messages before a pause of the whole process."
decides = "The client's own log or metrics: pending messages at that time."
do = "Look for broker_reads_paused and for receipts that came late: a client with a full queue sends nothing more."

[variant.no_producer]
title = "Messages waited in the client for a broker"
verdict = "proven"
what = "{sends_seen} sends of {client_ip} to {topic} waited up to {waited_s} s in the client, which had no open producer[ for {down_s} s]; half of them were confirmed {half_s} s or more after they were published.[ {vain} attempts to connect came to nothing meanwhile.]"
known = "Publish times are in the metadata, by the client's clock[, taken as {ahead_s} s ahead of the capture's]; the PRODUCER that they waited for was answered (frame {producer_open}) behind them."
rival = "A second producer of that name that was open elsewhere, which this capture does not show."
decides = "The client's log of reconnects at that time."
do = "See why the connection before it ended, and what its new attempts came to: connects_in_vain, topic_unavailable, and the lookups of that time."
*/
WITH waiting_sends AS (
  SELECT s.*
  FROM application_sends AS s
  WHERE s.is_steady AND s.waited_ns >= $waited_s * 1000000000
),
producer_opens AS ( -- The PRODUCER before such sends, and the end of the previous producer.
  SELECT
    o.capture, o.connection_id, o.id, o.incarnation, o.answered_ns, o.ready_frame_no,
    lag(o.link_last_ns) OVER (
      PARTITION BY o.capture, o.client_ip, o.topic, o.name ORDER BY o.answered_ns, o.opened_frame_no
    ) AS before_ns
  FROM pulsar_opens AS o
  WHERE
    o.kind = 'producer' AND o.outcome = 'ok' AND o.answered_ns IS NOT NULL
    AND (o.capture, o.topic) IN (SELECT capture, topic FROM waiting_sends)
),
sends_with_opens AS (
  SELECT
    w.*, o.ready_frame_no, o.before_ns, o.answered_ns,
    coalesce(o.answered_ns > w.published_ns, FALSE) AS is_before_open,
    CASE
      WHEN
        lag(w.response_last_ns) OVER (
          PARTITION BY w.capture, w.client_ip, w.topic
          ORDER BY w.response_last_ns, w.request_frame_no
        ) >= try_subtract(w.published_ns, 60000000000)
        THEN 0
      ELSE 1
    END AS begins
  FROM waiting_sends AS w
  LEFT JOIN producer_opens AS o
    ON o.capture = w.capture AND o.connection_id = w.connection_id AND o.id = w.producer_id
    AND o.incarnation = w.incarnation
),
incidents AS (
  SELECT
    p.*,
    sum(p.begins) OVER (
      PARTITION BY p.capture, p.client_ip, p.topic ORDER BY p.response_last_ns, p.request_frame_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS incident_no
  FROM sends_with_opens AS p
),
incident_sums AS (
  SELECT
    i.capture, i.client_ip, i.topic, i.incident_no, min(i.published_ns) AS first_ns,
    max(i.response_last_ns) AS last_ns, count(*) AS sends, max(i.waited_ns) AS waited_ns,
    median(i.application_ns) AS half_ns, median(i.answer_ns) AS answer_ns,
    count(CASE WHEN i.is_before_open THEN 1 END) AS before_open,
    max(try_subtract(i.answered_ns, i.before_ns)) FILTER (
      WHERE i.is_before_open AND i.before_ns < i.answered_ns
    ) AS down_ns,
    max_by(i.ready_frame_no, CASE WHEN i.is_before_open THEN i.answered_ns END) AS ready_no,
    max_by(i.request_frame_no, (i.waited_ns, 0 - i.request_frame_no)) AS longest_no,
    max_by(i.response_frame_no, (i.waited_ns, 0 - i.request_frame_no)) AS answer_no,
    min(i.request_frame_no) AS first_no
  FROM incidents AS i
  GROUP BY i.capture, i.client_ip, i.topic, i.incident_no
  HAVING count(*) >= $sends OR max(i.waited_ns) >= $alone_s * 1000000000
),
incident_marks AS ( -- The client's connection attempts, and begins and ends of incidents.
  SELECT
    a.capture, a.client_ip, CAST(NULL AS STRING) AS topic, CAST(NULL AS BIGINT) AS incident_no,
    a.first_ts_ns AS at_ns, 1 AS attempts, 0 AS place
  FROM attempts_to_connect AS a
  WHERE a.is_vain AND (a.capture, a.client_ip) IN (SELECT capture, client_ip FROM incident_sums)
  UNION ALL
  SELECT capture, client_ip, topic, incident_no, first_ns, 0, -1 FROM incident_sums
  UNION ALL
  SELECT capture, client_ip, topic, incident_no, last_ns, 0, 1 FROM incident_sums
),
client_attempts AS (
  SELECT
    m.capture, m.client_ip, m.topic, m.incident_no,
    CAST(nullif(max(m.so_far) - min(m.so_far), 0) AS BIGINT) AS vain
  FROM (
    SELECT
      *,
      sum(attempts) OVER (
        PARTITION BY capture, client_ip ORDER BY at_ns, place
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS so_far
    FROM incident_marks
  ) AS m
  WHERE m.place <> 0
  GROUP BY m.capture, m.client_ip, m.topic, m.incident_no
)
SELECT
  s.capture, s.first_ns, s.last_ns,
  CASE WHEN 2 * s.before_open > s.sends THEN 'no_producer' ELSE '' END AS variant,
  s.topic AS subject_topic, s.client_ip AS subject_client_ip, s.sends AS measured_sends_seen,
  s.waited_ns / 1e9 AS measured_waited_s, s.half_ns / 1e9 AS measured_half_s,
  round(s.half_ns / greatest(s.answer_ns, 1)) AS measured_times,
  s.down_ns / 1e9 AS measured_down_s, t.vain AS measured_vain,
  CASE WHEN k.ahead_ns <> 0 THEN k.ahead_ns / 1e9 END AS measured_ahead_s,
  s.first_no AS frame_first_send, s.longest_no AS frame_waited_longest,
  s.answer_no AS frame_its_receipt, s.ready_no AS frame_producer_open
FROM incident_sums AS s
JOIN units AS u USING (capture)
LEFT JOIN client_clocks AS k ON k.unit = u.unit AND k.client_ip = s.client_ip
LEFT JOIN client_attempts AS t
  ON t.capture = s.capture AND t.client_ip = s.client_ip AND t.topic = s.topic
  AND t.incident_no = s.incident_no
