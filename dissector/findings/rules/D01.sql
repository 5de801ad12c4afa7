/*
number = "D01"
code = "consumer_out_of_permits"
title = "A consumer stopped asking for messages that wait"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_lasted_s"
references = ["apache/pulsar#100", "apache/pulsar#380", "apache/pulsar#170", "streamnative/pulsar-rs#114", "apache/pulsar-client-go#784"]
fires = ["fake-f20_stuck_consumer.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap", "cpp-c40_killed_Shared.pcap", "cpp-c40_killed_Failover.pcap"]

[thresholds.floor_s]
value = 5.0
unit = "s"
why = "a client that is well asks again as soon as half of its queue is taken"

[thresholds.slow_s]
value = 1.0
unit = "s"
why = "shorter pauses between grants are how a client works that takes messages one by one"

[thresholds.flow_intervals]
value = 20
unit = "times the mean pause between its own grants"
why = "slow consumers ask seldom: their own pace decides"

[ruled_out]
dead = "that the connection was dead: frames came on it meanwhile"
slow = "that the application was slow: it acknowledged nothing meanwhile"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} had no permits left for {lasted_s} s (balance {available}, {unacked} messages unacknowledged) and sent no FLOW."
known = "Every FLOW and every MESSAGE since its SUBSCRIBE is in the capture; frames went on over the connection meanwhile ({alive_frames}), and none of them was an ACK of this consumer; a message waited that was stored before and never delivered to the subscription."
rival = "An application that paused the consumer, has a queue of 0 and does not call receive, or is stuck in its own code: on the wire all of them are a client that does not ask."
decides = "A thread dump of the client at that time: is anything waiting in receive, or is a listener stuck?"
do = "Look at the client, not at the broker: it owes the permits since then. A larger queue does not mend it."

[variant.slow]
severity = "info"
title = "A slow consumer was without permits"
what = "Consumer {consumer_name} of {subscription} on {topic} had no permits left for {lasted_s} s (balance {available}), went on acknowledging or asked again, and messages followed at once."
known = "Every FLOW and every MESSAGE since its SUBSCRIBE is in the capture; the ACKs, or the delivery after the next FLOW, show that the application lives."
rival = "A client that lost count and recovered."
decides = "Whether the application takes as long for its messages as the consumer was silent."
do = "Nothing, if the consumer is meant to be slow. Else make it quicker, or add consumers."
*/
WITH waiting AS ( -- Entries that were stored and that no consumer of the subscription ever got.
  SELECT t.capture, t.topic, t.subscription, min(e.response_last_ns) AS stored_ns
  FROM (
    SELECT DISTINCT capture, topic, subscription
    FROM permit_spans
    WHERE is_exhausted AND lasted_us >= $floor_s * 1000000
  ) AS t
  JOIN exchanges AS e
    ON e.capture = t.capture AND e.topic = t.topic AND e.kind = 'publish' AND e.outcome = 'ok'
  ANTI JOIN deliveries AS d
    ON d.capture = t.capture AND d.topic = t.topic AND d.subscription = t.subscription
    AND d.ledger_id = e.ledger_id AND d.entry_id = e.entry_id
  GROUP BY t.capture, t.topic, t.subscription
)
SELECT
  s.capture, s.start_us * 1000 AS first_ns, (s.start_us + s.lasted_us) * 1000 AS last_ns,
  CASE WHEN s.acks > 0 OR s.confirmed THEN 'slow' ELSE '' END AS variant,
  s.topic AS subject_topic, s.subscription AS subject_subscription,
  s.consumer_name AS subject_consumer_name, s.client_ip AS subject_client_ip,
  s.lasted_us / 1e6 AS measured_lasted_s, s.available AS measured_available,
  s.unacked AS measured_unacked, s.alive_frames AS measured_alive_frames,
  s.alive_frames > 0 AS ruled_out_dead, s.acks = 0 AS ruled_out_slow,
  s.start_frame_no AS frame_balance_at_zero,
  s.alive_frame AS frame_alive, s.end_frame_no AS frame_next_flow
FROM (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.topic, p.subscription,
    c.name AS consumer_name, l.client_ip, p.start_us, p.lasted_us, p.is_ended, p.confirmed,
    p.start_frame_no, p.end_frame_no, max(g.pause_us) AS pause_us, max(b.available_after) AS available, max(b.unacked_after) AS unacked,
    count(f.frame_no) AS alive_frames, max(f.frame_no) AS alive_frame,
    count(CASE WHEN f.command = 'ACK' AND f.consumer_id = p.consumer_id THEN 1 END) AS acks
  FROM permit_spans AS p
  JOIN connections AS l
    ON l.capture = p.capture AND l.connection_id = p.connection_id AND l.protocol = 'pulsar'
    AND l.gaps_to_broker = 0 AND l.gaps_to_client = 0
  JOIN permits AS b
    ON b.capture = p.capture AND b.connection_id = p.connection_id AND b.frame_no = p.start_frame_no
    AND b.consumer_id = p.consumer_id AND b.incarnation = p.incarnation
  JOIN (
    SELECT
      capture, connection_id, consumer_id, incarnation,
      CASE WHEN count(*) > 1 THEN (max(micros(ts)) - min(micros(ts))) / (count(*) - 1) ELSE 0 END
        AS pause_us
    FROM permits
    WHERE event = 'grant' AND delta > 0
    GROUP BY capture, connection_id, consumer_id, incarnation
  ) AS g
    ON g.capture = p.capture AND g.connection_id = p.connection_id
    AND g.consumer_id = p.consumer_id AND g.incarnation = p.incarnation
  LEFT JOIN consumers AS c
    ON c.capture = p.capture AND c.connection_id = p.connection_id
    AND c.consumer_id = p.consumer_id AND c.incarnation = p.incarnation
  LEFT JOIN frames AS f
    ON f.capture = p.capture AND f.connection_id = p.connection_id AND f.status = 'complete'
    AND f.frame_no > p.start_frame_no AND f.last_ts_ns > (p.start_us + 1000000) * 1000
    AND f.last_ts_ns < (p.start_us + p.lasted_us) * 1000
  WHERE p.is_exhausted AND p.lasted_us >= $slow_s * 1000000
  GROUP BY
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.topic, p.subscription, c.name,
    l.client_ip, p.start_us, p.lasted_us, p.is_ended, p.confirmed, p.start_frame_no,
    p.end_frame_no
) AS s
WHERE
  (s.alive_frames > 0 OR s.confirmed)
  AND CASE
    WHEN s.acks > 0 OR s.confirmed THEN TRUE
    ELSE NOT s.is_ended AND s.lasted_us >= $floor_s * 1000000
      AND s.lasted_us >= $flow_intervals * s.pause_us
      AND EXISTS (
        SELECT 1 FROM waiting AS w
        WHERE w.capture = s.capture AND w.topic = s.topic AND w.subscription = s.subscription
          AND w.stored_ns < (s.start_us + s.lasted_us) * 1000
      )
  END
