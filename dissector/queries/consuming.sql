-- Views over what consumers received and acknowledged.

-- received: a delivery, with names that were learnt late
-- took_ns: time since the publish; null for redeliveries and delayed messages.
SELECT
  d.capture, d.connection_id, d.consumer_id, d.incarnation, d.own_capture, d.own_connection_id,
  d.order_no, d.frame_no, d.ts, d.ledger_id, d.entry_id, d.partition, d.message_count,
  d.redelivery_count, d.is_redelivered, d.redelivery_cause, d.previous_capture,
  d.previous_connection_id, d.previous_frame_no, d.outcome, d.messages_acked, d.ack_latency_ns,
  d.lag, coalesce(d.deliver_at_ms > 0, FALSE) AS is_delayed,
  CASE
    WHEN NOT coalesce(d.is_redelivered, FALSE) AND NOT coalesce(d.deliver_at_ms > 0, FALSE)
      THEN d.publish_to_delivery_ns
  END AS took_ns,
  coalesce(d.topic, n.late_topic) AS named_topic,
  coalesce(d.subscription, n.late_subscription) AS named_subscription,
  coalesce(d.consumer_name, n.late_name) AS named_consumer
FROM deliveries AS d
ANTI JOIN twins AS t USING (capture, connection_id)
LEFT JOIN unnamed_consumers AS n USING (capture, connection_id, consumer_id, incarnation);

-- acknowledged: an id that a consumer acknowledged or requested again, with names learnt late
SELECT
  a.capture, a.connection_id, a.consumer_id, a.frame_no, a.ts, a.action, a.ack_type, a.request_id,
  a.ledger_id, a.entry_id, a.partition, a.validation_error, a.lag,
  coalesce(a.topic, n.late_topic) AS named_topic,
  coalesce(a.subscription, n.late_subscription) AS named_subscription
FROM acks AS a
ANTI JOIN twins AS t USING (capture, connection_id)
LEFT JOIN unnamed_consumers AS n USING (capture, connection_id, consumer_id, incarnation);

-- acked_commands: ACK commands of a connection with equal fields, and the number of ids in them
-- materialized
-- All ids of a command belong to one consumer and share its other fields.
-- 32 frames share a row, one bit each: a row per command took twice as long.
SELECT
  c.capture, c.connection_id, c.topic, c.subscription, c.ack_type, c.is_answered,
  c.validation_error, sum(bit_count(c.commands)) AS ack_commands, sum(c.ids) AS ids
FROM (
  SELECT
    a.capture, a.connection_id, a.named_topic AS topic, a.named_subscription AS subscription,
    a.ack_type, a.request_id IS NOT NULL AS is_answered, a.validation_error,
    floor_div(a.frame_no, 32) AS block,
    bit_or(CAST(1 AS BIGINT) << CAST(a.frame_no & 31 AS INT)) AS commands, count(*) AS ids
  FROM acknowledged AS a
  WHERE a.action = 'ack'
  GROUP BY ALL
) AS c
GROUP BY ALL;

-- older_consumers: a consumer that was opened before the capture
-- materialized
SELECT DISTINCT capture, connection_id, consumer_id, incarnation
FROM consumers
WHERE opened_frame_no IS NULL;

-- unit_ends: a capture, and the end of the unit of captures that it belongs to
-- materialized
SELECT u.capture, e.end_us
FROM units AS u
JOIN (
  SELECT v.unit, floor_div(max(f.last_ts_ns), 1000) AS end_us
  FROM capture_files AS f
  JOIN units AS v USING (capture)
  GROUP BY v.unit
) AS e USING (unit);

-- passed: a delivery that was never acked although a later one to the same consumer was
-- materialized
-- The application receives the messages of a client's queue in order, so it had a message that it
-- did not ack. A delivery that the consumer discarded as damaged counts whatever was acked later.
SELECT
  r.own_capture AS capture, r.own_connection_id AS connection_id, r.consumer_id, r.incarnation,
  r.named_topic AS topic, r.named_subscription AS subscription,
  r.named_consumer AS consumer_name, r.ledger_id, r.entry_id, r.message_count, r.outcome,
  micros(r.ts) AS at_us, r.frame_no
FROM received AS r
LEFT JOIN (
  SELECT capture, connection_id, consumer_id, incarnation, max(order_no) AS last_acked
  FROM deliveries_around
  WHERE outcome = 'acked'
  GROUP BY capture, connection_id, consumer_id, incarnation
) AS a
  ON a.capture = r.capture AND a.connection_id = r.connection_id
  AND a.consumer_id IS NOT DISTINCT FROM r.consumer_id
  AND a.incarnation IS NOT DISTINCT FROM r.incarnation
WHERE
  r.outcome = 'discarded'
  OR (
    r.outcome IN ('consumer_closed', 'conn_closed', 'unacked_at_end') AND r.order_no < a.last_acked
  );
