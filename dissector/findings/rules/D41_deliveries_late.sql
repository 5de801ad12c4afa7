/*
number = "D41"
code = "deliveries_late"
title = "Messages came late although the consumer had permits"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "publish_to_delivery"
worst = "measured_slowest_s"
references = ["apache/pulsar#402", "apache/pulsar#4777", "apache/pulsar PR 11325"]
fires = ["java-j39_dispatch_rate.pcap", "live-transaction_open.pcap"]
real = ["java-j39_dispatch_rate.pcap", "live-transaction_open.pcap"]
silent = ["java-j29_delayed.pcap", "java-j40_slow_consumer.pcap", "java-j17_blocked_unacked.pcap", "java-j11_failover_switch.pcap", "java-j01_plain.pcap"]

[needs]
delivery_kinds = "slowest_ns >= $late_s * 1000000000"

[thresholds.late_s]
value = 1.0
unit = "s"
why = "brokers send what is stored within milliseconds while there are permits"

[thresholds.entries]
value = 3
unit = "late entries"
why = "one or two may have met a pause of the broker"

[thresholds.burst_s]
value = 0.2
unit = "s between two bursts"
why = "what a broker sends at once comes closer together"

[thresholds.bursts]
value = 3
unit = "bursts"
why = "two may be as far apart as any"

[thresholds.behind_ack_s]
value = 0.1
unit = "s between an acknowledgement and a burst"
why = "a broker that waited for it goes on within milliseconds"

[thresholds.alike]
value = 0.1
unit = "share by which their distances differ"
why = "the broker's timer is more exact than that"

[ruled_out]
permits = "that the consumer asked for too little: it had permits left from the receipt to the delivery"
not_there = "that the consumer came later: its first permits were granted before they were stored"

[text]
what = "{late} of {deliveries} entries of {topic} came to subscription {subscription} {late_s} s or more after they were stored, half of these {half_s} s or more, the slowest after {slowest_s} s, while consumer {consumer_name} had permits left."
known = "Receipts, permits and deliveries are in the capture; none of these entries had been delivered before, and none was to be delivered at a time of its own."
rival = "A backlog before them that the broker read first, a subscription limit of unacknowledged messages, or a broker that was slow."
decides = "The topic's stats at that time: msgBacklog, unackedMessages and the dispatch rate of topic, subscription and namespace."
do = "Compare the subscription's backlog and limits at that time; then look at the broker's reads from storage."

[variant.rate]
title = "Messages came late, in bursts of one rhythm: a dispatch rate"
what = "{late} of {deliveries} entries of {topic} came to subscription {subscription} {late_s} s or more after they were stored, half of these {half_s} s or more, the slowest after {slowest_s} s, while consumer {consumer_name} had permits left: in {bursts} bursts of {per_burst} entries at most, {apart_s} s apart."
rival = "A broker that stops for as long again and again, as one does that collects garbage."
decides = "The dispatch rate of topic, subscription, namespace and broker, and its period."
do = "Raise the dispatch rate, if the consumers are to get more."

[variant.transaction]
severity = "info"
title = "Messages came late: a transaction before them was open"
what = "{late} of {deliveries} entries of {topic} came to subscription {subscription} {late_s} s or more after they were stored, half of these {half_s} s or more, the slowest after {slowest_s} s; {of_transactions} SENDs to the topic {of_transactions|was|were} part of transactions."
rival = "A broker that was slow."
decides = "When the transactions ended."
do = "See how long the applications keep transactions open: nothing behind the first message of one is delivered before it ends."
*/
WITH slow_deliveries AS ( -- First deliveries to consumers on connections without gaps.
  SELECT
    d.capture, d.connection_id, d.consumer_id, d.incarnation, c.topic, c.subscription,
    c.subscription_type, c.consumer_name, c.client_ip, d.frame_no, d.ledger_id, d.entry_id,
    d.crc32c_stored, micros(d.ts) AS at_us
  FROM deliveries AS d
  JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
  WHERE
    d.publish_to_delivery_ns >= $late_s * 1000000000
    AND NOT coalesce(d.is_redelivered, FALSE) AND NOT coalesce(d.deliver_at_ms > 0, FALSE)
),
timed_deliveries AS ( -- The time counts from the receipt: slow storing is another rule's.
  SELECT
    s.*, e.request_frame_no AS send_no, floor_div(e.response_last_ns, 1000) AS stored_us,
    s.at_us - floor_div(e.response_last_ns, 1000) AS took_us
  FROM slow_deliveries AS s
  JOIN exchanges AS e
    ON e.kind = 'publish' AND e.outcome = 'ok' AND e.capture = s.capture AND e.topic = s.topic
    AND e.ledger_id = s.ledger_id AND e.entry_id = s.entry_id
    AND e.crc32c_stored = s.crc32c_stored
  WHERE s.at_us - floor_div(e.response_last_ns, 1000) >= $late_s * 1000000
),
grants AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation,
    min(CASE WHEN p.event = 'grant' AND p.delta > 0 THEN micros(p.ts) END) AS granted_us
  FROM permits AS p
  WHERE (p.capture, p.connection_id) IN (SELECT capture, connection_id FROM timed_deliveries)
  GROUP BY p.capture, p.connection_id, p.consumer_id, p.incarnation
),
ordered_marks AS ( -- Times without permits, or not known to have some, and late deliveries, to be sorted.
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.start_us AS at_us,
    s.start_us + s.lasted_us AS until_us, CAST(NULL AS BIGINT) AS frame_no
  FROM permit_spans AS s
  WHERE
    s.is_exhausted AND (s.capture, s.connection_id) IN (SELECT capture, connection_id FROM timed_deliveries)
  UNION ALL
  SELECT c.capture, c.connection_id, c.consumer_id, c.incarnation, p.at_us, p.until_us, NULL
  FROM permit_changes AS p
  JOIN permit_consumers AS c USING (consumer_no)
  WHERE
    p.kind <> 2 AND p.available_after IS NULL
    AND (c.capture, c.connection_id) IN (SELECT capture, connection_id FROM timed_deliveries)
  UNION ALL
  SELECT capture, connection_id, consumer_id, incarnation, at_us, NULL, frame_no FROM timed_deliveries
),
exhausted_times AS (
  SELECT
    capture, connection_id, frame_no,
    max(until_us) OVER (
      PARTITION BY capture, connection_id, consumer_id, incarnation
      ORDER BY at_us ASC, frame_no ASC NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS until_us
  FROM ordered_marks
),
late_deliveries AS (
  SELECT t.*
  FROM timed_deliveries AS t
  JOIN grants AS g
    ON g.capture = t.capture AND g.connection_id = t.connection_id
    AND g.consumer_id = t.consumer_id AND g.incarnation = t.incarnation
    AND g.granted_us <= t.stored_us
  JOIN exhausted_times AS x
    ON x.capture = t.capture AND x.connection_id = t.connection_id AND x.frame_no = t.frame_no
  WHERE coalesce(x.until_us < t.stored_us, TRUE)
),
delivery_pauses AS (
  SELECT
    l.*,
    CASE
      WHEN l.at_us - lag(l.at_us) OVER following < $burst_s * 1000000 THEN NULL
      ELSE l.at_us - lag(l.at_us) OVER following
    END AS pause_us,
    CASE
      WHEN l.at_us - lag(l.at_us) OVER following < $burst_s * 1000000 THEN 0
      ELSE 1
    END AS begins
  FROM late_deliveries AS l
  WINDOW following AS (
    PARTITION BY l.capture, l.connection_id, l.consumer_id, l.incarnation
    ORDER BY l.at_us, l.frame_no
  )
),
numbered_deliveries AS (
  SELECT
    a.*,
    sum(a.begins) OVER (
      PARTITION BY a.capture, a.connection_id, a.consumer_id, a.incarnation
      ORDER BY a.at_us, a.frame_no ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS burst
  FROM delivery_pauses AS a
),
bursts AS (
  SELECT
    n.capture, n.connection_id, n.consumer_id, n.incarnation, n.burst, count(*) AS entries,
    min(n.at_us) AS at_us
  FROM numbered_deliveries AS n
  GROUP BY n.capture, n.connection_id, n.consumer_id, n.incarnation, n.burst
),
burst_acks AS (
  SELECT DISTINCT b.capture, b.connection_id, b.consumer_id, b.incarnation, b.burst
  FROM bursts AS b
  JOIN acks AS a
    ON a.capture = b.capture AND a.connection_id = b.connection_id
    AND a.consumer_id = b.consumer_id AND a.incarnation = b.incarnation AND a.action = 'ack'
    AND micros(a.ts) BETWEEN b.at_us - $behind_ack_s * 1000000 AND b.at_us
),
largest_bursts AS (
  SELECT
    b.capture, b.connection_id, b.consumer_id, b.incarnation, max(b.entries) AS per_burst,
    count(a.burst) AS behind_acks
  FROM bursts AS b
  LEFT JOIN burst_acks AS a USING (capture, connection_id, consumer_id, incarnation, burst)
  GROUP BY b.capture, b.connection_id, b.consumer_id, b.incarnation
),
burst_sums AS (
  SELECT
    n.capture, n.connection_id, n.consumer_id, n.incarnation, n.topic, n.subscription,
    n.subscription_type, n.consumer_name, n.client_ip, count(*) AS late, median(n.took_us) AS half_us, max(n.took_us) AS slowest_us,
    min(n.stored_us) AS first_us, max(n.at_us) AS last_us, max(n.burst) AS bursts,
    min(n.pause_us) AS least_pause_us, max(n.pause_us) AS most_pause_us,
    median(n.pause_us) AS pause_us,
    min_by(n.frame_no, (n.at_us, n.frame_no)) AS first_no,
    max_by(n.frame_no, (n.took_us, 0 - n.frame_no)) AS slowest_no,
    max_by(n.send_no, (n.took_us, 0 - n.frame_no)) AS send_no
  FROM numbered_deliveries AS n
  GROUP BY ALL
  HAVING count(*) >= $entries
),
transaction_sends AS (
  SELECT f.capture, f.topic, count(*) AS sends
  FROM frames AS f
  ANTI JOIN other_legs AS t USING (capture, connection_id)
  WHERE
    f.command = 'SEND' AND f.txn_least_bits IS NOT NULL
    AND (f.capture, f.topic) IN (SELECT capture, topic FROM burst_sums)
  GROUP BY f.capture, f.topic
),
delivery_totals AS (
  SELECT d.capture, d.connection_id, d.consumer_id, d.incarnation, count(*) AS deliveries
  FROM deliveries AS d
  WHERE (d.capture, d.connection_id) IN (SELECT capture, connection_id FROM burst_sums)
  GROUP BY d.capture, d.connection_id, d.consumer_id, d.incarnation
)
SELECT
  s.capture, s.first_us * 1000 AS first_ns, s.last_us * 1000 AS last_ns,
  CASE
    WHEN t.sends > 0 THEN 'transaction'
    WHEN
      s.bursts >= $bursts AND s.most_pause_us - s.least_pause_us <= $alike * s.pause_us
      THEN 'rate'
    ELSE ''
  END AS variant,
  s.topic AS subject_topic, s.subscription AS subject_subscription,
  s.consumer_name AS subject_consumer_name, s.client_ip AS subject_client_ip,
  s.late AS measured_late, a.deliveries AS measured_deliveries,
  s.half_us / 1e6 AS measured_half_s, s.slowest_us / 1e6 AS measured_slowest_s,
  s.bursts AS measured_bursts, m.per_burst AS measured_per_burst,
  s.pause_us / 1e6 AS measured_apart_s, coalesce(t.sends, 0) AS measured_of_transactions,
  TRUE AS ruled_out_permits, TRUE AS ruled_out_not_there,
  s.send_no AS frame_send_of_the_slowest, s.slowest_no AS frame_its_delivery,
  s.first_no AS frame_first_late
FROM burst_sums AS s
JOIN largest_bursts AS m USING (capture, connection_id, consumer_id, incarnation)
JOIN delivery_totals AS a USING (capture, connection_id, consumer_id, incarnation)
LEFT JOIN transaction_sends AS t USING (capture, topic)
-- If each burst follows an acknowledgement, a limit delayed them: see D06 and D07.
WHERE m.behind_acks < s.bursts
