/*
number = "D23"
code = "topic_unavailable"
title = "A topic cannot be opened for longer"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "errors"
worst = "measured_lasted_s"
references = ["apache/pulsar#5284", "apache/pulsar#6872", "apache/pulsar#6416", "apache/pulsar#9792", "apache/pulsar#2967", "apache/pulsar#9613", "apache/pulsar-client-go#81", "streamnative/pulsar-rs#129", "apache/pulsar-client-cpp#405"]
errors = ["ServiceNotReady", "PersistenceError"]
fires = ["t09-migration-stuck-30s.pcap"]
silent = ["t09-migration-twin.pcap", "fake-f02_errors.pcap", "java-j24_unload.pcap", "java-j23_errors.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "error_code IN ('ServiceNotReady', 'PersistenceError') OR request_command IN ('PRODUCER', 'SUBSCRIBE') AND (outcome IN ('conn_closed', 'unanswered_at_end') OR slowest_ns >= $timeout_s * 1000000000)"

[thresholds.refusals]
value = 3
unit = "refusals"
why = "an unload refuses once or twice while the topic is loaded"

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a topic is loaded within seconds, and clients follow within one"

[thresholds.pause_s]
value = 90.0
unit = "s"
why = "the longest pause of clients that wait longer each time is 60 s: refusals further apart are two stories"

[thresholds.timeout_s]
value = 30.0
unit = "s"
why = "the clients' default operation timeout: an answer that comes later meets nobody"

[text]
what = "{client_ip} was refused {refused} times over {lasted_s} s on {topic}: {error_code}, '{error_text}'. {successes} opens or lookups of it by this client succeeded later in the capture."
known = "Every refusal is in the capture, with its text."
rival = "A broker that loads many topics after a restart, and is merely slow."
decides = "Whether the topic opens on another broker, or after the owner was restarted: then its old owner holds a fenced or half-opened topic."
do = "Read the log of the topic's owner for its name; unload the topic's bundle. If it never opens, take a thread dump of that broker before restarting it."

[variant.accepted_but_silent]
title = "The broker never answered the open of a topic"
what = "{client_ip} asked {refused} times to open {topic} ({command}) and got no answer for {lasted_s} s, while the broker answered {pongs} PINGs on the same connection."
known = "The request (frame {first}), no answer to it, and PONGs behind it are in the capture, which has no hole in this connection."
rival = "A namespace over its backlog quota whose policy holds producers back; a broker that waits for its metadata store."
decides = "Whether other topics of the same namespace open at that time, and a thread dump of the broker."
do = "Take a thread dump of the broker and look for the topic's name in its log before unloading: a load that was interrupted leaves a future that nobody completes."

[variant.migrated_not_followed]
title = "A client did not follow a topic to another cluster"
what = "{client_ip}[ ({client_version})] asked to open {topic} ({command}); {answered_ms} ms later the broker answered TOPIC_MIGRATED: the topic is at {migrated_to}. The client had it open {lasted_s} s behind that answer[, at {opened_at}]."
known = "The request (frame {first}), TOPIC_MIGRATED (frame {sign_of_life}) and what followed are in the capture, which has no hole in this connection."
rival = "A client that was told and could not reach the other cluster: then its attempts to connect there are in a capture of its own host."
decides = "The client's version: C++ clients before apache/pulsar-client-cpp PR 406 ignore this answer while an open waits, until its time limit is over."
do = "Update the client, or point its service URL at the other cluster. The broker did what it should."

[variant.migrated_never_followed]
like = "migrated_not_followed"
title = "A client did not go where its topic was migrated to"
what = "{client_ip}[ ({client_version})] asked to open {topic} ({command}); {answered_ms} ms later the broker answered TOPIC_MIGRATED: the topic is at {migrated_to}. The client did not open it elsewhere in this capture, for {lasted_s} s."
whole = "the client may follow behind the window"

[variant.closed_instead]
title = "The broker closed what a client asked to open, and the client waited"
what = "{client_ip}[ ({client_version})] asked {refused} times to open {topic} ({command}); {answered_ms} ms later the broker closed it instead of opening it, and the client waited on for {lasted_s} s."
known = "The request (frame {first}), the broker's CLOSE_PRODUCER or CLOSE_CONSUMER (frame {sign_of_life}) and no other answer are in the capture, which has no hole in this connection."
rival = "A broker that unloads or deletes the topic just then; a client that takes this close for no answer."
decides = "The broker's log at that time: why it closed the topic. The client's log: whether it waits for an answer that was given."
do = "Look at the client's version: it should ask again at once. Look in the broker's log why the topic was closed."

[variant.late_success]
severity = "warning"
title = "A topic was opened late and then never used"
what = "The broker took {lasted_s} s to open {topic} for {client_ip} ({command}); the client never used what it was given."
known = "Request (frame {first}) and answer (frame {last}) are in the capture, and no FLOW or SEND with that number behind it."
rival = "An application that opened it and did nothing yet."
decides = "Whether the client's log has a timeout for this open."
do = "Restart the client if the broker's statistics show a consumer without permits, or a producer, that nobody owns: it holds the name or takes messages."
*/
WITH refusals AS (
  SELECT
    e.capture, e.topic, e.client_ip, e.request_command, e.error_code, e.error_text,
    e.request_frame_no, e.response_frame_no, e.response_last_ns AS at_ns,
    CASE
      WHEN
        e.response_last_ns - lag(e.response_last_ns) OVER topic_of_client
        <= $pause_s * 1000000000 THEN 0
      ELSE 1
    END AS begins
  FROM exchanges AS e
  WHERE
    e.outcome = 'error' AND e.kind = 'request' AND e.response_last_ns IS NOT NULL
    AND e.topic IS NOT NULL
    AND (
      e.error_code = 'ServiceNotReady'
      OR (e.error_code = 'PersistenceError' AND e.request_command IN ('PRODUCER', 'SUBSCRIBE'))
    )
  WINDOW topic_of_client AS (
    PARTITION BY e.capture, e.topic, e.client_ip ORDER BY e.response_last_ns, e.response_frame_no
  )
),
refusal_runs AS (
  SELECT
    r.*,
    sum(r.begins) OVER (
      PARTITION BY r.capture, r.topic, r.client_ip ORDER BY r.at_ns, r.response_frame_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS story
  FROM refusals AS r
),
refused_opens AS (
  SELECT
    r.capture, r.topic, r.client_ip, min(r.at_ns) AS first_ns, max(r.at_ns) AS last_ns,
    count(*) AS refused, max_by(r.request_command, r.response_frame_no) AS command,
    max_by(r.error_code, r.response_frame_no) AS error_code, max_by(r.error_text, r.response_frame_no) AS error_text,
    min(r.request_frame_no) AS first_no, min(r.response_frame_no) AS first_answer_no,
    max(r.response_frame_no) AS last_no
  FROM refusal_runs AS r
  GROUP BY r.capture, r.topic, r.client_ip, r.story
  HAVING count(*) >= $refusals AND max(r.at_ns) - min(r.at_ns) >= $lasting_s * 1000000000
),
opens AS ( -- Opens without an answer, or with one after the client gave up.
  SELECT
    o.kind, o.capture, o.connection_id, o.id, o.incarnation, o.topic, o.client_ip,
    o.opened_frame_no, o.ready_frame_no, o.opened_ns, o.answered_ns, o.link_last_ns, o.outcome,
    o.name, o.subscription, o.client_version,
    CASE WHEN o.closed_by = 'broker' AND o.refused_code IS NULL THEN o.closed_frame_no END
      AS closed_no
  FROM pulsar_opens AS o
  LEFT JOIN producers AS p
    ON p.capture = o.capture AND p.connection_id = o.connection_id AND p.producer_id = o.id
    AND p.incarnation = o.incarnation AND o.kind = 'producer'
  WHERE
    coalesce(p.access_mode, 'Shared') <> 'WaitForExclusive' AND o.topic IS NOT NULL
    AND CASE
      WHEN o.outcome = 'ok' THEN o.answered_ns - o.opened_ns
      WHEN o.outcome IN ('conn_closed', 'unanswered_at_end') THEN o.link_last_ns - o.opened_ns
      ELSE 0
    END >= CASE
      WHEN o.closed_by = 'broker' AND o.refused_code IS NULL THEN $lasting_s ELSE $timeout_s
    END * 1000000000
),
observed_opens AS (
  SELECT
    o.kind, o.capture, o.connection_id, o.id, o.incarnation, o.topic, o.client_ip,
    o.opened_frame_no, o.ready_frame_no, o.opened_ns, o.answered_ns, o.link_last_ns, o.outcome,
    o.name, o.subscription, o.client_version, o.closed_no,
    max(CASE WHEN f.frame_no = o.closed_no THEN f.last_ts_ns END) AS closed_ns,
    min(
      CASE
        WHEN f.command = 'TOPIC_MIGRATED'
          AND o.id = CASE o.kind WHEN 'producer' THEN f.producer_id ELSE f.consumer_id END
          THEN f.frame_no
      END
    ) AS migrated_no,
    count(*) FILTER (WHERE f.command = 'PONG' AND f.direction = 'to_client') AS pongs,
    max(CASE WHEN f.command = 'PONG' AND f.direction = 'to_client' THEN f.frame_no END) AS pong_no,
    count(
      CASE
        WHEN o.kind = 'producer' AND f.command = 'SEND' AND f.producer_id = o.id THEN 1
        WHEN o.kind = 'consumer' AND f.command = 'FLOW' AND f.consumer_id = o.id THEN 1
      END
    ) AS uses
  FROM opens AS o
  JOIN frames AS f
    ON f.capture = o.capture AND f.connection_id = o.connection_id
    AND f.frame_no > o.opened_frame_no
  GROUP BY ALL
),
answered_opens AS ( -- Opens that the broker answered otherwise, and the next granted one.
  SELECT
    w.kind, w.capture, w.connection_id, w.topic, w.client_ip, w.client_version, w.opened_frame_no,
    w.opened_ns, w.link_last_ns, w.migrated_no, coalesce(w.migrated_no, w.closed_no) AS answer_no,
    coalesce(max(f.last_ts_ns), w.closed_ns) AS notified_ns,
    max(nullif(regexp_extract(f.detail, '"brokerServiceUrl(Tls)?":"([^"]*)"', 2), ''))
      AS migrated_to,
    min(o.answered_ns) AS followed_ns, min(o.ready_frame_no) AS followed_no,
    min_by(concat(o.broker_ip, ':', CAST(o.broker_port AS STRING)), o.ready_frame_no) AS opened_at
  FROM observed_opens AS w
  LEFT JOIN frames AS f
    ON f.capture = w.capture AND f.connection_id = w.connection_id AND f.frame_no = w.migrated_no
  LEFT JOIN pulsar_opens AS o
    ON o.capture = w.capture AND o.kind = w.kind AND o.topic = w.topic
    AND o.name IS NOT DISTINCT FROM w.name AND o.client_ip = w.client_ip
    AND o.subscription IS NOT DISTINCT FROM w.subscription
    AND o.opened_ns > w.opened_ns AND o.outcome = 'ok' AND o.ready_frame_no IS NOT NULL
  WHERE w.outcome <> 'ok' AND (w.migrated_no IS NOT NULL OR w.closed_no IS NOT NULL)
  GROUP BY
    w.kind, w.capture, w.connection_id, w.topic, w.client_ip, w.client_version, w.opened_frame_no,
    w.opened_ns, w.link_last_ns, w.migrated_no, w.closed_no, w.closed_ns
  HAVING
    coalesce(min(o.answered_ns), w.link_last_ns) - coalesce(max(f.last_ts_ns), w.closed_ns)
    >= $lasting_s * 1000000000
)
SELECT
  r.capture, r.first_ns, r.last_ns, '' AS variant, r.topic AS subject_topic,
  r.client_ip AS subject_client_ip, r.command AS measured_command,
  r.error_code AS measured_error_code, r.error_text AS measured_error_text,
  r.refused AS measured_refused, (r.last_ns - r.first_ns) / 1e9 AS measured_lasted_s,
  count(e.request_frame_no) AS measured_successes, CAST(0 AS BIGINT) AS measured_pongs,
  NULL AS measured_client_version, NULL AS measured_answered_ms,
  NULL AS measured_migrated_to, NULL AS measured_opened_at,
  r.first_no AS frame_first, r.first_answer_no AS frame_first_refusal, r.last_no AS frame_last,
  min(e.response_frame_no) AS frame_sign_of_life
FROM refused_opens AS r
LEFT JOIN exchanges AS e
  ON e.capture = r.capture AND e.topic = r.topic AND e.client_ip = r.client_ip
  AND e.kind = 'request' AND e.outcome = 'ok'
  AND e.request_command IN ('PRODUCER', 'SUBSCRIBE', 'LOOKUP')
  AND e.response_last_ns > r.last_ns
GROUP BY
  r.capture, r.first_ns, r.last_ns, r.topic, r.client_ip, r.command, r.error_code, r.error_text,
  r.refused, r.first_no, r.first_answer_no, r.last_no
UNION ALL BY NAME
SELECT
  w.capture, min(w.opened_ns) AS first_ns, max(w.link_last_ns) AS last_ns,
  'accepted_but_silent' AS variant, w.topic AS subject_topic, w.client_ip AS subject_client_ip,
  CASE w.kind WHEN 'producer' THEN 'PRODUCER' ELSE 'SUBSCRIBE' END AS measured_command,
  count(*) AS measured_refused, max(w.link_last_ns - w.opened_ns) / 1e9 AS measured_lasted_s,
  CAST(0 AS BIGINT) AS measured_successes, max(w.pongs) AS measured_pongs,
  min(w.opened_frame_no) AS frame_first,
  max(w.opened_frame_no) AS frame_last, max(w.pong_no) AS frame_sign_of_life
FROM observed_opens AS w
WHERE w.outcome <> 'ok' AND w.pongs > 0 AND w.migrated_no IS NULL AND w.closed_no IS NULL
GROUP BY w.capture, w.topic, w.client_ip, w.kind
UNION ALL BY NAME
SELECT
  a.capture, min(a.opened_ns) AS first_ns, max(coalesce(a.followed_ns, a.link_last_ns)) AS last_ns,
  CASE
    WHEN a.migrated_no IS NULL THEN 'closed_instead'
    WHEN a.followed_ns IS NULL THEN 'migrated_never_followed'
    ELSE 'migrated_not_followed'
  END AS variant,
  a.topic AS subject_topic, a.client_ip AS subject_client_ip,
  CASE a.kind WHEN 'producer' THEN 'PRODUCER' ELSE 'SUBSCRIBE' END AS measured_command,
  count(*) AS measured_refused,
  max(coalesce(a.followed_ns, a.link_last_ns) - a.notified_ns) / 1e9 AS measured_lasted_s,
  count(a.followed_ns) AS measured_successes, CAST(0 AS BIGINT) AS measured_pongs,
  min_by(a.client_version, a.opened_frame_no) AS measured_client_version,
  min_by((a.notified_ns - a.opened_ns) / 1e6, a.opened_frame_no) AS measured_answered_ms,
  min_by(a.migrated_to, a.opened_frame_no) AS measured_migrated_to,
  min_by(a.opened_at, a.opened_frame_no) AS measured_opened_at,
  min(a.opened_frame_no) AS frame_first,
  max(a.followed_no) AS frame_last,
  min_by(a.answer_no, a.opened_frame_no) AS frame_sign_of_life
FROM answered_opens AS a
GROUP BY
  a.capture, a.topic, a.client_ip, a.kind, a.migrated_no IS NULL, a.followed_ns IS NULL
UNION ALL BY NAME
SELECT
  w.capture, min(w.opened_ns) AS first_ns, max(w.answered_ns) AS last_ns,
  'late_success' AS variant, w.topic AS subject_topic, w.client_ip AS subject_client_ip,
  CASE w.kind WHEN 'producer' THEN 'PRODUCER' ELSE 'SUBSCRIBE' END AS measured_command,
  count(*) AS measured_refused, max(w.answered_ns - w.opened_ns) / 1e9 AS measured_lasted_s,
  CAST(0 AS BIGINT) AS measured_successes, max(w.pongs) AS measured_pongs,
  min(w.opened_frame_no) AS frame_first,
  max(w.ready_frame_no) AS frame_last
FROM observed_opens AS w
WHERE
  w.outcome = 'ok' AND w.uses = 0
  AND w.link_last_ns - w.answered_ns >= $lasting_s * 1000000000
GROUP BY w.capture, w.topic, w.client_ip, w.kind
