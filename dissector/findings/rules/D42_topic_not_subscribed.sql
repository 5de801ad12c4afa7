/*
number = "D42"
code = "topic_not_subscribed"
title = "A topic that came after the list of topics was subscribed by nobody"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "publish_to_delivery"
worst = "measured_entries"
references = ["apache/pulsar#7157", "apache/pulsar#21236", "apache/pulsar-client-python#171", "apache/pulsar PR 21853"]
fires = ["cpp-c43_pattern.pcap"]
real = ["cpp-c43_pattern.pcap"]
silent = ["java-j01_plain.pcap", "java-j20_partitioned.pcap"]

[needs]
exchange_kinds = "request_command IN ('GET_TOPICS_OF_NAMESPACE', 'WATCH_TOPIC_LIST')"

[thresholds.told_s]
value = 10.0
unit = "s"
why = "a client subscribes within a second of what it is told"

[text]
what = "{entries} entries were stored in {topic}, which no consumer of this capture subscribed. {client_ip} had asked for the topics of {namespace} before it was there, subscribed {subscribed} of them as {subscription}, and did not ask again for {silent_s} s until the capture ended."
known = "The answer with the list (frame {list}) does not name the topic; no later list, and no update of a watched list, went to this client."
rival = "A pattern that the topic does not match, which clients keep to themselves; a next look that comes later than the capture ends."
decides = "The pattern of the consumer, and how often it looks for new topics (patternAutoDiscoveryPeriod, 60 s in most clients)."
do = "Compare the topic's name with the pattern; let clients look more often, or use brokers and clients that watch lists of topics."

[variant.watched]
whole = "a SUBSCRIBE may have come before or come later"
title = "A topic that a watched list named was subscribed by nobody"
what = "{entries} entries were stored in {topic}, which no consumer of this capture subscribed. The broker told {client_ip}, which watches the topics of {namespace}, of this topic, and it was not subscribed in the {silent_s} s until the capture ended; the client subscribed {subscribed} topics."
known = "WATCH_TOPIC_LIST_SUCCESS or WATCH_TOPIC_UPDATE with the topic (frame {list}) is in the capture, and no SUBSCRIBE to it behind it. Brokers name only topics that fit the client's pattern."
rival = "A client that subscribes later than the capture ends, or over a connection that is not in it."
decides = "The client's log at that time: whether it took the update, and what its subscribing failed by."
do = "Look at the client's version; let it look at the whole list from time to time, too (patternAutoDiscoveryPeriod)."
*/
WITH topic_requests AS ( -- A client's last request for the topics of a namespace, and its answer.
  SELECT
    e.capture, l.client_ip, e.connection_id, max(e.response_last_ns) AS answered_ns,
    max_by(e.request_frame_no, e.response_last_ns) AS asked_no,
    max_by(e.response_frame_no, e.response_last_ns) AS list_no
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE e.request_command = 'GET_TOPICS_OF_NAMESPACE' AND e.outcome = 'ok'
  GROUP BY e.capture, l.client_ip, e.connection_id
),
listed_topics AS (
  SELECT
    a.*, CAST(q.detail AS STRING) AS question, CAST(r.detail AS STRING) AS answer,
    row_number() OVER (PARTITION BY a.capture, a.client_ip ORDER BY a.answered_ns DESC) AS place,
    dense_rank() OVER (PARTITION BY a.capture ORDER BY a.client_ip) AS client_no
  FROM topic_requests AS a
  JOIN frames AS q ON q.capture = a.capture AND q.frame_no = a.asked_no
  JOIN frames AS r ON r.capture = a.capture AND r.frame_no = a.list_no
  ANTI JOIN (
    SELECT f.capture, l.client_ip
    FROM frames AS f
    JOIN pulsar_links AS l USING (capture, connection_id)
    WHERE f.command IN ('WATCH_TOPIC_UPDATE', 'WATCH_TOPIC_LIST')
  ) AS w ON w.capture = a.capture AND w.client_ip = a.client_ip
),
watched_topics AS ( -- Topic lists that brokers sent to watching clients; names: before the deleted ones.
  SELECT
    f.capture, l.client_ip, f.connection_id, f.frame_no, f.last_ts_ns AS listed_ns,
    split_part(CAST(f.detail AS STRING), '"deleted_topics"', 1) AS names
  FROM frames AS f
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    f.command IN ('WATCH_TOPIC_LIST_SUCCESS', 'WATCH_TOPIC_UPDATE') AND f.detail IS NOT NULL
  ORDER BY f.capture, f.frame_no
  LIMIT 1000
),
unconsumed_topics AS ( -- Topics with later stored entries and without any consumer.
  SELECT
    e.capture, e.topic, count(*) AS entries, min(e.response_last_ns) AS first_ns,
    max(e.response_last_ns) AS last_ns, min(e.request_frame_no) AS send_no
  FROM exchanges AS e
  ANTI JOIN (
    SELECT DISTINCT capture, topic FROM consumers WHERE topic IS NOT NULL
  ) AS c USING (capture, topic)
  WHERE
    e.kind = 'publish' AND e.outcome = 'ok' AND e.topic LIKE 'persistent://%'
    AND (
      e.capture IN (SELECT capture FROM listed_topics) OR e.capture IN (SELECT capture FROM watched_topics)
    )
  GROUP BY e.capture, e.topic
  ORDER BY e.capture, min(e.response_last_ns), e.topic
  LIMIT 1000
),
-- The LIMITs bound the cost of a capture with thousands of clients and topics.
subscribed_topics AS ( -- Topics of the list that the client subscribed.
  SELECT
    l.capture, l.client_ip, l.list_no, c.subscription, count(DISTINCT c.topic) AS topics
  FROM listed_topics AS l
  JOIN pulsar_opens AS c
    ON c.capture = l.capture AND c.client_ip = l.client_ip AND c.kind = 'consumer'
    AND c.outcome = 'ok' AND contains(l.answer, concat('"', c.topic, '"'))
    AND c.opened_ns >= l.answered_ns
  WHERE l.place = 1 AND l.client_no <= 100
  GROUP BY l.capture, l.client_ip, l.list_no, c.subscription
)
SELECT
  s.capture, s.first_ns, s.last_ns, '' AS variant, s.topic AS subject_topic,
  b.subscription AS subject_subscription, l.client_ip AS subject_client_ip,
  s.entries AS measured_entries, b.topics AS measured_subscribed,
  regexp_extract(l.question, '"namespace":"([^"]*)"', 1) AS measured_namespace,
  (u.end_us * 1000 - l.answered_ns) / 1e9 AS measured_silent_s,
  l.asked_no AS frame_question, l.list_no AS frame_list, s.send_no AS frame_first_send
