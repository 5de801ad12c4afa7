-- lags: the lag of a group (Cursus) behind the end of a log, by committed or delivered offset
-- keys: capture, topic, subscription, partition, which
-- sums: evaluated, not_evaluated
-- greatest: lag_max, last_lag, last_us
-- lag is null if the log's end was not seen before. Members of groups have no consumer id; empty
-- deliveries, which name no entry, and deliveries outside a group are left out.
WITH observed_lags AS (
  SELECT
    capture, connection_id, named_topic AS topic, named_subscription AS subscription, partition,
    'committed' AS which, frame_no, micros(ts) AS at_us, lag
  FROM acknowledged
  WHERE action = 'ack' AND consumer_id IS NULL AND named_subscription IS NOT NULL
  UNION ALL
  SELECT
    capture, connection_id, named_topic, named_subscription, partition, 'delivered', order_no,
    micros(ts), lag
  FROM received
  WHERE entry_id IS NOT NULL AND consumer_id IS NULL AND named_subscription IS NOT NULL
),
ranked_lags AS (
  SELECT
    f.*,
    CASE WHEN lag IS NOT NULL THEN
      row_number() OVER (
        PARTITION BY capture, topic, subscription, partition, which
        ORDER BY
          CASE WHEN lag IS NULL THEN 1 ELSE 0 END ASC, at_us DESC NULLS LAST, frame_no DESC,
          connection_id DESC, lag DESC
      )
    END AS place
  FROM observed_lags AS f
)
SELECT
  capture, topic, subscription, partition, which,
  count(lag) AS evaluated,
  count(*) - count(lag) AS not_evaluated,
  max(lag) AS lag_max,
  max(CASE WHEN place = 1 THEN lag END) AS last_lag,
  max(CASE WHEN lag IS NOT NULL THEN at_us END) AS last_us
FROM ranked_lags
GROUP BY capture, topic, subscription, partition, which
