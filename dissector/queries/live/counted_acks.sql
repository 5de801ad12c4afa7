-- counted_acks: ids that consumers of a subscription acknowledged or requested again
-- keys: topic, subscription, action
-- sums: ids
-- A request for all counts as one id.
SELECT
  capture, named_topic AS topic, named_subscription AS subscription, action,
  count(*) AS ids
FROM acknowledged
WHERE action IN ('ack', 'redeliver', 'nack')
GROUP BY capture, named_topic, named_subscription, action
