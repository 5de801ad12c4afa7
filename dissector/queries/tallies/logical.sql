-- logical: messages by bucket of the time from their first send to their first ok receipt
-- keys: topic, producer_name, client_ip, broker_ip, bucket
-- sums: logicals, logical_ns
-- least: logical_ns_min
-- greatest: logical_ns_max
SELECT
  capture, topic, producer_name, client_ip, broker_ip, bucket,
  count(*) AS logicals,
  sum(logical_ns) AS logical_ns,
  min(logical_ns) AS logical_ns_min,
  max(logical_ns) AS logical_ns_max
FROM logical_sends
GROUP BY capture, topic, producer_name, client_ip, broker_ip, bucket