FROM listed_topics AS l
JOIN subscribed_topics AS b USING (capture, client_ip, list_no)
JOIN unconsumed_topics AS s USING (capture)
JOIN unit_ends AS u USING (capture)
WHERE
  l.place = 1 AND b.topics > 1 AND s.first_ns > l.answered_ns
  AND NOT contains(l.answer, concat('"', s.topic, '"'))
UNION ALL BY NAME
SELECT
  s.capture, min(s.first_ns) AS first_ns, max(s.last_ns) AS last_ns, 'watched' AS variant,
  s.topic AS subject_topic,
  t.client_ip AS subject_client_ip, max(s.entries) AS measured_entries,
  coalesce(max(o.topics), 0) AS measured_subscribed,
  max(regexp_extract(CAST(q.detail AS STRING), '"namespace":"([^"]*)"', 1)) AS measured_namespace,
  (max(u.end_us) * 1000 - min(t.listed_ns)) / 1e9 AS measured_silent_s,
  min(q.frame_no) AS frame_question, min(t.frame_no) AS frame_list,
  min(s.send_no) AS frame_first_send
FROM watched_topics AS t
JOIN unconsumed_topics AS s ON s.capture = t.capture AND contains(t.names, concat('"', s.topic, '"'))
JOIN unit_ends AS u ON u.capture = t.capture
LEFT JOIN frames AS q
  ON q.capture = t.capture AND q.connection_id = t.connection_id
  AND q.command = 'WATCH_TOPIC_LIST'
LEFT JOIN (
  SELECT capture, client_ip, count(DISTINCT topic) AS topics
  FROM pulsar_opens
  WHERE kind = 'consumer' AND outcome = 'ok'
  GROUP BY capture, client_ip
) AS o ON o.capture = t.capture AND o.client_ip = t.client_ip
GROUP BY s.capture, s.topic, t.client_ip
HAVING max(u.end_us) * 1000 - min(t.listed_ns) >= $told_s * 1000000000
