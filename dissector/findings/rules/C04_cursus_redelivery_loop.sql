/*
number = "C04"
code = "cursus_redelivery_loop"
title = "A Cursus group gets the same records again and again"
severity = "error"
verdict = "proven"
protocol = "cursus"
section = "redelivery"
worst = "measured_times"
references = ["cursus: docs/protocol-spec.md", "cursus-java: docs/protocol.md"]
fires = ["v010-publisher_consumer.pcap"]
real = ["v010-publisher_consumer.pcap"]
silent = ["go-crash_redelivery_streaming.pcap", "go-group_rebalance_two_consumers.pcap", "go-consume_polling.pcap", "py-consume_polling.pcap"]

[needs]
delivery_kinds = "is_redelivered"

[thresholds.times]
value = 5
unit = "deliveries"
why = "a crash, a rebalance or a lost commit costs one more each"

[text]
what = "Group {subscription} got offset {offset} of {topic}, partition {partition}, {times} times within {lasted_s} s, {entries} offsets {least_times} times or more (cause: {cause}). Consumer: {consumer_name}."
known = "Every delivery is in the capture, with its offset; redelivery is an offset at or below what the group got before."
rival = "An application that goes back on purpose, by an offset of its own."
decides = "Whether a commit of a higher offset was accepted between: In the whole capture it committed {commits} times for this topic."
do = "Look at why the consumer does not commit, or at where it asks from: a broker begins at the committed offset, and at the offset in the request where there is none."
*/
WITH repeated_records AS (
  SELECT
    d.capture, d.topic, d.subscription, d.partition, d.entry_id, max(d.redelivery_cause) AS cause
  FROM deliveries AS d
  JOIN connections AS c
    ON c.capture = d.capture AND c.connection_id = d.connection_id AND c.protocol = 'cursus'
  WHERE
    d.is_redelivered = TRUE AND d.redelivery_cause <> 'reset' AND d.message_count > 0
    AND d.subscription IS NOT NULL AND d.topic IS NOT NULL AND d.entry_id IS NOT NULL
  GROUP BY d.capture, d.topic, d.subscription, d.partition, d.entry_id
  HAVING count(*) >= $times - 1
),
record_deliveries AS (
  SELECT
    a.capture, a.topic, a.subscription, a.partition, a.entry_id, a.cause, count(*) AS times,
    min(micros(d.ts)) AS first_us, max(micros(d.ts)) AS last_us,
    max_by(d.consumer_name, d.frame_no) AS consumer_name,
    min(d.frame_no) AS first_no, max(d.frame_no) AS last_no
  FROM repeated_records AS a
  JOIN deliveries AS d USING (capture, topic, subscription, partition, entry_id)
  WHERE d.message_count > 0
  GROUP BY a.capture, a.topic, a.subscription, a.partition, a.entry_id, a.cause
  HAVING count(*) >= $times
),
commit_counts AS (
  SELECT a.capture, a.topic, a.subscription, count(*) AS commits
  FROM acks AS a
  JOIN (SELECT DISTINCT capture, topic, subscription FROM record_deliveries) AS s
    USING (capture, topic, subscription)
  WHERE a.action = 'ack'
  GROUP BY a.capture, a.topic, a.subscription
)
SELECT
  s.capture, min(s.first_us) * 1000 AS first_ns, max(s.last_us) * 1000 AS last_ns,
  s.topic AS subject_topic, s.subscription AS subject_subscription,
  CAST(s.partition AS STRING) AS subject_partition,
  max_by(s.consumer_name, s.times) AS measured_consumer_name,
  CAST(max_by(s.entry_id, s.times) AS STRING) AS measured_offset, max(s.times) AS measured_times,
  count(*) AS measured_entries, CAST($times AS BIGINT) AS measured_least_times,
  max_by((s.last_us - s.first_us) / 1e6, s.times) AS measured_lasted_s,
  max_by(s.cause, s.times) AS measured_cause, coalesce(max(k.commits), 0) AS measured_commits,
  max_by(s.first_no, s.times) AS frame_first_delivery,
  max_by(s.last_no, s.times) AS frame_last_delivery
FROM record_deliveries AS s
LEFT JOIN commit_counts AS k USING (capture, topic, subscription)
GROUP BY s.capture, s.topic, s.subscription, s.partition
