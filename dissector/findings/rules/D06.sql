/*
number = "D06"
code = "unacked_limit_plateau"
title = "Delivery stopped at a limit of unacknowledged messages"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_silence_measured_s"
references = ["apache/pulsar#759", "apache/pulsar#22657", "apache/pulsar-client-go#1019", "apache/pulsar#22534", "apache/pulsar PR 17483"]
fires = ["java-j17_blocked_unacked.pcap"]
silent = ["java-j29_delayed.pcap", "java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[thresholds.silence_s]
value = 1.0
unit = "s"
why = "brokers send what waits within milliseconds while there are permits; a second is far above"

[thresholds.resume_s]
value = 1.0
unit = "s"
why = "the broker looks again when an acknowledgement comes, not by a timer"

[ruled_out]
permits = "that the consumer was out of permits: it had some all the time"
idle = "that the topic was idle: what came next had been sent to the broker before the silence ended"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} got nothing for {silence_measured_s} s although it had {available} permits: {unacked} messages were delivered and not acknowledged. Delivery went on {resume_measured_s} s after the next acknowledgement."
known = "No delivery and no ACK of this consumer lies in the silence, the balance of permits stayed above zero, the next entry had been waiting for {waited_s} s, and it was the ACK that ended it."
rival = "A broker that was paused by its own dispatch rate and went on by chance when the ACK came; or other consumers of the subscription, outside of this capture, that reached a limit of the whole subscription."
decides = "The limit that the broker has for this consumer and subscription (maxUnackedMessagesPerConsumer, maxUnackedMessagesPerSubscription): is it {unacked}?"
do = "Find out why the oldest messages are not acknowledged: acknowledge them, or raise the limit. If nothing comes although they were acknowledged, look at the broker's version (apache/pulsar#22657)."
*/
WITH places AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.frame_no, p.topic, p.subscription,
    p.event, p.available_after, p.unacked_after, micros(p.ts) * 1000 AS at_ns,
    lead(p.frame_no) OVER consumer AS next_frame_no,
    lead(p.event) OVER consumer AS next_event,
    lead(micros(p.ts)) OVER consumer * 1000 AS next_ns,
    max(p.unacked_after) OVER (
      PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation
    ) AS most_unacked
  FROM permits AS p
  ANTI JOIN twins AS t ON t.capture = p.capture AND t.connection_id = p.connection_id
  WHERE
    p.baseline_known AND p.subscription_type IN ('Shared', 'Exclusive', 'Failover')
    AND (p.event = 'delivery' OR p.delta > 0 OR p.event = 'reset')
  WINDOW consumer AS (
    PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation ORDER BY p.frame_no
  )
),
silences AS (
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.topic, s.subscription,
    s.frame_no, s.next_frame_no, s.at_ns, s.next_ns, s.available_after, s.unacked_after,
    min(a.last_ts_ns) AS acked_ns, min(a.frame_no) AS ack_frame_no
  FROM places AS s
  JOIN frames AS a
    ON a.capture = s.capture AND a.connection_id = s.connection_id
    AND a.consumer_id = s.consumer_id AND a.command = 'ACK'
    AND a.frame_no > s.frame_no AND a.frame_no < s.next_frame_no
  WHERE
    s.event = 'delivery' AND s.next_event = 'delivery' AND s.available_after > 0
    AND s.unacked_after > 1 AND s.unacked_after >= s.most_unacked - 1
    AND s.next_ns - s.at_ns >= $silence_s * 1000000000
  GROUP BY
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.topic, s.subscription,
    s.frame_no, s.next_frame_no, s.at_ns, s.next_ns, s.available_after, s.unacked_after
)
SELECT
  s.capture, s.at_ns AS first_ns, s.next_ns AS last_ns, s.topic AS subject_topic,
  s.subscription AS subject_subscription, d.consumer_name AS subject_consumer_name,
  l.client_ip AS subject_client_ip,
  (s.acked_ns - s.at_ns) / 1e9 AS measured_silence_measured_s,
  (s.next_ns - s.acked_ns) / 1e9 AS measured_resume_measured_s,
  d.publish_to_delivery_ns / 1e9 AS measured_waited_s,
  s.available_after AS measured_available, s.unacked_after AS measured_unacked,
  TRUE AS ruled_out_permits, TRUE AS ruled_out_idle,
  s.frame_no AS frame_last_message, s.ack_frame_no AS frame_next_ack,
  s.next_frame_no AS frame_next_message
FROM silences AS s
JOIN deliveries AS d
  ON d.capture = s.capture AND d.connection_id = s.connection_id AND d.frame_no = s.next_frame_no
JOIN connections AS l
  ON l.capture = s.capture AND l.connection_id = s.connection_id
  AND l.gaps_to_broker = 0 AND l.gaps_to_client = 0
WHERE
  s.acked_ns - s.at_ns >= $silence_s * 1000000000
  AND s.next_ns - s.acked_ns <= $resume_s * 1000000000
  AND d.publish_to_delivery_ns >= s.next_ns - s.acked_ns + $silence_s * 500000000
  AND NOT d.is_redelivered AND d.deliver_at_ms IS NULL
