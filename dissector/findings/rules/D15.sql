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
silent = ["cpp-c44_dedup.pcap", "java-j01_plain.pcap"]

[thresholds.receipts]
value = 2
unit = "receipts"
why = "two receipts with different ids for the same bytes are two entries of the log"

[text]
what = "{messages} sends of producer {producer_name} to {topic} were stored more than once; the worst, sequence {sequence_id}, {copies} times."
known = "The broker answered sends with the same producer, sequence id and CRC32C with different message ids."
rival = "An application run that uses the name again and sends the same bytes under the same sequence id; equal checksums, which hold the publish time in most clients, make that unlikely."
decides = "Whether the second send is a resend of the client: it follows a close or a lost connection within the client's send timeout."
do = "Switch on deduplication for the namespace, or let consumers recognise what they have seen; look at what ended the first attempt."
*/
SELECT
  s.capture, min(s.first_ns) AS first_ns, max(s.last_ns) AS last_ns, s.topic AS subject_topic,
  s.producer_name AS subject_producer_name, min(s.client_ip) AS subject_client_ip,
  count(*) AS measured_messages, max(s.copies) AS measured_copies,
  min_by(s.sequence_id, s.first_frame) AS measured_sequence_id,
  min(s.first_frame) AS frame_first_send, min_by(s.first_receipt, s.first_frame) AS frame_first_receipt,
  min_by(s.last_frame, s.first_frame) AS frame_last_send,
  min_by(s.last_receipt, s.first_frame) AS frame_last_receipt
FROM (
  SELECT
    e.capture, e.topic, e.producer_name, e.sequence_id, e.chunk_id, e.crc32c_stored,
    min(e.client_ip) AS client_ip, min(e.request_first_ns) AS first_ns,
    max(e.response_last_ns) AS last_ns,
    count(DISTINCT concat(CAST(e.ledger_id AS STRING), ':', CAST(e.entry_id AS STRING))) AS copies,
    min(e.request_frame_no) AS first_frame,
    min_by(e.response_frame_no, e.request_frame_no) AS first_receipt,
    max(e.request_frame_no) AS last_frame,
    max_by(e.response_frame_no, e.request_frame_no) AS last_receipt
  FROM exchanges AS e
  ANTI JOIN twins AS t ON t.capture = e.capture AND t.connection_id = e.connection_id
  WHERE
    e.kind = 'publish' AND e.outcome = 'ok' AND e.entry_id IS NOT NULL AND NOT e.tainted
    AND e.request_frame_no IS NOT NULL AND e.sequence_id IS NOT NULL
    AND e.crc32c_stored IS NOT NULL AND e.producer_name IS NOT NULL
    AND e.topic LIKE 'persistent://%' AND e.producer_name NOT LIKE 'pulsar.repl.%'
  GROUP BY e.capture, e.topic, e.producer_name, e.sequence_id, e.chunk_id, e.crc32c_stored
) AS s
WHERE s.copies >= $receipts
GROUP BY s.capture, s.topic, s.producer_name
