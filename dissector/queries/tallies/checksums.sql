-- checksums: frames that can carry a checksum, by topic, and by connection
-- keys: grouping, direction, topic, head_capture, connection_id, client_ip, client_port, broker_ip,
--   broker_port, checksum, checksum_note, verdict
-- sums: frames
-- grouping says which keys are set: topic (direction and topic) or connection (the others). A
-- connection that spans several captures counts in its first one: head_capture.
WITH checked_frames AS (
  SELECT
    capture, connection_id, direction, producer_id, consumer_id, incarnation, topic, checksum,
    CASE WHEN checksum = 'not_evaluated' THEN checksum_note END AS checksum_note,
    CAST(NULL AS STRING) AS verdict, count(*) AS frames
  FROM frames
  WHERE checksum IN ('ok', 'absent', 'not_evaluated')
  GROUP BY ALL
  UNION ALL
  SELECT
    capture, connection_id, direction, producer_id, consumer_id, incarnation, topic, 'mismatch',
    NULL, verdict, count(*)
  FROM mismatches
  GROUP BY ALL
),
named_frames AS (
  SELECT
    n.capture, n.connection_id, n.direction,
    coalesce(n.topic, p.late_topic, c.late_topic) AS topic,
    n.checksum, n.checksum_note, n.verdict, n.frames
  FROM checked_frames AS n
  ANTI JOIN twins AS t USING (capture, connection_id)
  LEFT JOIN late_producers AS p USING (capture, connection_id, producer_id, incarnation)
  LEFT JOIN late_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
),
connection_counts AS (
  SELECT
    capture, connection_id, checksum, checksum_note, verdict, sum(frames) AS frames
  FROM named_frames
  GROUP BY capture, connection_id, checksum, checksum_note, verdict
)
SELECT
  capture, 'topic' AS grouping, direction, topic, CAST(NULL AS STRING) AS head_capture,
  CAST(NULL AS BIGINT) AS connection_id, CAST(NULL AS STRING) AS client_ip,
  CAST(NULL AS BIGINT) AS client_port, CAST(NULL AS STRING) AS broker_ip,
  CAST(NULL AS BIGINT) AS broker_port, checksum, checksum_note, verdict, sum(frames) AS frames
FROM named_frames
GROUP BY capture, direction, topic, checksum, checksum_note, verdict
UNION ALL
SELECT
  b.capture, 'connection', NULL, NULL, coalesce(m.head_capture, b.capture),
  coalesce(m.head_connection_id, b.connection_id), l.client_ip, l.client_port, l.broker_ip,
  l.broker_port, b.checksum, b.checksum_note, b.verdict, b.frames
FROM connection_counts AS b
LEFT JOIN moved AS m USING (capture, connection_id)
LEFT JOIN legs AS l
  ON l.capture = coalesce(m.head_capture, b.capture)
  AND l.connection_id = coalesce(m.head_connection_id, b.connection_id)
