-- Views of the events around a finding (dissector/report/timelines.py), for DuckDB only.

-- moments: a frame, or a connection's first or last packet, on a timeline
-- series: the kind of event. at_ns: when it was complete. frame_no: null for packets.
SELECT
  capture, connection_id, topic, subscription, at_ns, frame_no,
  CASE WHEN kind = 'publish' THEN 'send' ELSE 'request' END AS series
FROM (
  SELECT
    capture, connection_id, topic, CAST(NULL AS STRING) AS subscription, kind,
    request_last_ns AS at_ns, request_frame_no AS frame_no
  FROM exchanges
  WHERE kind IN ('publish', 'request')
) AS requests
UNION ALL
SELECT
  capture, connection_id, topic, CAST(NULL AS STRING), response_last_ns, response_frame_no,
  CASE
    WHEN outcome = 'error' AND kind = 'publish' THEN 'refused send'
    WHEN outcome = 'error' THEN 'refused request'
    ELSE 'receipt'
  END
FROM exchanges
WHERE response_frame_no IS NOT NULL
  AND (kind = 'publish' OR (kind = 'request' AND outcome = 'error'))
UNION ALL
SELECT
  capture, connection_id, topic, subscription, micros(ts) * 1000, frame_no,
  CASE WHEN is_redelivered THEN 'redelivery' ELSE 'delivery' END
FROM deliveries
UNION ALL
SELECT capture, connection_id, topic, subscription, micros(ts) * 1000, frame_no, 'grant'
FROM permits
WHERE event = 'grant'
UNION ALL
SELECT capture, connection_id, topic, subscription, micros(ts) * 1000, frame_no, 'ack'
FROM acks
UNION ALL
SELECT capture, connection_id, topic, subscription, last_ts_ns, frame_no, 'close'
FROM frames
ANTI JOIN (
  SELECT capture, connection_id FROM connections WHERE leg = 'broker' AND twin_connection_id > -2
) AS l USING (capture, connection_id)
WHERE command IN ('CLOSE_PRODUCER', 'CLOSE_CONSUMER')
UNION ALL
SELECT capture, connection_id, CAST(NULL AS STRING), CAST(NULL AS STRING), first_ts_ns, NULL, 'open'
FROM connections
WHERE started = 'syn'
UNION ALL
SELECT capture, connection_id, CAST(NULL AS STRING), CAST(NULL AS STRING), last_ts_ns, NULL, 'end'
FROM connections
WHERE ended IN ('fin', 'rst');
