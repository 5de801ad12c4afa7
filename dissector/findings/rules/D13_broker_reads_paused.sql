/*
number = "D13"
code = "broker_reads_paused"
title = "The broker answered nothing on a connection for a time"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "send_latency"
worst = "measured_longest_s"
references = ["apache/pulsar#23920", "apache/pulsar#24001", "apache/pulsar PR 13538", "apache/pulsar PR 23398", "apache/pulsar#6975", "apache/pulsar-client-cpp#221"]
fires = ["java-j38_throttled.pcap", "live-publish_rate.pcap"]
real = ["java-j38_throttled.pcap", "live-publish_rate.pcap"]
silent = ["java-j02_pipelined.pcap", "fake-f12_slow_receipts.pcap", "cpp-s30_latency_mix.pcap", "java-j24_unload.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind IN ('publish', 'ping', 'request') AND (slowest_ns >= $pause_s * 1000000000 OR outcome IN ('conn_closed', 'unanswered_at_end')) OR kind = 'publish' AND slowest_ns >= $comb_wait_ms * 1000000"

[thresholds.pause_s]
value = 0.5
unit = "s"
why = "a PING needs no storage: brokers that read answer it within milliseconds"

[thresholds.unpinged_s]
value = 1.0
unit = "s"
why = "where no PING waits, slow storage stops receipts of several topics, too, mostly for less than that"

[thresholds.start_s]
value = 5.0
unit = "s"
why = "in its first seconds a connection waits for topics that the broker loads"

[thresholds.comb_receipts]
value = 20
unit = "pauses between receipts"
why = "fewer are even by chance"

[thresholds.comb_share]
value = 0.6
unit = "of the pauses"
why = "a limit gives about 0.8; connections without one had at most 0.2"

[thresholds.comb_width]
value = 0.15
unit = "of the median"
why = "a limiter's timer is that exact, storage is not"

[thresholds.comb_pause_ms]
value = 20.0
unit = "ms"
why = "a disk that syncs regularly gives a comb of less"

[thresholds.comb_wait_ms]
value = 200.0
unit = "ms"
why = "a limit that makes nobody wait longer does no harm"

[ruled_out]
broker = "that the whole broker stood still: it answered on other connections meanwhile"

[text]
what = "For {longest_s} s the broker answered nothing on a connection of {client_ip}, while {waiting} of its PINGs, requests and sends to {topics} topics {waiting|was|were} waiting. It delivered {messages} messages on it meanwhile, and answered {elsewhere} times on other connections."
known = "All that was asked on the connection is in the capture without a hole, and so is what came back: no receipt, no PONG and no response. Its TCP window towards the client was shut for {zero_window_s} s in all."
rival = "A broker that stands still as a whole (garbage collection, a stopped process), or storage that all these topics share: PINGs that wait ({pings}) speak against storage, answers on other connections against a standstill."
decides = "Publish-rate limits of the topics, their namespace, the broker and its resource groups, and the limits of pending sends: is one of them reached at that time?"
do = "Compare these limits with the rates of all topics of the connection: one topic over its limit stops the reading of all.[ This broker, {affected_version}, is one of those before 3.3.5 and 4.0.3 that pause longer than they should (apache/pulsar#23920).]"

[variant.rate_comb]
title = "Receipts came at an even pace: a publish rate seems limited"
what = "Receipts of {topic} came {pause_ms} ms apart ({share} of {receipts} pauses within 15 % of it) while {outstanding} sends waited, the longest for {longest_s} s.[ Before the broker stored them they waited {waiting_ms} ms, and storing took {storing_ms} ms (medians).]"
known = "Each pause is between two receipts of one topic on one connection, while at least two sends waited."
rival = "Storage or a proxy that works at an even pace; where the time before storing is known and long, it is not storage."
decides = "Whether the topic, its namespace, the broker or its resource group has a publish rate of one message in {pause_ms} ms."
do = "Raise the publish rate, or send less: nothing on the wire says to the client that it is limited. More connections only hide it."
*/
WITH client_pings AS ( -- The broker's own PINGs do not show that it reads.
  SELECT capture, connection_id, frame_no
  FROM frames
  WHERE
    direction = 'to_broker'
    AND (capture, connection_id, frame_no) IN (
      SELECT capture, connection_id, request_frame_no FROM exchanges WHERE kind = 'ping'
    )
),
waiting_requests AS (
  SELECT
    e.capture, e.connection_id, l.client_ip, l.broker_ip, e.kind, e.topic, e.request_frame_no,
    e.response_frame_no, e.request_last_ns AS asked_ns,
    coalesce(
      e.response_last_ns, CASE WHEN e.outcome = 'conn_closed' THEN l.last_ts_ns ELSE x.end_ns END
    ) AS until_ns
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN (
    SELECT capture, max(last_ts_ns) AS end_ns FROM capture_files GROUP BY capture
  ) AS x USING (capture)
  WHERE
    e.kind IN ('publish', 'ping', 'request') AND NOT e.tainted
    AND (
      e.latency_ns >= $pause_s * 1000000000 OR e.outcome IN ('conn_closed', 'unanswered_at_end')
    )
    AND e.request_last_ns >= l.first_ts_ns + $start_s * 1000000000
),
long_waits AS (
  SELECT
    w.*,
    CASE w.kind
      WHEN 'publish' THEN concat('publish ', coalesce(w.topic, '')) ELSE w.kind
    END AS what
  FROM waiting_requests AS w
  LEFT JOIN client_pings AS f
    ON f.capture = w.capture AND f.connection_id = w.connection_id
    AND f.frame_no = w.request_frame_no
  WHERE
    w.until_ns - w.asked_ns >= $pause_s * 1000000000
    AND (w.kind <> 'ping' OR f.frame_no IS NOT NULL)
),
links AS (
  SELECT
    capture, connection_id, min(asked_ns) AS first_ns, max(until_ns) AS end_ns
  FROM long_waits
  GROUP BY capture, connection_id
  HAVING count(DISTINCT what) > 1
),
answers AS ( -- Times of the broker's answers on a connection, each with the previous one.
  SELECT
    t.capture, t.connection_id, t.at_ns,
    lag(t.at_ns) OVER (PARTITION BY t.capture, t.connection_id ORDER BY t.at_ns) AS before_ns
  FROM (
    SELECT l.capture, l.connection_id, e.response_last_ns AS at_ns
    FROM links AS l
    JOIN exchanges AS e USING (capture, connection_id)
    LEFT JOIN client_pings AS f
      ON f.capture = e.capture AND f.connection_id = e.connection_id
      AND f.frame_no = e.request_frame_no
    WHERE e.response_last_ns IS NOT NULL AND (e.kind <> 'ping' OR f.frame_no IS NOT NULL)
    UNION ALL
    SELECT capture, connection_id, end_ns AS at_ns
    FROM links
    UNION ALL
    SELECT capture, connection_id, first_ns AS at_ns
    FROM links
  ) AS t
),
pauses AS (
  SELECT
    p.capture, p.connection_id, a.client_ip, a.broker_ip, p.before_ns, p.at_ns,
    greatest(p.before_ns, min(a.asked_ns)) AS first_ns,
    count(*) AS waiting, count(CASE WHEN a.kind = 'ping' THEN 1 END) AS pings,
    count(DISTINCT CASE WHEN a.kind = 'publish' THEN a.topic END) AS topics,
    min(a.request_frame_no) AS oldest_frame,
    min(CASE WHEN a.kind = 'ping' THEN a.request_frame_no END) AS ping_frame,
    max(CASE WHEN a.kind = 'publish' THEN a.request_frame_no END) AS send_frame,
    min(a.response_frame_no) AS answer_frame
  FROM answers AS p
  JOIN long_waits AS a USING (capture, connection_id)
  WHERE
    p.at_ns - p.before_ns >= $pause_s * 1000000000
    AND least(a.until_ns, p.at_ns) - greatest(a.asked_ns, p.before_ns) >= $pause_s * 1000000000
  GROUP BY p.capture, p.connection_id, a.client_ip, a.broker_ip, p.before_ns, p.at_ns
  HAVING
    count(DISTINCT a.what) > 1
    AND (
      count(CASE WHEN a.kind = 'ping' THEN 1 END) > 0
      OR p.at_ns - p.before_ns >= $unpinged_s * 1000000000
    )
),
other_answers AS (
  SELECT p.capture, p.connection_id, p.at_ns, count(*) AS answers
  FROM pauses AS p
  JOIN exchanges AS e USING (capture, broker_ip)
  WHERE
    e.connection_id <> p.connection_id AND e.kind IN ('publish', 'request')
    AND e.response_last_ns > p.first_ns AND e.response_last_ns < p.at_ns
  GROUP BY p.capture, p.connection_id, p.at_ns
),
delivered_messages AS (
  SELECT p.capture, p.connection_id, p.at_ns, count(*) AS messages
  FROM pauses AS p
  JOIN deliveries AS d USING (capture, connection_id)
  WHERE micros(d.ts) * 1000 > p.first_ns AND micros(d.ts) * 1000 < p.at_ns
  GROUP BY p.capture, p.connection_id, p.at_ns
),
waiting_producers AS ( -- Producers whose sends waited; only their receipts are sorted.
  SELECT e.capture, e.connection_id, e.topic
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    e.kind = 'publish' AND e.outcome = 'ok' AND NOT e.tainted AND e.topic IS NOT NULL
    AND e.latency_ns >= $comb_wait_ms * 1000000 AND e.outstanding_before >= 1
  GROUP BY e.capture, e.connection_id, e.topic
  HAVING count(*) >= $comb_receipts
),
receipts AS (
  SELECT
    e.capture, e.connection_id, e.topic, e.client_ip, e.broker_ip, e.ledger_id, e.entry_id,
    e.request_last_ns, e.response_last_ns, e.latency_ns, e.outstanding_before,
    e.request_frame_no, e.response_frame_no,
    lag(e.response_last_ns) OVER topic_of AS before_ns
  FROM waiting_producers AS t
  JOIN exchanges AS e USING (capture, connection_id, topic)
  WHERE e.kind = 'publish' AND e.outcome = 'ok' AND NOT e.tainted AND e.latency_ns IS NOT NULL
  WINDOW topic_of AS (
    PARTITION BY e.capture, e.connection_id, e.topic
    ORDER BY e.response_last_ns, e.response_frame_no
  )
),
gaps AS ( -- Gaps between receipts while another send waited.
  SELECT
    r.*, r.response_last_ns - r.before_ns AS gap_ns,
    median(r.response_last_ns - r.before_ns) OVER (
      PARTITION BY r.capture, r.connection_id, r.topic
    ) AS median_ns
  FROM receipts AS r
  WHERE r.request_last_ns < r.before_ns AND r.outstanding_before >= 1
),
gap_patterns AS (
  SELECT
    g.capture, g.connection_id, g.topic, g.client_ip, g.broker_ip, count(*) AS receipts,
    max(g.median_ns) AS median_ns,
    count(CASE WHEN abs(g.gap_ns - g.median_ns) <= $comb_width * g.median_ns THEN 1 END)
    / CAST(count(*) AS DOUBLE) AS share,
    min(g.request_last_ns) AS first_ns, max(g.response_last_ns) AS last_ns,
    max(g.latency_ns) AS longest_ns, max(g.outstanding_before) AS outstanding,
    min(g.response_frame_no) AS first_frame, max(g.response_frame_no) AS last_frame,
    max_by(g.request_frame_no, g.latency_ns) AS slowest_frame,
    max_by(g.response_frame_no, g.latency_ns) AS its_frame
  FROM gaps AS g
  GROUP BY g.capture, g.connection_id, g.topic, g.client_ip, g.broker_ip
  HAVING count(*) >= $comb_receipts AND max(g.median_ns) >= $comb_pause_ms * 1000000
),
stamps AS (
  SELECT capture, topic, ledger_id, entry_id, min(broker_timestamp_ms) AS broker_timestamp_ms
  FROM frames
  WHERE
    broker_timestamp_ms IS NOT NULL AND command = 'MESSAGE'
    AND (capture, topic) IN (SELECT capture, topic FROM gap_patterns)
  GROUP BY capture, topic, ledger_id, entry_id
),
broker_times AS ( -- The broker's timestamp of the entry, from its delivery.
  SELECT
    g.capture, g.connection_id, g.topic,
    median(f.broker_timestamp_ms - g.request_last_ns / 1e6) AS waiting_ms,
    median(g.response_last_ns / 1e6 - f.broker_timestamp_ms) AS storing_ms
  FROM gaps AS g
  JOIN gap_patterns AS c USING (capture, connection_id, topic)
  JOIN stamps AS f USING (capture, topic, ledger_id, entry_id)
  GROUP BY g.capture, g.connection_id, g.topic
)
SELECT
  p.capture, p.first_ns, p.at_ns AS last_ns, '' AS variant, NULL AS subject_topic,
  p.client_ip AS subject_client_ip, p.broker_ip AS subject_broker_ip,
  (p.at_ns - p.first_ns) / 1e9 AS measured_longest_s, p.waiting AS measured_waiting,
  p.pings AS measured_pings, p.topics AS measured_topics,
  coalesce(d.messages, 0) AS measured_messages, coalesce(o.answers, 0) AS measured_elsewhere,
  c.zero_window_ns_to_broker / 1e9 AS measured_zero_window_s,
  NULL AS measured_pause_ms, NULL AS measured_share,
  NULL AS measured_receipts, NULL AS measured_outstanding,
  NULL AS measured_waiting_ms, NULL AS measured_storing_ms, CASE
    WHEN v.release < 3003005 OR v.release BETWEEN 4000000 AND 4000002 THEN c.server_version
  END AS measured_affected_version,
  coalesce(o.answers, 0) > 0 AS ruled_out_broker,
  p.oldest_frame AS frame_oldest_waiting, p.ping_frame AS frame_ping_waiting,
  p.send_frame AS frame_send_waiting, p.answer_frame AS frame_next_answer
