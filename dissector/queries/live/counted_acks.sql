-- counted_acks: ids that consumers of a subscription acknowledged or asked for again
-- keys: topic, subscription, action
-- sums: ids
-- A request for all is one id.
SELECT
  capture, named_topic AS topic, named_subscription AS subscription, action,
  count(*) AS ids
FROM acknowledged
WHERE action IN ('ack', 'redeliver', 'nack')
GROUP BY capture, named_topic, named_subscription, action
