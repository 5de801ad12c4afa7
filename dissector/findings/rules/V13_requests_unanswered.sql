/*
number = "V13"
code = "requests_unanswered"
title = "Requests that nobody answered"
severity = "info"
section = "requests"
fires = []
silent = ["java-j01_plain.pcap"]

[thresholds.in_flight]
value = 0.01
unit = "of requests"
why = "so few unanswered ones at the very end are what any capture ends with"

[text]
what = "{unanswered} requests {unanswered|was|were} unanswered when the connection or the capture ended: {commands:counts}."
do = "Find out who ended these connections (closed_by), and look into the log of the other side."
show = "connections"
*/
-- Without sends and without requests that wait for messages.
WITH unanswered_requests AS (
  SELECT
    place, coalesce(e.request_command, 'unknown') AS command,
    sum(coalesce(e.outcomes['conn_closed'], 0)) AS closed,
    sum(coalesce(e.outcomes['unanswered_at_end'], 0)) AS at_end, sum(e.requests) AS requests
  FROM totals, unnest(requests.by_command) AS commands(e)
  WHERE e.kind IN ('request', 'auth')
  GROUP BY place, command
)
SELECT
  place, CAST(sum(closed + at_end) AS BIGINT) AS measured_unanswered,
  map_from_entries(list(
    {'key': command, 'value': CAST(closed + at_end AS BIGINT)} ORDER BY command
  ) FILTER (closed + at_end > 0)) AS measured_commands
FROM unanswered_requests
GROUP BY place
HAVING sum(closed) > 0 OR sum(at_end) > $in_flight * sum(requests)
