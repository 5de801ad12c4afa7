/*
number = "D29"
code = "delayed_delivery"
title = "Messages came before the time that was asked for"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "publish_to_delivery"
worst = "measured_off_s"
references = ["apache/pulsar#11448", "apache/pulsar#12098", "apache/pulsar#10848", "apache/pulsar#13567", "apache/pulsar PR 25310", "apache/pulsar#21862", "apache/pulsar#10169", "apache/pulsar PR 16068", "apache/pulsar#18399", "apache/pulsar#15171", "apache/pulsar#12091", "apache/pulsar#25996"]
fires = ["cpp-s06_keys_props.pcap", "var-any-sll1.pcap"]
real = ["cpp-s06_keys_props.pcap", "var-any-sll1.pcap"]
silent = ["java-j29_delayed.pcap", "java-j16_dlq_retry.pcap", "java-j07_keys.pcap", "java-j01_plain.pcap"]

[needs]
delivery_kinds = "latest_due_ms > 0"

[thresholds.tick_s]
value = 1.1
unit = "s"
why = "brokers look for messages that are due once a second by default, and may deliver as much too early"

[thresholds.late_s]
value = 5.0
unit = "s"
why = "a due message leaves within a tick or two if its consumer has permits"

[thresholds.behind_send_ms]
value = 50.0
unit = "ms"
why = "a broker that sends what waits when it stores something does so within milliseconds"

[text]
what = "{messages} messages of {topic} {messages|was|were} delivered to {subscription} before {messages|its|their} time, the worst {off_s} s (asked for: {intended_s} s behind the publish time)."
known = "The time is in the message's metadata (deliverAtTime), the delivery in the capture; the subscription is {subscription_type}, which heeds delays, and the producer's clock agrees with the tap's within {tick_s} s or its SEND is not in the capture."
rival = "A broker whose clock is ahead, or that has delayed delivery switched off for the namespace."
decides = "The broker's clock against the tap's, and the namespace's policy of delayed delivery."
do = "Look at delayedDeliveryEnabled and the policy of the namespace, and at the broker's clock."

[variant.delay_ignored]
severity = "info"
verdict = "proven"
title = "A subscription does not heed delays"
what = "{messages} messages of {topic} with a delay {messages|was|were} delivered to {subscription} before {messages|its|their} time, the worst {off_s} s: its type is {subscription_type}."
known = "The time is in the message's metadata (deliverAtTime), the type in SUBSCRIBE; brokers delay only for Shared and Key_Shared subscriptions."
rival = "None: this is by design."
decides = "Nothing is open."
do = "Use a Shared or Key_Shared subscription where delays are to count."

[variant.clock_skew]
title = "A delay was counted from a clock that is off"
what = "{messages} messages of {topic} waited {waited_s} s instead of the {intended_s} s that their producer asked for ({subscription}): its publish time was {skew_s} s off the tap's clock when it sent."
known = "deliverAtTime and publish time are in the metadata, SEND and MESSAGE in the capture; both times are the client's, and all that this client sent was as much off."
rival = "A client that holds every message before it sends it: then its publish times are old, and its clock is right."
decides = "The clocks of the client's host and of the broker, each against a time server."
do = "Set the clock of the producer's host: clients reckon the time of delivery by their own clock, also from deliverAfter."

[variant.late]
title = "Messages came late although permits were there"
what = "{messages} messages of {topic} {messages|was|were} delivered to {subscription} later than asked for although its consumer had permits all the time, the worst {off_s} s late."
known = "deliverAtTime is in the metadata; the consumer's balance of permits was above zero from then until the delivery."
rival = "Other messages that were due before and went first, or a broker whose clock is behind."
decides = "Whether the broker has many delayed messages of the topic (its tracker's size in the statistics), and its clock."
do = "Look at the broker's memory for delayed messages and at its load; compare its clock with the tap's."

[variant.released]
title = "Messages that were due came when the next message was published"
what = "{messages} messages of {topic} {messages|was|were} delivered to {subscription} later than asked for although its consumer had permits all the time, the worst {off_s} s late: each came within {behind_send_ms} ms behind a SEND to the topic, before which there had been none for {late_s} s."
known = "deliverAtTime is in the metadata; the consumer's balance of permits was above zero from then until the delivery; the SENDs (such as frame {releasing_send}) are in the capture."
rival = "A broker that was slow, and was well again at these moments by chance."
decides = "Whether a due message comes by itself while nothing is published: the broker's timer for delayed messages does not fire, and the next publish does its work."
do = "Look at the broker's version and its tracker of delayed messages (apache/pulsar#25996); until then a message now and then releases what is due."
*/
WITH delayed_deliveries AS (
  SELECT
    d.capture, d.connection_id, d.consumer_id, d.incarnation, d.frame_no, d.topic, d.subscription,
    d.subscription_type, d.ledger_id, d.entry_id, d.message_count, d.deliver_at_ms,
    micros(d.ts) AS at_us
  FROM deliveries AS d
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    d.deliver_at_ms IS NOT NULL AND d.deliver_at_ms > 0 AND d.is_redelivered = FALSE
    AND d.topic IS NOT NULL AND d.deliver_at_ms < 4102444800000
),
stored_sends AS (
  SELECT
    capture, connection_id, topic, ledger_id, entry_id, request_frame_no, response_last_ns, attempt
  FROM exchanges
  WHERE
    kind = 'publish' AND outcome = 'ok'
    AND (capture, topic) IN (SELECT capture, topic FROM delayed_deliveries)
),
delayed_sends AS ( -- With the SEND that stored it, and the offset of that client's clock.
  SELECT
    d.*, e.request_frame_no AS send_no, e.response_last_ns AS stored_ns,
    f.publish_time_ms, f.last_ts_ns AS sent_ns,
    e.connection_id AS send_connection,
    CASE WHEN e.attempt = 1 THEN f.publish_time_ms - f.last_ts_ns / 1e6 END AS skew_ms
  FROM delayed_deliveries AS d
  LEFT JOIN stored_sends AS e
    ON e.capture = d.capture AND e.topic = d.topic AND e.ledger_id = d.ledger_id
    AND e.entry_id = d.entry_id
  LEFT JOIN (
    SELECT capture, connection_id, frame_no, publish_time_ms, last_ts_ns
    FROM frames
    WHERE command = 'SEND' AND (capture, connection_id) IN (SELECT capture, connection_id FROM stored_sends)
  ) AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no
),
-- Permits from the due time to the delivery: the last before, and the least between.
available_permits AS (
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation, s.frame_no,
    max_by(
      CASE WHEN micros(p.ts) <= s.due_us THEN p.available_after END,
      CASE WHEN micros(p.ts) <= s.due_us THEN p.frame_no END
    ) AS before_available,
    min(CASE WHEN micros(p.ts) > s.due_us THEN p.available_after END) AS least_available
  FROM (
    SELECT *, greatest(deliver_at_ms * 1000, coalesce(floor_div(stored_ns, 1000), 0)) AS due_us
    FROM delayed_sends
  ) AS s
  JOIN permits AS p
    ON p.capture = s.capture AND p.connection_id = s.connection_id
    AND p.consumer_id = s.consumer_id AND p.incarnation = s.incarnation
    AND p.baseline_known AND p.event <> 'reset' AND p.frame_no < s.frame_no
  WHERE s.at_us - s.due_us >= $late_s * 1000000
  GROUP BY s.capture, s.connection_id, s.consumer_id, s.incarnation, s.frame_no
),
waking_sends AS ( -- SENDs after a time without one.
  SELECT *
  FROM (
    SELECT
      e.capture, e.topic, e.request_frame_no, floor_div(e.request_last_ns, 1000) AS sent_us,
      lag(floor_div(e.request_last_ns, 1000)) OVER (
        PARTITION BY e.capture, e.topic ORDER BY e.request_last_ns, e.request_frame_no
      ) AS before_us
    FROM exchanges AS e
    WHERE
      e.kind = 'publish' AND e.request_frame_no IS NOT NULL
      AND (e.capture, e.topic) IN (SELECT capture, topic FROM delayed_deliveries)
  ) AS n
  WHERE n.sent_us - n.before_us >= $late_s * 1000000
),
clocks AS ( -- Messages held back by a client look old, but not all of its messages are.
  SELECT
    f.capture, f.connection_id, min(f.publish_time_ms - f.last_ts_ns / 1e6) AS least_ms,
    max(f.publish_time_ms - f.last_ts_ns / 1e6) AS most_ms
  FROM frames AS f
  JOIN (
    SELECT DISTINCT capture, send_connection
    FROM delayed_sends
    WHERE abs(skew_ms) / 1e3 > $tick_s
  ) AS s ON s.capture = f.capture AND s.send_connection = f.connection_id
  WHERE f.command = 'SEND' AND f.publish_time_ms IS NOT NULL
  GROUP BY f.capture, f.connection_id
),
assessments AS (
  SELECT
    s.*,
    CASE
      WHEN
        s.deliver_at_ms / 1e3 - s.at_us / 1e6 > $tick_s
        AND s.subscription_type IN ('Exclusive', 'Failover') THEN 'delay_ignored'
      WHEN
        (c.least_ms / 1e3 > $tick_s OR c.most_ms / 1e3 < - $tick_s)
        AND abs(s.skew_ms) / 1e3 > $tick_s AND s.deliver_at_ms > s.publish_time_ms
        AND s.subscription_type IN ('Shared', 'Key_Shared')
        AND abs(
          (s.at_us / 1e6 - s.sent_ns / 1e9) - (s.deliver_at_ms - s.publish_time_ms) / 1e3
        ) > $tick_s
        AND abs(
          (s.at_us / 1e6 - s.sent_ns / 1e9)
          - greatest((s.deliver_at_ms - s.publish_time_ms + s.skew_ms) / 1e3, 0)
        ) <= 2 * $tick_s
        AND s.at_us / 1e6 - greatest(s.deliver_at_ms / 1e3, s.stored_ns / 1e9) < $late_s
        THEN 'clock_skew'
      WHEN
        s.deliver_at_ms / 1e3 - s.at_us / 1e6 > $tick_s
        AND s.subscription_type IN ('Shared', 'Key_Shared') THEN ''
      WHEN
        r.before_available > 0 AND coalesce(r.least_available, 1) > 0
        AND s.subscription_type IN ('Shared', 'Key_Shared') THEN 'late'
    END AS variant
  FROM delayed_sends AS s
  LEFT JOIN available_permits AS r
    ON r.capture = s.capture AND r.connection_id = s.connection_id
    AND r.consumer_id = s.consumer_id AND r.incarnation = s.incarnation
    AND r.frame_no = s.frame_no
  LEFT JOIN clocks AS c ON c.capture = s.capture AND c.connection_id = s.send_connection
),
sized_assessments AS (
  SELECT
    j.*, w.request_frame_no AS releasing_no,
    CASE
      WHEN j.variant = 'late'
        THEN j.at_us / 1e6 - greatest(j.deliver_at_ms / 1e3, coalesce(j.stored_ns / 1e9, 0))
      WHEN j.variant = 'clock_skew' THEN abs(j.skew_ms) / 1e3
      ELSE j.deliver_at_ms / 1e3 - j.at_us / 1e6
    END AS off_s
  FROM assessments AS j
  LEFT JOIN waking_sends AS w
    ON w.capture = j.capture AND w.topic = j.topic AND j.variant = 'late'
    AND w.request_frame_no <> coalesce(j.send_no, -1)
    AND w.sent_us BETWEEN j.at_us - $behind_send_ms * 1000 AND j.at_us
  WHERE j.variant IS NOT NULL
)
SELECT
  z.capture, min(z.at_us) * 1000 AS first_ns, max(z.at_us) * 1000 AS last_ns,
  CASE WHEN count(z.releasing_no) = count(*) THEN 'released' ELSE z.variant END AS variant,
  z.topic AS subject_topic, z.subscription AS subject_subscription,
  max(z.subscription_type) AS measured_subscription_type,
  CAST(coalesce(sum(z.message_count), count(*)) AS BIGINT) AS measured_messages,
  max(z.off_s) AS measured_off_s,
  max_by(
    (z.deliver_at_ms - z.publish_time_ms) / 1e3,
    CASE WHEN (z.deliver_at_ms - z.publish_time_ms) / 1e3 IS NOT NULL THEN (z.off_s, 0 - z.frame_no) END
  ) AS measured_intended_s,
  max_by(
    z.at_us / 1e6 - z.sent_ns / 1e9,
    CASE WHEN z.at_us / 1e6 - z.sent_ns / 1e9 IS NOT NULL THEN (z.off_s, 0 - z.frame_no) END
  ) AS measured_waited_s,
  max_by(
    z.skew_ms / 1e3,
    CASE WHEN z.skew_ms / 1e3 IS NOT NULL THEN (z.off_s, 0 - z.frame_no) END
  ) AS measured_skew_s,
  max_by(z.send_no, CASE WHEN z.send_no IS NOT NULL THEN (z.off_s, 0 - z.frame_no) END) AS frame_worst_send,
  max_by(z.frame_no, (z.off_s, 0 - z.frame_no)) AS frame_worst_message,
  min(z.frame_no) AS frame_first_message, min(z.releasing_no) AS frame_releasing_send
FROM sized_assessments AS z
GROUP BY z.capture, z.variant, z.topic, z.subscription
