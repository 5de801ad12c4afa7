-- unfinished: connections with frames but no row yet, which a tap writes when they end
-- keys: capture, protocol
-- sums: connections, frames
SELECT
  f.capture, f.protocol,
  count(*) AS connections,
  sum(f.frames) AS frames
FROM (
  SELECT capture, connection_id, min(protocol) AS protocol, sum(frames) AS frames
  FROM frame_kinds
  GROUP BY capture, connection_id
) AS f
ANTI JOIN legs AS l USING (capture, connection_id)
GROUP BY f.capture, f.protocol
