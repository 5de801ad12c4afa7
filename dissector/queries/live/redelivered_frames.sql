-- redelivered_frames: MESSAGE frames of a subscription that the broker counts as repeated
-- keys: topic, subscription
-- sums: frames
-- A delivery has its row when its fate is known; its frame has one at once.
SELECT
  f.capture, coalesce(f.topic, n.late_topic) AS topic,
  coalesce(f.subscription, n.late_subscription) AS subscription,
  count(*) AS frames
FROM frames AS f
ANTI JOIN twins AS t ON t.capture = f.capture AND t.connection_id = f.connection_id
LEFT JOIN late_consumers AS n
  ON n.capture = f.capture AND n.connection_id = f.connection_id
  AND n.consumer_id = f.consumer_id AND n.incarnation = f.incarnation
WHERE f.redelivery_count > 0
GROUP BY ALL
