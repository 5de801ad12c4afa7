/*
number = "C06"
code = "cursus_refused_on_and_on"
title = "A Cursus broker refuses the same request on and on"
severity = "error"
verdict = "proven"
protocol = "cursus"
section = "errors"
worst = "measured_refusals_seen"
references = ["cursus: pkg/protocol/errors.go", "cursus-java: docs/protocol.md"]
errors = ["NOT_LEADER", "NOT_COORDINATOR", "NOT_PARTITION_LEADER", "coordinator_not_available", "no_raft_leader", "leader_not_found", "STALE_LEADER_EPOCH", "producer_fenced", "stale_producer_epoch", "OFFSET_OUT_OF_RANGE", "authentication_required", "authentication_failed", "NOT_AUTHORIZED_FOR_TOPIC", "topic_not_found", "partition_not_found", "group_not_found"]
fires = []
silent = ["go-auth_sasl.pcap", "raw-commands_all.pcap", "py-consume_polling.pcap", "java-produce.pcap"]

[needs]
exchange_kinds = "outcome = 'error'"

[thresholds.refusals]
value = 5
unit = "refusals"
why = "clients look for another broker, or give up, after two or three"

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a cluster has a new leader, or coordinator, within seconds"

[thresholds.pause_s]
value = 60.0
unit = "s"
why = "refusals further apart are two stories"

[text]
what = "{broker_ip} refused {command} of {client_ip}[ (topic {topic})][ (group {group})] {refusals_seen} times in {lasted_s} s: {error_code} '{error_text}'. {successes} such requests of this client for the same {successes|was|were} answered OK by any broker meanwhile or later."
known = "Every request and every refusal is in the capture."
rival = "A client that is meant to poll until something is there."
decides = "What the error asks for: routing errors name the broker to ask instead, fencing errors ask for a new join or a new epoch, others for a change of settings."
do = "Look at why the client goes on asking the same broker the same; for routing errors compare the addresses that brokers advertise with those that the client can reach."
*/
WITH refusals AS (
  SELECT
    e.capture, e.client_ip, e.broker_ip, e.request_command, e.topic, e.subscription, e.error_code,
    e.error_text, e.request_frame_no, e.response_frame_no, e.response_last_ns AS at_ns,
    CASE
      WHEN
        e.response_last_ns - lag(e.response_last_ns) OVER same <= $pause_s * 1000000000 THEN 0
      ELSE 1
    END AS begins
  FROM exchanges AS e
  JOIN connections AS c USING (capture, connection_id)
  WHERE
    e.outcome = 'error' AND e.error_code IS NOT NULL AND e.response_last_ns IS NOT NULL
    AND e.request_command IS NOT NULL AND c.protocol = 'cursus'
  WINDOW same AS (
    PARTITION BY
      e.capture, e.client_ip, e.broker_ip, e.request_command, e.topic, e.subscription, e.error_code
    ORDER BY e.response_last_ns, e.response_frame_no
  )
),
refusal_runs AS (
  SELECT
    r.*,
    sum(r.begins) OVER (
      PARTITION BY
        r.capture, r.client_ip, r.broker_ip, r.request_command, r.topic, r.subscription,
        r.error_code
      ORDER BY r.at_ns, r.response_frame_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS story
  FROM refusals AS r
),
long_runs AS (
  SELECT
    t.capture, t.client_ip, t.broker_ip, t.request_command, t.topic, t.subscription, t.error_code,
    max_by(t.error_text, t.at_ns) AS error_text, count(*) AS refusals, min(t.at_ns) AS first_ns,
    max(t.at_ns) AS last_ns, min(t.request_frame_no) AS first_no,
    min(t.response_frame_no) AS first_answer_no, max(t.response_frame_no) AS last_no
  FROM refusal_runs AS t
  GROUP BY
    t.capture, t.client_ip, t.broker_ip, t.request_command, t.topic, t.subscription, t.error_code,
    t.story
  HAVING count(*) >= $refusals AND max(t.at_ns) - min(t.at_ns) >= $lasting_s * 1000000000
)
SELECT
  l.capture, l.first_ns, l.last_ns, l.client_ip AS subject_client_ip,
  l.broker_ip AS subject_broker_ip, l.request_command AS subject_command,
  l.topic AS subject_topic, l.subscription AS subject_group,
  l.error_code AS measured_error_code, l.error_text AS measured_error_text,
  l.refusals AS measured_refusals_seen, (l.last_ns - l.first_ns) / 1e9 AS measured_lasted_s,
  count(e.request_frame_no) AS measured_successes, l.first_no AS frame_first_request,
  l.first_answer_no AS frame_first_refusal, l.last_no AS frame_last_refusal,
  min(e.response_frame_no) AS frame_success
FROM long_runs AS l
LEFT JOIN exchanges AS e
  ON e.capture = l.capture AND e.client_ip = l.client_ip AND e.outcome = 'ok'
  AND e.request_command = l.request_command AND e.topic IS NOT DISTINCT FROM l.topic
  AND e.subscription IS NOT DISTINCT FROM l.subscription AND e.request_last_ns > l.first_ns
GROUP BY
  l.capture, l.first_ns, l.last_ns, l.client_ip, l.broker_ip, l.request_command, l.topic,
  l.subscription, l.error_code, l.error_text, l.refusals, l.first_no, l.first_answer_no, l.last_no
