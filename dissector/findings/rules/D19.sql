/*
number = "D19"
code = "reconnect_loop"
title = "A producer or consumer reconnects again and again"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "connecting"
worst = "measured_opens_seen"
references = ["apache/pulsar-client-go#650", "apache/pulsar-client-go#774", "streamnative/pulsar-rs#263", "apache/pulsar#13084", "apache/pulsar-client-go#147"]
fires = ["fake-f03_senderror_persist.pcap", "fake-f12_slow_receipts.pcap"]
silent = ["java-j21_seek.pcap", "java-j24_unload.pcap", "cpp-s14_reconnect.pcap", "java-j01_plain.pcap"]

[thresholds.opens]
value = 5
unit = "opens"
why = "an unload or a restart of a broker costs one or two"

[thresholds.window_s]
value = 60.0
unit = "s"
why = "the longest pause of clients that wait longer each time"

[thresholds.growth]
value = 1.5
unit = "times"
why = "clients that back off wait twice as long each time: pauses that do not grow are a loop"

[text]
what = "The {kind} {name} of {topic} was opened {opens_seen} times on {connections} connections within {lasted_s} s, and the pauses between did not grow ({early_pause_s} s at first, {late_pause_s} s at last). {closed_by_client} of the connections were closed first by the client, {closed_by_broker} by the broker."
known = "Each PRODUCER or SUBSCRIBE with the same name is in the capture, each on another connection."
rival = "An application that opens and closes it on purpose, connection and all; or several processes that share the name."
decides = "Who closed first, and the last frame before: a client that closes after a receipt, or a timeout, does it by itself."
do = "Look at the log of the side that closed first, and at its version; for a shared name, give each process its own."
*/
WITH opened AS (
  SELECT
    'producer' AS kind, p.capture, p.connection_id, p.topic, p.name, CAST(NULL AS STRING) AS subscription,
    p.opened_frame_no AS frame_no
  FROM producers AS p
  WHERE p.opened_frame_no IS NOT NULL AND p.name IS NOT NULL AND p.topic IS NOT NULL
  UNION ALL
  SELECT
    'consumer' AS kind, c.capture, c.connection_id, c.topic, c.name, c.subscription,
    c.opened_frame_no AS frame_no
  FROM consumers AS c
  WHERE c.opened_frame_no IS NOT NULL AND c.name IS NOT NULL AND c.topic IS NOT NULL
),
steps AS (
  SELECT
    o.kind, o.capture, o.topic, o.name, o.subscription, o.connection_id, o.frame_no, l.client_ip,
    l.closed_first_by, f.last_ts_ns AS at_ns,
    f.last_ts_ns - lag(f.last_ts_ns) OVER entity AS pause_ns,
    row_number() OVER entity AS place,
    count(*) OVER (
      PARTITION BY o.kind, o.capture, o.topic, o.name, o.subscription, l.client_ip
    ) AS opens
  FROM opened AS o
  ANTI JOIN twins AS t ON t.capture = o.capture AND t.connection_id = o.connection_id
  JOIN connections AS l
    ON l.capture = o.capture AND l.connection_id = o.connection_id AND l.protocol = 'pulsar'
  JOIN frames AS f
    ON f.capture = o.capture AND f.connection_id = o.connection_id AND f.frame_no = o.frame_no
  WINDOW entity AS (
    PARTITION BY o.kind, o.capture, o.topic, o.name, o.subscription, l.client_ip
    ORDER BY f.last_ts_ns, o.frame_no
  )
),
loops AS (
  SELECT
    s.kind, s.capture, s.topic, s.name, s.subscription, s.client_ip, count(*) AS opens,
    count(DISTINCT s.connection_id) AS connections,
    count(DISTINCT CASE WHEN s.closed_first_by = 'client' THEN s.connection_id END) AS by_client,
    count(DISTINCT CASE WHEN s.closed_first_by = 'broker' THEN s.connection_id END) AS by_broker,
    min(s.at_ns) AS first_ns, max(s.at_ns) AS last_ns,
    min(s.frame_no) AS first_frame, min(CASE WHEN s.place = 2 THEN s.frame_no END) AS second_frame,
    max(s.frame_no) AS last_frame,
    avg(CASE WHEN 3 * (s.place - 1) <= s.opens THEN s.pause_ns END) AS early_ns,
    avg(CASE WHEN 3 * (s.opens - s.place) < s.opens THEN s.pause_ns END) AS late_ns
  FROM steps AS s
  GROUP BY s.kind, s.capture, s.topic, s.name, s.subscription, s.client_ip
)
SELECT
  capture, first_ns, last_ns, topic AS subject_topic, kind AS subject_kind, name AS subject_name,
  subscription AS subject_subscription, client_ip AS subject_client_ip,
  opens AS measured_opens_seen, connections AS measured_connections,
  (last_ns - first_ns) / 1e9 AS measured_lasted_s,
  early_ns / 1e9 AS measured_early_pause_s, late_ns / 1e9 AS measured_late_pause_s,
  by_client AS measured_closed_by_client, by_broker AS measured_closed_by_broker,
  first_frame AS frame_first_open, second_frame AS frame_second_open, last_frame AS frame_last_open
FROM loops
WHERE
  connections >= $opens AND late_ns < $growth * early_ns
  AND (last_ns - first_ns) / 1e9 * ($opens - 1) <= $window_s * (opens - 1)
