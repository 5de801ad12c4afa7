/*
number = "D27"
code = "network_loss"
title = "The network lost packets, and answers were slow for it"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "connecting"
worst = "measured_retransmitted"
references = ["apache/pulsar#15792", "streamnative/pulsar-rs#118", "apache/pulsar PR 1210", "apache/pulsar PR 14841", "apache/pulsar#19377"]
fires = ["cpp-s30_latency_mix-wireloss.pcap"]
real = ["cpp-s30_latency_mix-wireloss.pcap"]
silent = ["mut-loss1-java-j24_unload.pcap", "tap-caploss.pcap", "tap-duplicated.pcap", "cpp-s30_latency_mix.pcap", "fake-f12_noreceipt.pcap", "cpp-s27_crash_client.pcap", "java-j01_plain.pcap"]

[thresholds.share]
value = 0.01
unit = "of the packets"
why = "a path that is well loses far less than one in a hundred"

[thresholds.packets]
value = 10
unit = "packets sent again"
why = "a few are sent again on any long connection"

[thresholds.times]
value = 3.0
unit = "times the 99th percentile of answers that no retransmission touches"
why = "a retransmission costs 200 ms or more, which stands out"

[thresholds.slow]
value = 3
unit = "answers"
why = "one or two may be slow for another reason"

[thresholds.black_hole_bytes]
value = 1000
unit = "bytes"
why = "what a path with a smaller MTU swallows is larger than that"

[thresholds.black_hole_packets]
value = 3
unit = "packets sent again"
why = "TCP repeats what is lost with growing pauses; three times is no chance"

[thresholds.black_hole_links]
value = 2
unit = "connections"
why = "on one alone the path may just have ended"

[thresholds.idle_s]
value = 25.0
unit = "s"
why = "clients and brokers send a PING behind 30 s of silence: the first one is what meets a path that was cut meanwhile"

[text]
what = "{retransmitted} packets ({share_measured} of those of their direction) between {client_ip} and {broker_ip} {retransmitted|was|were} sent again on one connection, and {slow_answers} answers that this touched took more than {times} times {clean_ms} ms, the 99th percentile of {clean} others; the slowest {slowest_ms} ms."
known = "The same bytes came twice in the capture, which has no hole on this connection; copies that the tap made itself are not counted."
rival = "A receiver too busy to acknowledge in time: TCP then sends again what was not lost."
decides = "A capture at the other end: did the first copy arrive there?"
do = "Look at the path: drops of interfaces and switches, offloads, overloaded hosts."

[variant.beyond_tap]
title = "Packets were sent again that had passed the tap"
what = "{retransmitted} packets ({share_measured} of those of their direction) between {client_ip} and {broker_ip} {retransmitted|was|were} sent again on one connection although the tap had seen them: what was lost, was lost behind it. Fewer than {slow} answers to sends were slow for it as measured here; the receiver got these bytes later."
known = "The same bytes came twice in the capture, which has no hole on this connection; copies that the tap made itself are not counted."

[variant.path_black_hole]
title = "Large sends never arrive, small ones do"
what = "On {connections_seen} connections from {client_ip} to {broker_ip} everything up to {answered_bytes} bytes was answered, until a frame of {lost_bytes} bytes or more was sent: nothing was answered any more, and TCP sent packets again {retransmitted} times."
known = "Each of these connections got answers before, all of them to smaller frames; the large frame is in the capture."
rival = "A broker that refuses such frames silently, or a path that died at that moment on each of them."
decides = "A PING with packets of {lost_bytes} bytes that may not be fragmented, over the same path."
do = "Compare the MTU of all hops with that of the hosts (tunnels and VPNs take some off), and whether ICMP 'fragmentation needed' is filtered."

[variant.cut_while_idle]
title = "A connection was cut while it was idle"
what = "Nothing passed between {client_ip} and {broker_ip} for {idle_measured_s} s; what the client sent then got no answer, and TCP sent packets again {retransmitted} times or was reset."
known = "The last frame before the silence and the first one after it are in the capture, without a hole."
rival = "A broker, or its host, that died in the meantime without closing its connections: behind one keep-alive interval (30 s) that is the more likely of both."
decides = "Whether other connections to {broker_ip} were alive at that time."
do = "If the broker lived: make the keep-alive interval shorter than the idle limit of firewalls, NAT and load balancers on the path, or raise that limit."
*/
WITH lossy_connections AS (
  SELECT
    c.capture, c.connection_id, c.client_ip, c.broker_ip, c.first_ts_ns, c.last_ts_ns, c.ended,
    c.retransmitted_packets_to_broker AS retransmitted_to_broker,
    c.retransmitted_packets_to_broker + c.retransmitted_packets_to_client AS retransmitted,
    c.packets_to_broker + c.packets_to_client AS packets,
    greatest(
      CASE
        WHEN c.retransmitted_packets_to_broker >= $packets
          THEN c.retransmitted_packets_to_broker / c.packets_to_broker ELSE 0.0
      END,
      CASE
        WHEN c.retransmitted_packets_to_client >= $packets
          THEN c.retransmitted_packets_to_client / c.packets_to_client ELSE 0.0
      END
    ) AS share_of_side
  FROM connections AS c
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    c.retransmitted_packets_to_broker > 0 OR c.retransmitted_packets_to_client > 0
    OR c.ended = 'rst'
),
timed_answers AS ( -- Answers on lossy connections, ranked by latency per `tainted`.
  SELECT
    c.capture, c.connection_id, e.tainted, e.latency_ns, e.request_frame_no, e.response_frame_no,
    row_number() OVER (
      PARTITION BY c.capture, c.connection_id, e.tainted ORDER BY e.latency_ns DESC
    ) AS place,
    count(*) OVER (PARTITION BY c.capture, c.connection_id, e.tainted) AS answers
  FROM lossy_connections AS c
  JOIN exchanges AS e USING (capture, connection_id)
  WHERE
    c.retransmitted >= $packets AND c.share_of_side >= $share AND e.kind = 'publish'
    AND e.outcome = 'ok' AND e.latency_ns IS NOT NULL
),
untouched_answers AS (
  SELECT
    t.capture, t.connection_id, max(t.answers) AS answers,
    max(CASE WHEN t.place > 0.01 * t.answers THEN t.latency_ns END) AS p99_ns
  FROM timed_answers AS t
  WHERE NOT t.tainted
  GROUP BY t.capture, t.connection_id
),
touched_answers AS (
  SELECT
    t.capture, t.connection_id, n.answers, n.p99_ns, count(*) AS slow,
    max(t.latency_ns) AS slowest_ns, max_by(t.request_frame_no, t.latency_ns) AS request_frame,
    max_by(t.response_frame_no, t.latency_ns) AS response_frame
  FROM timed_answers AS t
  JOIN untouched_answers AS n USING (capture, connection_id)
  WHERE t.tainted AND t.latency_ns >= $times * n.p99_ns
  GROUP BY t.capture, t.connection_id, n.answers, n.p99_ns
  HAVING count(*) >= $slow
),
unanswered_requests AS (
  SELECT
    c.capture, c.connection_id, c.client_ip, c.broker_ip, c.retransmitted,
    c.retransmitted_to_broker, c.ended, c.last_ts_ns,
    min(e.request_first_ns) AS lost_ns, min(e.request_frame_no) AS lost_frame,
    min_by(e.request_bytes, e.request_frame_no) AS lost_bytes
  FROM lossy_connections AS c
  JOIN exchanges AS e USING (capture, connection_id)
  WHERE
    e.kind IN ('publish', 'request', 'ping') AND e.outcome IN ('conn_closed', 'unanswered_at_end')
    AND e.request_frame_no IS NOT NULL
  GROUP BY ALL
),
unanswered_context AS ( -- Frames before and after the first request without an answer.
  SELECT
    u.capture, u.connection_id, u.client_ip, u.broker_ip, u.retransmitted,
    u.retransmitted_to_broker, u.ended, u.last_ts_ns, u.lost_ns,
    u.lost_frame, u.lost_bytes,
    max(
      CASE WHEN f.direction = 'to_broker' AND f.frame_no < u.lost_frame THEN f.frame_bytes END
    ) AS answered_bytes,
    count(*) FILTER (WHERE f.direction = 'to_client' AND f.frame_no > u.lost_frame) AS later_frames,
    max(CASE WHEN f.frame_no = u.lost_frame THEN f.direction END) AS lost_direction,
    max(CASE WHEN f.frame_no < u.lost_frame THEN f.last_ts_ns END) AS before_ns,
    max(CASE WHEN f.frame_no < u.lost_frame THEN f.frame_no END) AS before_frame
  FROM unanswered_requests AS u
  JOIN (
    SELECT capture, connection_id, frame_no, direction, frame_bytes, last_ts_ns
    FROM frames
    WHERE (capture, connection_id) IN (SELECT capture, connection_id FROM unanswered_requests)
  ) AS f USING (capture, connection_id)
  GROUP BY ALL
)
SELECT
  c.capture, c.first_ts_ns AS first_ns, c.last_ts_ns AS last_ns,
  CASE WHEN t.slow IS NULL THEN 'beyond_tap' ELSE '' END AS variant,
  c.client_ip AS subject_client_ip, c.broker_ip AS subject_broker_ip,
  c.retransmitted AS measured_retransmitted, c.share_of_side AS measured_share_measured,
  t.slow AS measured_slow_answers, t.p99_ns / 1e6 AS measured_clean_ms,
  t.answers AS measured_clean, t.slowest_ns / 1e6 AS measured_slowest_ms,
  NULL AS measured_connections_seen, NULL AS measured_answered_bytes, NULL AS measured_lost_bytes,
  NULL AS measured_idle_measured_s, coalesce(t.request_frame, x.first_frame) AS frame_request,
  coalesce(t.response_frame, x.last_frame) AS frame_last
