-- redelivery_delays: from a delivery to the request for it again (asked), from there to the next (came)
-- keys: topic, subscription, which, bucket
-- sums: delays, delay_ns
-- least: delay_ns_min
-- greatest: delay_ns_max
-- Of requests that name ids. A request and a delivery are put in order by their times: what a client
-- asks for it has had before, in whichever capture.
WITH asked AS (
  SELECT
    u.unit, a.capture, a.named_topic AS topic, a.named_subscription AS subscription, a.ledger_id,
    a.entry_id, micros(a.ts) AS at_us
  FROM acknowledged AS a
  JOIN units AS u ON u.capture = a.capture
  WHERE
    a.action IN ('redeliver', 'nack') AND a.ledger_id IS NOT NULL AND a.entry_id IS NOT NULL
    AND a.ts IS NOT NULL
),
turns AS (
  SELECT *, 1 AS is_request, CAST(NULL AS BIGINT) AS given_us FROM asked
  UNION ALL
  SELECT
    u.unit, d.capture, d.named_topic, d.named_subscription, d.ledger_id, d.entry_id, micros(d.ts),
    0, micros(d.ts)
  FROM received AS d
  JOIN units AS u ON u.capture = d.capture
  WHERE
    (u.unit, d.named_topic, d.named_subscription, d.ledger_id, d.entry_id) IN (
      SELECT unit, topic, subscription, ledger_id, entry_id FROM asked
    )
),
placed AS (
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
  FROM turns
),
delays AS (
  SELECT
    capture, topic, subscription, 'asked' AS which, try_multiply(at_us - before_us, 1000) AS took_ns
  FROM placed
  WHERE is_request = 1 AND before_us IS NOT NULL
  UNION ALL
  SELECT capture, topic, subscription, 'came', try_multiply(behind_us - at_us, 1000)
  FROM placed
  WHERE is_request = 1 AND before_us IS NOT NULL AND behind_us IS NOT NULL
)
SELECT
  capture, topic, subscription, which, histogram_bucket(took_ns) AS bucket,
  count(*) AS delays, sum(took_ns) AS delay_ns, min(took_ns) AS delay_ns_min,
  max(took_ns) AS delay_ns_max
FROM delays
GROUP BY ALL
