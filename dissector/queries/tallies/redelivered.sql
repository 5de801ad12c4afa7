-- redelivered: a delivery of an entry that was delivered before
-- first: 50 by at_us, capture, frame_no, connection_id
-- Of each connection its first ones count, in order of its frames. previous_frame_no: of the same
-- capture alone.
WITH of_connections AS (
  SELECT
    r.*,
    row_number() OVER (PARTITION BY r.capture, r.connection_id ORDER BY r.order_no ASC) AS place
  FROM received AS r
  WHERE r.is_redelivered
),
of_captures AS (
  SELECT
    c.*,
    row_number() OVER (
      PARTITION BY c.own_capture
      ORDER BY c.ts ASC NULLS LAST, c.frame_no ASC NULLS LAST, c.own_connection_id ASC
    ) AS place_of_all
  FROM of_connections AS c
  WHERE c.place <= 50
)
SELECT
  r.own_capture AS capture, r.own_connection_id AS connection_id, r.frame_no,
  CASE WHEN r.previous_capture IS NULL THEN r.previous_frame_no END AS previous_frame_no,
  f.last_packet AS packet, micros(r.ts) AS at_us, r.named_topic AS topic,
  r.named_subscription AS subscription, r.consumer_id, r.incarnation,
  r.named_consumer AS consumer_name, r.ledger_id, r.entry_id, r.message_count,
  r.redelivery_count, r.redelivery_cause
FROM of_captures AS r
LEFT JOIN frames AS f
  ON f.capture = r.own_capture AND f.connection_id = r.own_connection_id
  AND f.frame_no = r.frame_no
WHERE r.place_of_all <= 50
