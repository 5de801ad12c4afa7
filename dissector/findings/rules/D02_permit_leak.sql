/*
number = "D02"
code = "permit_leak"
title = "A consumer gives back fewer permits than it uses"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_owed"
references = ["apache/pulsar#6173", "apache/pulsar-client-go#1180", "apache/pulsar-client-go PR 1181", "apache/pulsar#26675", "apache/pulsar PR 26336", "apache/pulsar PR 26337", "apache/pulsar PR 25386", "apache/pulsar#6054"]
fires = []
silent = ["go-g02_batch_zstd-bem.pcap", "java-j40_slow_consumer.pcap", "java-j12_nack_batch_index.pcap", "fake-f08_badcrc.pcap", "java-j01_plain.pcap"]

[thresholds.refills]
value = 5
unit = "FLOWs"
why = "fewer show no trend"

[thresholds.owed_least]
value = 10
unit = "permits"
why = "acknowledgements and FLOWs that cross each other differ by a few"

[thresholds.owed_share]
value = 0.1
unit = "share of the first FLOW"
why = "a client that is well owes nothing just after a FLOW but what it has taken since"

[thresholds.batch]
value = 2
unit = "messages in an entry on average"
why = "with single messages entries and messages are the same"

[thresholds.alike]
value = 0.05
unit = "share"
why = "FLOWs come in steps of half a queue, so that the two counts differ by one step at the most"

[text]
what = "Just after its FLOWs consumer {consumer_name} of {subscription} on {topic} owed the broker more and more permits: {owed_first} at first, {owed} at last, of the {first_flow} of its first FLOW. {refills_seen} FLOWs gave back {given_back}."
known = "What it owes is its first FLOW less the balance and less what it got and did not acknowledge: messages in its queue explain none of it."
rival = "A client that acknowledges messages which it takes from its queue later, or that makes its queue smaller."
decides = "Whether the balance comes back to {first_flow} when the consumer has taken all that waits; a restart of the consumer starts the count anew."
do = "Look at the client's version, and at what it drops or skips: each of these messages should give back its permit. When the debt reaches the queue it gets nothing more (consumer_out_of_permits)."

[variant.counts_entries]
severity = "error"
verdict = "proven"
title = "A consumer counts entries where permits count messages"
what = "Consumer {consumer_name} of {subscription} on {topic} got {messages} messages in {entries} entries until its last FLOW, and its {refills_seen} FLOWs gave back {given_back}: one permit for each entry, not for each message."
known = "Every FLOW and every MESSAGE since its SUBSCRIBE is in the capture; at each of these FLOWs the sum given back is the number of entries that had come, within 5 %."
rival = "None that gives the same sums at each of {refills_seen} FLOWs."
do = "Take a client that counts messages (apache/pulsar#6173 was one that did not), or switch off batching at the producer."

[variant.lost_by_discard]
severity = "error"
verdict = "proven"
title = "Permits are lost with every batch that the client discards"
what = "Consumer {consumer_name} of {subscription} on {topic} owes {owed} of {first_flow} permits just after its FLOWs; it discarded {discarded} entries as unreadable, and gave back one permit for each of them instead of one for each message."
known = "The ACKs say that the entries were discarded; the debt is the number of their messages less one each ({lost_permits})."
rival = "None for the debt; what made the entries unreadable is another question (checksum_mismatch)."
decides = "Whether the balance falls by the messages of a batch less one with the next that is discarded."
do = "Take a client that gives back what the broker charged (apache/pulsar PR 26336 and 26337). Restart the consumer before the debt reaches its queue."
*/
WITH suspect_consumers AS ( -- Short-lived consumers, and those whose balance did not return at the end.
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation, n.first_flow_permits,
    n.topic, n.subscription, n.consumer_name, n.client_ip, n.client_version
  FROM (
    SELECT
      capture, connection_id, consumer_id, incarnation, sum(grants) AS grants,
      max_by(most_available, second) AS last_most, count(*) AS seconds
    FROM consumer_seconds
    WHERE grants > 0
    GROUP BY capture, connection_id, consumer_id, incarnation
  ) AS c
  JOIN pulsar_consumers AS n USING (capture, connection_id, consumer_id, incarnation)
  WHERE
    c.grants > $refills AND n.first_flow_permits > 1
    AND (
      c.seconds <= 3
      OR n.first_flow_permits - c.last_most
      >= greatest($owed_least, $owed_share * n.first_flow_permits)
    )
),
running_balances AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.frame_no, p.event, p.delta,
    p.available_after, p.unacked_after, micros(p.ts) AS at_us,
    sum(CASE WHEN p.event = 'grant' THEN p.delta ELSE 0 END) OVER consumer AS granted,
    sum(CASE WHEN p.event = 'delivery' THEN 0 - p.delta ELSE 0 END) OVER consumer AS messages,
    sum(CASE WHEN p.event = 'delivery' THEN 1 ELSE 0 END) OVER consumer AS entries,
    sum(CASE WHEN p.event = 'grant' THEN 1 ELSE 0 END) OVER consumer AS grant_no
  FROM permits AS p
  WHERE
    p.baseline_known AND p.frame_no IS NOT NULL AND p.event <> 'reset'
    AND (p.capture, p.connection_id, p.consumer_id, p.incarnation) IN (
      SELECT capture, connection_id, consumer_id, incarnation FROM suspect_consumers
    )
  WINDOW consumer AS (
    PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation ORDER BY p.frame_no
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
refills AS (
  SELECT
    r.*, c.first_flow_permits, c.first_flow_permits - r.available_after - r.unacked_after AS owed,
    r.granted - c.first_flow_permits AS given_back,
    count(*) OVER (PARTITION BY r.capture, r.connection_id, r.consumer_id, r.incarnation)
      AS refills_seen
  FROM running_balances AS r
  JOIN suspect_consumers AS c
    ON c.capture = r.capture AND c.connection_id = r.connection_id
    AND c.consumer_id = r.consumer_id AND c.incarnation = r.incarnation
  WHERE r.event = 'grant' AND r.grant_no > 1
),
sums AS (
  SELECT
    capture, connection_id, consumer_id, incarnation, first_flow_permits, refills_seen,
    max(CASE WHEN 3 * (grant_no - 1) <= refills_seen + 2 THEN owed END) AS owed_first,
    min(CASE WHEN 3 * (grant_no - 1) > 2 * refills_seen THEN owed END) AS owed,
    CAST(max(given_back) AS BIGINT) AS given_back, CAST(max(messages) AS BIGINT) AS messages,
    CAST(max(entries) AS BIGINT) AS entries,
    count(*) FILTER (
      WHERE abs(given_back - entries) <= greatest($alike * entries, 1)
    ) AS of_entries,
    min(at_us) AS first_us, max(at_us) AS last_us, min(frame_no) AS first_frame_no,
    min(CASE WHEN 2 * (grant_no - 1) >= refills_seen THEN frame_no END) AS middle_frame_no,
    max(frame_no) AS last_frame_no
  FROM refills
  WHERE refills_seen >= $refills
  GROUP BY capture, connection_id, consumer_id, incarnation, first_flow_permits, refills_seen
),
discarded_messages AS (
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation, count(*) AS discarded,
    CAST(sum(d.message_count - 1) AS BIGINT) AS lost_permits, min(d.frame_no) AS frame_no
  FROM sums AS s
  JOIN (
    SELECT capture, connection_id, consumer_id, incarnation, frame_no, message_count
    FROM deliveries
    WHERE outcome = 'discarded' AND message_count > 1
  ) AS d USING (capture, connection_id, consumer_id, incarnation)
  WHERE d.frame_no < s.last_frame_no
  GROUP BY s.capture, s.connection_id, s.consumer_id, s.incarnation
),
assessments AS (
  SELECT
    s.*, t.discarded, t.lost_permits, t.frame_no AS discarded_frame_no,
    CASE
      WHEN s.of_entries = s.refills_seen AND s.messages >= $batch * s.entries THEN 'counts_entries'
      WHEN
        s.owed >= greatest($owed_least, $owed_share * s.first_flow_permits)
        AND abs(s.owed - t.lost_permits) <= greatest($alike * t.lost_permits, 1)
        THEN 'lost_by_discard'
      ELSE ''
    END AS variant
  FROM sums AS s
  LEFT JOIN discarded_messages AS t
    ON t.capture = s.capture AND t.connection_id = s.connection_id
    AND t.consumer_id = s.consumer_id AND t.incarnation = s.incarnation
)
SELECT
  j.capture, j.first_us * 1000 AS first_ns, j.last_us * 1000 AS last_ns, j.variant,
  c.topic AS subject_topic, c.subscription AS subject_subscription,
  c.consumer_name AS subject_consumer_name, c.client_ip AS subject_client_ip,
  j.owed AS measured_owed, j.owed_first AS measured_owed_first,
  j.first_flow_permits AS measured_first_flow, j.refills_seen AS measured_refills_seen,
  j.given_back AS measured_given_back, j.messages AS measured_messages,
  j.entries AS measured_entries, coalesce(j.discarded, 0) AS measured_discarded,
  coalesce(j.lost_permits, 0) AS measured_lost_permits,
  c.client_version AS measured_client_version,
  j.first_frame_no AS frame_second_flow, j.middle_frame_no AS frame_flow_between,
  j.last_frame_no AS frame_last_flow, j.discarded_frame_no AS frame_first_discarded
FROM assessments AS j
JOIN suspect_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
WHERE
  j.variant <> ''
  OR (
    j.owed >= greatest($owed_least, $owed_share * j.first_flow_permits)
    AND j.owed > j.owed_first
  )
