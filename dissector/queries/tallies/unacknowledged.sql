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
  SELECT *
  FROM received
  WHERE outcome = 'unacked_at_end'
  QUALIFY row_number() OVER (
    PARTITION BY capture, named_topic, named_subscription
    ORDER BY ts ASC NULLS LAST, frame_no ASC NULLS LAST, connection_id ASC
  ) = 1
) AS r
JOIN unit_ends AS e USING (capture)
LEFT JOIN frames AS f USING (capture, connection_id, frame_no)
