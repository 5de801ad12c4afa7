/*
number = "D25"
code = "producer_per_message"
title = "A producer is opened for nearly every message"
severity = "warning"
verdict = "proven"
protocol = "pulsar"
section = "connecting"
worst = "measured_opens_seen"
references = ["apache/pulsar-dotpulsar#269", "apache/pulsar#6319", "apache/pulsar PR 10188", "apache/pulsar-client-python#257", "apache/pulsar-client-cpp PR 422", "apache/camel PR 2889"]
fires = []
silent = ["java-j22_reader.pcap", "java-j26_backlog_quota.pcap", "fake-f12_slow_receipts.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "request_command IN ('PRODUCER', 'SUBSCRIBE') AND outcome = 'ok' AND exchanges >= $opens OR request_command IN ('GET_LAST_MESSAGE_ID', 'GET_SCHEMA') AND outcome = 'ok' AND exchanges >= $polls"
pulsar_links = "ended = 'capture_end' AND started = 'syn'"

[thresholds.opens]
value = 20
unit = "opens"
why = "an application opens its producers once; twenty of one topic by one address are a habit"

[thresholds.window_s]
value = 60.0
unit = "s"
why = "twenty in a minute cost more than the messages themselves"

[thresholds.messages]
value = 2
unit = "messages"
why = "a producer that lives sends more than two"

[thresholds.share]
value = 0.8
unit = "of the lives"
why = "a few that live long do not make the others right"

[thresholds.polls]
value = 20
unit = "requests"
why = "a reader asks for the last id a few times while it starts"

[thresholds.polls_per_message]
value = 0.5
unit = "requests per message"
why = "asking before every message or two doubles the time of each"

[thresholds.schemas_per_message]
value = 0.1
unit = "requests per message"
why = "clients keep schemas by version: they ask once per version"

[thresholds.connections]
value = 16
unit = "connections"
why = "clients use one connection, or a few, per broker"

[text]
what = "{client_ip} opened {opens_seen} producers on {topic}, {opens} of them within {closest_s} s; {short} of them sent {messages} messages or fewer, together they sent {messages_seen}. Opening them took {opening_s} s in all, the sends {using_s} s."
known = "Each PRODUCER with its answer, and all sends of each, are in the capture; the client closed them itself."
rival = "Many processes behind one address that start at the same time, or a test."
decides = "Whether these producers are on one connection or few: {connections_seen} here."
do = "Open one producer per topic and process, and keep it: producers are made to be shared by threads."

[variant.reader_per_request]
title = "A consumer or reader is opened for nearly every message"
what = "{client_ip} opened {opens_seen} consumers or readers on {topic}, {opens} of them within {closest_s} s; {short} of them got {messages} messages or fewer, together they got {messages_seen}. Opening them took {opening_s} s in all."
known = "Each SUBSCRIBE with its answer, and all deliveries to each, are in the capture; the client closed them itself."
decides = "Whether these consumers are on one connection or few: {connections_seen} here."
do = "Keep one reader or consumer and seek it; or keep what was read."

[variant.last_id_polling]
severity = "info"
title = "A reader asks for the last message id all the time"
what = "{client_ip} asked {opens_seen} times for the last message id of {topic} and got {messages_seen} messages of it in this capture; it waited {opening_s} s for the answers."
known = "Each GET_LAST_MESSAGE_ID and its answer are in the capture."
rival = "An application that polls an idle topic on purpose."
decides = "Whether the application calls hasMessageAvailable before each read."
do = "Read with a timeout instead of asking first."

[variant.schema_per_message]
severity = "info"
title = "A client asks for schemas all the time"
what = "{client_ip} asked {opens_seen} times for a schema of {topic}, with {messages_seen} messages; it waited {opening_s} s for the answers."
known = "Each GET_SCHEMA and its answer are in the capture."
rival = "Many processes behind one address that each ask once."
decides = "Whether the requests come over one connection: {connections_seen} here."
do = "Look for a schema object that is made for each message."

[variant.connections_growing]
severity = "info"
verdict = "pattern"
title = "A client has more and more connections to one broker"
what = "{client_ip} had {opens_seen} connections to {broker_ip} open at the capture's end; {short} of them {short|was|were} opened in the second half of the {closest_s} s in which they were made."
known = "Each connection's SYN is in the capture, and none of them ended."
rival = "Many processes behind one address."
decides = "How many client processes this address stands for."
do = "Look for clients that are made and never closed, or for a connection pool that is switched off."
*/
WITH opens_closed_by_client AS (
  SELECT
    o.kind, o.capture, o.topic, o.client_ip, o.connection_id, o.id, o.incarnation, o.opened_ns,
    o.answered_ns, o.opened_frame_no, o.closed_frame_no, o.closed_by,
    lead(o.opened_ns, CAST($opens - 1 AS INT)) OVER (
      PARTITION BY o.capture, o.kind, o.topic, o.client_ip
      ORDER BY o.opened_ns, o.opened_frame_no
    ) - o.opened_ns AS many_ns,
    count(*) OVER (PARTITION BY o.capture, o.kind, o.topic, o.client_ip) AS opens
  FROM pulsar_opens AS o
  WHERE
    o.outcome = 'ok' AND o.refused_code IS NULL AND o.topic IS NOT NULL
    AND o.closed_by = 'client' AND o.closed_frame_no IS NOT NULL
),
busy_clients AS (
  SELECT capture, kind, topic, client_ip, min(many_ns) AS closest_ns
  FROM opens_closed_by_client
  WHERE opens >= $opens
  GROUP BY capture, kind, topic, client_ip
  HAVING min(many_ns) <= $window_s * 1000000000
),
producer_lifetimes AS (
  SELECT o.*, b.closest_ns
  FROM opens_closed_by_client AS o
  JOIN busy_clients AS b
    ON b.capture = o.capture AND b.kind = o.kind AND b.topic = o.topic
    AND b.client_ip = o.client_ip
),
sent_messages AS (
  SELECT
    l.kind, l.capture, l.connection_id, l.id, l.incarnation, sum(e.message_count) AS messages,
    sum(e.latency_ns) AS using_ns
  FROM producer_lifetimes AS l
  JOIN exchanges AS e
    ON e.capture = l.capture AND e.connection_id = l.connection_id AND e.producer_id = l.id
    AND e.incarnation = l.incarnation AND e.kind = 'publish'
  WHERE l.kind = 'producer'
  GROUP BY l.kind, l.capture, l.connection_id, l.id, l.incarnation
  UNION ALL BY NAME
  SELECT
    l.kind, l.capture, l.connection_id, l.id, l.incarnation, sum(d.message_count) AS messages
  FROM producer_lifetimes AS l
  JOIN deliveries AS d
    ON d.capture = l.capture AND d.connection_id = l.connection_id AND d.consumer_id = l.id
    AND d.incarnation = l.incarnation
  WHERE l.kind = 'consumer'
  GROUP BY l.kind, l.capture, l.connection_id, l.id, l.incarnation
),
poll_counts AS (
  SELECT
    e.capture, e.client_ip, e.topic, e.request_command, count(*) AS polls,
    count(DISTINCT e.connection_id) AS connections_seen,
    min(e.request_last_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
    sum(e.latency_ns) AS waited_ns, min(e.request_frame_no) AS first_no,
    max(e.response_frame_no) AS last_no
  FROM exchanges AS e
  WHERE
    e.request_command IN ('GET_LAST_MESSAGE_ID', 'GET_SCHEMA') AND e.outcome = 'ok'
    AND e.topic IS NOT NULL
  GROUP BY e.capture, e.client_ip, e.topic, e.request_command
  HAVING count(*) >= $polls
),
moved_messages AS ( -- Messages that polling clients send to the topic and receive from it.
  SELECT a.capture, a.client_ip, a.topic, a.request_command, sum(m.messages) AS messages
  FROM poll_counts AS a
  JOIN (
    SELECT e.capture, e.client_ip, e.topic, e.message_count AS messages, 1 AS is_sent
    FROM exchanges AS e
    WHERE e.kind = 'publish' AND e.topic IN (SELECT topic FROM poll_counts)
    UNION ALL
    SELECT d.capture, l.client_ip, d.topic, d.message_count AS messages, 0 AS is_sent
    FROM deliveries AS d
    JOIN pulsar_links AS l USING (capture, connection_id)
    WHERE d.topic IN (SELECT topic FROM poll_counts)
  ) AS m USING (capture, client_ip, topic)
  WHERE a.request_command = 'GET_SCHEMA' OR m.is_sent = 0
  GROUP BY a.capture, a.client_ip, a.topic, a.request_command
)
SELECT
  l.capture, min(l.opened_ns) AS first_ns, max(l.opened_ns) AS last_ns,
  CASE l.kind WHEN 'producer' THEN '' ELSE 'reader_per_request' END AS variant,
  l.client_ip AS subject_client_ip, l.topic AS subject_topic,
  NULL AS subject_broker_ip, count(*) AS measured_opens_seen,
  min(l.closest_ns) / 1e9 AS measured_closest_s,
  count(CASE WHEN coalesce(u.messages, 0) <= $messages THEN 1 END) AS measured_short,
  CAST(coalesce(sum(u.messages), 0) AS BIGINT) AS measured_messages_seen,
  count(DISTINCT l.connection_id) AS measured_connections_seen,
  sum(l.answered_ns - l.opened_ns) / 1e9 AS measured_opening_s,
  sum(u.using_ns) / 1e9 AS measured_using_s,
  min(l.opened_frame_no) AS frame_first_open, min(l.closed_frame_no) AS frame_first_close,
  max(l.opened_frame_no) AS frame_last_open, max(l.closed_frame_no) AS frame_last_close
FROM producer_lifetimes AS l
LEFT JOIN sent_messages AS u USING (kind, capture, connection_id, id, incarnation)
GROUP BY l.capture, l.kind, l.client_ip, l.topic
HAVING
  count(CASE WHEN coalesce(u.messages, 0) <= $messages THEN 1 END) >= $share * count(*)
UNION ALL BY NAME
SELECT
  a.capture, a.first_ns, a.last_ns,
  CASE a.request_command
    WHEN 'GET_SCHEMA' THEN 'schema_per_message'
    ELSE 'last_id_polling'
  END AS variant,
  a.client_ip AS subject_client_ip, a.topic AS subject_topic,
  a.polls AS measured_opens_seen,
  (a.last_ns - a.first_ns) / 1e9 AS measured_closest_s, CAST(0 AS BIGINT) AS measured_short,
  CAST(coalesce(m.messages, 0) AS BIGINT) AS measured_messages_seen,
  a.connections_seen AS measured_connections_seen, a.waited_ns / 1e9 AS measured_opening_s,
  a.first_no AS frame_first_open,
  a.last_no AS frame_last_close
FROM poll_counts AS a
LEFT JOIN moved_messages AS m USING (capture, client_ip, topic, request_command)
WHERE
  a.polls >= coalesce(m.messages, 0) * CASE a.request_command
    WHEN 'GET_SCHEMA' THEN $schemas_per_message
    ELSE $polls_per_message
  END
UNION ALL BY NAME
SELECT
  g.capture, g.first_ns, g.last_ns, 'connections_growing' AS variant,
  g.client_ip AS subject_client_ip,
  g.broker_ip AS subject_broker_ip, g.connections AS measured_opens_seen,
  (g.last_ns - g.first_ns) / 1e9 AS measured_closest_s, g.late AS measured_short,
  CAST(0 AS BIGINT) AS measured_messages_seen, g.connections AS measured_connections_seen,
  e.first_no AS frame_first_open,
  e.last_no AS frame_last_open
FROM (
  SELECT
    l.capture, l.client_ip, l.broker_ip, min(l.first_ts_ns) AS first_ns,
    max(l.first_ts_ns) AS last_ns, count(*) AS connections,
    count(CASE WHEN l.first_ts_ns > l.middle_ns THEN 1 END) AS late
  FROM (
    SELECT
      l.capture, l.client_ip, l.broker_ip, l.first_ts_ns,
      floor_div(
        min(l.first_ts_ns) OVER (PARTITION BY l.capture, l.client_ip, l.broker_ip)
        + max(l.first_ts_ns) OVER (PARTITION BY l.capture, l.client_ip, l.broker_ip), 2
      ) AS middle_ns
    FROM pulsar_links AS l
    WHERE l.ended = 'capture_end' AND l.started = 'syn'
  ) AS l
  GROUP BY l.capture, l.client_ip, l.broker_ip
  HAVING
    count(*) > $connections AND max(l.first_ts_ns) - min(l.first_ts_ns) >= $window_s * 1000000000
    AND count(CASE WHEN l.first_ts_ns > l.middle_ns THEN 1 END) * 3 >= count(*)
    AND count(CASE WHEN l.first_ts_ns <= l.middle_ns THEN 1 END) * 3 >= count(*)
) AS g
JOIN (
  SELECT
    capture, client_ip, broker_ip, min(request_frame_no) AS first_no,
    max(request_frame_no) AS last_no
  FROM exchanges
  WHERE request_command = 'CONNECT'
  GROUP BY capture, client_ip, broker_ip
) AS e USING (capture, client_ip, broker_ip)
