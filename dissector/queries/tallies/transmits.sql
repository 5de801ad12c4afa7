-- transmits: sends of a producer by bucket of the time from their first byte to their last
-- keys: topic, producer_name, client_ip, broker_ip, bucket
-- sums: transmits
SELECT
  capture, topic, producer_name, client_ip, broker_ip, histogram_bucket(transmit_ns) AS bucket,
  count(*) AS transmits
FROM publishes
WHERE transmit_ns IS NOT NULL
GROUP BY ALL
