-- carried_clocks: sends of a client by how long after their publish times they began
-- What a window leaves to the next one for `client_clocks`: the least distance, how many lie within
-- twice of it, bucket by bucket, since further windows can only make it smaller, and how many do not.
-- is_set_back: 1 for a client whose clock was.
WITH least AS (
  SELECT client_ip, min(distance_ns) AS least_ns
  FROM publish_distances
  GROUP BY client_ip
)
SELECT d.client_ip, min(d.distance_ns) AS distance_ns, sum(d.sends) AS sends, 0 AS is_set_back
FROM publish_distances AS d
JOIN least AS l ON l.client_ip = d.client_ip
GROUP BY
  d.client_ip,
  CASE
    WHEN floor_div(d.distance_ns, 2) < l.least_ns THEN histogram_bucket(d.distance_ns) ELSE -1
  END
UNION ALL
SELECT client_ip, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), 1
FROM clocks_set_back
