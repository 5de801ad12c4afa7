/*
number = "D35"
code = "redelivery_count_unavailable"
title = "Redeliveries are asked for where the broker counts none"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "redelivery"
worst = "measured_requests"
references = ["apache/pulsar#6721", "apache/pulsar#15836"]
fires = []
silent = ["java-j12_nack.pcap", "cpp-s08_nack.pcap", "java-j16_dlq_retry.pcap", "java-j01_plain.pcap"]

[thresholds.requests]
value = 1
unit = "requests"
why = "the type of the subscription alone decides"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} asked {requests} times for messages to be delivered again; {redelivered} deliveries to it {redelivered|was|were} such, the highest redelivery count in them is {highest_count}."
known = "The subscription is of type {subscription_type}, for which the broker keeps no redelivery count; and it sends all that is unacknowledged again, whatever the request names."
rival = "None."
decides = "Nothing further."
do = "A dead-letter policy by redelivery count cannot work here. Take a subscription of type Shared or Key_Shared, or the client's retry topic, which counts in the message."
*/
WITH requests AS (
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription,
    c.subscription_type, c.consumer_name, c.client_ip, count(*) AS requests,
    min(f.last_ts_ns) AS first_ns, max(f.last_ts_ns) AS last_ns,
    min(f.frame_no) AS first_frame_no, max(f.frame_no) AS last_frame_no
  FROM (
    SELECT capture, connection_id, consumer_id, incarnation, frame_no, last_ts_ns
    FROM frames
    WHERE command = 'REDELIVER_UNACKNOWLEDGED_MESSAGES' AND status = 'complete'
  ) AS f
  JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
  WHERE c.subscription_type IN ('Exclusive', 'Failover')
  GROUP BY ALL
),
redeliveries AS (
  SELECT
    r.capture, r.connection_id, r.consumer_id, r.incarnation, count(*) AS redelivered,
    max(d.redelivery_count) AS highest_count, min(d.frame_no) AS frame_no
  FROM requests AS r
  JOIN (
    SELECT capture, connection_id, consumer_id, incarnation, frame_no, redelivery_count
    FROM deliveries
    WHERE
      is_redelivered AND (capture, connection_id) IN (SELECT capture, connection_id FROM requests)
  ) AS d
    ON d.capture = r.capture AND d.connection_id = r.connection_id
    AND d.consumer_id = r.consumer_id AND d.incarnation = r.incarnation
    AND d.frame_no > r.first_frame_no
  GROUP BY r.capture, r.connection_id, r.consumer_id, r.incarnation
)
SELECT
  r.capture, r.first_ns, r.last_ns, r.topic AS subject_topic,
  r.subscription AS subject_subscription, r.consumer_name AS subject_consumer_name,
  r.client_ip AS subject_client_ip, r.subscription_type AS measured_subscription_type,
  r.requests AS measured_requests, coalesce(a.redelivered, 0) AS measured_redelivered,
  coalesce(a.highest_count, 0) AS measured_highest_count,
  r.first_frame_no AS frame_first_request, a.frame_no AS frame_first_redelivery,
  r.last_frame_no AS frame_last_request
FROM requests AS r
LEFT JOIN redeliveries AS a USING (capture, connection_id, consumer_id, incarnation)
WHERE r.requests >= $requests
