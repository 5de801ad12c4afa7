/*
number = "D06"
code = "unacked_limit_plateau"
title = "Delivery stopped at a limit of unacknowledged messages"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_silence_measured_s"
references = ["apache/pulsar#759", "apache/pulsar#22657", "apache/pulsar-client-go#1019", "apache/pulsar#22534", "apache/pulsar PR 17483", "apache/pulsar PR 20990", "apache/pulsar PR 23796"]
fires = ["java-j17_blocked_unacked.pcap", "live-no_acks.pcap"]
real = ["java-j17_blocked_unacked.pcap", "live-no_acks.pcap"]
silent = ["java-j29_delayed.pcap", "java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[needs]
consumer_seconds = "subscription_type IN ('Shared', 'Key_Shared')"

[thresholds.silence_s]
value = 1.0
unit = "s"
why = "brokers send what waits within milliseconds while there are permits; a second is far above"

[thresholds.resume_s]
value = 1.0
unit = "s"
why = "the broker looks again when an acknowledgement comes, not by a timer"

[thresholds.prompt_s]
value = 0.25
unit = "s"
why = "delivery that follows an acknowledgement so closely after a second of silence follows from it"

[thresholds.released]
value = 0.5
unit = "of the messages"
why = "brokers let go when as many of the messages at the limit are acknowledged"

[thresholds.repeated]
value = 2
unit = "silences at one number of messages"
why = "a delivery that follows slow acknowledgements by chance does not do so twice at the same number"

[thresholds.stuck_s]
value = 5.0
unit = "s"
why = "a broker that took the acknowledgements looks again within milliseconds"

[ruled_out]
permits = "that the consumer was out of permits: it had some all the time"
idle = "that the topic was idle: what came next had been sent to the broker before the silence ended"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} got nothing for {silence_measured_s} s although it had {available} permits: {unacked} messages {unacked|was|were} delivered and not acknowledged. Delivery went on {resume_measured_s} s after the next acknowledgement; {plateaus} such silences at this number of messages {plateaus|is|are} in the capture."
known = "No delivery to this consumer and no ACK of a message that it held lies in the silence, its permits stayed above zero, the next entry had been waiting for {waited_s} s, and it was the ACK that ended it."
rival = "A limit of the whole subscription that other consumers, outside of this capture, share; a broker that was paused by its own dispatch rate, and goes on by chance each time that an ACK comes, is unlikely."
decides = "The limit that the broker has for this consumer and subscription (maxUnackedMessagesPerConsumer, maxUnackedMessagesPerSubscription): is it {unacked}?"
do = "Find out why the oldest messages are not acknowledged, beginning with frame {oldest_unacked}[ at {owner_name}]: acknowledge them, or raise the limit."

[variant.pattern]
verdict = "pattern"
title = "Delivery stopped, perhaps at a limit of unacknowledged messages"
rival = "A broker that was paused by its own dispatch rate and went on by chance when the ACK came; or other consumers of the subscription, outside of this capture, that reached a limit of the whole subscription."

[variant.subscription]
title = "A whole subscription stopped at a limit of unacknowledged messages"
what = "None of {consumers} consumers of {subscription} on {topic} got anything for {silence_measured_s} s, although {consumer_name}, the next to get something, had {available} permits: {unacked} messages {unacked|was|were} delivered to them and not acknowledged. Delivery went on {resume_measured_s} s after the next acknowledgement; {plateaus} such silences at this number of messages {plateaus|is|are} in the capture."
known = "No delivery to the subscription and no ACK of what its consumers held lies in the silence, the next entry had been waiting for {waited_s} s, and it was an ACK that ended it."
rival = "Limits of the single consumers, all reached at once; further consumers outside of this capture hold messages, too, so that the limit is at least {unacked}."
decides = "The limit that the broker has for the subscription (maxUnackedMessagesPerSubscription): is it {unacked}?"

[variant.halfway]
title = "Delivery stopped at a limit until half of the messages were acknowledged"
what = "Consumer {consumer_name} of {subscription} on {topic} got nothing for {silence_measured_s} s although it had {available} permits: {unacked} messages {unacked|was|were} delivered and not acknowledged. Delivery went on {resume_measured_s} s after half of them were acknowledged; {plateaus} such silences at this number of messages {plateaus|is|are} in the capture."
known = "No delivery to this consumer lies in the silence, its permits stayed above zero, and the next entry had been waiting for {waited_s} s. ACKs came one after the other, and the one that made it half of what was held ended the silence: that is where a broker lets go."

[variant.subscription_halfway]
title = "A whole subscription stopped at a limit until half of the messages were acknowledged"
what = "None of {consumers} consumers of {subscription} on {topic} got anything for {silence_measured_s} s, although {consumer_name}, the next to get something, had {available} permits: {unacked} messages {unacked|was|were} delivered to them and not acknowledged. Delivery went on {resume_measured_s} s after half of them were acknowledged; {plateaus} such silences at this number of messages {plateaus|is|are} in the capture."
known = "No delivery to the subscription lies in the silence, and the next entry had been waiting for {waited_s} s. ACKs came one after the other, and the one that made it half of what was held ended the silence: that is where a broker lets go."
rival = "Limits of the single consumers, all reached at once; further consumers outside of this capture hold messages, too, so that the limit is at least {unacked}."
decides = "The limit that the broker has for the subscription (maxUnackedMessagesPerSubscription): is it {unacked}?"

[variant.halfway_once]
like = "halfway"
verdict = "pattern"
title = "Delivery stopped, perhaps at a limit, until half of the messages were acknowledged"
rival = "A broker that was paused by its own dispatch rate and went on by chance when half were acknowledged; or other consumers of the subscription, outside of this capture, that reached a limit of the whole subscription."

[variant.blocked_flag_stuck]
verdict = "pattern"
title = "Delivery stays stopped although the messages were acknowledged"
what = "Subscription {subscription} on {topic} stopped at {unacked} unacknowledged messages and got nothing for {silence_measured_s} s although an entry waited and consumer {consumer_name} had {available} permits. Half of these messages or more were acknowledged, and even 5 s later nothing came [ (broker {server_version})]."
known = "Delivery stopped before the first of these messages was acknowledged, for a second or more, as at a limit. Half of them were acknowledged then, which is where a broker lets go, and the entry that waits has a receipt and came to no consumer of the subscription."
rival = "A stop for another reason just when messages stayed unacknowledged; or consumers outside of this capture that hold more."
decides = "The topic's statistics: is blockedConsumerOnUnackedMsgs true while unackedMessages is low?"
do = "Take the topic's statistics, then let the consumer connect anew.[ This broker, {affected_version}, may have apache/pulsar#22657, which came with PR 20990 and is mended in 3.0.10, 3.3.5 and 4.0.3 (PR 23796).]"

[variant.still]
severity = "warning"
verdict = "pattern"
title = "Delivery stopped while nothing is acknowledged"
what = "Subscription {subscription} on {topic} stopped at {unacked} unacknowledged messages and got nothing for {silence_measured_s} s although an entry waited and consumer {consumer_name} had {available} permits. None of these messages was acknowledged in that time."
known = "The entry that waits has a receipt and came to no consumer of the subscription, and no ACK of what these hold lies in that time."
rival = "A broker that stopped for another reason, a transaction that is held open, or consumers outside of this capture that got the entry."
decides = "The limit that the broker has for this consumer and subscription (maxUnackedMessagesPerConsumer, maxUnackedMessagesPerSubscription): is it {unacked}? And whether delivery goes on with the next acknowledgement."
do = "Find out why the application acknowledges nothing; in the topic's statistics look at unackedMessages and blockedConsumerOnUnackedMsgs."
*/
WITH subscription_consumers AS (
  SELECT
    capture, topic, subscription, count(*) AS consumers,
    max(subscription_type) AS subscription_type
  FROM (
    SELECT capture, topic, subscription, connection_id, consumer_id, incarnation,
      max(subscription_type) AS subscription_type
    FROM consumer_seconds
    WHERE subscription_type IN ('Shared', 'Key_Shared')
    GROUP BY capture, topic, subscription, connection_id, consumer_id, incarnation
  ) AS c
  GROUP BY capture, topic, subscription
),
timeline_seconds AS ( -- Seconds of each consumer and, if there are several, of the subscription.
  SELECT
    c.capture, c.topic, c.subscription, c.connection_id, c.consumer_id, c.incarnation,
    c.first_delivery_us, c.first_delivery_frame_no, c.last_delivery_us, c.last_delivery_frame_no,
    m.consumers, c.second
  FROM consumer_seconds AS c
  JOIN subscription_consumers AS m USING (capture, topic, subscription)
  WHERE c.deliveries > 0 AND (m.subscription_type = 'Shared' OR m.consumers = 1)
  UNION ALL
  SELECT
    c.capture, c.topic, c.subscription, -1, -1, -1, min(c.first_delivery_us),
    min(c.first_delivery_frame_no), max(c.last_delivery_us), max(c.last_delivery_frame_no),
    max(m.consumers), c.second
  FROM consumer_seconds AS c
  JOIN subscription_consumers AS m USING (capture, topic, subscription)
  WHERE c.deliveries > 0 AND m.subscription_type = 'Shared' AND m.consumers > 1
  GROUP BY c.capture, c.topic, c.subscription, c.second
),
pauses AS (
  SELECT p.*
  FROM (
    SELECT
      s.capture, s.topic, s.subscription, s.connection_id, s.consumer_id, s.incarnation,
      s.consumers, s.last_delivery_us AS began_us, s.last_delivery_frame_no AS frame_no,
      lead(s.first_delivery_us) OVER scope AS next_us,
      lead(s.first_delivery_frame_no) OVER scope AS next_frame_no
    FROM timeline_seconds AS s
    WINDOW scope AS (
      PARTITION BY s.capture, s.topic, s.subscription, s.connection_id, s.consumer_id, s.incarnation
      ORDER BY s.second
    )
  ) AS p
  WHERE p.next_us - p.began_us >= $silence_s * 1000000
  ORDER BY p.next_us - p.began_us DESC, p.capture, p.frame_no
  LIMIT 100000
),
next_deliveries AS ( -- The delivery that ended a pause, if its entry had waited.
  SELECT
    p.*, d.publish_to_delivery_ns AS waited_ns, d.connection_id AS next_connection_id,
    d.consumer_id AS next_consumer_id, d.incarnation AS next_incarnation,
    d.consumer_name AS next_consumer_name
  FROM pauses AS p
  JOIN (
    SELECT
      capture, frame_no, connection_id, consumer_id, incarnation, consumer_name,
      publish_to_delivery_ns
    FROM deliveries
    WHERE
      NOT is_redelivered AND deliver_at_ms IS NULL
      AND publish_to_delivery_ns >= $silence_s * 500000000
      AND (capture, frame_no) IN (SELECT capture, next_frame_no FROM pauses)
  ) AS d ON d.capture = p.capture AND d.frame_no = p.next_frame_no
),
unacked_messages AS (
  SELECT
    d.capture, d.topic, d.subscription, d.connection_id, d.consumer_id, d.incarnation,
    d.frame_no, d.consumer_name, d.message_count, d.ack_frame_no, micros(d.ts) AS at_us,
    micros(d.ts) + floor_div(d.ack_latency_ns, 1000) AS ack_us
  FROM deliveries AS d
  WHERE
    d.outcome NOT IN ('redelivery_requested', 'ack_rolled_back')
    AND (d.capture, d.topic, d.subscription) IN (
      SELECT capture, topic, subscription
      FROM next_deliveries
      ORDER BY capture, topic, subscription
      LIMIT 10000
    )
),
unacked_history AS ( -- The unacknowledged messages at the begin, and when they were acknowledged.
  SELECT
    n.*, h.ack_us, h.ack_frame_no, h.frame_no AS held_frame_no, h.consumer_name AS owner_name,
    sum(h.message_count) OVER silence AS unacked, sum(h.message_count) OVER so_far AS acked
  FROM next_deliveries AS n
  JOIN unacked_messages AS h
    ON h.capture = n.capture AND h.topic = n.topic AND h.subscription = n.subscription
  WHERE
    h.at_us <= n.began_us AND (h.ack_us IS NULL OR h.ack_us > n.began_us)
    AND (
      n.connection_id = -1
      OR (
        h.connection_id = n.connection_id AND h.consumer_id = n.consumer_id
        AND h.incarnation = n.incarnation
      )
    )
  WINDOW
    silence AS (
      PARTITION BY
        n.capture, n.topic, n.subscription, n.connection_id, n.consumer_id, n.incarnation,
        n.frame_no
    ),
    so_far AS (
      PARTITION BY
        n.capture, n.topic, n.subscription, n.connection_id, n.consumer_id, n.incarnation,
        n.frame_no
      ORDER BY coalesce(h.ack_us, 9223372036854775807)
    )
),
silences AS (
  SELECT
    k.capture, k.topic, k.subscription, k.connection_id, k.consumer_id, k.incarnation,
    k.consumers, k.began_us, k.frame_no, k.next_us, k.next_frame_no, k.waited_ns,
    k.next_connection_id, k.next_consumer_id, k.next_incarnation, k.next_consumer_name,
    CAST(k.unacked AS BIGINT) AS unacked, min(k.ack_us) AS acked_us,
    min_by(k.ack_frame_no, k.ack_us) AS ack_frame_no,
    min(CASE WHEN k.acked >= $released * k.unacked THEN k.ack_us END) AS half_us,
    min_by(
      CASE WHEN k.acked >= $released * k.unacked THEN k.ack_frame_no END,
      CASE WHEN k.acked >= $released * k.unacked THEN k.ack_us END
    ) AS half_frame_no,
    min(k.held_frame_no) AS oldest_frame_no,
    NULLIF(min_by(coalesce(k.owner_name, ''), k.held_frame_no), '') AS owner_name
  FROM unacked_history AS k
  GROUP BY
    k.capture, k.topic, k.subscription, k.connection_id, k.consumer_id, k.incarnation,
    k.consumers, k.began_us, k.frame_no, k.next_us, k.next_frame_no, k.waited_ns,
    k.next_connection_id, k.next_consumer_id, k.next_incarnation, k.next_consumer_name, k.unacked
),
pause_ends AS ( -- The pause ended after the first acknowledgement, or after half of them.
  SELECT
    s.*, CASE WHEN s.is_half THEN s.half_us ELSE s.acked_us END AS end_us
  FROM (
    SELECT
      s.*,
      coalesce(
        s.next_us - s.half_us BETWEEN 0 AND $prompt_s * 1000000
        AND s.next_us - s.acked_us > $prompt_s * 1000000,
        FALSE
      ) AS is_half
    FROM silences AS s
  ) AS s
),
plateaus AS (
  SELECT
    s.*, c.available, c.client_ip, c.server_version, c.most_unacked,
    count(*) OVER (
      PARTITION BY
        s.capture, s.topic, s.subscription, s.connection_id, s.consumer_id, s.incarnation, s.unacked
    ) AS plateaus
  FROM pause_ends AS s
  JOIN (
    SELECT
      s.capture, s.next_frame_no, s.connection_id, max_by(c.last_available, c.second) AS available,
      max(c.client_ip) AS client_ip, max(c.server_version) AS server_version,
      max(c.most_unacked) AS most_unacked
    FROM silences AS s
    JOIN consumer_seconds AS c
      ON c.capture = s.capture AND c.connection_id = s.next_connection_id
      AND c.consumer_id = s.next_consumer_id AND c.incarnation = s.next_incarnation
    WHERE c.second < floor_div(s.next_us, 1000000)
    GROUP BY s.capture, s.next_frame_no, s.connection_id
  ) AS c
    ON c.capture = s.capture AND c.next_frame_no = s.next_frame_no
    AND c.connection_id = s.connection_id
  WHERE
    c.available > 0 AND s.unacked > 1
    AND (s.connection_id = -1 OR s.unacked >= c.most_unacked - 1)
    AND s.end_us - s.began_us >= $silence_s * 1000000
    AND s.next_us - s.end_us BETWEEN 0 AND $resume_s * 1000000
    AND s.waited_ns >= (s.next_us - s.end_us) * 1000 + $silence_s * 500000000
)
SELECT
  p.capture, p.began_us * 1000 AS first_ns, p.next_us * 1000 AS last_ns,
  CASE
    WHEN p.is_half AND p.plateaus < $repeated THEN 'halfway_once'
    WHEN p.is_half AND p.connection_id = -1 THEN 'subscription_halfway'
    WHEN p.is_half THEN 'halfway'
    WHEN p.plateaus = 1 AND p.next_us - p.end_us > $prompt_s * 1000000 THEN 'pattern'
    WHEN p.connection_id = -1 THEN 'subscription'
    ELSE ''
  END AS variant,
  p.topic AS subject_topic, p.subscription AS subject_subscription,
  p.next_consumer_name AS subject_consumer_name, p.client_ip AS subject_client_ip,
  (p.end_us - p.began_us) / 1e6 AS measured_silence_measured_s,
  (p.next_us - p.end_us) / 1e6 AS measured_resume_measured_s,
  p.waited_ns / 1e9 AS measured_waited_s, p.available AS measured_available,
  p.unacked AS measured_unacked, p.plateaus AS measured_plateaus,
  p.consumers AS measured_consumers, p.owner_name AS measured_owner_name,
  p.server_version AS measured_server_version, NULL AS measured_affected_version,
  TRUE AS ruled_out_permits, TRUE AS ruled_out_idle,
  p.frame_no AS frame_last_message, p.oldest_frame_no AS frame_oldest_unacked,
  p.ack_frame_no AS frame_next_ack,
  CASE WHEN p.is_half THEN p.half_frame_no END AS frame_ack_of_half,
  p.next_frame_no AS frame_next_message
