-- redelivered: a delivery of an entry that was delivered before
-- first: 50 by at_us, capture, frame_no, connection_id
-- of: redelivery_cause
-- Only the first ones of each connection and cause are ranked, in order of its frames.
-- previous_frame_no: null if it is in another capture. closed_first_by: of the previous delivery's
-- connection; is_refused: the broker refused a send there within a second before it ended.
WITH connection_examples AS (
  SELECT *
  FROM received
  WHERE is_redelivered
  QUALIFY row_number() OVER (
    PARTITION BY capture, connection_id, redelivery_cause ORDER BY order_no ASC
  ) <= 50
),
examples AS (
  SELECT *
  FROM connection_examples
  QUALIFY row_number() OVER (
    PARTITION BY own_capture, redelivery_cause
    ORDER BY ts ASC NULLS LAST, frame_no ASC NULLS LAST, own_connection_id ASC
  ) <= 50
),
previous_connections AS ( -- Connections of the previous deliveries, and their joined connections.
  SELECT DISTINCT
    c.before_capture, c.before_connection_id,
    coalesce(m.head_capture, c.before_capture) AS capture,
    coalesce(m.head_connection_id, c.before_connection_id) AS connection_id
  FROM (
    SELECT
      coalesce(previous_capture, own_capture) AS before_capture,
      previous_connection_id AS before_connection_id
    FROM examples
    WHERE redelivery_cause = 'reconnect'
  ) AS c
  LEFT JOIN moved AS m
    ON m.capture = c.before_capture AND m.connection_id = c.before_connection_id
),
connection_ends AS ( -- Their ends, in whichever capture.
  SELECT
    b.before_capture, b.before_connection_id, c.closed_first_by,
    max(coalesce(c.last_ts_ns - e.response_last_ns <= 1000000000, FALSE)) AS is_refused
  FROM previous_connections AS b
  JOIN connections AS c USING (capture, connection_id)
  LEFT JOIN exchanges AS e
    ON e.capture = c.capture AND e.connection_id = c.connection_id
    AND e.kind = 'publish' AND e.outcome = 'error'
  WHERE c.ended <> 'capture_end'
  GROUP BY b.before_capture, b.before_connection_id, c.closed_first_by
)
SELECT
  r.own_capture AS capture, r.own_connection_id AS connection_id, r.frame_no,
  CASE WHEN r.previous_capture IS NULL THEN r.previous_frame_no END AS previous_frame_no,
  f.last_packet AS packet, micros(r.ts) AS at_us, r.named_topic AS topic,
  r.named_subscription AS subscription, r.consumer_id, r.incarnation,
  r.named_consumer AS consumer_name, r.ledger_id, r.entry_id, r.message_count,
  r.redelivery_count, r.redelivery_cause, e.closed_first_by, e.is_refused
FROM examples AS r
LEFT JOIN frames AS f
  ON f.capture = r.own_capture AND f.connection_id = r.own_connection_id
  AND f.frame_no = r.frame_no
LEFT JOIN connection_ends AS e
  ON e.before_capture = coalesce(r.previous_capture, r.own_capture)
  AND e.before_connection_id = r.previous_connection_id AND r.redelivery_cause = 'reconnect'
