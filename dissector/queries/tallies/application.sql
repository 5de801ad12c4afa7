-- application: sends by bucket of the latency that their application sees, and its parts
-- keys: topic, producer_name, client_ip, broker_ip, bucket
-- sums: confirmed, published, batches, unsteady, application_ns, client_ns, again_ns, transmit_ns, answer_ns
-- least: application_ns_min
-- greatest: application_ns_max
SELECT
  capture, topic, producer_name, client_ip, broker_ip,
  CASE WHEN is_steady THEN histogram_bucket(application_ns) END AS bucket,
  count(CASE WHEN is_steady THEN application_ns END) AS confirmed,
  count(CASE WHEN is_steady THEN published_ns END) AS published,
  count(CASE WHEN is_steady AND is_batch THEN published_ns END) AS batches,
  count(CASE WHEN NOT is_steady THEN 1 END) AS unsteady,
  sum(CASE WHEN is_steady THEN application_ns END) AS application_ns,
  sum(CASE WHEN is_steady THEN client_ns END) AS client_ns,
  sum(CASE WHEN is_steady THEN again_ns END) AS again_ns,
  sum(CASE WHEN is_steady THEN transmit_ns END) AS transmit_ns,
  sum(CASE WHEN is_steady THEN answer_ns END) AS answer_ns,
  min(CASE WHEN is_steady THEN application_ns END) AS application_ns_min,
  max(CASE WHEN is_steady THEN application_ns END) AS application_ns_max
FROM application_sends
GROUP BY ALL
