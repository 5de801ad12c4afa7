-- redelivery_delays: time from a delivery to its redelivery request (asked), or from that to the next (came)
-- keys: topic, subscription, which, bucket
-- sums: delays, delay_ns
-- least: delay_ns_min
-- greatest: delay_ns_max
-- Only requests that name ids, each at its own time. Requests and deliveries are sorted by time: a
-- client requests only what it received before, in whichever capture.
WITH neighbour_times AS (
  SELECT
    capture, topic, subscription, is_request, at_us,
    max(given_us) OVER (
      PARTITION BY unit, topic, subscription, ledger_id, entry_id
      ORDER BY at_us ASC, is_request ASC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS before_us,
    min(given_us) OVER (
      PARTITION BY unit, topic, subscription, ledger_id, entry_id
      ORDER BY at_us DESC, is_request DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS behind_us
  FROM request_turns
),
delays AS (
  SELECT
    capture, topic, subscription, 'asked' AS which, try_multiply(at_us - before_us, 1000) AS took_ns
  FROM neighbour_times
  WHERE is_request = 1 AND before_us IS NOT NULL
  UNION ALL
  SELECT capture, topic, subscription, 'came', try_multiply(behind_us - at_us, 1000)
  FROM neighbour_times
  WHERE is_request = 1 AND before_us IS NOT NULL AND behind_us IS NOT NULL
)
SELECT
  capture, topic, subscription, which, histogram_bucket(took_ns) AS bucket,
  count(*) AS delays, sum(took_ns) AS delay_ns, min(took_ns) AS delay_ns_min,
  max(took_ns) AS delay_ns_max
FROM delays
GROUP BY ALL
