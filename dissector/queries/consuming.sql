-- Views over what consumers received and acknowledged.

-- received: a delivery, with names that were learnt late
-- is_older: its consumer was there before the capture.
SELECT
  d.*,
  coalesce(d.topic, n.late_topic) AS named_topic,
  coalesce(d.subscription, n.late_subscription) AS named_subscription,
  coalesce(d.consumer_name, n.late_name) AS named_consumer
FROM deliveries AS d
LEFT JOIN late_consumers AS n
  ON n.capture = d.capture AND n.connection_id = d.connection_id
  AND n.consumer_id = d.consumer_id AND n.incarnation = d.incarnation
WHERE NOT EXISTS (
  SELECT 1 FROM twins AS t WHERE t.capture = d.capture AND t.connection_id = d.connection_id
);

-- acknowledged: an id that a consumer acknowledged or asked for again, with late names
SELECT
  a.*,
  coalesce(a.topic, n.late_topic) AS named_topic,
  coalesce(a.subscription, n.late_subscription) AS named_subscription
FROM acks AS a
LEFT JOIN late_consumers AS n
  ON n.capture = a.capture AND n.connection_id = a.connection_id
  AND n.consumer_id = a.consumer_id AND n.incarnation = a.incarnation
WHERE NOT EXISTS (
  SELECT 1 FROM twins AS t WHERE t.capture = a.capture AND t.connection_id = a.connection_id
);

-- older_consumers: a consumer that was there before the capture
SELECT DISTINCT capture, connection_id, consumer_id, incarnation
FROM consumers
WHERE opened_frame_no IS NULL;

-- unit_ends: when the captures that are read together with one end
SELECT u.capture, e.end_us
FROM units AS u
JOIN (
  SELECT v.unit, floor_div(max(f.last_ts_ns), 1000) AS end_us
  FROM capture_files AS f
  JOIN units AS v ON v.capture = f.capture
  GROUP BY v.unit
) AS e ON e.unit = u.unit;

-- passed: a delivery that nobody acked although a later one to the same consumer was
-- A client takes what was put in its queue in order: one that is missing was kept by the
-- application. One that its consumer discarded, as damaged, is left behind whatever comes later.
SELECT
  s.capture AS head_capture, s.connection_id AS head_connection_id, s.own_capture AS capture,
  s.own_connection_id AS connection_id, s.consumer_id, s.incarnation,
  s.named_topic AS topic, s.named_subscription AS subscription,
  s.named_consumer AS consumer_name, s.ledger_id, s.entry_id, s.message_count, s.outcome,
  micros(s.ts) AS at_us, s.frame_no
FROM (
  SELECT
    r.*,
    max(CASE WHEN r.outcome = 'acked' THEN r.order_no END) OVER (
      PARTITION BY r.capture, r.connection_id, r.consumer_id, r.incarnation
    ) AS last_acked
  FROM received AS r
) AS s
WHERE
  s.outcome = 'discarded'
  OR (
    s.outcome IN ('consumer_closed', 'conn_closed', 'unacked_at_end')
    AND s.order_no < s.last_acked
  );
