/*
number = "D15"
code = "stored_twice"
title = "A message was stored twice"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "send_latency"
worst = "measured_messages"
references = ["apache/pulsar#150", "apache/pulsar-client-go#650"]
fires = ["java-j24_unload.pcap", "java-j74_corrupt.pcap"]
real = ["java-j24_unload.pcap", "java-j74_corrupt.pcap"]
silent = ["cpp-c44_dedup.pcap", "java-j27_dedup.pcap", "cpp-c41_unload.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind = 'publish' AND most_attempts > 1"
unsent_topics = "topic IS NOT NULL"

[thresholds.ids]
value = 2
unit = "message ids"
why = "two different ids for the same bytes are two entries of the log"

[thresholds.refused_s]
value = 1.0
unit = "s"
why = "sends that left the client before it read the refusal are sent again, too"

[text]
what = "{messages} messages of producer {producer_name} to {topic} {messages|was|were} stored more than once ({extra} entries too many; the worst, sequence {sequence_id}, has {copies} ids). {by_receipt} of them {by_receipt|has|have} two receipts[; of {by_delivery} more a consumer got the second copy]."
known = "Sends of the same producer, sequence id and CRC32C got receipts with different message ids, or were delivered with them. The first attempt lies in the capture, and nothing in it shows why the client sent again."
rival = "An application run that uses the name again and sends the same bytes under the same sequence id; equal checksums, which hold the publish time in most clients, make that unlikely."
decides = "The client's log between the first send and the second."
do = "Switch on deduplication for the namespace, or let consumers recognise what they have seen."

[variant.broker_close]
title = "Messages were stored twice behind the broker's close of the producer"
known = "Sends of the same producer, sequence id and CRC32C got receipts with different message ids, or were delivered with them. The broker closed the producer between the attempts: receipts behind a close are not taken by the client, which sends again."
decides = "Why the broker closed it, in its log: mostly an unload of the topic."
do = "Switch on deduplication for the namespace, or let consumers recognise what they have seen; see why the broker closed it (topic_moved, request_refused)."

[variant.send_error]
title = "Messages were stored twice behind a refused send"
known = "Sends of the same producer, sequence id and CRC32C got receipts with different message ids, or were delivered with them. The broker refused a send of this producer between the attempts, or within {refused_s} s before the first, and the client sent again all that waited, also what the broker was storing."
decides = "The first SEND_ERROR: its reason is what has to be mended."
do = "Look at the refused send first (checksum, size, fenced topic); switch on deduplication for the namespace, or let consumers recognise what they have seen."

[variant.reset]
title = "Messages were stored twice behind a reset connection"
known = "Sends of the same producer, sequence id and CRC32C got receipts with different message ids, or were delivered with them. The first connection was reset before the second attempt; its receipts did not reach the client, or came too late."
decides = "Which side, or what between, sent the reset."
do = "Find out what resets connections; switch on deduplication for the namespace, or let consumers recognise what they have seen."

[variant.keep_alive]
title = "Messages were stored twice behind a connection without signs of life"
known = "Sends of the same producer, sequence id and CRC32C got receipts with different message ids, or were delivered with them. On the first connection a PING stayed unanswered before it was closed."
decides = "Whether the broker stopped reading (broker_reads_paused) or the path was cut."
do = "Find out why PINGs stayed unanswered; switch on deduplication for the namespace, or let consumers recognise what they have seen."

[variant.client_close]
title = "Messages were stored twice behind a connection that the client closed"
known = "Sends of the same producer, sequence id and CRC32C got receipts with different message ids, or were delivered with them. The client closed the first connection by itself before the second attempt."
decides = "Why it did, in its log: some clients close when receipts come late or out of order (apache/pulsar-client-go#650)."
do = "Look at the client's version; switch on deduplication for the namespace, or let consumers recognise what they have seen."

[variant.delivered_twice]
verdict = "pattern"
title = "Consumers get a message under two ids"
what = "{messages} messages of producer {producer_name} on {topic} {messages|was|were} delivered under two message ids or more ({extra} entries too many; the worst, sequence {sequence_id}, has {copies} ids). Its sends are not in this capture."
known = "The entries have the same producer, sequence id and CRC32C, and different message ids: the broker stored both."
decides = "A capture at the producer: what ended the first attempt."
*/
WITH resent_messages AS ( -- Sends that repeat an earlier one; they are few.
  SELECT
    e.capture, e.topic, e.producer_name, e.sequence_id, e.crc32c_stored,
    min_by(e.request_frame_no, e.attempt) AS second_frame,
    min_by(e.response_frame_no, e.attempt) AS second_receipt
  FROM exchanges AS e
  WHERE
    e.kind = 'publish' AND e.attempt > 1 AND NOT e.tainted
    AND e.request_frame_no IS NOT NULL AND e.sequence_id IS NOT NULL
    AND e.crc32c_stored IS NOT NULL AND e.producer_name IS NOT NULL
    AND e.topic LIKE 'persistent://%' AND e.producer_name NOT LIKE 'pulsar.repl.%'
  GROUP BY e.capture, e.topic, e.producer_name, e.sequence_id, e.crc32c_stored
),
log_positions AS ( -- Their entries in the log, from receipts and deliveries.
  SELECT
    r.capture, r.topic, r.producer_name, r.sequence_id, r.crc32c_stored, 1 AS is_receipt,
    e.ledger_id, e.entry_id, e.response_last_ns AS at_ns, e.response_frame_no AS frame_no
  FROM resent_messages AS r
  JOIN (
    SELECT *
    FROM exchanges
    WHERE crc32c_stored IN (SELECT crc32c_stored FROM resent_messages)
  ) AS e USING (capture, topic, producer_name, sequence_id, crc32c_stored)
  WHERE
    e.kind = 'publish' AND e.outcome = 'ok' AND e.entry_id IS NOT NULL AND NOT e.tainted
    AND e.request_frame_no IS NOT NULL
  UNION ALL
  SELECT
    r.capture, r.topic, r.producer_name, r.sequence_id, r.crc32c_stored, 0 AS is_receipt,
    d.ledger_id, d.entry_id, micros(d.ts) * 1000 AS at_ns, d.frame_no
  FROM resent_messages AS r
  JOIN (
    SELECT capture, connection_id, frame_no, topic, producer_name, sequence_id, batch_index,
      direction
    FROM messages
    WHERE (capture, sequence_id) IN (SELECT capture, sequence_id FROM resent_messages)
  ) AS m USING (capture, topic, producer_name, sequence_id)
  JOIN (
    SELECT capture, connection_id, frame_no, ts, ledger_id, entry_id, crc32c_stored
    FROM deliveries
    WHERE crc32c_stored IN (SELECT crc32c_stored FROM resent_messages)
  ) AS d
    ON d.capture = m.capture AND d.connection_id = m.connection_id AND d.frame_no = m.frame_no
    AND d.crc32c_stored = r.crc32c_stored
  WHERE coalesce(m.batch_index, 0) = 0 AND d.entry_id IS NOT NULL AND m.direction = 'to_client'
),
copies AS (
  SELECT
    p.capture, p.topic, p.producer_name, p.sequence_id, p.crc32c_stored,
    count(DISTINCT concat(CAST(p.ledger_id AS STRING), ':', CAST(p.entry_id AS STRING))) AS ids,
    count(
      DISTINCT CASE
        WHEN p.is_receipt = 1
          THEN concat(CAST(p.ledger_id AS STRING), ':', CAST(p.entry_id AS STRING))
      END
    ) AS receipts,
    max(p.at_ns) AS last_ns, max(CASE WHEN p.is_receipt = 1 THEN p.frame_no END) AS receipt_frame,
    max(CASE WHEN p.is_receipt = 0 THEN p.frame_no END) AS message_frame
  FROM log_positions AS p
  GROUP BY p.capture, p.topic, p.producer_name, p.sequence_id, p.crc32c_stored
  HAVING
    count(DISTINCT concat(CAST(p.ledger_id AS STRING), ':', CAST(p.entry_id AS STRING))) >= $ids
),
first_attempts AS ( -- The first attempt of each, and the end of its producer and connection.
  SELECT
    c.capture, c.topic, c.producer_name, c.sequence_id, c.crc32c_stored, c.ids, c.receipts,
    c.last_ns, c.receipt_frame, c.message_frame, e.connection_id, e.producer_id, e.incarnation,
    e.client_ip, e.request_first_ns, e.request_frame_no, e.response_frame_no, r.second_frame,
    l.closed_first_by, l.ended, p.closed_by, p.closed_frame_no, l.last_ts_ns AS link_last_ns,
    row_number() OVER (
      PARTITION BY c.capture, c.topic, c.producer_name, c.sequence_id, c.crc32c_stored
      ORDER BY e.attempt, e.request_frame_no
    ) AS place
  FROM copies AS c
  JOIN resent_messages AS r USING (capture, topic, producer_name, sequence_id, crc32c_stored)
  JOIN (
    SELECT *
    FROM exchanges
    WHERE crc32c_stored IN (SELECT crc32c_stored FROM copies)
  ) AS e USING (capture, topic, producer_name, sequence_id, crc32c_stored)
  JOIN connections AS l ON l.capture = e.capture AND l.connection_id = e.connection_id
  LEFT JOIN producers AS p
    ON p.capture = e.capture AND p.connection_id = e.connection_id
    AND p.producer_id = e.producer_id AND p.incarnation = e.incarnation
  WHERE e.kind = 'publish' AND e.request_frame_no IS NOT NULL
),
connection_ends AS (
  SELECT
    f.capture, f.topic, f.producer_name, f.sequence_id, f.crc32c_stored, f.ids, f.receipts,
    f.last_ns, f.receipt_frame, f.message_frame, f.client_ip, f.request_first_ns,
    f.request_frame_no, f.response_frame_no, f.second_frame, f.closed_first_by, f.ended,
    f.closed_by, f.closed_frame_no,
    min(x.response_frame_no) FILTER (
      WHERE x.kind = 'publish' AND x.outcome = 'error' AND x.producer_id = f.producer_id
        AND x.incarnation = f.incarnation AND x.response_frame_no < f.second_frame
        AND x.response_last_ns >= f.request_first_ns - $refused_s * 1000000000
    ) AS refused_frame,
    min(x.request_frame_no) FILTER (
      WHERE x.kind = 'ping' AND x.outcome = 'conn_closed' AND x.request_frame_no < f.second_frame
    ) AS ping_frame,
    count(CASE WHEN x.request_frame_no = f.second_frame THEN 1 END) AS is_same_link
  FROM first_attempts AS f
  LEFT JOIN exchanges AS x
    ON x.capture = f.capture AND x.connection_id = f.connection_id
    AND x.kind IN ('publish', 'ping')
  WHERE f.place = 1
  GROUP BY ALL
),
copy_causes AS (
  SELECT
    s.*,
    CASE
      WHEN s.closed_by = 'broker' AND s.closed_frame_no < s.second_frame THEN 'broker_close'
      WHEN s.refused_frame IS NOT NULL THEN 'send_error'
      WHEN s.is_same_link > 0 THEN ''
      WHEN s.ping_frame IS NOT NULL THEN 'keep_alive'
      WHEN s.ended = 'rst' THEN 'reset'
      WHEN s.closed_first_by = 'client' THEN 'client_close'
      ELSE ''
    END AS variant,
    coalesce(
      CASE
        WHEN s.closed_by = 'broker' AND s.closed_frame_no < s.second_frame THEN s.closed_frame_no
      END,
      s.refused_frame, s.ping_frame
    ) AS cause_frame
  FROM connection_ends AS s
),
consumed_copies AS ( -- Messages delivered under several ids on topics without captured sends.
  SELECT
    m.capture, m.topic, m.producer_name, m.sequence_id, d.crc32c_stored,
    count(DISTINCT concat(CAST(d.ledger_id AS STRING), ':', CAST(d.entry_id AS STRING))) AS ids,
    min(micros(d.ts)) * 1000 AS first_ns, max(micros(d.ts)) * 1000 AS last_ns,
    min(d.frame_no) AS first_frame, max(d.frame_no) AS last_frame
  FROM (
    SELECT
      capture, connection_id, frame_no, topic, producer_name, sequence_id, batch_index, direction
    FROM messages
    WHERE (capture, topic) IN (SELECT capture, topic FROM unsent_topics)
  ) AS m
  JOIN (
    SELECT capture, connection_id, frame_no, ts, ledger_id, entry_id, crc32c_stored
    FROM deliveries
    WHERE (capture, topic) IN (SELECT capture, topic FROM unsent_topics)
  ) AS d USING (capture, connection_id, frame_no)
  WHERE
    m.direction = 'to_client' AND coalesce(m.batch_index, 0) = 0 AND m.sequence_id IS NOT NULL
    AND m.producer_name IS NOT NULL AND m.producer_name NOT LIKE 'pulsar.repl.%'
    AND d.crc32c_stored IS NOT NULL AND d.entry_id IS NOT NULL
  GROUP BY m.capture, m.topic, m.producer_name, m.sequence_id, d.crc32c_stored
  HAVING min(d.ledger_id) <> max(d.ledger_id) OR min(d.entry_id) <> max(d.entry_id)
)
SELECT
  s.capture, min(s.request_first_ns) AS first_ns, max(s.last_ns) AS last_ns, s.variant,
  s.topic AS subject_topic, s.producer_name AS subject_producer_name,
  min(s.client_ip) AS subject_client_ip, count(*) AS measured_messages,
  sum(s.ids) - count(*) AS measured_extra, max(s.ids) AS measured_copies,
  count(CASE WHEN s.receipts >= $ids THEN 1 END) AS measured_by_receipt,
  nullif(count(CASE WHEN s.receipts < $ids THEN 1 END), 0) AS measured_by_delivery,
  max_by(s.sequence_id, s.ids * 1000000000000 - s.request_frame_no) AS measured_sequence_id,
  max_by(s.request_frame_no, s.ids * 1000000000000 - s.request_frame_no) AS frame_first_send,
  max_by(s.response_frame_no, s.ids * 1000000000000 - s.request_frame_no) AS frame_first_answer,
  max_by(s.cause_frame, s.ids * 1000000000000 - s.request_frame_no) AS frame_what_ended_it,
  max_by(s.second_frame, s.ids * 1000000000000 - s.request_frame_no) AS frame_second_send,
  max_by(s.receipt_frame, s.ids * 1000000000000 - s.request_frame_no) AS frame_last_receipt,
  max_by(s.message_frame, s.ids * 1000000000000 - s.request_frame_no) AS frame_last_message
FROM copy_causes AS s
GROUP BY s.capture, s.variant, s.topic, s.producer_name
UNION ALL BY NAME
SELECT
  h.capture, min(h.first_ns) AS first_ns, max(h.last_ns) AS last_ns,
  'delivered_twice' AS variant, h.topic AS subject_topic,
  h.producer_name AS subject_producer_name,
  count(*) AS measured_messages, sum(h.ids) - count(*) AS measured_extra,
  max(h.ids) AS measured_copies,
  max_by(h.sequence_id, h.ids * 1000000000000 - h.first_frame) AS measured_sequence_id,
  max_by(h.first_frame, h.ids * 1000000000000 - h.first_frame) AS frame_last_receipt,
  max_by(h.last_frame, h.ids * 1000000000000 - h.first_frame) AS frame_last_message
FROM consumed_copies AS h
GROUP BY h.capture, h.topic, h.producer_name
