/*
number = "D26"
code = "auth_refresh_unsupported"
title = "The broker closes connections when credentials expire"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "connecting"
worst = "measured_connections"
references = ["streamnative/pulsar-rs#423", "fsprojects/pulsar-client-dotnet#362", "fsprojects/pulsar-client-dotnet#233", "apache/pulsar#10816", "apache/pulsar PR 16016"]
errors = ["AuthenticationError"]
fires = ["fake-f11_auth_challenge.pcap"]
silent = ["java-j81_auth_real.pcap", "java-j24_unload.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind = 'auth' OR error_code IN ('AuthenticationError', 'AuthorizationError')"
pulsar_links = "ended = 'fin' AND closed_first_by = 'broker' AND try_subtract(last_ts_ns, first_ts_ns) >= $age_s * 1000000000"

[thresholds.age_s]
value = 5.0
unit = "s"
why = "shorter lives are refusals and reconnects, not expiries"

[thresholds.spread_s]
value = 60.0
unit = "s"
why = "brokers look for expired credentials once a minute by default (authenticationRefreshCheckSeconds)"

[thresholds.spread_share]
value = 0.2
unit = "of the greatest age"
why = "lives of seconds are equal only if they differ by less than a minute"

[thresholds.loop_challenges]
value = 3
unit = "challenges"
why = "credentials that last shorter than the broker's look for expired ones are set up for tests only"

[thresholds.loop_s]
value = 60.0
unit = "s"
why = "brokers look for expired credentials once a minute by default"

[ruled_out]
restart = "that the broker was restarted: the connections did not end together, a later one was opened when an earlier one had ended"

[text]
what = "{connections} connections of {client_ip}[ ({client_version})] to {broker_ip} {connections|was|were} closed by the broker at nearly the same age ({youngest_s} to {oldest_s} s), without a challenge before. The client's CONNECT (method {auth_method}) does not say that it can renew credentials."
known = "CONNECT (frame {first}) carries no supports_auth_refresh; the broker's FIN and its times are in the capture."
rival = "A proxy or balancer that limits the life of connections, or idle ones."
decides = "Whether the age is the life of the token; the broker's log names expired authentication data."
do = "Use a client release that supports the refresh of credentials; until then, tokens that live longer."

[variant.challenge_ignored]
verdict = "proven"
title = "A client did not answer the broker's challenge"
what = "{client_ip}[ ({client_version})] got AUTH_CHALLENGE from {broker_ip} on {connections} connections, sent no AUTH_RESPONSE, and the connections ended; {closed_by_client} {closed_by_client|was|were} closed first by the client, {closed_by_broker} by the broker."
known = "The challenge (frame {first}) and the connection's end are in the capture, and no answer between."
rival = "A client that had no new credentials to give, rather than one that cannot."
decides = "The client's log at that time: an unknown command, or a token that could not be fetched."
do = "Look at the client's version and at what supplies its tokens."

[variant.auth_refresh_loop]
severity = "warning"
verdict = "proven"
title = "The broker challenges a client again and again"
what = "The broker {broker_ip} challenged {client_ip}[ ({client_version})] {challenges} times on one connection, {loop_challenges} of them within {closest_s} s; each of these was answered."
known = "Each of these AUTH_CHALLENGEs and its AUTH_RESPONSE are in the capture."
rival = "Tokens that live only seconds, as in tests."
decides = "When the token that the client sends expires: if it has already, something between keeps an old one."
do = "See that the client fetches a new token for each challenge, and look at the proxy's and the broker's version."

[variant.refused]
severity = "warning"
verdict = "proven"
title = "The broker refused a client's credentials"
what = "The broker {broker_ip} answered CONNECT of {client_ip} ([{client_version}, ]method {auth_method}) on {connections} connections with {error_code}: '{error_text}'."
known = "CONNECT (frame {first}) and the refusal (frame {last}) are in the capture."
rival = "A token that has expired, one that another key signed, or a provider that the broker does not have: the text tells."
decides = "The token's expiry and key id, compared with the broker's clock and keys."
do = "Renew the credentials; look at the broker's authenticationProviders and keys."
*/
WITH connects AS ( -- The CONNECT of a connection, and its credentials' support for refresh.
  SELECT
    e.capture, e.connection_id, e.request_frame_no, e.response_frame_no, e.request_last_ns,
    e.response_last_ns, e.outcome, e.error_code, e.error_text, l.client_ip, l.broker_ip,
    l.client_version, l.first_ts_ns, l.last_ts_ns, l.ended, l.closed_first_by, f.detail,
    CASE
      WHEN f.detail LIKE '%"auth_method_name":"token"%' THEN 'token'
      WHEN f.detail LIKE '%"auth_method_name":"none"%' THEN 'none'
      WHEN f.detail LIKE '%"auth_method_name":"%' THEN 'other'
      ELSE 'none'
    END AS auth_method
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no AND f.command = 'CONNECT'
  WHERE e.request_command = 'CONNECT'
),
challenges AS (
  SELECT
    e.capture, e.connection_id, e.request_frame_no, e.response_frame_no, e.request_last_ns,
    e.outcome,
    lead(e.request_last_ns, CAST($loop_challenges - 1 AS INT)) OVER (
      PARTITION BY e.capture, e.connection_id ORDER BY e.request_last_ns, e.request_frame_no
    ) - e.request_last_ns AS loop_ns
  FROM exchanges AS e
  WHERE e.kind = 'auth' AND e.request_command = 'AUTH_CHALLENGE'
),
unrefreshed_connections AS ( -- Connections without refresh that the broker closed, and the previous end.
  SELECT
    c.*, c.last_ts_ns - c.first_ts_ns AS age_ns,
    c.first_ts_ns - lag(c.last_ts_ns) OVER client AS behind_ns
  FROM connects AS c
  ANTI JOIN challenges AS h ON h.capture = c.capture AND h.connection_id = c.connection_id
  ANTI JOIN (
    SELECT capture, connection_id FROM exchanges WHERE kind = 'ping' AND outcome = 'conn_closed'
  ) AS p ON p.capture = c.capture AND p.connection_id = c.connection_id
  WHERE
    c.outcome = 'ok' AND c.auth_method <> 'none' AND c.ended = 'fin'
    AND c.closed_first_by = 'broker' AND c.detail NOT LIKE '%"supports_auth_refresh":true%'
    AND c.last_ts_ns - c.first_ts_ns >= $age_s * 1000000000
  WINDOW client AS (
    PARTITION BY c.capture, c.client_ip, c.broker_ip ORDER BY c.last_ts_ns, c.connection_id
  )
)
SELECT
  l.capture, min(l.first_ts_ns) AS first_ns, max(l.last_ts_ns) AS last_ns, '' AS variant,
  l.client_ip AS subject_client_ip, l.broker_ip AS subject_broker_ip,
  max(l.client_version) AS measured_client_version, max(l.auth_method) AS measured_auth_method,
  count(*) AS measured_connections, min(l.age_ns) / 1e9 AS measured_youngest_s,
  max(l.age_ns) / 1e9 AS measured_oldest_s, CAST(0 AS BIGINT) AS measured_closed_by_client,
  count(*) AS measured_closed_by_broker, CAST(0 AS BIGINT) AS measured_challenges,
  NULL AS measured_closest_s, NULL AS measured_error_code,
  NULL AS measured_error_text, TRUE AS ruled_out_restart,
  min(l.request_frame_no) AS frame_first, max(l.request_frame_no) AS frame_last