FROM lossy_connections AS c
LEFT JOIN touched_answers AS t USING (capture, connection_id)
LEFT JOIN (
  SELECT
    s.capture, s.connection_id, min(s.request_frame_no) AS first_frame,
    max(s.request_frame_no) AS last_frame
  FROM lossy_connections AS y
  JOIN exchanges AS s USING (capture, connection_id)
  WHERE y.retransmitted >= $packets
  GROUP BY s.capture, s.connection_id
) AS x USING (capture, connection_id)
WHERE c.retransmitted >= $packets AND c.share_of_side >= $share
UNION ALL BY NAME
SELECT
  h.capture, min(h.lost_ns) AS first_ns, max(h.last_ts_ns) AS last_ns,
  'path_black_hole' AS variant, h.client_ip AS subject_client_ip,
  h.broker_ip AS subject_broker_ip,
  CAST(sum(h.retransmitted_to_broker) AS BIGINT) AS measured_retransmitted,
  count(*) AS measured_connections_seen, max(h.answered_bytes) AS measured_answered_bytes,
  min(h.lost_bytes) AS measured_lost_bytes,
  min(h.lost_frame) AS frame_request, max(h.lost_frame) AS frame_last
FROM unanswered_context AS h
WHERE
  h.retransmitted_to_broker >= $black_hole_packets AND h.lost_bytes >= $black_hole_bytes
  AND h.later_frames = 0 AND h.answered_bytes < h.lost_bytes
GROUP BY h.capture, h.client_ip, h.broker_ip
HAVING count(*) >= $black_hole_links AND max(h.answered_bytes) < min(h.lost_bytes)
UNION ALL BY NAME
SELECT
  h.capture, h.before_ns AS first_ns, h.last_ts_ns AS last_ns, 'cut_while_idle' AS variant,
  h.client_ip AS subject_client_ip, h.broker_ip AS subject_broker_ip,
  h.retransmitted AS measured_retransmitted,
  (h.lost_ns - h.before_ns) / 1e9 AS measured_idle_measured_s,
  h.before_frame AS frame_request, h.lost_frame AS frame_last
FROM unanswered_context AS h
WHERE
  h.later_frames = 0 AND h.lost_direction = 'to_broker'
  AND h.lost_ns - h.before_ns >= $idle_s * 1000000000
  AND (h.retransmitted_to_broker > 0 OR h.ended = 'rst')
