/*
number = "D31"
code = "order_violation"
title = "Messages came out of order"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "publish_to_delivery"
worst = "measured_entries"
references = ["apache/pulsar#15317", "apache/pulsar PR 9681", "apache/pulsar PR 10762", "apache/pulsar#4406", "apache/pulsar#8292", "apache/pulsar#23307", "apache/pulsar PR 12780"]
fires = []
silent = ["java-j10_failover_rq10.pcap", "cpp-s07_failover_rq10.pcap", "java-j21_seek.pcap", "java-j24_unload.pcap", "java-j01_plain.pcap"]

[thresholds.entries]
value = 1
unit = "entries"
why = "a subscription that keeps order delivers no entry behind a later one of its key"

[thresholds.margin_s]
value = 0.05
unit = "s"
why = "an acknowledgement and a delivery that cross on their way are seen in either order"

[text]
what = "{entries} entries of {topic} {entries|was|were} delivered to {subscription} ({subscription_type}) for the first time behind later ones; the first is {ledger_id}:{entry_id} behind {before_ledger_id}:{before_entry_id}."
known = "Both deliveries are in the capture, on one connection; neither was delivered before, and nobody asked for one again or moved the subscription."
rival = "A cursor that an administrator moved back without closing the consumer; the subscription's consumers from its SUBSCRIBE on are in the capture."
decides = "The broker's log at that time: a read that was started twice, a cursor that was rewound."
do = "Compare the broker's version with the known faults of its dispatchers; keep both frames."

[variant.key_at_two]
title = "A key was at two consumers at once"
what = "{entries} times messages of one key of {topic} were delivered to a consumer of {subscription} while an earlier one of the same key was not yet acknowledged by another consumer; the first is {ledger_id}:{entry_id}, behind {before_ledger_id}:{before_entry_id}, key {key}."
known = "Both deliveries are in the capture, with their keys, on connections that lived on; the acknowledgement of the earlier one came later or not at all."
rival = "Consumers that joined with hash ranges of their own (sticky ranges), or a consumer policy that allows delivery out of order."
decides = "KeySharedPolicy of the consumers (allowOutOfOrderDelivery), and the broker's version: from 4.0 on only keys that wait are held back."
do = "Look at what was unacknowledged when consumers joined or left."

[variant.after_nack]
severity = "info"
title = "Messages came out of order behind negative acknowledgements"
what = "{entries} entries of {topic} {entries|was|were} delivered to {subscription} ({subscription_type}) again, behind later ones, since a consumer had asked for them again; the first is {ledger_id}:{entry_id} behind {before_ledger_id}:{before_entry_id}."
known = "Both deliveries and the request are in the capture."
rival = "None: a negative acknowledgement gives up order, by design."
decides = "Nothing is open."
do = "Where order counts, do not acknowledge negatively: handle the message, or stop."
*/
WITH ordered_consumers AS ( -- Consumers of ordered subscriptions, with a number to sort by.
  SELECT
    c.*,
    row_number() OVER (
      ORDER BY c.capture, c.connection_id, c.consumer_id, c.incarnation
    ) AS consumer_no
  FROM pulsar_consumers AS c
  WHERE
    c.subscription_type IN ('Exclusive', 'Failover', 'Key_Shared')
    AND c.topic LIKE 'persistent://%' AND c.opened_frame_no IS NOT NULL
),
delivery_positions AS ( -- The position of an entry as one number.
  SELECT
    k.consumer_no, d.frame_no,
    try_multiply(d.ledger_id, 4294967296) + d.entry_id AS place,
    lag(try_multiply(d.ledger_id, 4294967296) + d.entry_id) OVER (
      PARTITION BY k.consumer_no ORDER BY d.frame_no
    ) AS place_before
  FROM ordered_consumers AS k
  JOIN deliveries AS d USING (capture, connection_id, consumer_id, incarnation)
  WHERE d.ledger_id BETWEEN 0 AND 2147483647 AND d.entry_id BETWEEN 0 AND 4294967295
),
reversed_consumers AS ( -- Consumers with a delivery of a lower position.
  SELECT k.*
  FROM ordered_consumers AS k
  WHERE k.consumer_no IN (SELECT consumer_no FROM delivery_positions WHERE place < place_before)
),
keyed_deliveries AS ( -- Their deliveries, with the key for Key_Shared.
  SELECT
    k.consumer_no, k.capture, k.topic, k.subscription, k.subscription_type, d.frame_no, d.ts,
    d.ledger_id, d.entry_id, d.redelivery_count, d.is_redelivered, d.redelivery_cause,
    try_multiply(d.ledger_id, 4294967296) + d.entry_id AS place,
    CASE WHEN k.subscription_type = 'Key_Shared' THEN m.key END AS key
  FROM reversed_consumers AS k
  JOIN (
    SELECT
      capture, connection_id, consumer_id, incarnation, frame_no, ts, ledger_id, entry_id,
      redelivery_count, is_redelivered, redelivery_cause
    FROM deliveries
    WHERE (capture, connection_id) IN (SELECT capture, connection_id FROM reversed_consumers)
  ) AS d USING (capture, connection_id, consumer_id, incarnation)
  LEFT JOIN (
    SELECT
      capture, connection_id, frame_no, min(coalesce(ordering_key, partition_key)) AS key
    FROM messages
    WHERE
      direction = 'to_client' AND coalesce(ordering_key, partition_key) IS NOT NULL
      AND (capture, connection_id) IN (SELECT capture, connection_id FROM reversed_consumers)
    GROUP BY capture, connection_id, frame_no
    HAVING
      min(coalesce(ordering_key, partition_key)) = max(coalesce(ordering_key, partition_key))
  ) AS m
    ON m.capture = d.capture AND m.connection_id = d.connection_id AND m.frame_no = d.frame_no
    AND k.subscription_type = 'Key_Shared'
  WHERE
    d.ledger_id BETWEEN 0 AND 2147483647 AND d.entry_id BETWEEN 0 AND 4294967295
    AND (k.subscription_type <> 'Key_Shared' OR m.key IS NOT NULL)
),
pairs AS (
  SELECT
    s.*,
    lag(s.place) OVER one_key AS place_before, lag(s.ledger_id) OVER one_key AS before_ledger_id,
    lag(s.entry_id) OVER one_key AS before_entry_id, lag(s.frame_no) OVER one_key AS before_no,
    lag(s.is_redelivered) OVER one_key AS before_redelivered
  FROM keyed_deliveries AS s
  WINDOW one_key AS (PARTITION BY s.consumer_no, s.key ORDER BY s.frame_no)
),
reversed_pairs AS (
  SELECT
    p.capture, p.topic, p.subscription, p.subscription_type, p.key, p.ts, p.frame_no,
    p.before_no, p.ledger_id, p.entry_id, p.before_ledger_id, p.before_entry_id,
    CASE
      WHEN p.is_redelivered AND p.redelivery_cause = 'explicit' THEN 'after_nack'
      WHEN p.is_redelivered OR p.before_redelivered OR p.redelivery_count > 0 THEN NULL
      ELSE ''
    END AS variant
  FROM pairs AS p
  WHERE p.place < p.place_before
),
shared_keys AS ( -- Keys delivered to consumers on several connections.
  SELECT
    k.capture, k.topic, k.subscription, coalesce(m.ordering_key, m.partition_key) AS key
  FROM ordered_consumers AS k
  JOIN messages AS m
    ON m.capture = k.capture AND m.connection_id = k.connection_id AND m.topic = k.topic
    AND m.direction = 'to_client' AND coalesce(m.ordering_key, m.partition_key) IS NOT NULL
  WHERE k.subscription_type = 'Key_Shared'
  GROUP BY ALL
  HAVING min(m.connection_id) <> max(m.connection_id)
),
key_deliveries AS ( -- Their deliveries in order, and whether the previous one was unacknowledged.
  SELECT
    h.*,
    lag(h.consumer_no) OVER one_key AS before_consumer, lag(h.frame_no) OVER one_key AS before_no,
    lag(h.ledger_id) OVER one_key AS before_ledger_id,
    lag(h.entry_id) OVER one_key AS before_entry_id, lag(h.outcome) OVER one_key AS before_outcome,
    lag(micros(h.ts) + floor_div(h.ack_latency_ns, 1000)) OVER one_key AS before_acked_us
  FROM (
    SELECT
      w.capture, w.topic, w.subscription, w.key, k.subscription_type, k.consumer_no, d.frame_no,
      d.ts, d.ledger_id, d.entry_id, d.outcome, d.ack_latency_ns, d.is_redelivered
    FROM shared_keys AS w
    JOIN ordered_consumers AS k USING (capture, topic, subscription)
    JOIN messages AS m
      ON m.capture = k.capture AND m.connection_id = k.connection_id AND m.direction = 'to_client'
      AND coalesce(m.ordering_key, m.partition_key) = w.key
    JOIN deliveries AS d
      ON d.capture = m.capture AND d.connection_id = m.connection_id AND d.frame_no = m.frame_no
      AND d.consumer_id = k.consumer_id AND d.incarnation = k.incarnation
    WHERE coalesce(m.batch_index, 0) = 0 AND k.subscription_type = 'Key_Shared'
  ) AS h
  WINDOW one_key AS (
    PARTITION BY h.capture, h.topic, h.subscription, h.key ORDER BY h.ts, h.frame_no
  )
)
SELECT
  b.capture, min(micros(b.ts)) * 1000 AS first_ns, max(micros(b.ts)) * 1000 AS last_ns, b.variant,
  b.topic AS subject_topic, b.subscription AS subject_subscription,
  b.subscription_type AS measured_subscription_type, count(*) AS measured_entries,
  min_by(b.key, b.frame_no) AS measured_key,
  CAST(min_by(b.ledger_id, b.frame_no) AS STRING) AS measured_ledger_id,
  CAST(min_by(b.entry_id, b.frame_no) AS STRING) AS measured_entry_id,
  CAST(min_by(b.before_ledger_id, b.frame_no) AS STRING) AS measured_before_ledger_id,
  CAST(min_by(b.before_entry_id, b.frame_no) AS STRING) AS measured_before_entry_id,
  min_by(b.before_no, b.frame_no) AS frame_first_delivery,
  min(b.frame_no) AS frame_second_delivery