FROM unrefreshed_connections AS l
GROUP BY l.capture, l.client_ip, l.broker_ip
HAVING
  count(*) >= 2 AND max(l.age_ns) - min(l.age_ns) <= $spread_s * 1000000000
  AND max(l.age_ns) - min(l.age_ns) <= $spread_share * max(l.age_ns)
  AND max(CASE WHEN l.behind_ns >= 0 THEN 1 ELSE 0 END) = 1
UNION ALL BY NAME
SELECT
  c.capture, min(h.request_last_ns) AS first_ns, max(c.last_ts_ns) AS last_ns,
  'challenge_ignored' AS variant, c.client_ip AS subject_client_ip,
  c.broker_ip AS subject_broker_ip, max(c.client_version) AS measured_client_version,
  max(c.auth_method) AS measured_auth_method,
  count(DISTINCT c.connection_id) AS measured_connections,
  count(
    DISTINCT CASE WHEN c.closed_first_by = 'client' THEN c.connection_id END
  ) AS measured_closed_by_client,
  count(
    DISTINCT CASE WHEN c.closed_first_by = 'broker' THEN c.connection_id END
  ) AS measured_closed_by_broker,
  count(*) AS measured_challenges,
  min(h.request_frame_no) AS frame_first, max(h.request_frame_no) AS frame_last
FROM challenges AS h
JOIN connects AS c USING (capture, connection_id)
WHERE h.outcome = 'conn_closed' AND c.ended IN ('fin', 'rst')
GROUP BY c.capture, c.client_ip, c.broker_ip
UNION ALL BY NAME
SELECT
  c.capture, min(h.request_last_ns) AS first_ns, max(h.request_last_ns) AS last_ns,
  'auth_refresh_loop' AS variant, c.client_ip AS subject_client_ip,
  c.broker_ip AS subject_broker_ip, max(c.client_version) AS measured_client_version,
  max(c.auth_method) AS measured_auth_method,
  count(DISTINCT c.connection_id) AS measured_connections,
  CAST(0 AS BIGINT) AS measured_closed_by_client, CAST(0 AS BIGINT) AS measured_closed_by_broker,
  count(*) AS measured_challenges, min(h.loop_ns) / 1e9 AS measured_closest_s,
  min(h.request_frame_no) AS frame_first, max(h.response_frame_no) AS frame_last
FROM challenges AS h
JOIN connects AS c USING (capture, connection_id)
WHERE h.outcome = 'ok'
GROUP BY c.capture, c.client_ip, c.broker_ip, c.connection_id
HAVING min(h.loop_ns) <= $loop_s * 1000000000
UNION ALL BY NAME
SELECT
  c.capture, min(c.request_last_ns) AS first_ns, max(c.response_last_ns) AS last_ns,
  'refused' AS variant, c.client_ip AS subject_client_ip, c.broker_ip AS subject_broker_ip,
  max(c.client_version) AS measured_client_version, max(c.auth_method) AS measured_auth_method,
  count(*) AS measured_connections,
  count(CASE WHEN c.closed_first_by = 'client' THEN 1 END) AS measured_closed_by_client,
  count(CASE WHEN c.closed_first_by = 'broker' THEN 1 END) AS measured_closed_by_broker,
  CAST(0 AS BIGINT) AS measured_challenges,
  c.error_code AS measured_error_code, max(c.error_text) AS measured_error_text,
  min(c.request_frame_no) AS frame_first, max(c.response_frame_no) AS frame_last
FROM connects AS c
WHERE c.outcome = 'error' AND c.error_code IN ('AuthenticationError', 'AuthorizationError')
GROUP BY c.capture, c.client_ip, c.broker_ip, c.error_code
