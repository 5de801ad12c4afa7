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
fires = ["fake-f20_stuck_consumer.pcap", "live-stuck_application.pcap", "live-paused.pcap", "live-very_slow.pcap"]
real = ["live-stuck_application.pcap", "live-paused.pcap", "live-very_slow.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap", "cpp-c40_killed_Shared.pcap", "cpp-c40_killed_Failover.pcap"]

[needs]
consumer_seconds = "last_available <= 0 AND deliveries > 0"

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

[thresholds.long_s]
value = 30.0
unit = "s"
why = "an application that works one message for that long is rare, and it is the clients' default time limit for sends and requests"

[thresholds.sure_s]
value = 10.0
unit = "s"
why = "twice the floor: a stall that the end of the capture cuts off sooner may have been about to end"

[thresholds.confirmed_s]
value = 0.25
unit = "s"
why = "what waits follows the FLOW within a round trip; a quarter of a second allows for reads from storage"

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
rival = "An application that paused the consumer and resumed it, or a client that lost count and recovered."
decides = "Whether the application takes as long for its messages as the consumer was silent."
do = "Nothing, if the consumer was paused or is meant to be slow. Else make it quicker, or add consumers."

[variant.never_refilled]
title = "A consumer used its first permits and never asked again"
what = "Consumer {consumer_name} of {subscription} on {topic} sent one FLOW of {granted} permits, got {delivered} messages, and for {lasted_s} s sent no other FLOW (balance {available}, {unacked} messages unacknowledged when the last came)."
rival = "An application that took none of these messages; or a queue so small that the client's mark for the next FLOW is never reached (streamnative/pulsar-rs PR 326, queue of 1)."

[variant.redelivery_without_flow]
title = "A consumer asked for messages again and gave no permits back"
what = "Consumer {consumer_name} of {subscription} on {topic} had no permits left for {lasted_s} s (balance {available}). Since its last FLOW it asked {redelivers} times for messages to be delivered again, and sent no FLOW."
rival = "An application that is stuck while its ack timeout runs: messages in the client's queue are asked for again although nobody took them, and give back no permits (apache/pulsar#100)."
do = "Look at the client: is receive called? Make the ack timeout much longer than a full queue takes, and take a client that gives these permits back."

[variant.at_end]
whole = "the end of a window is no end: more may come in the next"
severity = "warning"
title = "A consumer was without permits when the capture ended"
rival = "An application that takes long for its messages and would have asked a moment later: the capture ends before {sure_s} s are over; or one that paused the consumer."
decides = "What came after the end of the capture, and a thread dump of the client."

