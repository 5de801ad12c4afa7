-- chain_times: chains that opened a producer or consumer, by bucket of their duration
-- keys: bucket
-- sums: chains, refused, chain_ns
-- least: chain_ns_min
-- greatest: chain_ns_max
SELECT
  capture, histogram_bucket(chain_ns) AS bucket,
  count(*) AS chains,
  count(CASE WHEN refused > 0 THEN 1 END) AS refused,
  sum(chain_ns) AS chain_ns,
  min(chain_ns) AS chain_ns_min,
  max(chain_ns) AS chain_ns_max
FROM chains
GROUP BY ALL
