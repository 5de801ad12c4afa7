/*
number = "D16"
code = "dedup_swallowed_message"
title = "A message was answered as a duplicate, and its first copy is nowhere"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "send_latency"
worst = "measured_sends"
references = ["apache/pulsar#5218", "apache/pulsar-client-go#1407", "apache/pulsar PR 23697", "apache/pulsar#21892"]
fires = []
silent = ["java-j27_dedup.pcap", "cpp-c44_dedup.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "outcome = 'dup_or_dropped'"

[text]
what = "{sends} sends of producer {producer_name} to {topic} got a receipt without a message id, as duplicates do, from sequence {sequence_id} on. No send of these sequences was stored, none was delivered, and they are above the last one that the broker said it had ({last_sequence_id})."
known = "The producer's PRODUCER_SUCCESS, all its sends and their receipts are in the capture; copies were looked for in the whole lake, batches by all their sequence ids."
rival = "A broker that drops messages on purpose, by a policy or by a plugin; or a first copy over a connection that was not captured."
decides = "Reading the topic (or its subscriptions) for the message's sequence id or key: is it there?"
do = "Treat these messages as lost until found. Compare the broker's version with apache/pulsar#5218; give each producer a name of its own and send from one thread per sequence."

[variant.other_content]
severity = "warning"
title = "A new message was taken for a duplicate"
what = "{sends} sends of producer {producer_name} to {topic} got a receipt without a message id, as duplicates do, although the send of the same sequence id that was stored before had a payload of another size ({stored_bytes} bytes, then {payload_bytes}); the first is sequence {sequence_id}."
known = "Both sends and both receipts are in the capture; checksums and payload sizes differ. The broker did not have the sequence when the producer was opened."
rival = "A client that makes the same message anew before it sends it again (compressed otherwise): then the message is stored once, as it should be."
decides = "Whether both sends hold the same application message: compare their payloads or keys."
do = "Give each producer a name of its own, and let sequence ids rise: two that share them lose messages under deduplication."
*/
WITH dropped_sends AS (
  SELECT
    e.capture, e.connection_id, l.client_ip, e.topic, e.producer_name, e.sequence_id,
    coalesce(e.highest_sequence_id, e.sequence_id) AS highest_id, e.crc32c_stored,
    e.request_frame_no, e.response_frame_no, e.request_last_ns, e.response_last_ns,
    p.last_sequence_id, p.ready_frame_no
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN producers AS p USING (capture, connection_id, producer_id, incarnation)
  ANTI JOIN ( -- The first copy, or its receipt, may lie in a hole of an earlier connection.
    SELECT h.capture, h.topic, h.name
    FROM producers AS h
    JOIN connections AS g USING (capture, connection_id)
    WHERE g.gaps_to_broker > 0 OR g.gaps_to_client > 0
  ) AS o ON o.capture = e.capture AND o.topic = e.topic AND o.name = e.producer_name
  WHERE
    e.kind = 'publish' AND e.outcome = 'dup_or_dropped' AND NOT e.tainted
    AND e.topic LIKE 'persistent://%' AND e.producer_name IS NOT NULL
    AND e.sequence_id IS NOT NULL AND e.chunk_id IS NULL AND p.ready_frame_no IS NOT NULL
),
stored_sequences AS ( -- Receipts of the same sequence id, on any connection and capture.
  SELECT
    d.capture, d.connection_id, d.request_frame_no,
    count(*) AS copies,
    max(s.request_frame_no) FILTER (
      WHERE s.sequence_id = d.sequence_id AND s.crc32c_stored <> d.crc32c_stored
        AND s.request_last_ns < d.request_last_ns
        AND coalesce(s.highest_sequence_id, s.sequence_id) = d.highest_id
        AND coalesce(d.last_sequence_id, -1) < d.sequence_id AND s.capture = d.capture
    ) AS other_frame
  FROM dropped_sends AS d
  JOIN exchanges AS s USING (topic, producer_name)
  WHERE
    s.kind = 'publish' AND s.outcome = 'ok' AND s.sequence_id <= d.highest_id
    AND coalesce(s.highest_sequence_id, s.sequence_id) >= d.sequence_id
  GROUP BY d.capture, d.connection_id, d.request_frame_no
),
stored_copies AS ( -- Equal sizes are mostly the same message with a new publish time.
  SELECT
    s.capture, s.connection_id, s.request_frame_no, s.other_frame,
    max(CASE WHEN f.frame_no = s.other_frame THEN f.payload_bytes END) AS stored_bytes,
    max(CASE WHEN f.frame_no = s.request_frame_no THEN f.payload_bytes END) AS payload_bytes
  FROM stored_sequences AS s
  JOIN (
    SELECT capture, frame_no, payload_bytes
    FROM frames
    WHERE
      command = 'SEND'
      AND (capture, frame_no) IN (
        SELECT capture, other_frame FROM stored_sequences
        UNION ALL
        SELECT capture, request_frame_no FROM stored_sequences
      )
  ) AS f USING (capture)
  WHERE s.other_frame IS NOT NULL
  GROUP BY s.capture, s.connection_id, s.request_frame_no, s.other_frame
),
delivered_copies AS (
  SELECT d.capture, d.connection_id, d.request_frame_no, count(*) AS copies
  FROM dropped_sends AS d
  JOIN messages AS m USING (topic, producer_name)
  WHERE
    m.direction = 'to_client' AND m.sequence_id >= d.sequence_id AND m.sequence_id <= d.highest_id
  GROUP BY d.capture, d.connection_id, d.request_frame_no
)
SELECT
  j.capture, min(j.request_last_ns) AS first_ns, max(j.response_last_ns) AS last_ns, j.variant,
  j.topic AS subject_topic, j.producer_name AS subject_producer_name,
  j.client_ip AS subject_client_ip, count(*) AS measured_sends,
  min(j.sequence_id) AS measured_sequence_id, max(j.last_sequence_id) AS measured_last_sequence_id,
  min_by(j.stored_bytes, j.request_frame_no) AS measured_stored_bytes,
  min_by(j.payload_bytes, j.request_frame_no) AS measured_payload_bytes,
  min(j.ready_frame_no) AS frame_producer_success,
  min_by(j.other_frame, j.request_frame_no) AS frame_stored_send,
  min(j.request_frame_no) AS frame_first_send,
  min_by(j.response_frame_no, j.request_frame_no) AS frame_its_receipt
FROM (
  SELECT
    d.*, o.other_frame, o.stored_bytes, o.payload_bytes,
    CASE WHEN o.payload_bytes <> o.stored_bytes THEN 'other_content' ELSE '' END AS variant
  FROM dropped_sends AS d
  LEFT JOIN stored_sequences AS s
    ON s.capture = d.capture AND s.connection_id = d.connection_id
    AND s.request_frame_no = d.request_frame_no
  LEFT JOIN stored_copies AS o
    ON o.capture = d.capture AND o.connection_id = d.connection_id
    AND o.request_frame_no = d.request_frame_no
  LEFT JOIN delivered_copies AS m
    ON m.capture = d.capture AND m.connection_id = d.connection_id
    AND m.request_frame_no = d.request_frame_no
  WHERE
    o.payload_bytes <> o.stored_bytes
    OR (
      s.copies IS NULL AND m.copies IS NULL
      AND (d.last_sequence_id IS NULL OR d.last_sequence_id < d.sequence_id)
    )
) AS j
GROUP BY j.capture, j.variant, j.topic, j.producer_name, j.client_ip
