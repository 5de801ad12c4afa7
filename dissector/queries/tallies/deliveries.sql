-- deliveries: deliveries of a subscription by redelivery cause and outcome
-- keys: topic, subscription, is_redelivered, redelivery_cause, outcome, is_older
-- sums: deliveries, messages, counts_unknown, counted_by_broker, seen_before
-- greatest: redelivery_count_max
-- is_older: its consumer was opened before the capture.
SELECT
  r.capture, r.named_topic AS topic, r.named_subscription AS subscription, r.is_redelivered,
  r.redelivery_cause, r.outcome, o.consumer_id IS NOT NULL AS is_older,
  count(*) AS deliveries,
  sum(r.message_count) AS messages,
  count(CASE WHEN r.message_count IS NULL THEN 1 END) AS counts_unknown,
  count(CASE WHEN r.redelivery_count > 0 THEN 1 END) AS counted_by_broker,
  count(r.previous_frame_no) AS seen_before,
  max(r.redelivery_count) AS redelivery_count_max
FROM received AS r
LEFT JOIN older_consumers AS o USING (capture, connection_id, consumer_id, incarnation)
GROUP BY ALL