FROM pauses AS p
JOIN connections AS c USING (capture, connection_id)
LEFT JOIN releases AS v ON v.server_version = c.server_version
LEFT JOIN other_answers AS o USING (capture, connection_id, at_ns)
LEFT JOIN delivered_messages AS d USING (capture, connection_id, at_ns)
UNION ALL BY NAME
SELECT
  c.capture, c.first_ns, c.last_ns, 'rate_comb' AS variant, c.topic AS subject_topic,
  c.client_ip AS subject_client_ip, c.broker_ip AS subject_broker_ip,
  c.longest_ns / 1e9 AS measured_longest_s,
  c.median_ns / 1e6 AS measured_pause_ms, c.share AS measured_share,
  c.receipts AS measured_receipts, c.outstanding AS measured_outstanding,
  s.waiting_ms AS measured_waiting_ms, s.storing_ms AS measured_storing_ms,
  FALSE AS ruled_out_broker,
  c.slowest_frame AS frame_oldest_waiting,
  c.first_frame AS frame_send_waiting, c.its_frame AS frame_next_answer
FROM gap_patterns AS c
LEFT JOIN broker_times AS s USING (capture, connection_id, topic)
WHERE
  c.share >= $comb_share AND (s.waiting_ms IS NULL OR s.waiting_ms >= s.storing_ms)
