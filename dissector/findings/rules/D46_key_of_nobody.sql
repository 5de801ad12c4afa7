/*
number = "D46"
code = "key_of_nobody"
title = "Messages wait because no consumer asks for their keys"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "publish_to_delivery"
worst = "measured_entries"
references = ["apache/pulsar PR 20026"]
fires = ["t04-sticky-range-conflict.pcap"]
silent = ["java-j01_plain.pcap", "java-j07_keys.pcap"]
whole = "a consumer with these slots may come later"

[needs]
consumers = "key_shared_mode = 'STICKY'"

[ruled_out]
others = "that the broker divides the keys: every consumer of the subscription asks for ranges of its own"

[text]
what = "{entries} entries of {topic} came to no consumer of subscription {subscription}: they were stored while it had consumers, none of which had asked for their {slots} slots (the first entry, with key {key}, lies in slot {slot}; consumer {consumer_name} asked for {range})."
known = "Every SUBSCRIBE of the subscription with its ranges, the SENDs with their keys and their receipts are in the capture, and no delivery of these entries."
rival = "A consumer outside of this capture that asked for these slots and got them."
decides = "The subscription's consumers and their ranges in the topic's statistics (keyHashRanges)."
do = "Give the consumers ranges that cover slots 0 to 65535 together, or let the broker divide them (AUTO_SPLIT): what lies where nobody asks waits until a consumer does."

[variant.asked_later]
severity = "info"
title = "Messages were stored before a consumer asked for their keys"
what = "{entries} entries of {topic} came to no consumer of subscription {subscription} here: when they were stored, none of its consumers had asked for their {slots} slots (the first entry, with key {key}, lies in slot {slot}); {consumer_name} asked for {range} later."
rival = "A consumer outside of this capture that got them."
do = "See how far the subscription came (pulsar-admin topics stats-internal); open consumers for all slots before messages are sent."
*/
WITH range_owners AS (
  SELECT
    c.capture, c.topic, c.subscription, c.name, c.sticky_ranges, c.opened_frame_no, c.closed_frame_no,
    CASE WHEN c.refused_code IS NULL THEN c.ready_frame_no END AS ready_no,
    CASE WHEN l.connection_id IS NOT NULL AND items(c.sticky_ranges) > 0 THEN 1 ELSE 0 END AS is_known
  FROM consumers AS c
  LEFT JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    (c.capture, c.topic, c.subscription) IN (
      SELECT capture, topic, subscription FROM consumers WHERE key_shared_mode = 'STICKY'
    )
),
range_starts AS ( -- The frame from which on all entries belong to the subscription.
  SELECT capture, topic, subscription, min(ready_no) AS ready_no
  FROM range_owners
  GROUP BY capture, topic, subscription
  HAVING min(ready_no) IS NOT NULL AND min(is_known) = 1
),
stored_keys AS ( -- The key of an entry is that of its first message.
  SELECT
    e.capture, e.topic, b.subscription, e.ledger_id, e.entry_id, e.request_frame_no AS send_no,
    e.response_frame_no AS receipt_no, e.response_last_ns AS at_ns, m.key_hash % 65536 AS slot,
    coalesce(m.ordering_key, m.partition_key) AS key, b.ready_no AS earlier_no
  FROM exchanges AS e
  JOIN range_starts AS b
    ON b.capture = e.capture AND b.topic = e.topic AND b.ready_no < e.request_frame_no
  JOIN messages AS m
    ON m.capture = e.capture AND m.connection_id = e.connection_id
    AND m.frame_no = e.request_frame_no AND coalesce(m.batch_index, 0) = 0
  WHERE e.kind = 'publish' AND e.outcome = 'ok' AND e.entry_id >= 0 AND m.key_hash IS NOT NULL
),
undelivered_keys AS (
  SELECT s.*
  FROM stored_keys AS s
  LEFT JOIN deliveries AS d
    ON d.capture = s.capture AND d.topic = s.topic AND d.subscription = s.subscription
    AND d.ledger_id = s.ledger_id AND d.entry_id = s.entry_id
  WHERE d.frame_no IS NULL
),
range_history AS ( -- With the last end of all earlier owners of the same ranges.
  SELECT
    capture, topic, subscription, sticky_ranges, opened_frame_no, ready_no,
    max(coalesce(closed_frame_no, 9223372036854775807)) OVER (
      PARTITION BY capture, topic, subscription, sticky_ranges ORDER BY opened_frame_no
    ) AS closed_no
  FROM range_owners
  WHERE ready_no IS NOT NULL
),
keys_in_ranges AS ( -- With all ranges that contain the key's slot, at any time.
  SELECT w.capture, w.topic, w.subscription, w.send_no, w.receipt_no, r.sticky_ranges
  FROM undelivered_keys AS w
  JOIN (SELECT DISTINCT capture, topic, subscription, sticky_ranges FROM range_history) AS r
    ON r.capture = w.capture AND r.topic = w.topic AND r.subscription = w.subscription
    AND lies_in(w.slot, r.sticky_ranges)
),
available_owners AS ( -- The owner at the time of the entry, or a later one.
  SELECT
    w.capture, w.topic, w.subscription, w.send_no,
    max(CASE WHEN a.closed_no > w.send_no THEN 1 ELSE 0 END) AS is_held,
    min(n.ready_no) AS later_no
  FROM keys_in_ranges AS w
  ASOF LEFT JOIN range_history AS a
    ON a.capture = w.capture AND a.topic = w.topic AND a.subscription = w.subscription
    AND a.sticky_ranges = w.sticky_ranges AND a.opened_frame_no < w.receipt_no
  ASOF LEFT JOIN range_history AS n
    ON n.capture = w.capture AND n.topic = w.topic AND n.subscription = w.subscription
    AND n.sticky_ranges = w.sticky_ranges AND n.ready_no > w.send_no
  GROUP BY w.capture, w.topic, w.subscription, w.send_no
),
key_sums AS (
  SELECT
    w.capture, w.topic, w.subscription, h.later_no IS NOT NULL AS is_later, count(*) AS entries,
    count(DISTINCT w.slot) AS slots, min(w.at_ns) AS first_ns, max(w.at_ns) AS last_ns,
    min_by(w.key, w.send_no) AS key, min_by(w.slot, w.send_no) AS slot,
    min(w.send_no) AS send_no, min(w.receipt_no) AS receipt_no, max(w.send_no) AS last_no,
    min_by(coalesce(h.later_no, w.earlier_no), w.send_no) AS asked_no
  FROM undelivered_keys AS w
  LEFT JOIN available_owners AS h USING (capture, topic, subscription, send_no)
  WHERE coalesce(h.is_held, 0) = 0
  GROUP BY w.capture, w.topic, w.subscription, h.later_no IS NOT NULL
)
SELECT
  s.capture, s.first_ns, s.last_ns, CASE WHEN s.is_later THEN 'asked_later' ELSE '' END AS variant,
  s.topic AS subject_topic, s.subscription AS subject_subscription,
  s.entries AS measured_entries, s.slots AS measured_slots, s.key AS measured_key,
  CAST(s.slot AS STRING) AS measured_slot, a.name AS measured_consumer_name,
  CAST(a.sticky_ranges AS STRING) AS measured_range, TRUE AS ruled_out_others,
  s.send_no AS frame_first_send, s.receipt_no AS frame_its_receipt, s.last_no AS frame_last_send,
  a.opened_frame_no AS frame_consumer
FROM key_sums AS s
JOIN range_owners AS a
  ON a.capture = s.capture AND a.topic = s.topic AND a.subscription = s.subscription
  AND a.ready_no = s.asked_no
