-- counted_deliveries: deliveries of a subscription by cause and by bucket of the time since their publish
-- keys: topic, subscription, is_redelivered, redelivery_cause, bucket
-- sums: deliveries, publish_to_delivery_ns
-- least: publish_to_delivery_ns_min
-- greatest: publish_to_delivery_ns_max
SELECT
  capture, named_topic AS topic, named_subscription AS subscription,
  coalesce(is_redelivered, FALSE) AS is_redelivered, redelivery_cause,
  histogram_bucket(took_ns) AS bucket,
  count(*) AS deliveries,
  sum(took_ns) AS publish_to_delivery_ns,
  min(took_ns) AS publish_to_delivery_ns_min,
  max(took_ns) AS publish_to_delivery_ns_max
FROM received
GROUP BY ALL
