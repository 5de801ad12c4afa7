/*
number = "C05"
code = "cursus_group_stalled"
title = "A Cursus consumer lives, gets messages and commits nothing"
severity = "warning"
verdict = "pattern"
protocol = "cursus"
section = "ack_latency"
worst = "measured_silent_s"
references = ["cursus: pkg/controller", "cursus-java: docs/protocol.md"]
fires = []
silent = ["go-consume_streaming.pcap", "go-crash_redelivery_streaming.pcap", "go-consume_polling.pcap", "py-consume_polling.pcap"]

[needs]
exchange_kinds = "request_command = 'HEARTBEAT'"

[thresholds.silent_s]
value = 30.0
unit = "s"
why = "clients commit every few seconds where they commit by themselves"

[thresholds.intervals]
value = 10
unit = "times its own mean pause between commits"
why = "a group that commits seldom is not stalled: its own pace decides"

[text]
what = "Member {member} of group {subscription} got {messages} messages of {topic} and committed none of them for {silent_s} s, while {beats} of its heartbeats were answered OK. {commits} commits {commits|was|were} made before; [the last known lag is {lag} messages]."
known = "Deliveries, heartbeats and their answers are in the capture, and no commit of the group for this topic behind the first of these deliveries (frame {first_delivery})."
rival = "A group that commits elsewhere (in transactions, or at another store), or only at its end."
decides = "A thread dump of the consumer: is its handler stuck, or did it fail? On the wire, a handler that failed and one that hangs look the same."
do = "Look at the consumer's handler and its log; heartbeats come from a thread of their own and say nothing about it."
*/
WITH answered_heartbeats AS ( -- Members with answered heartbeats, and the time of the last one.
  SELECT
    e.capture, e.subscription, f.consumer_name AS member, max(e.response_last_ns) AS last_ns,
    max(e.response_frame_no) AS last_no
  FROM exchanges AS e
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no AND f.protocol = 'cursus'
  WHERE
    e.request_command = 'HEARTBEAT' AND e.kind = 'ping' AND e.outcome = 'ok'
    AND e.subscription IS NOT NULL AND f.consumer_name IS NOT NULL
  GROUP BY e.capture, e.subscription, f.consumer_name
),
group_commits AS (
  SELECT
    a.capture, a.topic, a.subscription, count(DISTINCT a.frame_no) AS commits,
    min(micros(a.ts)) AS first_us, max(micros(a.ts)) AS last_us
  FROM acks AS a
  JOIN (SELECT DISTINCT capture, subscription FROM answered_heartbeats) AS b
    USING (capture, subscription)
  WHERE a.action = 'ack'
  GROUP BY a.capture, a.topic, a.subscription
),
uncommitted_deliveries AS ( -- Deliveries to a member after the last commit of its group.
  SELECT
    b.capture, b.subscription, b.member, d.topic, b.last_ns AS beat_ns, b.last_no AS beat_no,
    coalesce(k.commits, 0) AS commits, k.first_us, k.last_us, min(micros(d.ts)) AS open_us,
    sum(d.message_count) AS messages, min(d.frame_no) AS first_no, max(d.frame_no) AS last_no,
    max_by(d.lag, d.frame_no) AS lag
  FROM answered_heartbeats AS b
  JOIN deliveries AS d
    ON d.capture = b.capture AND d.subscription = b.subscription AND d.consumer_name = b.member
  JOIN connections AS c
    ON c.capture = d.capture AND c.connection_id = d.connection_id AND c.protocol = 'cursus'
    AND c.gaps_to_broker = 0 AND c.gaps_to_client = 0
  LEFT JOIN group_commits AS k
    ON k.capture = d.capture AND k.topic = d.topic AND k.subscription = d.subscription
  WHERE
    d.message_count > 0 AND coalesce(d.outcome, '') <> 'acked'
    AND micros(d.ts) > coalesce(k.last_us, 0)
  GROUP BY
    b.capture, b.subscription, b.member, d.topic, b.last_ns, b.last_no, k.commits, k.first_us,
    k.last_us
),
stalled_groups AS (
  SELECT o.*
  FROM uncommitted_deliveries AS o
  ANTI JOIN (
    SELECT DISTINCT capture FROM exchanges WHERE request_command = 'SEND_OFFSETS_TO_TXN'
  ) AS t ON t.capture = o.capture
  ANTI JOIN (
    SELECT DISTINCT capture FROM connections WHERE protocol = 'cursus' AND gaps_to_broker > 0
  ) AS g ON g.capture = o.capture
  WHERE
    o.beat_ns - o.open_us * 1000 >= $silent_s * 1000000000
    AND o.beat_ns / 1e3 - o.open_us >= CASE
      WHEN o.commits > 1 THEN $intervals * (o.last_us - o.first_us) / (o.commits - 1)
      ELSE 0
    END
)
SELECT
  s.capture, s.open_us * 1000 AS first_ns, s.beat_ns AS last_ns,
  s.topic AS subject_topic, s.subscription AS subject_subscription, s.member AS subject_member,
  (s.beat_ns - s.open_us * 1000) / 1e9 AS measured_silent_s,
  CAST(s.messages AS BIGINT) AS measured_messages, s.commits AS measured_commits,
  s.lag AS measured_lag, count(*) AS measured_beats,
  s.first_no AS frame_first_delivery, s.last_no AS frame_last_delivery,
  s.beat_no AS frame_last_heartbeat
FROM stalled_groups AS s
JOIN exchanges AS e
  ON e.capture = s.capture AND e.subscription = s.subscription
  AND e.request_command = 'HEARTBEAT' AND e.outcome = 'ok'
  AND e.response_last_ns > s.open_us * 1000
JOIN frames AS f
  ON f.capture = e.capture AND f.connection_id = e.connection_id
  AND f.frame_no = e.request_frame_no AND f.consumer_name = s.member
GROUP BY
  s.capture, s.open_us, s.beat_ns, s.topic, s.subscription, s.member, s.messages, s.commits,
  s.lag, s.first_no, s.last_no, s.beat_no
