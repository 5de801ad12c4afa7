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
fires = ["fake-f03_senderror_persist.pcap", "fake-f12_slow_receipts.pcap", "live-short_runs.pcap"]
real = ["live-short_runs.pcap"]
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
what = "The {kind} {name} of {topic} was opened on {opens_seen} connections in {lasted_s} s, {opens} of them within {closest_s} s, and the pauses between did not grow (median {early_pause_s} s at first, {late_pause_s} s at last). Closed first by the client: {closed_by_client}; by the broker: {closed_by_broker}. The last frame before was {last_frame}.[ On {refused_links} of these connections the broker had refused a send.] {resent} sends {resent|was|were} sent again on them."
known = "Each PRODUCER or SUBSCRIBE with the same name is in the capture, each on another connection."
rival = "An application that opens and closes it on purpose, connection and all; or several processes that share the name."
decides = "Who closed first, and the last frame before: a client that closes behind a receipt, or after a time without any, does it by itself, and clients close behind a refused send."
do = "Look at why sends were refused, if any were; look at the log of the side that closed first, and at its version; for a shared name, give each process its own."

[variant.backoff_retry]
severity = "info"
verdict = "proven"
title = "A client tries again, each time after a longer pause"
what = "The {kind} {name} of {topic} was opened on {opens_seen} connections in {lasted_s} s, {opens} of them within {closest_s} s, with pauses that grew (median {early_pause_s} s at first, {late_pause_s} s at last). Closed first by the client: {closed_by_client}; by the broker: {closed_by_broker}. The last frame before was {last_frame}."
rival = "A broker that is overloaded and answers more slowly each time."
do = "Look at why the first of these connections ended: the client does what it should."