[variant.gone]
severity = "info"
title = "A consumer ended while it was without permits"
what = "Consumer {consumer_name} of {subscription} on {topic} had no permits left for {lasted_s} s (balance {available}, {unacked} messages unacknowledged) when it was closed or its connection ended."
rival = "An application that was busy and was then closed or killed, or one that was stuck and restarted."
decides = "Who ended it, and why."
do = "Nothing, if it was stopped on purpose."
*/
WITH consumer_timeline AS (
  SELECT
    p.*,
    lead(p.first_us) OVER consumer AS next_us, lead(p.first_grant_us) OVER consumer AS next_grant_us,
    coalesce(
      lead(p.first_delivery_us) OVER consumer, lead(p.first_delivery_us, 2) OVER consumer
    ) AS next_delivery_us,
    sum(p.grants) OVER whole AS grants_seen, sum(p.deliveries) OVER whole AS entries_seen,
    sum(p.granted) OVER whole AS granted_seen,
    min(p.first_grant_us) OVER whole AS first_flow_us,
    max(CASE WHEN p.grants > 0 THEN p.last_us END) OVER whole AS last_flow_us
  FROM consumer_seconds AS p
  ANTI JOIN unsteady_clocks AS u ON u.capture = p.capture
  WINDOW
    consumer AS (
      PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation ORDER BY p.second
    ),
    whole AS (PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation)
),
stalls AS (
  SELECT
    s.*, c.consumer_name, c.opened_frame_no, c.closed_frame_no, c.closed_by,
    CASE
      WHEN s.grants_seen > 1 THEN (s.last_flow_us - s.first_flow_us) / (s.grants_seen - 1)
      ELSE 0
    END AS pause_us,
    coalesce(
      s.next_us = s.next_grant_us
      AND s.next_delivery_us - s.next_us <= $confirmed_s * 1000000,
      FALSE
    ) AS confirmed
  FROM consumer_timeline AS s
  JOIN pulsar_consumers AS c
    ON c.capture = s.capture AND c.connection_id = s.connection_id
    AND c.consumer_id = s.consumer_id AND c.incarnation = s.incarnation
  WHERE
    s.last_available <= 0 AND s.deliveries > 0
    AND coalesce(s.next_us, floor_div(s.link_last_ns, 1000)) - s.last_us >= $slow_s * 1000000
  ORDER BY s.capture, s.last_us, s.connection_id, s.consumer_id
  LIMIT 10000
),
stall_frames AS (
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.second,
    least(
      coalesce(s.next_us, floor_div(s.link_last_ns, 1000)),
      coalesce(
        min(CASE WHEN f.frame_no = s.closed_frame_no THEN micros(f.ts) END), s.link_last_ns
      )
    ) AS end_us,
    max(CASE WHEN f.command = 'FLOW' AND f.frame_no <= s.last_delivery_frame_no THEN f.frame_no END)
      AS flow_frame_no,
    min(
      CASE WHEN f.command = 'FLOW' AND f.frame_no > s.last_delivery_frame_no THEN f.frame_no END
    ) AS next_flow_frame_no,
    max(f.frame_no) FILTER (
      WHERE f.command = 'ACK' AND f.frame_no <= s.last_delivery_frame_no
    ) AS ack_frame_no
  FROM stalls AS s
  JOIN (
    SELECT capture, connection_id, consumer_id, frame_no, ts, command
    FROM frames
    WHERE
      command IN ('FLOW', 'ACK', 'CLOSE_CONSUMER')
      AND (capture, connection_id) IN (SELECT capture, connection_id FROM stalls)
  ) AS f USING (capture, connection_id, consumer_id)
  GROUP BY
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.second, s.next_us, s.link_last_ns
),
connection_activity AS ( -- Frames on the connection during the stall.
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.second, n.end_us,
    n.flow_frame_no, n.next_flow_frame_no, n.ack_frame_no,
    count(*) FILTER (
      WHERE micros(f.ts) > s.last_us + 1000000 AND micros(f.ts) < n.end_us
    ) AS alive_frames,
    max(f.frame_no) FILTER (
      WHERE micros(f.ts) > s.last_us + 1000000 AND micros(f.ts) < n.end_us
        AND f.direction = 'to_client'
    ) AS alive_frame_no,
    count(*) FILTER (
      WHERE f.command = 'ACK' AND f.consumer_id = s.consumer_id
        AND micros(f.ts) > s.last_us + 1000000 AND micros(f.ts) < n.end_us
    ) AS acks,
    count(*) FILTER (
      WHERE f.command = 'REDELIVER_UNACKNOWLEDGED_MESSAGES' AND f.consumer_id = s.consumer_id
        AND f.frame_no > n.flow_frame_no AND micros(f.ts) < n.end_us
    ) AS redelivers
  FROM stalls AS s
  JOIN stall_frames AS n USING (capture, connection_id, consumer_id, incarnation, second)
  JOIN (
    SELECT capture, connection_id, consumer_id, frame_no, ts, command, direction
    FROM frames
    WHERE
      status = 'complete'
      AND (capture, connection_id) IN (SELECT capture, connection_id FROM stalls)
  ) AS f
    ON f.capture = s.capture AND f.connection_id = s.connection_id AND f.frame_no > n.flow_frame_no
  GROUP BY ALL
),
undelivered_entries AS ( -- Entries that were delivered to no consumer of the subscription.
  SELECT t.capture, t.topic, t.subscription, min(e.response_last_ns) AS stored_ns
  FROM (
    SELECT DISTINCT capture, topic, subscription
    FROM stalls
    WHERE next_us IS NULL
  ) AS t
  JOIN (
    SELECT capture, topic, ledger_id, entry_id, response_last_ns
    FROM exchanges
    WHERE
      kind = 'publish' AND outcome = 'ok' AND ledger_id IS NOT NULL
      AND (capture, topic) IN (SELECT capture, topic FROM stalls)
  ) AS e USING (capture, topic)
  LEFT JOIN (
    SELECT DISTINCT capture, topic, subscription, ledger_id, entry_id
    FROM deliveries
    WHERE (capture, topic, subscription) IN (SELECT capture, topic, subscription FROM stalls)
  ) AS d
    ON d.capture = t.capture AND d.topic = t.topic AND d.subscription = t.subscription
    AND d.ledger_id = e.ledger_id AND d.entry_id = e.entry_id
  WHERE d.entry_id IS NULL
  GROUP BY t.capture, t.topic, t.subscription
),
assessments AS (
  SELECT
    s.capture, s.topic, s.subscription, s.consumer_name, s.client_ip, s.last_us, w.end_us,
    s.last_available, s.last_unacked, s.granted_seen, s.entries_seen, s.last_delivery_frame_no,
    s.confirmed, w.alive_frames, w.alive_frame_no, w.acks, w.redelivers, w.flow_frame_no,
    w.next_flow_frame_no, w.ack_frame_no,
    CASE
      WHEN w.acks > 0 OR s.confirmed THEN 'slow'
      WHEN s.next_us IS NOT NULL THEN 'none'
      WHEN s.closed_by <> 'capture_end' AND w.end_us - s.last_us < $long_s * 1000000 THEN 'gone'
      WHEN w.redelivers > 0 THEN 'redelivery_without_flow'
      WHEN w.end_us - s.last_us < $sure_s * 1000000 THEN 'at_end'
      WHEN s.grants_seen = 1 THEN 'never_refilled'
      ELSE ''
    END AS variant
  FROM stalls AS s
  JOIN connection_activity AS w USING (capture, connection_id, consumer_id, incarnation, second)
  LEFT JOIN undelivered_entries AS e USING (capture, topic, subscription)
  WHERE
    (w.alive_frames > 0 OR s.confirmed)
    AND (
      w.acks > 0 OR s.confirmed
      OR (
        w.end_us - s.last_us >= $floor_s * 1000000
        AND w.end_us - s.last_us >= $flow_intervals * s.pause_us
        AND e.stored_ns < w.end_us * 1000
      )
    )
    AND w.end_us - s.last_us >= $slow_s * 1000000
)
SELECT
  j.capture, j.last_us * 1000 AS first_ns, j.end_us * 1000 AS last_ns, j.variant,
  j.topic AS subject_topic, j.subscription AS subject_subscription,
  j.consumer_name AS subject_consumer_name, j.client_ip AS subject_client_ip,
  (j.end_us - j.last_us) / 1e6 AS measured_lasted_s, j.last_available AS measured_available,
  j.last_unacked AS measured_unacked, j.alive_frames AS measured_alive_frames,
  j.redelivers AS measured_redelivers, CAST(j.granted_seen AS BIGINT) AS measured_granted,
  CAST(j.granted_seen - j.last_available AS BIGINT) AS measured_delivered,
  j.alive_frames > 0 AS ruled_out_dead, j.acks = 0 AND NOT j.confirmed AS ruled_out_slow,
  j.flow_frame_no AS frame_last_flow, j.last_delivery_frame_no AS frame_last_message,
  j.ack_frame_no AS frame_last_ack, j.alive_frame_no AS frame_alive,
  j.next_flow_frame_no AS frame_next_flow
FROM assessments AS j
WHERE j.variant <> 'none'
