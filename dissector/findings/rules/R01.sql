/*
code = "request_refused"
number = "R01"
title = "The broker refused requests"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "errors"
worst = "measured_refusals"
references = ["apache/pulsar#9792", "apache/pulsar#2967"]
errors = ["ProducerBlockedQuotaExceededError", "ProducerBlockedQuotaExceededException", "PersistenceError", "MetadataError", "UnknownError", "AuthorizationError", "TopicNotFound", "SubscriptionNotFound", "TopicTerminatedError", "InvalidTopicName", "IncompatibleSchema", "NotAllowedError"]
fires = ["java-j26_backlog_quota.pcap", "java-j23_errors.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap", "java-j51_schema_avro.pcap"]

[needs]
exchange_kinds = "outcome = 'error'"

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a client that asks again is through within seconds when the reason goes away"

[text]
what = "The broker refused {command} of {client_ip} on {topic} {refusals} times with {error_code}[: '{error_text}']."
known = "Request and refusal are both in the capture."
rival = "An application that asks on purpose, to see whether something exists; or a state that passed by itself."
decides = "Whether the same client was granted the same later: the last refusal is the frame to go on from."
do = "Ask dissector explain {error_code} what it means; then the broker's log at that time."

[variant.quota]
severity = "error"
title = "A backlog quota holds producers"
what = "The broker refused {command} of {client_ip} on {topic} {refusals} times with {error_code}[: '{error_text}']."
rival = "A quota that was set on purpose, to hold producers rather than to lose messages."
decides = "Which subscription of the topic has the backlog: the topic's statistics say so."
do = "Consume or skip the backlog of that subscription, delete it if nobody needs it, or raise the quota."

[variant.storage]
severity = "warning"
title = "The broker cannot store or read"
rival = "A single failure that the next attempt overcame."
decides = "The broker's log and the bookies of the topic's ledger at that time."
do = "Look at the bookies and the metadata store at the time of the first refusal."

[variant.lasting]
severity = "warning"
title = "A client is refused again and again"
rival = "An application that polls until something exists."
*/
SELECT
  e.capture, min(e.response_last_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
  CASE
    WHEN e.error_code LIKE 'ProducerBlockedQuotaExceeded%' THEN 'quota'
    -- A ledger is fenced when its topic moves; lookups fail where no broker is up, too.
    WHEN
      e.error_code IN ('PersistenceError', 'MetadataError')
      AND e.request_command NOT IN ('LOOKUP', 'PARTITIONED_METADATA')
      AND max(e.error_text) NOT LIKE '%fenced%'
      THEN 'storage'
    WHEN
      count(*) > 2 AND max(e.response_last_ns) - min(e.response_last_ns) >= $lasting_s * 1000000000
      THEN 'lasting'
    ELSE ''
  END AS variant,
  e.topic AS subject_topic, e.client_ip AS subject_client_ip, e.request_command AS subject_command,
  e.error_code AS measured_error_code, nullif(max(e.error_text), '') AS measured_error_text,
  count(*) AS measured_refusals,
  min(e.request_frame_no) AS frame_first_request, min(e.response_frame_no) AS frame_first_refusal,
  max(e.response_frame_no) AS frame_last_refusal
FROM exchanges AS e
JOIN pulsar_links AS l ON l.capture = e.capture AND l.connection_id = e.connection_id
WHERE
  e.outcome = 'error' AND e.request_frame_no IS NOT NULL AND e.response_last_ns IS NOT NULL
  AND e.error_code IS NOT NULL
  -- Others have rules of their own, a topic has no schema before its first producer, and clients
  -- with a dead-letter policy ask whether its topics are there.
  AND e.error_code NOT IN (
    'ProducerBusy', 'ConsumerBusy', 'ProducerFenced', 'ChecksumError', 'ServiceNotReady',
    'AuthenticationError', 'TooManyRequests'
  )
  AND NOT (e.request_command = 'GET_SCHEMA' AND e.error_code = 'TopicNotFound')
  AND NOT (
    e.request_command = 'PARTITIONED_METADATA' AND e.error_code = 'TopicNotFound'
    AND (e.topic LIKE '%-DLQ' OR e.topic LIKE '%-RETRY')
  )
GROUP BY e.capture, e.topic, e.client_ip, e.request_command, e.error_code
