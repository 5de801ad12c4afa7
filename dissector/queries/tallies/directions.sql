-- directions: connections by protocol: without a captured direction, and repeated ones (twins)
-- keys: protocol
-- sums: connections, without_to_broker, without_to_client, twins
SELECT
  capture, protocol,
  count(*) AS connections,
  count(CASE WHEN coalesce(packets_to_broker, 0) = 0 THEN 1 END) AS without_to_broker,
  count(CASE WHEN coalesce(packets_to_client, 0) = 0 THEN 1 END) AS without_to_client,
  count(CASE WHEN leg = 'broker' AND twin_connection_id IS NOT NULL THEN 1 END) AS twins
FROM legs
GROUP BY capture, protocol
