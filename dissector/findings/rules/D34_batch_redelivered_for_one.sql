/*
number = "D34"
code = "batch_redelivered_for_one"
title = "Whole batches come again for one message"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "redelivery"
worst = "measured_messages"
references = ["apache/pulsar#5969", "apache/pulsar#15341", "apache/pulsar PR 11667"]
fires = ["mut-dup-java-j12_nack_batch.pcap"]
silent = ["java-j12_nack_batch_index.pcap", "java-j12_nack.pcap", "java-j16_dlq_retry.pcap", "java-j01_plain.pcap"]

[needs]
delivery_kinds = "is_redelivered AND redelivery_cause = 'explicit'"

[thresholds.amplification]
value = 2.0
unit = "messages per id that was asked for"
why = "below it the batches are too small to matter"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} asked {requests} times for entries again; {entries} batches came back whole, with {messages} messages: {amplification} for each id that it asked for."
known = "The requests and the batches that followed are in the capture, none of them with a set of what is left of the batch; the broker counts them as redeliveries."
rival = "An application that refused all messages of these batches: then nothing came in vain. Which of them it had taken does not show on the wire unless the client acknowledges by index."
decides = "Whether the application's log shows messages that it had already processed."
do = "Switch on acknowledgement by batch index, in the client and at the broker; or produce smaller batches; and make processing safe against messages that come twice."
*/
SELECT
  d.capture, min(micros(d.ts)) * 1000 AS first_ns, max(micros(d.ts)) * 1000 AS last_ns,
  d.topic AS subject_topic, d.subscription AS subject_subscription,
  d.consumer_name AS subject_consumer_name, l.client_ip AS subject_client_ip,
  max(r.requests) AS measured_requests, count(*) AS measured_entries,
  sum(d.message_count) AS measured_messages,
  sum(d.message_count) / max(r.ids) AS measured_amplification,
  max(r.first_frame) AS frame_first_request,
  min_by(d.previous_frame_no, d.frame_no) AS frame_first_delivery,
  min(d.frame_no) AS frame_first_again, max(d.frame_no) AS frame_last_again
FROM deliveries AS d
JOIN pulsar_links AS l USING (capture, connection_id)
JOIN (
  SELECT
    a.capture, a.connection_id, a.topic, a.subscription, a.consumer_id, a.incarnation,
    count(*) AS ids, count(DISTINCT a.frame_no) AS requests, min(a.frame_no) AS first_frame
  FROM acks AS a
  WHERE a.action IN ('redeliver', 'nack')
  GROUP BY a.capture, a.connection_id, a.topic, a.subscription, a.consumer_id, a.incarnation
) AS r USING (capture, connection_id, topic, subscription, consumer_id, incarnation)
WHERE
  d.is_redelivered AND d.redelivery_cause = 'explicit' AND d.message_count > 1
  AND d.ack_set IS NULL AND d.batch_size = d.message_count
GROUP BY d.capture, d.topic, d.subscription, d.consumer_name, l.client_ip
HAVING sum(d.message_count) >= $amplification * max(r.ids)
