-- redeliver_requests: redelivery requests of a subscription's consumers: ids, and requests for all
-- keys: topic, subscription
-- sums: ids_requested, requests_for_all
SELECT
  capture, named_topic AS topic, named_subscription AS subscription,
  count(ledger_id) AS ids_requested,
  count(CASE WHEN ledger_id IS NULL THEN 1 END) AS requests_for_all
FROM acknowledged
WHERE action IN ('redeliver', 'nack')
GROUP BY capture, named_topic, named_subscription
