/*
number = "D22"
code = "lookup_loop"
title = "Lookups are sent from broker to broker"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "connecting"
worst = "measured_lookups"
references = ["apache/pulsar#7041", "apache/pulsar PR 7096", "apache/pulsar#7126", "apache/pulsar#7200", "apache/pulsar-client-cpp PR 146", "apache/pulsar#274", "apache/pulsar PR 11688"]
errors = ["TooManyRequests"]
fires = []
silent = ["java-j24_unload.pcap", "cpp-s14_reconnect.pcap", "fake-f02_errors.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "request_command = 'LOOKUP' OR request_command = 'PARTITIONED_METADATA' AND (error_code = 'TooManyRequests' OR slowest_ns >= $slow_s * 1000000000)"

[thresholds.redirects]
value = 4
unit = "redirects"
why = "one redirect leads to the owner; a broker that has just lost the topic may add one or two"

[thresholds.chain_s]
value = 10.0
unit = "s"
why = "a client asks the next broker at once: what comes later is another lookup"

[thresholds.slow_s]
value = 1.0
unit = "s"
why = "a broker that is well answers from memory within milliseconds"

[thresholds.slow_lookups]
value = 3
unit = "lookups"
why = "the first lookups behind a start load bundles and may take as long"

[thresholds.slow_share]
value = 0.01
unit = "of the lookups"
why = "one in a hundred is the 99th percentile"

[text]
what = "{client_ip} was redirected {redirects_seen} times in a row within {lasted_s} s when it looked up {topic}; {authoritative} of these {lookups} lookups {authoritative|was|were} marked authoritative. The chain ended with {ended_with}."
known = "Each LOOKUP and each answer that says Redirect are in the capture."
rival = "A cluster without a leader for a moment: then the chain ends by itself."
decides = "Whether lookups that are redirected carry authoritative = true as the answer told the client; if they do, the brokers disagree on who owns the topic, or have no leader."
do = "Look at the brokers' leader election and metadata store; C++ clients before 3.1 never pass the flag on: look at the client's version."

[variant.lookup_overload]
severity = "warning"
title = "Lookups are slow or refused"
what = "{slow} of {lookups} lookups of {client_ip} at {broker_ip} took {slow_s} s and longer (the slowest, of {topic}, {lasted_s} s), {refused} {refused|was|were} refused with TooManyRequests."
known = "Requests and answers are in the capture, untouched by loss."
rival = "A broker that is starting, or a metadata store that is slow."
decides = "How long PINGs took at that time, and how many clients started at once."
do = "Count how many clients and partitions are opened at once; look at maxConcurrentLookupRequest and the metadata store's latency."
*/
WITH lookups AS (
  SELECT
    e.capture, e.connection_id, e.topic, e.client_ip, e.broker_ip, e.request_command, e.outcome,
    e.error_code, e.request_frame_no, e.response_frame_no, e.request_last_ns, e.response_last_ns,
    CASE WHEN u.capture IS NULL THEN e.latency_ns END AS latency_ns, e.tainted
  FROM exchanges AS e
  LEFT JOIN unsteady_clocks AS u USING (capture)
  WHERE e.kind = 'request' AND e.request_command IN ('LOOKUP', 'PARTITIONED_METADATA')
),
answers AS (
  SELECT
    l.*, CASE WHEN a.detail LIKE '%"response":"Redirect"%' THEN 1 ELSE 0 END AS is_redirect,
    CASE WHEN q.detail LIKE '%"authoritative":true%' THEN 1 ELSE 0 END AS is_authoritative
  FROM lookups AS l
  JOIN frames AS a
    ON a.capture = l.capture AND a.connection_id = l.connection_id
    AND a.frame_no = l.response_frame_no AND a.command = 'LOOKUP_RESPONSE'
  JOIN frames AS q
    ON q.capture = l.capture AND q.connection_id = l.connection_id
    AND q.frame_no = l.request_frame_no AND q.command = 'LOOKUP'
  WHERE l.topic IS NOT NULL
),
-- A chain continues if the previous lookup was redirected and the next follows soon.
linked_lookups AS (
  SELECT
    a.*,
    CASE
      WHEN
        lag(a.is_redirect) OVER topic_of_client = 1
        AND a.request_last_ns - lag(a.response_last_ns) OVER topic_of_client
        <= $chain_s * 1000000000 THEN 0
      ELSE 1
    END AS begins
  FROM answers AS a
  WINDOW topic_of_client AS (
    PARTITION BY a.capture, a.client_ip, a.topic ORDER BY a.request_last_ns, a.request_frame_no
  )
),
chains AS (
  SELECT
    l.*,
    sum(l.begins) OVER (
      PARTITION BY l.capture, l.client_ip, l.topic ORDER BY l.request_last_ns, l.request_frame_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS chain
  FROM linked_lookups AS l
)
SELECT
  c.capture, min(c.request_last_ns) AS first_ns, max(c.response_last_ns) AS last_ns, '' AS variant,
  c.client_ip AS subject_client_ip, c.topic AS subject_topic,
  NULL AS subject_broker_ip, CAST(sum(c.is_redirect) AS BIGINT) AS measured_redirects_seen,
  count(*) AS measured_lookups,
  CAST(sum(c.is_authoritative) AS BIGINT) AS measured_authoritative,
  (max(c.response_last_ns) - min(c.request_last_ns)) / 1e9 AS measured_lasted_s,
  CASE
    WHEN max_by(c.is_redirect, c.request_frame_no) = 1 THEN 'Redirect'
    WHEN max_by(c.outcome, c.request_frame_no) = 'ok' THEN 'Connect'
    ELSE max_by(c.error_code, c.request_frame_no)
  END AS measured_ended_with,
  CAST(0 AS BIGINT) AS measured_slow, CAST(0 AS BIGINT) AS measured_refused,
  min(c.request_frame_no) AS frame_first_lookup, min(c.response_frame_no) AS frame_first_answer,
  max(c.request_frame_no) AS frame_last_lookup, max(c.response_frame_no) AS frame_last_answer
FROM chains AS c
GROUP BY c.capture, c.client_ip, c.topic, c.chain
HAVING sum(c.is_redirect) >= $redirects
UNION ALL BY NAME
SELECT
  s.capture, s.first_ns, s.last_ns, 'lookup_overload' AS variant,
  s.client_ip AS subject_client_ip, s.topic AS subject_topic, s.broker_ip AS subject_broker_ip,
  CAST(0 AS BIGINT) AS measured_redirects_seen, s.lookups AS measured_lookups,
  CAST(0 AS BIGINT) AS measured_authoritative, s.slowest_ns / 1e9 AS measured_lasted_s,
  s.slow AS measured_slow,
  s.refused AS measured_refused, s.slowest_no AS frame_first_lookup,
  s.slowest_answer_no AS frame_first_answer, s.refused_no AS frame_last_lookup,
  s.refusal_no AS frame_last_answer
FROM (
  SELECT
    l.capture, l.client_ip, l.broker_ip, min(l.request_last_ns) AS first_ns,
    max(l.response_last_ns) AS last_ns, count(*) AS lookups,
    count(CASE WHEN l.latency_ns >= $slow_s * 1000000000 THEN 1 END) AS slow,
    count(CASE WHEN l.error_code = 'TooManyRequests' THEN 1 END) AS refused,
    max(l.latency_ns) AS slowest_ns, max_by(l.topic, l.latency_ns) AS topic,
    max_by(l.request_frame_no, l.latency_ns) AS slowest_no,
    max_by(l.response_frame_no, l.latency_ns) AS slowest_answer_no,
    max(CASE WHEN l.error_code = 'TooManyRequests' THEN l.request_frame_no END) AS refused_no,
    max(CASE WHEN l.error_code = 'TooManyRequests' THEN l.response_frame_no END) AS refusal_no
  FROM lookups AS l
  WHERE NOT l.tainted
  GROUP BY l.capture, l.client_ip, l.broker_ip
) AS s
WHERE s.refused >= 1 OR (s.slow >= $slow_lookups AND s.slow >= $slow_share * s.lookups)