FROM plateaus AS p
ANTI JOIN connections AS z -- A client that does not read gets nothing, either.
  ON z.capture = p.capture AND z.connection_id = p.next_connection_id
  AND z.zero_window_ns_to_client >= $silence_s * 500000000
ANTI JOIN ( -- Each consumer is silent when the whole subscription is.
  SELECT capture, topic, subscription, began_us, next_us FROM plateaus WHERE connection_id = -1
) AS w
  ON w.capture = p.capture AND w.topic = p.topic AND w.subscription = p.subscription
  AND p.connection_id <> -1 AND p.began_us < w.next_us AND p.next_us > w.began_us
WHERE
  NOT p.is_half OR p.plateaus >= $repeated OR p.acked_us - p.began_us >= $silence_s * 1000000
UNION ALL BY NAME
SELECT
  w.capture, w.start_us * 1000 AS first_ns, w.end_us * 1000 AS last_ns,
  CASE
    WHEN w.left_unacked = w.stopped_unacked THEN 'still'
    ELSE 'blocked_flag_stuck'
  END AS variant,
  w.topic AS subject_topic, w.subscription AS subject_subscription,
  w.consumer_name AS subject_consumer_name, w.client_ip AS subject_client_ip,
  (w.end_us - w.began_us) / 1e6 AS measured_silence_measured_s,
  (w.end_us - w.stored_us) / 1e6 AS measured_waited_s, w.available AS measured_available,
  w.stopped_unacked AS measured_unacked,
  w.server_version AS measured_server_version,
  CASE
    WHEN
      v.release < 3000010 OR v.release BETWEEN 3001000 AND 3003004
      OR v.release BETWEEN 4000000 AND 4000002
      THEN w.server_version
  END AS measured_affected_version,
  TRUE AS ruled_out_permits, TRUE AS ruled_out_idle,
  w.last_frame_no AS frame_last_message,
  w.next_frame_no AS frame_next_message
FROM withheld AS w
LEFT JOIN releases AS v USING (server_version)
WHERE
  w.subscription_type = 'Shared' AND w.kind = 'plain' AND w.holes = 0 AND w.strangers = 0
  AND w.stopped_unacked > 1
  AND (
    (w.left_unacked = w.stopped_unacked AND w.next_us IS NULL)
    OR (
      2 * w.left_unacked <= w.stopped_unacked
      AND w.acked_us - w.began_us >= $silence_s * 1000000
      AND w.end_us - w.acked_us >= $stuck_s * 1000000
    )
  )
  AND w.end_us - w.start_us >= $stuck_s * 1000000
