/*
number = "D07"
code = "key_shared_blocked"
title = "A consumer that joined waits for older messages of another one"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_waited_s"
references = ["apache/pulsar#8115", "apache/pulsar#10167", "apache/pulsar#12208", "apache/pulsar#15705", "apache/pulsar#20885", "apache/pulsar#21656", "apache/pulsar#23307", "apache/pulsar PR 20776", "apache/pulsar PR 8292", "apache/pulsar PR 23352"]
fires = []
silent = ["cpp-s07_keyshared_rq0.pcap", "java-j07_keys.pcap", "java-j01_plain.pcap"]

[thresholds.waited_s]
value = 1.0
unit = "s"
why = "brokers send what waits within milliseconds while there are permits; a second is far above"

[thresholds.open_s]
value = 5.0
unit = "s"
why = "without an end that shows the cause, the wait has to be longer"

[thresholds.released_s]
value = 1.0
unit = "s"
why = "the broker looks again when an acknowledgement comes, not by a timer"

[thresholds.keys]
value = 10
unit = "distinct keys"
why = "with fewer a consumer may get no key at all"

[text]
what = "Consumer {consumer_name} joined {subscription} on {topic} (Key_Shared[, broker {server_version}]), had {available} permits and got nothing for {waited_s} s; {held} messages that had been delivered before it joined {held|was|were} unacknowledged at other consumers, the oldest at {owner_name}. Its first message came {released_s} s after the last of them was acknowledged."
known = "The join, every delivery and every ACK of the subscription's consumers are in the capture; what came first had waited for {first_waited_s} s."
rival = "Consumers outside of this capture that hold older messages; or messages of these keys that came only then."
decides = "The broker's version: before 4.0 a consumer that joins waits for all that was delivered before; since then (apache/pulsar PR 23352) only for messages of the same keys."
do = "Acknowledge the oldest messages first, beginning with frame {oldest_held} at {owner_name}; a consumer that never acknowledges one message holds up all that join later. From 4.0 on it holds up its keys only."

[variant.still]
whole = "the end of a window is no end: more may come in the next"
title = "A consumer that joined still waits while another one holds older messages"
what = "Consumer {consumer_name} joined {subscription} on {topic} (Key_Shared[, broker {server_version}]), had {available} permits and got nothing for {waited_s} s, to the end of the capture; {held} messages that had been delivered before it joined {held|was|were} unacknowledged at other consumers all the time, the oldest at {owner_name}, and an entry that was stored came to nobody."
known = "The join, every delivery and every ACK of the subscription's consumers, and the receipt of the entry that waits, are in the capture."
rival = "Consumers outside of this capture that got the entry; a limit of unacknowledged messages; or keys none of which is this consumer's."

[variant.few_keys]
severity = "info"
title = "A consumer that joined got nothing, with few keys"
rival = "With {keys_seen} keys a consumer may have none of them: the capture cannot tell which it was."
decides = "The key ranges of the subscription's consumers in the topic's statistics."
*/
WITH consumer_lifetimes AS (
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription,
    min(c.first_us) AS opened_us, min(c.first_delivery_us) AS first_delivery_us,
    min(c.first_delivery_frame_no) AS first_delivery_frame_no,
    min(c.second) FILTER (WHERE c.first_delivery_us IS NOT NULL) AS first_delivery_second,
    max_by(c.last_available, c.second) AS available, min_by(c.last_available, c.second) AS had,
    max(floor_div(c.link_last_ns, 1000)) AS link_last_us
  FROM consumer_seconds AS c
  WHERE c.subscription_type = 'Key_Shared'
  GROUP BY c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription
),
joined_consumers AS (
  SELECT
    l.*, n.consumer_name, n.client_ip, n.server_version, n.opened_frame_no,
    coalesce(l.first_delivery_us, l.link_last_us) - l.opened_us AS waited_us
  FROM consumer_lifetimes AS l
  JOIN pulsar_consumers AS n
    ON n.capture = l.capture AND n.connection_id = l.connection_id
    AND n.consumer_id = l.consumer_id AND n.incarnation = l.incarnation
  WHERE
    n.opened_frame_no IS NOT NULL
    AND coalesce(l.first_delivery_us, l.link_last_us) - l.opened_us >= $waited_s * 1000000
    AND (l.had > 0 OR l.first_delivery_us IS NOT NULL)
    AND (l.first_delivery_us IS NOT NULL OR n.closed_by = 'capture_end')
  ORDER BY l.capture, n.opened_frame_no
  LIMIT 10000
),
delivered_keys AS (
  SELECT
    d.capture, d.topic, d.subscription, d.connection_id, d.consumer_id, d.incarnation, d.frame_no,
    d.consumer_name, d.message_count, micros(d.ts) AS at_us, d.ledger_id, d.entry_id,
    d.publish_to_delivery_ns, d.is_redelivered,
    micros(d.ts) + floor_div(d.ack_latency_ns, 1000) AS ack_us
  FROM deliveries AS d
  WHERE
    (d.capture, d.topic, d.subscription) IN (
      SELECT capture, topic, subscription FROM joined_consumers
    )
),
unacked_at_join AS (
  SELECT
    j.capture, j.connection_id, j.consumer_id, j.incarnation,
    CAST(sum(g.message_count) AS BIGINT) AS held, min(g.frame_no) AS oldest_frame_no,
    min_by(g.consumer_name, g.frame_no) AS owner_name, max(g.ack_us) AS released_us,
    CAST(
      sum(CASE WHEN g.ack_us IS NULL OR g.ack_us > j.link_last_us THEN g.message_count ELSE 0 END)
        AS BIGINT
    ) AS never_released
  FROM joined_consumers AS j
  JOIN delivered_keys AS g USING (capture, topic, subscription)
  WHERE
    g.at_us < j.opened_us AND (g.ack_us IS NULL OR g.ack_us > j.opened_us)
    AND (
      g.connection_id <> j.connection_id OR g.consumer_id <> j.consumer_id
      OR g.incarnation <> j.incarnation
    )
  GROUP BY j.capture, j.connection_id, j.consumer_id, j.incarnation
),
keys AS (
  SELECT j.capture, j.topic, count(DISTINCT m.partition_key) AS keys_seen
  FROM (SELECT DISTINCT capture, topic FROM joined_consumers) AS j
  JOIN (
    SELECT capture, topic, partition_key
    FROM messages
    WHERE
      partition_key IS NOT NULL AND (capture, topic) IN (SELECT capture, topic FROM joined_consumers)
  ) AS m USING (capture, topic)
  GROUP BY j.capture, j.topic
),
undelivered_entries AS ( -- Entries stored long before the end that were delivered to no consumer.
  SELECT
    j.capture, j.connection_id, j.consumer_id, j.incarnation, min(e.request_frame_no) AS frame_no
  FROM joined_consumers AS j
  JOIN (
    SELECT capture, topic, ledger_id, entry_id, request_frame_no, response_last_ns
    FROM exchanges
    WHERE
      kind = 'publish' AND outcome = 'ok' AND ledger_id IS NOT NULL
      AND (capture, topic) IN (SELECT capture, topic FROM joined_consumers)
  ) AS e USING (capture, topic)
  LEFT JOIN delivered_keys AS g
    ON g.capture = e.capture AND g.topic = j.topic AND g.subscription = j.subscription
    AND g.ledger_id = e.ledger_id AND g.entry_id = e.entry_id
  WHERE
    g.entry_id IS NULL AND e.response_last_ns >= j.opened_us * 1000
    AND e.response_last_ns <= j.link_last_us * 1000 - $open_s * 1000000000
  GROUP BY j.capture, j.connection_id, j.consumer_id, j.incarnation
)
SELECT
  j.capture, j.opened_us * 1000 AS first_ns, (j.opened_us + j.waited_us) * 1000 AS last_ns,
  CASE
    WHEN coalesce(k.keys_seen, 0) < $keys THEN 'few_keys'
    WHEN j.first_delivery_us IS NULL THEN 'still'
    ELSE ''
  END AS variant,
  j.topic AS subject_topic, j.subscription AS subject_subscription,
  j.consumer_name AS subject_consumer_name, j.client_ip AS subject_client_ip,
  j.waited_us / 1e6 AS measured_waited_s, j.had AS measured_available,
  h.held AS measured_held, h.owner_name AS measured_owner_name,
  (j.first_delivery_us - h.released_us) / 1e6 AS measured_released_s,
  g.publish_to_delivery_ns / 1e9 AS measured_first_waited_s,
  coalesce(k.keys_seen, 0) AS measured_keys_seen, j.server_version AS measured_server_version,
  j.opened_frame_no AS frame_subscribe, h.oldest_frame_no AS frame_oldest_held,
  j.first_delivery_frame_no AS frame_first_message, m.frame_no AS frame_send_that_waits
FROM joined_consumers AS j
JOIN unacked_at_join AS h USING (capture, connection_id, consumer_id, incarnation)
LEFT JOIN delivered_keys AS g ON g.capture = j.capture AND g.frame_no = j.first_delivery_frame_no
LEFT JOIN keys AS k ON k.capture = j.capture AND k.topic = j.topic
LEFT JOIN undelivered_entries AS m
  ON m.capture = j.capture AND m.connection_id = j.connection_id
  AND m.consumer_id = j.consumer_id AND m.incarnation = j.incarnation
WHERE
  (
    j.first_delivery_us IS NOT NULL AND h.never_released = 0 AND NOT g.is_redelivered
    AND g.publish_to_delivery_ns >= $waited_s * 500000000
    AND j.first_delivery_us - h.released_us BETWEEN 0 AND $released_s * 1000000
  )
  OR (
    j.first_delivery_us IS NULL AND h.never_released > 0 AND m.frame_no IS NOT NULL
    AND j.waited_us >= $open_s * 1000000
  )