[variant.in_order]
severity = "info"
verdict = "proven"
title = "A client connects, closes in order and connects again"
what = "The {kind} {name} of {topic} was opened on {opens_seen} connections in {lasted_s} s, {opens} of them within {closest_s} s, and each time but perhaps the last the client closed it before its connection ended."
known = "Each PRODUCER or SUBSCRIBE with the same name is in the capture, each on another connection, and so is the client's close of it; no send on those before the last was left without a receipt."
rival = "Short runs of a program, which are meant so; or an application that gives up its client after each failure of its own."
decides = "Whether the application's log names a failure before it closes the client."
do = "Nothing, if these are runs of a program. Else keep one client and its connection: each costs a lookup and the opens."
*/
WITH name_opens AS (
  SELECT
    'producer' AS kind, p.capture, p.connection_id, p.topic, p.name,
    min(p.opened_frame_no) AS frame_no,
    max_by(
      p.ready_frame_no IS NOT NULL AND coalesce(p.closed_by, '') = 'client', p.opened_frame_no
    ) AS in_order
  FROM producers AS p
  WHERE p.opened_frame_no IS NOT NULL AND p.name IS NOT NULL AND p.topic IS NOT NULL
  GROUP BY p.capture, p.connection_id, p.topic, p.name
  UNION ALL BY NAME
  SELECT
    'consumer' AS kind, c.capture, c.connection_id, c.topic, c.name, c.subscription,
    min(c.opened_frame_no) AS frame_no,
    max_by(
      c.ready_frame_no IS NOT NULL AND coalesce(c.closed_by, '') = 'client', c.opened_frame_no
    ) AS in_order
  FROM consumers AS c
  WHERE c.opened_frame_no IS NOT NULL AND c.name IS NOT NULL AND c.topic IS NOT NULL
  GROUP BY c.capture, c.connection_id, c.topic, c.name, c.subscription
),
frequent_opens AS ( -- The first open of a name per connection, if there are enough.
  SELECT o.*
  FROM (
    SELECT
      o.kind, o.capture, o.topic, o.name, o.subscription, o.connection_id, o.frame_no,
      o.in_order, l.client_ip, l.closed_first_by,
      count(*) OVER (
        PARTITION BY o.kind, o.capture, o.topic, o.name, o.subscription, l.client_ip
      ) AS opens
    FROM name_opens AS o
    ANTI JOIN other_legs AS t USING (capture, connection_id)
    JOIN connections AS l
      ON l.capture = o.capture AND l.connection_id = o.connection_id AND l.protocol = 'pulsar'
      -- Without the answers nobody knows whether it was opened and closed in order.
      AND l.packets_to_client > 0
  ) AS o
  WHERE o.opens >= $opens
),
open_times AS (
  SELECT
    o.kind, o.capture, o.topic, o.name, o.subscription, o.client_ip, o.connection_id, o.frame_no,
    o.in_order, o.closed_first_by, f.last_ts_ns AS at_ns,
    lead(f.last_ts_ns, CAST($opens - 1 AS INT)) OVER entity AS until_ns
  FROM frequent_opens AS o
  JOIN frames AS f USING (capture, connection_id, frame_no)
  WINDOW entity AS (
    PARTITION BY o.kind, o.capture, o.topic, o.name, o.subscription, o.client_ip
    ORDER BY f.last_ts_ns, o.frame_no
  )
),
spans AS ( -- The first and last of the opens that are close together.
  SELECT
    kind, capture, topic, name, subscription, client_ip, min(at_ns) AS first_ns,
    max(until_ns) AS last_ns, min(until_ns - at_ns) AS closest_ns
  FROM open_times
  WHERE until_ns - at_ns <= $window_s * 1000000000
  GROUP BY kind, capture, topic, name, subscription, client_ip
),
steps AS (
  SELECT
    t.kind, t.capture, t.topic, t.name, t.subscription, t.client_ip, t.connection_id, t.frame_no,
    t.in_order, t.closed_first_by, t.at_ns, s.closest_ns,
    t.at_ns - lag(t.at_ns) OVER entity AS pause_ns, row_number() OVER entity AS place,
    count(*) OVER (
      PARTITION BY t.kind, t.capture, t.topic, t.name, t.subscription, t.client_ip
    ) AS opens
  FROM open_times AS t
  JOIN spans AS s
    ON s.kind = t.kind AND s.capture = t.capture AND s.topic = t.topic AND s.name = t.name
    AND s.subscription IS NOT DISTINCT FROM t.subscription AND s.client_ip = t.client_ip
    AND t.at_ns >= s.first_ns AND t.at_ns <= s.last_ns
  WINDOW entity AS (
    PARTITION BY t.kind, t.capture, t.topic, t.name, t.subscription, t.client_ip
    ORDER BY t.at_ns, t.frame_no
  )
),
connection_ends AS ( -- The last frame of each connection.
  SELECT
    f.capture, f.connection_id, max(f.frame_no) AS last_no,
    max_by(
      concat(
        coalesce(f.command, '?'),
        CASE f.direction WHEN 'to_broker' THEN ' of the client' ELSE ' of the broker' END
      ), f.frame_no
    ) AS last_frame
  FROM frames AS f
  JOIN (SELECT DISTINCT capture, connection_id FROM steps) AS s USING (capture, connection_id)
  GROUP BY f.capture, f.connection_id
),
publish_outcomes AS (
  SELECT
    e.capture, e.connection_id, count(CASE WHEN e.attempt > 1 THEN 1 END) AS resent,
    count(CASE WHEN e.outcome NOT IN ('ok', 'dup_or_dropped') THEN 1 END) AS failed,
    count(CASE WHEN e.outcome = 'error' THEN 1 END) AS refused
  FROM exchanges AS e
  JOIN (SELECT DISTINCT capture, connection_id FROM steps) AS s USING (capture, connection_id)
  WHERE e.kind = 'publish'
  GROUP BY e.capture, e.connection_id
),
loops AS (
  SELECT
    s.kind, s.capture, s.topic, s.name, s.subscription, s.client_ip, count(*) AS opens,
    count(CASE WHEN s.closed_first_by = 'client' THEN 1 END) AS by_client,
    count(CASE WHEN s.closed_first_by = 'broker' THEN 1 END) AS by_broker,
    min(s.at_ns) AS first_ns, max(s.at_ns) AS last_ns, min(s.closest_ns) AS closest_ns,
    min(s.frame_no) AS first_frame, min(CASE WHEN s.place = 2 THEN s.frame_no END) AS second_frame,
    max(s.frame_no) AS last_frame_no,
    CAST(median(CASE WHEN 3 * (s.place - 1) <= s.opens THEN s.pause_ns END) AS DOUBLE) AS early_ns,
    CAST(median(CASE WHEN 3 * (s.opens - s.place) < s.opens THEN s.pause_ns END) AS DOUBLE)
      AS late_ns,
    min_by(e.last_no, s.place) AS last_before,
    count(DISTINCT CASE WHEN s.closed_first_by IS NOT NULL THEN e.last_frame END) AS kinds_of_end,
    min(CASE WHEN s.closed_first_by IS NOT NULL THEN e.last_frame END) AS one_end,
    max(CASE WHEN s.closed_first_by IS NOT NULL THEN e.last_frame END) AS other_end,
    CAST(coalesce(sum(a.resent), 0) AS BIGINT) AS resent,
    count(CASE WHEN a.refused > 0 THEN 1 END) AS refused_links,
    count(*) FILTER (
      WHERE s.place < s.opens AND (NOT s.in_order OR coalesce(a.failed, 0) > 0)
    ) AS broken_off
  FROM steps AS s
  LEFT JOIN connection_ends AS e USING (capture, connection_id)
  LEFT JOIN publish_outcomes AS a USING (capture, connection_id)
  GROUP BY s.kind, s.capture, s.topic, s.name, s.subscription, s.client_ip
)
SELECT
  capture, first_ns, last_ns,
  CASE
    WHEN broken_off = 0 THEN 'in_order'
    WHEN late_ns < $growth * early_ns THEN ''
    ELSE 'backoff_retry'
  END AS variant,
  topic AS subject_topic, kind AS subject_kind, name AS subject_name,
  subscription AS subject_subscription, client_ip AS subject_client_ip,
  opens AS measured_opens_seen, (last_ns - first_ns) / 1e9 AS measured_lasted_s,
  closest_ns / 1e9 AS measured_closest_s,
  early_ns / 1e9 AS measured_early_pause_s, late_ns / 1e9 AS measured_late_pause_s,
  by_client AS measured_closed_by_client, by_broker AS measured_closed_by_broker,
  CASE
    WHEN kinds_of_end <= 1 THEN one_end
    WHEN kinds_of_end = 2 THEN concat(one_end, ' or ', other_end)
    ELSE concat('of several kinds, such as ', one_end, ' or ', other_end)
  END AS measured_last_frame,
  resent AS measured_resent, nullif(refused_links, 0) AS measured_refused_links,
  first_frame AS frame_first_open, last_before AS frame_last_before_the_first_close,
  second_frame AS frame_second_open, last_frame_no AS frame_last_open
FROM loops
