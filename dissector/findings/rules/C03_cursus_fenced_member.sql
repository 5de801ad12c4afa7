/*
number = "C03"
code = "cursus_fenced_member"
title = "A fenced Cursus consumer still gets messages and commits nothing"
severity = "error"
verdict = "proven"
protocol = "cursus"
section = "redelivery"
worst = "measured_messages"
references = ["cursus: pkg/controller", "cursus-java: docs/protocol.md"]
errors = ["GEN_MISMATCH", "NOT_OWNER", "member_not_found"]
fires = ["go-group_rebalance_two_consumers.pcap"]
real = ["go-group_rebalance_two_consumers.pcap"]
silent = ["go-consume_streaming.pcap", "go-crash_redelivery_streaming.pcap", "go-consume_polling.pcap", "py-consume_polling.pcap"]

[needs]
exchange_kinds = "error_code IN ('GEN_MISMATCH', 'NOT_OWNER', 'member_not_found')"

[thresholds.settle_s]
value = 1.0
unit = "s"
why = "what was under way when the group changed arrives within a second"

[text]
what = "Member {member} of group {subscription} was told {error_code} ('{error_text}') and never committed or joined under that name again; {messages} messages in {deliveries} batches were delivered to it later than {settle_s} s behind that, up to {later_s} s."
known = "The refusal (frame {refusal}) and the deliveries behind it are in the capture; no commit of this member was accepted behind it."
rival = "A member that joined again under another name and still drains its old streams."
decides = "Whether the application handles what the old streams bring: then other members handle it, too."
do = "Restart the consumer; look at whether its client joins again when a heartbeat is refused (the Go client's streaming consumer did not)."
*/
WITH fenced_members AS ( -- The first refusal of each member.
  SELECT
    e.capture, e.subscription, e.client_ip, f.consumer_name AS member,
    min(e.response_last_ns) AS refused_ns, min_by(e.error_code, e.response_frame_no) AS error_code,
    min_by(e.error_text, e.response_frame_no) AS error_text,
    min(e.request_frame_no) AS request_no, min(e.response_frame_no) AS refusal_no
  FROM exchanges AS e
  JOIN connections AS c USING (capture, connection_id)
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no AND f.consumer_name IS NOT NULL
  WHERE
    e.error_code IN ('GEN_MISMATCH', 'NOT_OWNER', 'member_not_found') AND e.subscription IS NOT NULL
    AND e.response_last_ns IS NOT NULL AND c.protocol = 'cursus'
  GROUP BY e.capture, e.subscription, e.client_ip, f.consumer_name
),
later_deliveries AS (
  SELECT
    t.capture, t.subscription, t.client_ip, t.member, t.refused_ns, t.error_code, t.error_text,
    t.request_no, t.refusal_no, min(d.topic) AS topic, count(*) AS deliveries,
    sum(d.message_count) AS messages, min(d.frame_no) AS first_no, max(d.frame_no) AS last_no,
    max(micros(d.ts)) AS last_us
  FROM fenced_members AS t
  JOIN deliveries AS d
    ON d.capture = t.capture AND d.subscription = t.subscription AND d.consumer_name = t.member
  WHERE
    d.message_count > 0 AND d.frame_no > t.refusal_no
    AND micros(d.ts) * 1000 > t.refused_ns + $settle_s * 1000000000
  GROUP BY ALL
),
readmitted_members AS ( -- Members with an accepted request after their refusal.
  SELECT t.capture, t.subscription, t.member
  FROM fenced_members AS t
  JOIN exchanges AS e
    ON e.capture = t.capture AND e.subscription = t.subscription AND e.outcome = 'ok'
    AND e.request_frame_no > t.refusal_no
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no AND f.consumer_name = t.member
  WHERE
    e.request_command IN (
      'BATCH_COMMIT', 'COMMIT_OFFSET', 'HEARTBEAT', 'JOIN_GROUP', 'SYNC_GROUP'
    )
  GROUP BY t.capture, t.subscription, t.member
)
SELECT
  c.capture, c.refused_ns AS first_ns, c.last_us * 1000 AS last_ns,
  c.subscription AS subject_subscription, c.member AS subject_member, c.topic AS subject_topic,
  c.client_ip AS subject_client_ip, c.error_code AS measured_error_code,
  c.error_text AS measured_error_text, c.deliveries AS measured_deliveries,
  CAST(c.messages AS BIGINT) AS measured_messages,
  (c.last_us * 1000 - c.refused_ns) / 1e9 AS measured_later_s,
  c.request_no AS frame_request, c.refusal_no AS frame_refusal,
  c.first_no AS frame_first_delivery, c.last_no AS frame_last_delivery
FROM later_deliveries AS c
ANTI JOIN readmitted_members AS a USING (capture, subscription, member)
