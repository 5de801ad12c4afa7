-- Views of events and levels with their times, for a table over time; parsed like `comparing.sql`.

-- happenings: an event that is counted, and its time
SELECT 'sends' AS measure, request_last_ns AS at_ns, 1 AS times
FROM publishes
WHERE is_request
UNION ALL
SELECT CASE WHEN is_refused THEN 'refused' ELSE 'receipts' END, response_last_ns, 1
FROM single_exchanges
WHERE kind = 'publish' AND response_last_ns IS NOT NULL
UNION ALL
SELECT 'deliveries', micros(ts) * 1000, 1
FROM received
UNION ALL
SELECT 'acks', micros(ts) * 1000, 1
FROM acknowledged
WHERE action = 'ack'
UNION ALL
SELECT 'opened', c.first_ts_ns, 1
FROM connections AS c
ANTI JOIN twins AS t USING (capture, connection_id)
WHERE c.started = 'syn'
UNION ALL
SELECT 'closed', c.last_ts_ns, 1
FROM connections AS c
ANTI JOIN twins AS t USING (capture, connection_id)
WHERE c.ended IN ('fin', 'rst')
UNION ALL
SELECT 'lost_bytes', micros(ts) * 1000, bytes
FROM notices
WHERE code = 'gap_lost' AND bytes > 0;

-- held_permits: a balance of permits of a consumer, and the time range in which it was valid
-- It is valid until the next change or until the observation ends, but a capture's end ends none.
SELECT
  p.available_after AS permits, p.at_us * 1000 AS begin_ns,
  CASE
    WHEN NOT p.is_last OR c.ended NOT IN ('capture_end', 'idle')
      OR n.end_us < floor_div(c.last_ts_ns, 1000)
      THEN p.until_us * 1000
  END AS end_ns
FROM permit_changes AS p
JOIN permit_consumers AS n USING (consumer_no)
LEFT JOIN connections AS c ON c.capture = n.capture AND c.connection_id = n.connection_id
WHERE p.kind <> 2 AND p.available_after IS NOT NULL;

-- asked_again: a consumer's redelivery request for an id, or without an id for all; and its time
-- Rows of acks have their own capture; deliveries of joined captures have the first capture of
-- their connection. The incarnation is not compared: a closed consumer sends no requests.
SELECT
  coalesce(m.head_capture, a.capture) AS capture,
  coalesce(m.head_connection_id, a.connection_id) AS connection_id,
  a.consumer_id, a.ledger_id, a.entry_id, micros(a.ts) * 1000 AS at_ns
FROM acks AS a
LEFT JOIN moved AS m USING (capture, connection_id)
WHERE a.action = 'redeliver';

-- held_messages: the messages of a delivery, and the time range in which they were unacknowledged
SELECT
  coalesce(d.message_count, 1) AS messages, micros(d.ts) * 1000 AS begin_ns,
  CASE d.outcome
    WHEN 'acked' THEN micros(d.ts) * 1000 + d.ack_latency_ns
    WHEN 'redelivery_requested' THEN least(i.at_ns, w.at_ns)
    WHEN 'consumer_closed' THEN coalesce(z.closed_us * 1000, c.last_ts_ns)
    WHEN 'conn_closed' THEN c.last_ts_ns
  END AS end_ns
FROM received AS d
ASOF LEFT JOIN (SELECT * FROM asked_again WHERE entry_id IS NOT NULL) AS i
  ON i.capture = d.capture AND i.connection_id = d.connection_id
  AND i.consumer_id = d.consumer_id
  AND i.ledger_id = d.ledger_id AND i.entry_id = d.entry_id
  AND micros(d.ts) * 1000 <= i.at_ns
ASOF LEFT JOIN (SELECT * FROM asked_again WHERE entry_id IS NULL) AS w
  ON w.capture = d.capture AND w.connection_id = d.connection_id
  AND w.consumer_id = d.consumer_id
  AND micros(d.ts) * 1000 <= w.at_ns
LEFT JOIN connections AS c ON c.capture = d.capture AND c.connection_id = d.connection_id
LEFT JOIN closings AS z
  ON z.capture = d.capture AND z.connection_id = d.connection_id
  AND z.consumer_id = d.consumer_id AND z.incarnation = d.incarnation
WHERE d.outcome IN (
    'acked', 'redelivery_requested', 'consumer_closed', 'conn_closed', 'unacked_at_end'
  );

-- levels: a change of the totals of all consumers: permits left, and messages not yet acked
SELECT begin_ns AS at_ns, permits, 1 AS permits_known, 0 AS unacked FROM held_permits
UNION ALL
SELECT end_ns, -permits, -1, 0 FROM held_permits WHERE end_ns IS NOT NULL
UNION ALL
SELECT begin_ns, 0, 0, messages FROM held_messages
UNION ALL
SELECT end_ns, 0, 0, -messages FROM held_messages WHERE end_ns IS NOT NULL;