FROM reversed_pairs AS b
WHERE b.variant IS NOT NULL
GROUP BY b.capture, b.variant, b.topic, b.subscription, b.subscription_type
HAVING count(*) >= $entries
UNION ALL
SELECT
  h.capture, min(micros(h.ts)) * 1000 AS first_ns, max(micros(h.ts)) * 1000 AS last_ns,
  'key_at_two' AS variant, h.topic AS subject_topic, h.subscription AS subject_subscription,
  h.subscription_type AS measured_subscription_type, count(*) AS measured_entries,
  min_by(h.key, h.frame_no) AS measured_key,
  CAST(min_by(h.ledger_id, h.frame_no) AS STRING) AS measured_ledger_id,
  CAST(min_by(h.entry_id, h.frame_no) AS STRING) AS measured_entry_id,
  CAST(min_by(h.before_ledger_id, h.frame_no) AS STRING) AS measured_before_ledger_id,
  CAST(min_by(h.before_entry_id, h.frame_no) AS STRING) AS measured_before_entry_id,
  min_by(h.before_no, h.frame_no) AS frame_first_delivery,
  min(h.frame_no) AS frame_second_delivery
FROM key_deliveries AS h
WHERE
  h.consumer_no <> h.before_consumer AND h.is_redelivered = FALSE
  AND (
    h.before_outcome = 'unacked_at_end'
    OR (
      h.before_outcome = 'acked'
      AND h.before_acked_us - micros(h.ts) > $margin_s * 1000000
    )
  )
GROUP BY h.capture, h.topic, h.subscription, h.subscription_type
HAVING count(*) >= $entries
