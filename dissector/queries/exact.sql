-- values: what the percentiles of send latency are made from: one duration of one send, ns
SELECT
  'latency' AS measure, p.topic, p.producer_name, p.client_ip, p.broker_ip,
  p.latency_ns AS value_ns
FROM publishes AS p
WHERE p.is_timed
UNION ALL
SELECT 'transmit', p.topic, p.producer_name, p.client_ip, p.broker_ip, p.transmit_ns
FROM publishes AS p
WHERE p.transmit_ns IS NOT NULL
UNION ALL
SELECT 'logical', l.topic, l.producer_name, l.client_ip, l.broker_ip, l.logical_ns
FROM logical_sends AS l
UNION ALL
SELECT 'application', a.topic, a.producer_name, a.client_ip, a.broker_ip, a.application_ns
FROM application_sends AS a
WHERE a.is_steady AND a.application_ns IS NOT NULL
