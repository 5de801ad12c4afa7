-- counted_deliveries: deliveries of a subscription by cause and by bucket of the time they took
-- keys: topic, subscription, is_redelivered, redelivery_cause, bucket
-- sums: deliveries, publish_to_delivery_ns
-- least: publish_to_delivery_ns_min
-- greatest: publish_to_delivery_ns_max
-- Timed are first deliveries that no client wanted to be late.
WITH named AS (
  SELECT
    d.capture, coalesce(d.topic, n.late_topic) AS topic,
    coalesce(d.subscription, n.late_subscription) AS subscription,
    coalesce(d.is_redelivered, FALSE) AS is_redelivered, d.redelivery_cause,
    CASE
      WHEN NOT coalesce(d.is_redelivered, FALSE) AND NOT coalesce(d.deliver_at_ms > 0, FALSE)
        THEN d.publish_to_delivery_ns
    END AS took_ns
  FROM deliveries AS d
  ANTI JOIN twins AS t ON t.capture = d.capture AND t.connection_id = d.connection_id
  LEFT JOIN late_consumers AS n
    ON n.capture = d.capture AND n.connection_id = d.connection_id
    AND n.consumer_id = d.consumer_id AND n.incarnation = d.incarnation
)
SELECT
  capture, topic, subscription, is_redelivered, redelivery_cause,
  histogram_bucket(took_ns) AS bucket,
  count(*) AS deliveries,
  sum(took_ns) AS publish_to_delivery_ns,
  min(took_ns) AS publish_to_delivery_ns_min,
  max(took_ns) AS publish_to_delivery_ns_max
FROM named
GROUP BY ALL
