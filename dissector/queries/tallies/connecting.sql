-- connecting: connections by bucket of their handshake's round trip; storms; closed by the broker
-- keys: bucket
-- sums: connections, unseen, opened, vain, closed, round_trips, round_trip_ns, bursts, closed_producers,
--   closed_consumers
-- least: round_trip_ns_min
-- greatest: round_trip_ns_max, opened_within_10_s
SELECT
  capture, CASE WHEN is_opened THEN histogram_bucket(handshake_rtt_ns) END AS bucket,
  count(*) AS connections,
  count(CASE WHEN NOT is_seen THEN 1 END) AS unseen,
  count(CASE WHEN is_opened THEN 1 END) AS opened,
  count(CASE WHEN is_opened AND is_vain THEN 1 END) AS vain,
  count(CASE WHEN is_closed_by_broker AND NOT is_vain THEN 1 END) AS closed,
  count(CASE WHEN is_opened THEN handshake_rtt_ns END) AS round_trips,
  sum(CASE WHEN is_opened THEN handshake_rtt_ns END) AS round_trip_ns,
  0 AS bursts, 0 AS closed_producers, 0 AS closed_consumers,
  min(CASE WHEN is_opened THEN handshake_rtt_ns END) AS round_trip_ns_min,
  max(CASE WHEN is_opened THEN handshake_rtt_ns END) AS round_trip_ns_max,
  NULL AS opened_within_10_s
FROM attempts_to_connect
GROUP BY ALL
UNION ALL
SELECT
  capture, NULL, 0, 0, 0, 0, 0, 0, 0, count(CASE WHEN within_10_s >= 10 THEN 1 END), 0, 0, NULL, NULL,
  max(within_10_s)
FROM storms
GROUP BY capture
UNION ALL
SELECT
  capture, NULL, 0, 0, 0, 0, 0, 0, 0, 0, count(CASE WHEN what = 'producer' THEN 1 END),
  count(CASE WHEN what = 'consumer' THEN 1 END), NULL, NULL, NULL
FROM closed_subjects
GROUP BY capture
