-- send_values: the number of sends per duration, for exact percentiles of send latency
-- keys: measure, topic, producer_name, client_ip, broker_ip, value_ns
-- sums: sends
SELECT
  capture, measure, topic, producer_name, client_ip, broker_ip, value_ns, count(*) AS sends
FROM (
  SELECT
    capture, 'latency' AS measure, topic, producer_name, client_ip, broker_ip,
    latency_ns AS value_ns
  FROM publishes
  WHERE is_timed
  UNION ALL
  SELECT capture, 'transmit', topic, producer_name, client_ip, broker_ip, transmit_ns
  FROM publishes
  WHERE transmit_ns IS NOT NULL
  UNION ALL
  SELECT capture, 'logical', topic, producer_name, client_ip, broker_ip, logical_ns
  FROM logical_sends
  UNION ALL
  SELECT capture, 'application', topic, producer_name, client_ip, broker_ip, application_ns
  FROM application_sends
  WHERE is_steady AND application_ns IS NOT NULL
) AS timed
GROUP BY capture, measure, topic, producer_name, client_ip, broker_ip, value_ns
