-- clocks: how far the clock of a client is ahead of the capture's
-- keys: client_ip
-- sums: sends
-- least: ahead_ns_min
-- greatest: ahead_ns_max
SELECT
  f.capture, k.client_ip, k.sends, k.ahead_ns AS ahead_ns_min, k.ahead_ns AS ahead_ns_max
FROM client_clocks AS k
JOIN (SELECT unit, min(capture) AS capture FROM units GROUP BY unit) AS f USING (unit)
