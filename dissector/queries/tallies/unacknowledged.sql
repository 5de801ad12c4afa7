-- unacknowledged: the oldest delivery of a subscription that is unacknowledged at the end
-- first: 1 by waited_us desc, capture, frame_no, connection_id
-- of: topic, subscription
-- waited_us: until the end of the unit of captures that its own belongs to.
SELECT
  r.capture, r.named_topic AS topic, r.named_subscription AS subscription, r.connection_id,
  r.consumer_id, r.incarnation, r.named_consumer AS consumer_name, r.ledger_id, r.entry_id,
  r.frame_no, f.last_packet AS packet, micros(r.ts) AS at_us,
  greatest(e.end_us - micros(r.ts), 0) AS waited_us
FROM (
  SELECT
    q.*,
    row_number() OVER (
      PARTITION BY q.capture, q.named_topic, q.named_subscription
      ORDER BY q.ts ASC NULLS LAST, q.frame_no ASC NULLS LAST, q.connection_id ASC
    ) AS place
  FROM received AS q
  WHERE q.outcome = 'unacked_at_end'
) AS r
JOIN unit_ends AS e ON e.capture = r.capture
LEFT JOIN frames AS f
  ON f.capture = r.capture AND f.connection_id = r.connection_id AND f.frame_no = r.frame_no
WHERE r.place = 1
