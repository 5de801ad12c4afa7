-- requests: requests that are no publishes, by command, outcome and bucket of latency
-- keys: kind, request_command, asked_by, outcome, bucket
-- sums: requests, tainted, latencies, latency_ns, quick
-- least: latency_ns_min
-- greatest: latency_ns_max
-- asked_by: client or broker, only for PING, which both send. quick: answered within a third of the
-- handshake's round trip on their connection.
WITH pings AS (
  SELECT capture, connection_id, frame_no
  FROM frames
  WHERE command = 'PING' AND direction = 'to_broker'
),
timed_requests AS (
  SELECT
    e.capture, e.kind, e.request_command, e.outcome, e.tainted, e.latency_bucket,
    l.handshake_rtt_ns,
    CASE
      WHEN e.request_command = 'PING'
        THEN CASE WHEN p.frame_no IS NULL THEN 'broker' ELSE 'client' END
    END AS asked_by,
    CASE WHEN e.outcome IN ('ok', 'error') THEN e.latency_ns END AS took_ns
  FROM single_exchanges AS e
  LEFT JOIN pings AS p
    ON p.capture = e.own_capture AND p.connection_id = e.own_connection_id
    AND p.frame_no = e.request_frame_no
  LEFT JOIN legs AS l ON l.capture = e.capture AND l.connection_id = e.connection_id
  WHERE coalesce(e.kind, '') <> 'publish'
)
SELECT
  capture, kind, request_command, asked_by, outcome,
  CASE WHEN took_ns IS NOT NULL THEN latency_bucket END AS bucket,
  count(*) AS requests,
  count(CASE WHEN tainted THEN 1 END) AS tainted,
  count(took_ns) AS latencies,
  sum(took_ns) AS latency_ns,
  count(CASE WHEN try_multiply(took_ns, 3) < handshake_rtt_ns THEN 1 END) AS quick,
  min(took_ns) AS latency_ns_min,
  max(took_ns) AS latency_ns_max
FROM timed_requests
GROUP BY ALL
