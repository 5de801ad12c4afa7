/*
code = "request_refused"
number = "R01"
title = "The broker refused requests"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "errors"
worst = "measured_refusals"
references = ["apache/pulsar#9792", "apache/pulsar#2967", "apache/pulsar-client-cpp#566"]
errors = ["ProducerBlockedQuotaExceededError", "ProducerBlockedQuotaExceededException", "PersistenceError", "MetadataError", "UnknownError", "AuthorizationError", "TopicNotFound", "SubscriptionNotFound", "TopicTerminatedError", "InvalidTopicName", "IncompatibleSchema", "NotAllowedError"]
fires = ["t14-terminated-topic-retried.pcap", "java-j26_backlog_quota.pcap", "java-j23_errors.pcap", "cpp-s15_errors.pcap"]
real = ["java-j26_backlog_quota.pcap", "java-j23_errors.pcap", "cpp-s15_errors.pcap"]
silent = ["t07-txn-ack-conflict.pcap", "java-j01_plain.pcap", "cpp-s02_single_1k.pcap", "java-j51_schema_avro.pcap"]

[needs]
exchange_kinds = "outcome = 'error' AND kind <> 'ack'"

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a client that asks again is through within seconds when the reason goes away"

[text]
what = "The broker refused {command} of {client_ip} on {topic} {refusals} times with {error_code}[: '{error_text}']. Behind the last refusal it granted {granted} such commands of this client."
known = "Request and refusal are both in the capture."
rival = "A state that passes by itself, such as a topic that is being created or moved, or rights that are about to be given."
decides = "What the broker's log says of the first refusal."
do = "Ask dissector explain {error_code} what it means; then the broker's log at that time."

[variant.quota]
severity = "error"
title = "A backlog quota holds producers"
rival = "A quota that was set on purpose, to hold producers rather than to lose messages."
decides = "Which subscription of the topic has the backlog: the topic's statistics say so."
do = "Consume or skip the backlog of that subscription, delete it if nobody needs it, or raise the quota."

[variant.storage]
severity = "warning"
title = "The broker cannot store or read"
rival = "A failure that the next attempt overcame: then such commands were granted behind it."
decides = "The broker's log and the bookies of the topic's ledger at that time."
do = "Look at the bookies and the metadata store at the time of the first refusal."

[variant.lasting]
severity = "warning"
title = "A client is refused again and again"
rival = "An application that tries until something is set up, which is meant so."
decides = "Whether it is granted in the end, and what was changed at the broker then."

[variant.never_open]
like = "lasting"
severity = "error"
title = "A producer or consumer never came to be: the broker refuses it again and again"

[variant.asked]
title = "The broker knows nothing of what a client asked for"
rival = "An application or a client that asks on purpose, to see whether something exists."
decides = "Whether the client goes on as if it had been answered: it then opens something else, or makes what is missing."

[variant.asked_lasting]
like = "asked"
severity = "warning"
title = "A client asks again and again for what is not there"
rival = "An application that polls until something exists."

[variant.sends]
title = "The broker refused sends"
what = "The broker refused {refusals} sends of {client_ip} to {topic} with {error_code}[: '{error_text}']. Behind the last refusal it stored {granted} sends of this client there."
known = "SEND and SEND_ERROR are both in the capture: these sends are not stored by this attempt."
rival = "A topic that was closed or moved just then: clients send again what was refused so, and applications see nothing of it."
decides = "Whether the same sequence ids are sent again and get a receipt."

[variant.sends_lasting]
like = "sends"
severity = "error"
title = "The broker refuses sends again and again"
rival = "An application that sends again what cannot be taken, on purpose."

[variant.final]
title = "A topic that is terminated was written to"
rival = "None: what is terminated takes nothing more, and a retry cannot succeed."
decides = "Who terminated the topic, and when: the broker's log."
do = "Send to another topic."

[variant.final_lasting]
like = "final"
severity = "error"
title = "A client tries again and again to write to a terminated topic"
do = "Send to another topic. The client should give up at once: C++ clients that do not are apache/pulsar-client-cpp#566."
*/
WITH plain_refusals AS (
  SELECT e.*
  FROM exchanges AS e
  JOIN pulsar_links AS l ON l.capture = e.capture AND l.connection_id = e.connection_id
  WHERE
    e.outcome = 'error' AND e.request_frame_no IS NOT NULL AND e.response_last_ns IS NOT NULL
    AND e.error_code IS NOT NULL AND e.kind <> 'ack'
    -- Other errors have rules of their own. A topic has no schema before its first producer, and
    -- clients with a dead-letter policy check whether its topics exist.
    AND e.error_code NOT IN (
      'ProducerBusy', 'ConsumerBusy', 'ProducerFenced', 'ChecksumError', 'ServiceNotReady',
      'AuthenticationError', 'TooManyRequests'
    )
    AND NOT (
      e.error_code = 'ConsumerAssignError'
      AND coalesce(lower(e.error_text), '') LIKE '%conflict%'
    )
    AND NOT (e.request_command = 'GET_SCHEMA' AND e.error_code = 'TopicNotFound')
    AND NOT (
      e.request_command = 'PARTITIONED_METADATA' AND e.error_code = 'TopicNotFound'
      AND (e.topic LIKE '%-DLQ' OR e.topic LIKE '%-RETRY')
    )
),
refused_requests AS (
  SELECT
    e.capture, e.topic, e.client_ip, e.request_command, e.error_code,
    min(e.response_last_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
    min_by(e.error_text, e.response_frame_no) AS error_text, count(*) AS refusals,
    max(CASE WHEN e.error_text LIKE '%fenced%' THEN 1 ELSE 0 END) AS is_fenced,
    min(e.request_frame_no) AS first_no, min(e.response_frame_no) AS refusal_no,
    max(e.response_frame_no) AS last_no
  FROM plain_refusals AS e
  GROUP BY e.capture, e.topic, e.client_ip, e.request_command, e.error_code
),
assessments AS (
  SELECT
    r.*,
    CASE
      WHEN r.error_code = 'TopicTerminatedError' THEN 'final'
      WHEN r.request_command = 'SEND' THEN 'sends'
      WHEN
        r.request_command NOT IN ('PRODUCER', 'SUBSCRIBE')
        AND r.error_code IN ('TopicNotFound', 'SubscriptionNotFound')
        THEN 'asked'
      ELSE ''
    END AS kind,
    r.refusals > 2 AND r.last_ns - r.first_ns >= $lasting_s * 1000000000 AS is_lasting
  FROM refused_requests AS r
)
SELECT
  j.capture, j.first_ns, j.last_ns,
  CASE
    WHEN j.error_code LIKE 'ProducerBlockedQuotaExceeded%' THEN 'quota'
    -- A ledger is also fenced when its topic moves; lookups also fail if no broker is up.
    WHEN
      j.error_code IN ('PersistenceError', 'MetadataError')
      AND j.request_command NOT IN ('LOOKUP', 'PARTITIONED_METADATA') AND j.is_fenced = 0
      THEN 'storage'
    WHEN NOT j.is_lasting THEN j.kind
    WHEN
      j.kind = '' AND j.request_command IN ('PRODUCER', 'SUBSCRIBE')
      AND count(g.request_frame_no) = 0
      THEN 'never_open'
    WHEN j.kind = '' THEN 'lasting'
    ELSE concat(j.kind, '_lasting')
  END AS variant,
  j.topic AS subject_topic, j.client_ip AS subject_client_ip, j.request_command AS subject_command,
  j.error_code AS measured_error_code, nullif(j.error_text, '') AS measured_error_text,
  j.refusals AS measured_refusals, count(g.request_frame_no) AS measured_granted,
  j.first_no AS frame_first_request, j.refusal_no AS frame_first_refusal,
  j.last_no AS frame_last_refusal, min(g.response_frame_no) AS frame_first_granted
FROM assessments AS j
LEFT JOIN exchanges AS g
  ON g.capture = j.capture AND g.client_ip = j.client_ip AND g.request_command = j.request_command
  AND g.topic IS NOT DISTINCT FROM j.topic AND g.outcome = 'ok' AND g.response_last_ns > j.last_ns
GROUP BY
  j.capture, j.topic, j.client_ip, j.request_command, j.error_code, j.error_text, j.refusals,
  j.first_ns, j.last_ns, j.first_no, j.refusal_no, j.last_no, j.kind, j.is_lasting, j.is_fenced
