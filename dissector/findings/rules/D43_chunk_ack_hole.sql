/*
number = "D43"
code = "chunk_ack_hole"
title = "Chunks were delivered and never acknowledged: the client library dropped their message"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "ack_latency"
worst = "measured_messages"
references = ["apache/pulsar-client-go#1397", "apache/pulsar#26675", "apache/pulsar PR 21048"]
fires = ["t06-go-chunk-discarded.pcap"]
silent = ["t06-go-chunk-twin.pcap", "t17-chunked-dlq-twin.pcap", "java-j05_chunk64k_zstd.pcap", "java-j01_plain.pcap"]

[text]
what = "{messages} messages in chunks of {topic} ({uuid}) {messages|is|are} a hole in the acknowledgements of {subscription}: {entries} entries were delivered to {consumer_name} and never acknowledged nor asked for again, though later ones were. Of {chunk_count} chunks of the first of these, {chunks} came, in {first_entries} entries[; chunk {twice} has two ids: {ids}]."
known = "Chunk numbers and message ids are in the MESSAGEs; the capture has no acknowledgement of these entries and no request for them."
rival = "An application that keeps this message, and nothing else, for later."
decides = "The client's log at that time: libraries say when they discard chunks, and give the application nothing."
do = "Look at the client's version; the entries come again when the consumer opens again, and are dropped again. Where a chunk was stored twice, deduplication on the namespace prevents it."
*/
WITH unacked_chunks AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.topic, p.subscription,
    p.consumer_name, p.frame_no, p.at_us, f.chunk_uuid
  FROM passed AS p
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN frames AS f USING (capture, connection_id, frame_no)
  WHERE p.outcome <> 'discarded' AND f.chunk_uuid IS NOT NULL
),
delivered_chunks AS ( -- All delivered chunks of these messages.
  SELECT
    f.capture, f.connection_id, f.consumer_id, f.incarnation, f.chunk_uuid, f.chunk_id,
    max(f.chunk_count) AS chunk_count, min(f.frame_no) AS frame_no,
    count(DISTINCT concat(CAST(f.ledger_id AS STRING), ':', CAST(f.entry_id AS STRING)))
      AS entries,
    min(concat(CAST(f.ledger_id AS STRING), ':', CAST(f.entry_id AS STRING))) AS one_id,
    max(concat(CAST(f.ledger_id AS STRING), ':', CAST(f.entry_id AS STRING))) AS other_id
  FROM frames AS f
  WHERE
    f.command = 'MESSAGE'
    AND (f.capture, f.connection_id, f.chunk_uuid) IN (
      SELECT capture, connection_id, chunk_uuid FROM unacked_chunks
    )
  GROUP BY ALL
),
broken_messages AS (
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation, c.chunk_uuid,
    max(c.chunk_count) AS chunk_count, count(*) AS chunks, sum(c.entries) AS entries,
    min(CASE WHEN c.entries > 1 THEN c.chunk_id END) AS twice,
    min_by(concat(c.one_id, ' and ', c.other_id), CASE WHEN c.entries > 1 THEN c.chunk_id END)
      AS ids
  FROM delivered_chunks AS c
  GROUP BY c.capture, c.connection_id, c.consumer_id, c.incarnation, c.chunk_uuid
  HAVING count(*) < max(c.chunk_count) OR sum(c.entries) > max(c.chunk_count)
),
open_messages AS (
  SELECT
    o.capture, o.connection_id, o.consumer_id, o.incarnation, o.topic, o.subscription,
    o.consumer_name, o.chunk_uuid, count(*) AS entries, min(o.at_us) AS first_us,
    max(o.at_us) AS last_us, min(o.frame_no) AS first_no, max(o.frame_no) AS last_no
  FROM unacked_chunks AS o
  GROUP BY ALL
)
SELECT
  h.capture, min(h.first_us) * 1000 AS first_ns, max(h.last_us) * 1000 AS last_ns,
  h.topic AS subject_topic, h.subscription AS subject_subscription,
  h.consumer_name AS subject_consumer_name, count(*) AS measured_messages,
  CAST(sum(h.entries) AS BIGINT) AS measured_entries,
  min_by(b.chunk_uuid, h.first_no) AS measured_uuid,
  min_by(b.chunk_count, h.first_no) AS measured_chunk_count,
  min_by(b.chunks, h.first_no) AS measured_chunks,
  CAST(min_by(b.entries, h.first_no) AS BIGINT) AS measured_first_entries,
  min_by(b.twice, CASE WHEN b.twice IS NOT NULL THEN h.first_no END) AS measured_twice,
  min_by(b.ids, CASE WHEN b.ids IS NOT NULL THEN h.first_no END) AS measured_ids,
  min(h.first_no) AS frame_first_chunk, max(h.last_no) AS frame_last_chunk
FROM open_messages AS h
JOIN broken_messages AS b USING (capture, connection_id, consumer_id, incarnation, chunk_uuid)
GROUP BY h.capture, h.topic, h.subscription, h.consumer_name
