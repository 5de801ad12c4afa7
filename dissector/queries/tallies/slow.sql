-- slow: an exchange that took long; list: publish, or other
-- first: 50 by latency_ns desc, request_last_ns, capture, request_frame_no, connection_id
-- of: list
-- Refused publishes are not timed. An answer in another capture has no frame and no packet here.
WITH timed AS (
  SELECT e.*, CASE WHEN e.kind = 'publish' THEN 'publish' ELSE 'other' END AS list
  FROM exchanges AS e
  WHERE
    e.latency_ns IS NOT NULL
    AND e.kind IN ('publish', 'request', 'auth', 'ack', 'ping', 'consume')
    AND NOT (e.kind = 'publish' AND coalesce(e.outcome, '') = 'error')
    AND NOT EXISTS (
      SELECT 1 FROM twins AS t WHERE t.capture = e.capture AND t.connection_id = e.connection_id
    )
),
ranked AS (
  SELECT
    t.*,
    row_number() OVER (
      PARTITION BY t.own_capture, t.list
      ORDER BY
        t.latency_ns DESC, t.request_last_ns ASC NULLS LAST, t.request_frame_no ASC NULLS LAST,
        t.own_connection_id ASC
    ) AS place
  FROM timed AS t
)
SELECT
  e.own_capture AS capture, e.own_connection_id AS connection_id, e.list, e.kind,
  e.request_command, e.response_command, e.outcome, e.tainted, e.latency_ns, e.transmit_ns,
  e.request_last_ns, coalesce(e.topic, p.late_topic, c.late_topic) AS topic,
  coalesce(e.subscription, c.late_subscription) AS subscription,
  coalesce(e.producer_name, p.late_name) AS producer_name, e.producer_id, e.consumer_id,
  e.incarnation, e.sequence_id, e.message_count, e.request_bytes, e.outstanding_before,
  e.client_ip, e.broker_ip, e.request_frame_no,
  CASE WHEN e.response_capture IS NULL THEN e.response_frame_no END AS response_frame_no,
  q.last_packet AS request_packet, a.last_packet AS response_packet
FROM ranked AS e
LEFT JOIN late_producers AS p
  ON p.capture = e.capture AND p.connection_id = e.connection_id
  AND p.producer_id = e.producer_id AND p.incarnation = e.incarnation
LEFT JOIN late_consumers AS c
  ON c.capture = e.capture AND c.connection_id = e.connection_id
  AND c.consumer_id = e.consumer_id AND c.incarnation = e.incarnation
LEFT JOIN frames AS q
  ON q.capture = e.own_capture AND q.connection_id = e.own_connection_id
  AND q.frame_no = e.request_frame_no
LEFT JOIN frames AS a
  ON e.response_capture IS NULL AND a.capture = e.own_capture
  AND a.connection_id = e.own_connection_id AND a.frame_no = e.response_frame_no
WHERE e.place <= 50
