-- counted_frames: frames by command, checksum result and whether the broker repeats
-- keys: direction, command, status, checksum, is_repeated, topic, subscription
-- sums: frames, frame_bytes
-- Twins count too, but without checksum, repetition and names, so that these count once. Frames are
-- read because a row of deliveries is written only when its outcome is known.
WITH frame_groups AS (
  SELECT
    capture, connection_id, producer_id, consumer_id, incarnation, direction, command, status,
    checksum, coalesce(redelivery_count > 0, FALSE) AS is_repeated, topic, subscription,
    count(*) AS frames, sum(frame_bytes) AS frame_bytes
  FROM frames
  GROUP BY ALL
),
counted_groups AS (
  SELECT
    a.capture, a.connection_id, a.producer_id, a.consumer_id, a.incarnation, a.direction, a.command,
    a.status, a.frames, a.frame_bytes, a.topic, a.subscription,
    CASE WHEN t.connection_id IS NULL THEN a.checksum END AS checksum,
    t.connection_id IS NULL AND a.is_repeated AS is_repeated,
    t.connection_id IS NULL AND (a.is_repeated OR a.checksum IS NOT NULL) AS is_named
  FROM frame_groups AS a
  LEFT JOIN twins AS t USING (capture, connection_id)
)
SELECT
  o.capture, o.direction, o.command, o.status, o.checksum, o.is_repeated,
  CASE WHEN o.is_named THEN coalesce(o.topic, p.late_topic, c.late_topic) END AS topic,
  CASE WHEN o.is_repeated THEN coalesce(o.subscription, c.late_subscription) END AS subscription,
  sum(o.frames) AS frames,
  sum(o.frame_bytes) AS frame_bytes
FROM counted_groups AS o
LEFT JOIN late_producers AS p USING (capture, connection_id, producer_id, incarnation)
LEFT JOIN late_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
GROUP BY ALL
