-- redelivered: a delivery of an entry that was delivered before
-- first: 50 by at_us, capture, frame_no, connection_id
-- previous_frame_no: of the same capture alone.
SELECT
  r.capture, r.connection_id, r.frame_no, r.previous_frame_no, f.last_packet AS packet, r.at_us,
  r.topic, r.subscription, r.consumer_id, r.incarnation, r.consumer_name, r.ledger_id, r.entry_id,
  r.message_count, r.redelivery_count, r.redelivery_cause
FROM (
  SELECT
    own_capture AS capture, own_connection_id AS connection_id, frame_no,
    CASE WHEN previous_capture IS NULL THEN previous_frame_no END AS previous_frame_no,
    micros(ts) AS at_us, named_topic AS topic, named_subscription AS subscription, consumer_id,
    incarnation, named_consumer AS consumer_name, ledger_id, entry_id, message_count,
    redelivery_count, redelivery_cause,
    row_number() OVER (
      PARTITION BY own_capture
      ORDER BY ts ASC, frame_no ASC NULLS LAST, own_connection_id ASC
    ) AS place
  FROM received
  WHERE is_redelivered
) AS r
LEFT JOIN frames AS f
  ON f.capture = r.capture AND f.connection_id = r.connection_id AND f.frame_no = r.frame_no
WHERE r.place <= 50
