-- carried_clocks: sends of a client by the time from their publish time until they began
-- The rows that a window passes to the next one for `client_clocks`: the least distance, the sends
-- within twice of it per bucket, since later windows can only lower it, and the number of others.
-- is_set_back: 1 for a client whose clock was set back.
WITH least AS (
  SELECT client_ip, min(distance_ns) AS least_ns
  FROM publish_distances
  GROUP BY client_ip
)
SELECT d.client_ip, min(d.distance_ns) AS distance_ns, sum(d.sends) AS sends, 0 AS is_set_back
FROM publish_distances AS d
JOIN least AS l USING (client_ip)
GROUP BY
  d.client_ip,
  CASE
    WHEN floor_div(d.distance_ns, 2) < l.least_ns THEN histogram_bucket(d.distance_ns) ELSE -1
  END
UNION ALL
SELECT client_ip, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), 1
FROM clocks_set_back
