/*
number = "D30"
code = "producer_clock_skew"
title = "A producer's clock is off"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "publish_to_delivery"
whole = "a client that held some messages looks like a clock that is off until it sends others at once"
worst = "measured_off_s"
references = ["apache/pulsar PR 1422", "apache/pulsar PR 21940", "apache/pulsar PR 22211", "apache/pulsar#13567"]
fires = []
silent = ["fake-f12_slow_receipts.pcap", "cpp-s12_seek-bem.pcap", "cpp-s02_single_1k-bem.pcap", "java-j01_plain.pcap"]

[thresholds.sends]
value = 20
unit = "sends"
why = "one send may have waited in the client; not all of twenty"

[thresholds.skew_s]
value = 1.0
unit = "s"
why = "hosts that ask a time server agree within milliseconds"

[text]
what = "The clock of {client_ip} is {off_s} s {which_way} that of the tap: the median over {sends_seen} sends of publish time less time on the wire is {skew_median_s} s (from {least_s} to {greatest_s} s). {agreeing} other clients of this capture {agreeing|agrees|agree} with the tap's clock within {skew_s} s."
known = "Publish times are in the metadata of single messages that were sent for the first time."
rival = "The tap's clock, which is the third witness: only differences between clients are certain."
decides = "The clock of the client's host against a time server; other clients that agree with the tap accuse this one."
do = "Set the clock of {client_ip} by a time server: retention, expiry, delayed delivery and end-to-end latency reckon with publish times."

[variant.behind]
what = "The clock of {client_ip} is {off_s} s {which_way} that of the tap: the median over {sends_seen} sends of publish time less time on the wire is {skew_median_s} s (from {least_s} to {greatest_s} s). {agreeing} other clients of this capture {agreeing|agrees|agree} with the tap's clock within {skew_s} s."
rival = "A client that holds every message for as long before it sends it; or the tap's clock."
decides = "The clock of the client's host against a time server; a spread of {spread_s} s between its sends: a wait varies, a clock does not."
*/
WITH connection_distances AS ( -- Per connection the range of distances from publish time to SEND.
  SELECT
    f.capture, f.connection_id, count(*) AS sends,
    min(f.publish_time_ms * 1000000 - f.last_ts_ns) AS least_ns,
    max(f.publish_time_ms * 1000000 - f.last_ts_ns) AS most_ns
  FROM frames AS f
  WHERE
    f.command = 'SEND' AND f.publish_time_ms BETWEEN 1 AND 4102444800000
    AND f.is_batch = FALSE AND f.replicated_from IS NULL AND f.chunk_id IS NULL
  GROUP BY f.capture, f.connection_id
),
clients AS (
  SELECT
    c.capture, l.client_ip, sum(c.sends) AS sends, min(c.least_ns) AS least_ns,
    max(c.most_ns) AS most_ns
  FROM connection_distances AS c
  JOIN pulsar_links AS l USING (capture, connection_id)
  GROUP BY c.capture, l.client_ip
),
-- If a clock is behind, the greatest distance decides: that send waited least. If it is ahead, the
-- median decides: waiting makes no publish time younger, but sends that were held look older.
skewed_clients AS (
  SELECT c.capture, c.client_ip, c.sends, c.least_ns, c.most_ns
  FROM clients AS c
  ANTI JOIN unsteady_clocks AS u USING (capture)
  WHERE
    c.sends >= $sends
    AND (c.most_ns > $skew_s * 1000000000 OR c.most_ns < - $skew_s * 1000000000)
),
timed_sends AS ( -- Sends of these clients, without repetitions and the broker's own.
  SELECT
    o.capture, o.client_ip, o.least_ns, o.most_ns, f.frame_no, f.last_ts_ns,
    f.publish_time_ms * 1000000 - f.last_ts_ns AS skew_ns
  FROM skewed_clients AS o
  JOIN pulsar_links AS l USING (capture, client_ip)
  JOIN frames AS f ON f.capture = l.capture AND f.connection_id = l.connection_id
  JOIN exchanges AS e
    ON e.capture = f.capture AND e.connection_id = f.connection_id
    AND e.request_frame_no = f.frame_no AND e.kind = 'publish'
  WHERE
    f.command = 'SEND' AND f.publish_time_ms BETWEEN 1 AND 4102444800000 AND f.is_batch = FALSE
    AND f.replicated_from IS NULL AND f.chunk_id IS NULL AND f.status = 'complete'
    AND coalesce(e.attempt, 1) = 1 AND NOT e.tainted
    AND coalesce(e.producer_name, '') NOT LIKE 'pulsar.repl.%'
    AND coalesce(e.producer_name, '') NOT LIKE '%replicator%'
),
medians AS (
  SELECT
    t.capture, t.client_ip, count(*) AS sends, min(t.last_ts_ns) AS first_ns,
    max(t.last_ts_ns) AS last_ns, CAST(median(t.skew_ns) AS DOUBLE) AS median_ns,
    min(t.skew_ns) AS least_ns, max(t.skew_ns) AS most_ns, min(t.frame_no) AS first_no,
    max(t.frame_no) AS last_no
  FROM timed_sends AS t
  GROUP BY t.capture, t.client_ip
)
SELECT
  m.capture, m.first_ns, m.last_ns,
  CASE WHEN m.median_ns > 0 THEN '' ELSE 'behind' END AS variant,
  m.client_ip AS subject_client_ip, abs(m.median_ns) / 1e9 AS measured_off_s,
  CASE WHEN m.median_ns > 0 THEN 'ahead of' ELSE 'behind' END AS measured_which_way,
  m.sends AS measured_sends_seen, m.median_ns / 1e9 AS measured_skew_median_s,
  m.least_ns / 1e9 AS measured_least_s, m.most_ns / 1e9 AS measured_greatest_s,
  (m.most_ns - m.least_ns) / 1e9 AS measured_spread_s,
  coalesce(a.agreeing, 0) AS measured_agreeing,
  m.first_no AS frame_first_send, m.last_no AS frame_last_send
FROM medians AS m
LEFT JOIN (
  SELECT capture, count(*) AS agreeing
  FROM clients
  WHERE most_ns <= $skew_s * 1000000000 AND most_ns >= - $skew_s * 1000000000
  GROUP BY capture
) AS a USING (capture)
WHERE
  m.sends >= $sends
  AND (m.median_ns > $skew_s * 1000000000 OR m.most_ns < - $skew_s * 1000000000)
