/*
number = "D17"
code = "frame_over_limit"
title = "A send larger than the broker takes is sent again and again"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "send_latency"
worst = "measured_attempts"
references = ["apache/pulsar#13560", "apache/pulsar#6961", "apache/pulsar#7115", "apache/pulsar#22225"]
fires = []
silent = ["cpp-s24_big.pcap", "java-j05_chunk64k_zstd.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind = 'publish' AND (slowest_ns >= $floor_s * 1000000000 OR outcome IN ('conn_closed', 'unanswered_at_end'))"

[thresholds.room_bytes]
value = 10240
unit = "bytes above the limit that brokers leave for metadata"
why = "the largest frame a broker takes is max_message_size and this"

[thresholds.attempts]
value = 2
unit = "sends of the same sequence"
why = "the second one shows that the client does not give up"

[thresholds.close_s]
value = 1.0
unit = "s"
why = "a broker closes at the length field, at once"

[thresholds.near_bytes]
value = 1024
unit = "bytes below the limit"
why = "what the broker adds to an entry before it stores it fits in here"

[thresholds.floor_s]
value = 10.0
unit = "s"
why = "brokers store within milliseconds"

[text]
what = "Producer {producer_name} sent sequence {sequence_id} to {topic} {attempts} times in frames of {frame_bytes} bytes; the broker takes {limit_bytes} and {room_bytes} bytes for metadata. Each time the connection was closed by the broker, without an error."
known = "CONNECTED names the limit; the frame's length and the close, within {close_s} s, are in the capture."
rival = "None as to the size; a proxy between may have a lower limit still."
decides = "The broker's log has the line 'Adjusted frame length exceeds' at that time."
do = "Look at the message's properties and key: clients check the payload alone. Use chunking, or keep {room_bytes} bytes below the limit; and take this message out, it blocks what is behind it."

[variant.near_limit]
verdict = "pattern"
title = "A send just below the limit got no answer"
what = "Producer {producer_name} sent sequence {sequence_id} to {topic} with a payload of {payload_bytes} bytes, within {near_bytes} bytes of the limit of {limit_bytes}; it got no answer for {waited_s} s ({attempts} times)."
known = "CONNECTED names the limit, and the SEND is whole in the capture."
rival = "Storage that was slow at that time: then smaller sends waited, too."
decides = "Whether the bookies' log says that the entry is too large (nettyMaxFrameSizeBytes)."
do = "Send smaller messages, or raise the bookies' frame size above the broker's limit: until then the topic may hang on this entry."
*/
WITH large_frames AS ( -- They are very few.
  SELECT
    e.capture, e.connection_id, e.topic, e.producer_name, e.client_ip, e.sequence_id, e.outcome,
    e.request_bytes, e.request_frame_no, e.request_first_ns, e.request_last_ns, e.latency_ns,
    c.max_message_bytes, c.closed_first_by, c.last_ts_ns
  FROM exchanges AS e
  JOIN connections AS c USING (capture, connection_id)
  WHERE
    e.kind = 'publish' AND try_subtract(e.request_bytes, c.max_message_bytes) > 0 - $near_bytes
    AND e.topic IS NOT NULL AND e.producer_name IS NOT NULL AND e.request_last_ns IS NOT NULL
    AND (e.outcome IN ('conn_closed', 'unanswered_at_end') OR e.latency_ns >= $floor_s * 1000000000)
    AND c.gaps_to_broker = 0 AND c.gaps_to_client = 0
)
SELECT
  g.capture, min(g.request_first_ns) AS first_ns, max(g.last_ts_ns) AS last_ns, '' AS variant,
  g.topic AS subject_topic, g.producer_name AS subject_producer_name,
  g.client_ip AS subject_client_ip, count(*) AS measured_attempts,
  g.sequence_id AS measured_sequence_id, max(g.request_bytes) AS measured_frame_bytes,
  NULL AS measured_payload_bytes,
  max(g.max_message_bytes) AS measured_limit_bytes, NULL AS measured_waited_s,
  min(g.request_frame_no) AS frame_first_send, max(g.request_frame_no) AS frame_last_send
FROM large_frames AS g
WHERE
  g.outcome = 'conn_closed' AND g.closed_first_by = 'broker'
  AND try_subtract(g.request_bytes, g.max_message_bytes) > $room_bytes
  AND g.last_ts_ns - g.request_last_ns <= $close_s * 1000000000
GROUP BY g.capture, g.topic, g.producer_name, g.client_ip, g.sequence_id
HAVING count(*) >= $attempts
UNION ALL BY NAME
SELECT
  g.capture, min(g.request_first_ns) AS first_ns, max(g.last_ts_ns) AS last_ns,
  'near_limit' AS variant, g.topic AS subject_topic, g.producer_name AS subject_producer_name,
  g.client_ip AS subject_client_ip, count(*) AS measured_attempts,
  g.sequence_id AS measured_sequence_id, max(g.request_bytes) AS measured_frame_bytes,
  max(f.payload_bytes) AS measured_payload_bytes,
  max(g.max_message_bytes) AS measured_limit_bytes,
  max(coalesce(g.latency_ns, g.last_ts_ns - g.request_last_ns)) / 1e9 AS measured_waited_s,
  min(g.request_frame_no) AS frame_first_send, max(g.request_frame_no) AS frame_last_send
FROM large_frames AS g
JOIN frames AS f
  ON f.capture = g.capture AND f.connection_id = g.connection_id
  AND f.frame_no = g.request_frame_no
WHERE
  try_subtract(f.payload_bytes, g.max_message_bytes) <= 0
  AND try_subtract(f.payload_bytes, g.max_message_bytes) >= 0 - $near_bytes
  AND try_subtract(g.request_bytes, g.max_message_bytes) <= $room_bytes
  AND coalesce(g.latency_ns, g.last_ts_ns - g.request_last_ns) >= $floor_s * 1000000000
GROUP BY g.capture, g.topic, g.producer_name, g.client_ip, g.sequence_id
