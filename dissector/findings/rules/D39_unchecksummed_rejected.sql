/*
number = "D39"
code = "unchecksummed_rejected"
title = "A consumer throws away messages that have no checksum"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "checksum_failures"
worst = "measured_messages"
references = ["apache/pulsar#16625"]
errors = ["ChecksumMismatch"]
fires = ["go_client.pcap"]
real = ["go_client.pcap"]
silent = ["go-g01_plain.pcap", "java-j01_plain.pcap", "fake-f08_badcrc.pcap"]

[needs]
delivery_kinds = "checksum = 'absent' AND outcome = 'discarded'"

[thresholds.messages]
value = 1
unit = "messages"
why = "each one is lost to the subscription without a word to the application"

[text]
what = "{messages} messages without a checksum {messages|was|were} delivered to consumer {consumer_name} of {subscription} on {topic}, and it discarded {messages|it|them} as corrupt."
known = "The MESSAGE carries no CRC32C, and the ACK that took it off the subscription has the validation error ChecksumMismatch."
rival = "A client that computes a checksum over other bytes and finds them wrong: here there was none to compare with."
decides = "What the client's log says at that time: 'Discarding corrupted message' names the id."
do = "These messages are lost to the subscription, silently. Produce with a client that sends checksums, or consume with one that takes messages without."
*/
SELECT
  d.capture, min(f.last_ts_ns) AS first_ns, max(f.last_ts_ns) AS last_ns, d.topic AS subject_topic,
  d.subscription AS subject_subscription, d.consumer_name AS subject_consumer_name,
  c.client_ip AS subject_client_ip, count(*) AS measured_messages,
  min(d.frame_no) AS frame_first_message, min(d.ack_frame_no) AS frame_first_discard,
  max(d.frame_no) AS frame_last_message, max(d.ack_frame_no) AS frame_last_discard
FROM deliveries AS d
JOIN frames AS f USING (capture, connection_id, frame_no)
JOIN frames AS a
  ON a.capture = d.capture AND a.connection_id = d.connection_id AND a.frame_no = d.ack_frame_no
  AND a.validation_error = 'ChecksumMismatch'
JOIN connections AS c USING (capture, connection_id)
WHERE d.checksum = 'absent' AND d.outcome = 'discarded' AND f.status = 'complete'
GROUP BY d.capture, d.topic, d.subscription, d.consumer_name, c.client_ip
HAVING count(*) >= $messages
