/*
number = "D45"
code = "seek_past_end"
title = "A seek goes to a time that has not come yet"
severity = "warning"
verdict = "proven"
protocol = "pulsar"
section = "redelivery"
worst = "measured_seeks"
references = ["apache/pulsar#7775", "apache/pulsar#3975"]
fires = []
silent = ["java-j21_seek.pcap", "cpp-s12_seek-bem.pcap", "cpp-s12_seek.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "request_command = 'SEEK' AND outcome = 'ok'"

[thresholds.ahead_s]
value = 10.0
unit = "s"
why = "clocks of hosts are closer, and who seeks to the present means the present"

[thresholds.seconds]
value = 1000000000
unit = "ms"
why = "times in seconds since 1970 are above it and below 100 times as much from 2001 on; as milliseconds these are days of 1970 to 1973"

[text]
what = "{seeks} seeks of {client_ip} on subscription {subscription} of {topic} go to the publish time {sought_ms} ms since 1970, {ahead_s} s behind the present of the capture: the subscription stands at the end of the topic then, and what was not acknowledged is skipped."
known = "SEEK with its time and the broker's answer are in the capture."
rival = "An application that skips its backlog on purpose, and says so with a time that is surely ahead."
decides = "The unit in which the application reckons: publish times are milliseconds; microseconds and nanoseconds lie far ahead."
do = "Seek to milliseconds since 1970; to skip a backlog, seek to MessageId.latest."

[variant.seconds]
title = "A seek goes to 1970: its time looks like seconds"
what = "{seeks} seeks of {client_ip} on subscription {subscription} of {topic} go to the publish time {sought_ms} ms since 1970, which is a day of 1970 to 1973: the subscription begins at the oldest message of the topic."
rival = "An application that wants all messages again, and says so with a time that is surely before them."
decides = "The unit in which the application reckons: publish times are milliseconds, and this number of seconds is a day of this century."
do = "Seek to milliseconds since 1970; to begin with the oldest message, seek to MessageId.earliest."

[variant.id]
verdict = "pattern"
title = "A seek goes to a message id behind the last one"
what = "{seeks} seeks of {client_ip} on subscription {subscription} of {topic} go to message {sought_id}, behind {last_id}, the last one that the capture shows until then: the subscription stands at the end of the topic, and what was not acknowledged is skipped."
known = "SEEK with its id, the broker's answer, and ids of the topic in receipts, deliveries and answers to GET_LAST_MESSAGE_ID are in the capture."
rival = "A message that was stored by a producer outside of the capture and has this id."
decides = "The topic's last id (pulsar-admin topics last-message-id) at that time."
do = "Find out where the application has the id from: that of another topic, of another partition or of a topic that was deleted means nothing here."
*/
WITH seeks AS (
  SELECT
    e.capture, e.topic, e.subscription, l.client_ip, f.frame_no, e.response_frame_no,
    micros(f.ts) AS at_us, f.ledger_id, f.entry_id,
    TRY_CAST(regexp_extract(f.detail, '"message_publish_time":([0-9]+)', 1) AS BIGINT) AS sought_ms
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no
  WHERE e.request_command = 'SEEK' AND e.outcome = 'ok' AND e.topic LIKE 'persistent://%'
),
known_ids AS ( -- Entry ids of topics with a SEEK, and when each was first seen.
  SELECT capture, topic, ledger_id, entry_id, floor_div(response_last_ns, 1000) AS at_us
  FROM exchanges
  WHERE
    kind = 'publish' AND entry_id >= 0 AND ledger_id >= 0
    AND (capture, topic) IN (SELECT capture, topic FROM seeks)
  UNION ALL
  SELECT capture, topic, ledger_id, entry_id, micros(ts)
  FROM deliveries
  WHERE entry_id >= 0 AND (capture, topic) IN (SELECT capture, topic FROM seeks)
  UNION ALL
  SELECT e.capture, e.topic, f.ledger_id, f.entry_id, micros(f.ts)
  FROM exchanges AS e
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.response_frame_no
  WHERE
    e.request_command = 'GET_LAST_MESSAGE_ID' AND e.outcome = 'ok' AND f.entry_id >= 0
    AND (e.capture, e.topic) IN (SELECT capture, topic FROM seeks)
),
last_ids AS (
  SELECT
    s.capture, s.frame_no, max(i.ledger_id) AS ledger_id,
    max_by(i.entry_id, (i.ledger_id, i.entry_id)) AS entry_id
  FROM seeks AS s
  JOIN known_ids AS i ON i.capture = s.capture AND i.topic = s.topic AND i.at_us <= s.at_us
  GROUP BY s.capture, s.frame_no
),
assessments AS (
  SELECT
    s.*, i.ledger_id AS last_ledger_id, i.entry_id AS last_entry_id,
    CASE
      WHEN s.sought_ms > floor_div(s.at_us, 1000) + $ahead_s * 1000 THEN ''
      WHEN s.sought_ms BETWEEN $seconds AND CAST($seconds AS BIGINT) * 100 THEN 'seconds'
      -- The greatest id of all means the end.
      WHEN
        s.ledger_id >= 0 AND s.ledger_id < 9223372036854775807
        AND (
          s.ledger_id > i.ledger_id OR (s.ledger_id = i.ledger_id AND s.entry_id > i.entry_id + 1)
        )
        THEN 'id'
    END AS way
  FROM seeks AS s
  LEFT JOIN last_ids AS i ON i.capture = s.capture AND i.frame_no = s.frame_no
)
SELECT
  j.capture, min(j.at_us) * 1000 AS first_ns, max(j.at_us) * 1000 AS last_ns, j.way AS variant,
  j.topic AS subject_topic, j.subscription AS subject_subscription,
  j.client_ip AS subject_client_ip, count(*) AS measured_seeks,
  CAST(min_by(j.sought_ms, j.frame_no) AS STRING) AS measured_sought_ms,
  min_by(j.sought_ms / 1e3 - j.at_us / 1e6, j.frame_no) AS measured_ahead_s,
  min_by(
    concat(CAST(j.ledger_id AS STRING), ':', CAST(j.entry_id AS STRING)), j.frame_no
  ) AS measured_sought_id,
  min_by(
    concat(CAST(j.last_ledger_id AS STRING), ':', CAST(j.last_entry_id AS STRING)), j.frame_no
  ) AS measured_last_id,
  min(j.frame_no) AS frame_first_seek, min(j.response_frame_no) AS frame_its_answer,
  max(j.frame_no) AS frame_last_seek
FROM assessments AS j
WHERE j.way IS NOT NULL
GROUP BY j.capture, j.way, j.topic, j.subscription, j.client_ip
