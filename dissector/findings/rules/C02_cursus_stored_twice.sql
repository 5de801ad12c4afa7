/*
number = "C02"
code = "cursus_stored_twice"
title = "A Cursus producer sent batches again that had been accepted"
severity = "error"
verdict = "pattern"
protocol = "cursus"
section = "send_latency"
worst = "measured_batches"
references = ["cursus-java: docs/protocol.md", "cursus: docs/protocol-spec.md"]
fires = ["go-broker_stall_ack_timeout.pcap", "java-produce_acks0.pcap"]
real = ["go-broker_stall_ack_timeout.pcap", "java-produce_acks0.pcap"]
silent = ["go-produce_singles_acks_1.pcap", "java-produce.pcap", "py-produce.pcap", "go-idempotent.pcap"]

[needs]
exchange_kinds = "kind = 'publish' AND most_attempts > 1"

[thresholds.accepted]
value = 2
unit = "answers"
why = "two answers of success for the same batch are two copies, but on an idempotent topic"

[text]
what = "{batches} batches of producer {producer_name} to {topic} {batches|was|were} sent more than once and answered OK each time, the worst, sequence {sequence_id}, {copies} times. For {other_offsets} of them the answers name different offsets, for {no_offsets} they name none."
known = "Every copy has the same producer, sequence and partition, and its own answer; all are in the capture."
rival = "An idempotent topic, where the broker answers a copy with OK and does not store it; offsets in answers are the log's end, which other producers move on."
decides = "Whether consumers get the records more than once, or whether the log's end moved by more than one copy."
do = "For acks=0 with a Java or Python client: it takes the answer OK for a failure and sends again, use acks=1. Else look at why the answer took longer than the client's timeout ({slowest_s} s at the slowest), or use an idempotent topic."
*/
WITH repeated_batches AS (
  SELECT DISTINCT e.capture, e.topic, e.producer_name, e.sequence_id
  FROM exchanges AS e
  JOIN connections AS c USING (capture, connection_id)
  WHERE
    e.kind = 'publish' AND e.attempt > 1 AND e.outcome = 'ok' AND e.topic IS NOT NULL
    AND e.producer_name IS NOT NULL AND e.sequence_id IS NOT NULL AND c.protocol = 'cursus'
    AND c.gaps_to_broker = 0 AND c.gaps_to_client = 0
),
copies AS (
  SELECT
    e.capture, e.topic, e.producer_name, e.sequence_id, e.highest_sequence_id, f.partition,
    count(*) AS copies, count(DISTINCT e.entry_id) AS offsets,
    min(e.request_last_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
    max(e.latency_ns) AS slowest_ns, min(e.client_ip) AS client_ip,
    min(e.request_frame_no) AS first_no, min(e.response_frame_no) AS first_answer_no,
    max(e.request_frame_no) AS last_no, max(e.response_frame_no) AS last_answer_no
  FROM repeated_batches AS a
  JOIN exchanges AS e USING (capture, topic, producer_name, sequence_id)
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no AND f.status = 'complete'
  WHERE e.kind = 'publish' AND e.outcome = 'ok'
  GROUP BY ALL
  HAVING count(*) >= $accepted
)
SELECT
  c.capture, min(c.first_ns) AS first_ns, max(c.last_ns) AS last_ns, c.topic AS subject_topic,
  c.producer_name AS subject_producer_name, min(c.client_ip) AS subject_client_ip,
  count(*) AS measured_batches, max(c.copies) AS measured_copies,
  max_by(c.sequence_id, (c.copies, 0 - c.first_no)) AS measured_sequence_id,
  count(CASE WHEN c.offsets > 1 THEN 1 END) AS measured_other_offsets,
  count(CASE WHEN c.offsets = 0 THEN 1 END) AS measured_no_offsets,
  max(c.slowest_ns) / 1e9 AS measured_slowest_s,
  min(c.first_no) AS frame_first_copy, min_by(c.first_answer_no, c.first_no) AS frame_first_answer,
  min_by(c.last_no, c.first_no) AS frame_last_copy,
  min_by(c.last_answer_no, c.first_no) AS frame_last_answer
FROM copies AS c
GROUP BY c.capture, c.topic, c.producer_name
