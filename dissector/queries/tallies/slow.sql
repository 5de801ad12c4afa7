-- slow: an exchange with a long latency; list: publish, or other
-- first: 50 by latency_ns desc, request_last_ns, capture, request_frame_no, connection_id
-- of: list
-- Only rows of the longest buckets that together have fifty are sorted: reading rows twice takes
-- less than keeping all. Refused publishes are excluded. An answer in another capture has no frame
-- and no packet number here.
WITH by_bucket AS (
  SELECT
    e.own_capture, CASE WHEN e.kind = 'publish' THEN 'publish' ELSE 'other' END AS list,
    e.latency_bucket, count(*) AS exchanges
  FROM single_exchanges AS e
  WHERE
    e.latency_ns IS NOT NULL
    AND e.kind IN ('publish', 'request', 'auth', 'ack', 'ping', 'consume')
    AND NOT (e.kind = 'publish' AND coalesce(e.outcome, '') = 'error')
  GROUP BY ALL
),
bucket_ranks AS (
  SELECT
    b.*,
    sum(b.exchanges) OVER (
      PARTITION BY b.own_capture, b.list ORDER BY b.latency_bucket DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS more
  FROM by_bucket AS b
),
bounds AS (
  SELECT own_capture, list, min(latency_bucket) AS least_bucket
  FROM bucket_ranks
  WHERE coalesce(more, 0) < 50
  GROUP BY own_capture, list
),
slowest_exchanges AS (
  SELECT
    e.*, b.list,
    CASE WHEN e.response_capture IS NULL THEN e.response_frame_no END AS own_response_frame_no
  FROM single_exchanges AS e
  JOIN bounds AS b
    ON b.own_capture = e.own_capture AND b.least_bucket <= e.latency_bucket
    AND b.list = CASE WHEN e.kind = 'publish' THEN 'publish' ELSE 'other' END
  WHERE
    e.latency_ns IS NOT NULL
    AND e.kind IN ('publish', 'request', 'auth', 'ack', 'ping', 'consume')
    AND NOT (e.kind = 'publish' AND coalesce(e.outcome, '') = 'error')
  QUALIFY row_number() OVER (
    PARTITION BY e.own_capture, b.list
    ORDER BY
      e.latency_ns DESC, e.request_last_ns ASC NULLS LAST, e.request_frame_no ASC NULLS LAST,
      e.own_connection_id ASC
  ) <= 50
),
frame_keys AS (
  SELECT own_capture, own_connection_id, request_frame_no AS frame_no FROM slowest_exchanges
  UNION
  SELECT own_capture, own_connection_id, own_response_frame_no FROM slowest_exchanges
),
packets AS (
  SELECT f.capture, f.connection_id, f.frame_no, f.last_packet
  FROM frames AS f
  JOIN frame_keys AS w
    ON w.own_capture = f.capture AND w.own_connection_id = f.connection_id
    AND w.frame_no = f.frame_no
)
SELECT
  e.own_capture AS capture, e.own_connection_id AS connection_id, e.list, e.kind,
  e.request_command, e.response_command, e.outcome, e.tainted, e.latency_ns, e.transmit_ns,
  e.request_last_ns, coalesce(e.topic, p.late_topic, c.late_topic) AS topic,
  coalesce(e.subscription, c.late_subscription) AS subscription,
  coalesce(e.producer_name, p.late_name) AS producer_name, e.producer_id, e.consumer_id,
  e.incarnation, e.sequence_id, e.message_count, e.request_bytes, e.outstanding_before,
  e.client_ip, e.broker_ip, e.request_frame_no,
  e.own_response_frame_no AS response_frame_no,
  q.last_packet AS request_packet, a.last_packet AS response_packet
FROM slowest_exchanges AS e
LEFT JOIN late_producers AS p USING (capture, connection_id, producer_id, incarnation)
LEFT JOIN late_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
LEFT JOIN packets AS q
  ON q.capture = e.own_capture AND q.connection_id = e.own_connection_id
  AND q.frame_no = e.request_frame_no
LEFT JOIN packets AS a
  ON a.capture = e.own_capture AND a.connection_id = e.own_connection_id
  AND a.frame_no = e.own_response_frame_no
