/*
number = "D08"
code = "consumer_waits_by_design"
title = "A consumer gets nothing because another one is active"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_waited_s"
references = ["apache/pulsar#10390", "apache/pulsar#15703", "apache/pulsar#6496", "apache/pulsar#6162", "apache/pulsar#11008"]
fires = ["java-j10_failover_rq10.pcap"]
real = ["java-j10_failover_rq10.pcap"]
silent = ["cpp-s02_single_1k.pcap", "java-j01_plain.pcap", "java-j10_shared_rq10.pcap"]

[thresholds.waited_s]
value = 1.0
unit = "s"
why = "the broker waits a second before it makes another consumer the active one"

[thresholds.others_got]
value = 10
unit = "entries"
why = "fewer can go to one of several consumers by chance"

[thresholds.hoard]
value = 0.8
unit = "share of what is unacknowledged"
why = "with queues of equal size consumers hold about the same"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} got nothing for {waited_s} s though it had {available} permits: the broker had told it that it is not the active one, and others of the subscription got {others_messages} entries from then on."
known = "ACTIVE_CONSUMER_CHANGE says it, and none that says otherwise came before the time ended."
rival = "None: a subscription of type Failover has one active consumer."
decides = "Nothing further."
do = "Nothing, if one consumer is to do the work while the others stand by. Else take a subscription of type Shared or Key_Shared, or a topic with more partitions."

[variant.priority]
title = "A consumer gets nothing because others go before it"
what = "Consumer {consumer_name} of {subscription} on {topic} (priority level {priority}) got nothing for {waited_s} s though it had {available} permits, while consumers with a lower level, which go first, got {others_messages} entries."
known = "The levels are in the SUBSCRIBEs, and those that go first had permits left at the end of each second."
rival = "A consumer that would have got nothing anyhow, as little came."
decides = "Whether it gets messages when those that go first run out of permits."
do = "Nothing, if it is a reserve. Else give all consumers the same priority level."

[variant.prefetch_hoard]
verdict = "pattern"
title = "One consumer holds nearly all messages in its queue"
what = "Consumer {consumer_name} of {subscription} on {topic} got nothing for {waited_s} s though it had {available} permits, while another consumer held {held} messages unacknowledged, of {unacked} of the subscription."
known = "The balances of permits and the acknowledgements of both are in the capture."
rival = "A consumer that is quick and holds what it is about to acknowledge, and a topic that had nothing more to give."
decides = "Whether messages wait at the client of the other one while this one is idle."
do = "Make the receiver queues smaller where messages take long, down to 1, so that the broker keeps what nobody works on."
*/
WITH seconds AS (
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription,
    max(c.subscription_type) AS subscription_type, max(c.client_ip) AS client_ip,
    min(c.first_us) AS opened_us, max(c.last_us) AS last_us,
    min(c.first_delivery_us) AS first_delivery_us, max(c.last_delivery_us) AS last_delivery_us,
    CAST(sum(c.deliveries) AS BIGINT) AS deliveries,
    max_by(c.last_available, c.second) AS available,
    min(c.last_available) AS least_available,
    max_by(c.last_unacked, c.second) AS unacked
  FROM consumer_seconds AS c
  WHERE c.subscription_type IN ('Failover', 'Shared')
  GROUP BY ALL
),
starved_consumers AS (
  SELECT
    s.*, n.consumer_name, n.opened_frame_no, n.closed_frame_no, n.priority_level
  FROM seconds AS s
  JOIN pulsar_consumers AS n
    ON n.capture = s.capture AND n.connection_id = s.connection_id
    AND n.consumer_id = s.consumer_id AND n.incarnation = s.incarnation
  WHERE s.deliveries = 0 AND s.available > 0 AND n.opened_frame_no IS NOT NULL
  ORDER BY s.capture, n.opened_frame_no
  LIMIT 10000
),
active_consumer_changes AS ( -- ACTIVE_CONSUMER_CHANGE of a consumer, and the end of its observation.
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation,
    min(CASE WHEN f.detail LIKE '%false%' THEN f.frame_no END) AS passive_frame_no,
    min(CASE WHEN f.detail LIKE '%false%' THEN micros(f.ts) END) AS passive_us,
    min(CASE WHEN f.detail LIKE '%true%' THEN micros(f.ts) END) AS active_us,
    min(CASE WHEN f.frame_no = s.closed_frame_no THEN micros(f.ts) END) AS closed_us
  FROM starved_consumers AS s
  JOIN (
    SELECT capture, connection_id, consumer_id, frame_no, ts, detail
    FROM frames
    WHERE command IN ('ACTIVE_CONSUMER_CHANGE', 'CLOSE_CONSUMER')
  ) AS f
    ON f.capture = s.capture AND f.connection_id = s.connection_id
    AND f.consumer_id = s.consumer_id AND f.frame_no > s.opened_frame_no
  GROUP BY s.capture, s.connection_id, s.consumer_id, s.incarnation
),
idle_consumers AS (
  SELECT
    s.*, t.passive_frame_no, coalesce(t.passive_us, s.opened_us) AS began_us,
    least(
      coalesce(t.closed_us, 9000000000000000), coalesce(t.active_us, 9000000000000000)
    ) AS bound_us
  FROM starved_consumers AS s
  LEFT JOIN active_consumer_changes AS t
    ON t.capture = s.capture AND t.connection_id = s.connection_id
    AND t.consumer_id = s.consumer_id AND t.incarnation = s.incarnation
),
other_consumers AS ( -- Deliveries to each other consumer of the subscription meanwhile.
  SELECT
    w.capture, w.connection_id, w.consumer_id, w.incarnation,
    coalesce(n.priority_level, 0) AS priority_level, CAST(sum(o.deliveries) AS BIGINT) AS messages,
    max(o.last_delivery_us) AS until_us, min(o.last_available) AS least_available,
    max_by(o.last_unacked, o.second) AS unacked
  FROM idle_consumers AS w
  JOIN consumer_seconds AS o USING (capture, topic, subscription)
  JOIN pulsar_consumers AS n
    ON n.capture = o.capture AND n.connection_id = o.connection_id
    AND n.consumer_id = o.consumer_id AND n.incarnation = o.incarnation
  WHERE o.first_delivery_us >= w.began_us AND o.last_delivery_us <= w.bound_us
  GROUP BY
    w.capture, w.connection_id, w.consumer_id, w.incarnation, o.connection_id, o.consumer_id,
    o.incarnation, n.priority_level
),
assessments AS (
  SELECT
    w.*, s.others_messages, s.held, s.all_unacked, s.until_us,
    CASE
      WHEN w.subscription_type = 'Failover' AND w.passive_frame_no IS NOT NULL THEN 'passive'
      WHEN w.subscription_type = 'Shared' AND s.first_messages >= $others_got THEN 'priority'
      WHEN
        w.subscription_type = 'Shared' AND s.held >= $hoard * s.all_unacked
        AND s.held >= 2 * w.available
        THEN 'prefetch_hoard'
    END AS reason
  FROM idle_consumers AS w
  JOIN (
    SELECT
      w.capture, w.connection_id, w.consumer_id, w.incarnation,
      CAST(sum(o.messages) AS BIGINT) AS others_messages, max(o.until_us) AS until_us,
      max(o.unacked) AS held, CAST(sum(o.unacked) AS BIGINT) AS all_unacked,
      sum(
        CASE
          WHEN o.priority_level < coalesce(w.priority_level, 0) AND o.least_available > 0
            THEN o.messages
        END
      ) AS first_messages
    FROM idle_consumers AS w
    JOIN other_consumers AS o USING (capture, connection_id, consumer_id, incarnation)
    GROUP BY w.capture, w.connection_id, w.consumer_id, w.incarnation
  ) AS s
    ON s.capture = w.capture AND s.connection_id = w.connection_id
    AND s.consumer_id = w.consumer_id AND s.incarnation = w.incarnation
  WHERE s.others_messages >= $others_got
)
SELECT
  j.capture, j.began_us * 1000 AS first_ns, j.until_us * 1000 AS last_ns,
  CASE WHEN j.reason = 'passive' THEN '' ELSE j.reason END AS variant,
  j.topic AS subject_topic, j.subscription AS subject_subscription,
  j.consumer_name AS subject_consumer_name, j.client_ip AS subject_client_ip,
  (j.until_us - j.began_us) / 1e6 AS measured_waited_s, j.available AS measured_available,
  j.others_messages AS measured_others_messages,
  coalesce(j.priority_level, 0) AS measured_priority,
  j.held AS measured_held, j.all_unacked AS measured_unacked,
  j.opened_frame_no AS frame_subscribe, j.passive_frame_no AS frame_not_active
FROM assessments AS j
WHERE j.reason IS NOT NULL AND j.until_us - j.began_us >= $waited_s * 1000000
