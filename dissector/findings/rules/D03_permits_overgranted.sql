/*
number = "D03"
code = "permits_overgranted"
title = "A consumer granted more than its queue"
severity = "warning"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_most_available"
references = ["apache/pulsar PR 22091", "apache/pulsar PR 20591", "apache/pulsar-client-go#155"]
fires = []
silent = ["java-j12_nack_batch_index.pcap", "java-j24_unload.pcap", "java-j21_seek.pcap", "java-j01_plain.pcap"]

[thresholds.over]
value = 1.05
unit = "times the first FLOW"
why = "clients that round up their half queue stay below"

[thresholds.refills]
value = 3
unit = "FLOWs after which the balance is above it"
why = "one may be a matter of timing"

[thresholds.alike]
value = 0.1
unit = "share of the surplus"
why = "what was granted too much and what was acknowledged before differ by what is under way"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} subscribed again while it was open, the broker agreed, and it granted its queue once more: its balance rose to {most_available} permits, its first FLOW was {first_flow}."
known = "Both SUBSCRIBEs and SUCCESSes are on one connection, and no close, seek or end lies between them. A second SUBSCRIBE of an open consumer changes nothing at the broker."
rival = "None for the balance. What the client did with the messages of the first one is not on the wire: {dropped} of those delivered between the two FLOWs {dropped|was|were} never acknowledged in this capture, and probably thrown away by the client."
decides = "The client's log at that time: two attempts to reconnect that ran into each other."
do = "Look at the client's version (apache/pulsar PR 20591). Messages that the client threw away come again when it asks for them, or with its next connection."

[variant.ack_set_overgrant]
title = "A consumer gives back permits of messages that it never got"
what = "The balance of consumer {consumer_name} of {subscription} on {topic} rose to {most_available} permits, its first FLOW was {first_flow}; {acked_before} messages of its batches {acked_before|was|were} acknowledged already when they came again."
known = "The broker charges only what is left of such a batch (its ack_set); the surplus of {surplus} permits is what the client gave back beyond that."
rival = "A client that lets its queue grow; equal amounts by chance are unlikely."
decides = "The client's version: Java clients with PR 22091 give back only what they were charged."
do = "Take a client that has it, or switch off acknowledgement of single messages in batches. The queue grows with every redelivery: watch the client's memory."

[variant.grown]
severity = "info"
verdict = "pattern"
title = "A consumer's queue grew"
what = "The balance of consumer {consumer_name} of {subscription} on {topic} stayed above its first FLOW ({first_flow} permits) after {over_refills} FLOWs, {most_available} at the most."
known = "Every FLOW and every MESSAGE since its SUBSCRIBE is in the capture."
rival = "A client that scales its queue with what it consumes, which is meant so; or one that gives back permits twice."
decides = "Whether the client is set to scale its receiver queue."
do = "Nothing, if it is. Else look at the client's version, and watch its memory."
*/
WITH repeated_subscribes AS ( -- SUBSCRIBEs for a consumer that was open already.
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation,
    min(e.request_frame_no) AS subscribe_frame_no, min(e.response_frame_no) AS success_frame_no
  FROM pulsar_consumers AS c
  JOIN (
    SELECT capture, connection_id, consumer_id, incarnation, request_frame_no, response_frame_no
    FROM exchanges
    WHERE request_command = 'SUBSCRIBE' AND outcome = 'ok' AND kind = 'request'
  ) AS e USING (capture, connection_id, consumer_id, incarnation)
  WHERE e.request_frame_no > c.opened_frame_no AND c.ready_frame_no < e.request_frame_no
    AND (c.closed_frame_no IS NULL OR c.closed_frame_no > e.response_frame_no)
  GROUP BY c.capture, c.connection_id, c.consumer_id, c.incarnation
),
grown_consumers AS (
  SELECT c.capture, c.connection_id, c.consumer_id, c.incarnation
  FROM (
    SELECT
      capture, connection_id, consumer_id, incarnation, max(most_available) AS most_available
    FROM consumer_seconds
    GROUP BY capture, connection_id, consumer_id, incarnation
  ) AS c
  JOIN consumers AS n USING (capture, connection_id, consumer_id, incarnation)
  WHERE c.most_available > $over * n.first_flow_permits AND n.first_flow_permits > 1
  ORDER BY c.capture, c.connection_id, c.consumer_id, c.incarnation
  LIMIT 10000
),
sums AS (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, n.first_flow_permits,
    count(*) FILTER (
      WHERE p.event = 'grant' AND p.available_after > $over * n.first_flow_permits
    ) AS over_refills,
    max(p.available_after) AS most_available,
    min(micros(p.ts)) AS first_us, max(micros(p.ts)) AS last_us,
    max_by(p.frame_no, p.available_after) AS most_frame_no,
    min(CASE WHEN p.event = 'grant' THEN p.frame_no END) AS first_flow_frame_no,
    min(p.frame_no) FILTER (
      WHERE p.event = 'grant' AND p.frame_no > a.success_frame_no
        AND p.delta >= n.first_flow_permits
    ) AS second_flow_frame_no,
    max(a.subscribe_frame_no) AS subscribe_frame_no, max(a.success_frame_no) AS success_frame_no
  FROM permits AS p
  JOIN pulsar_consumers AS n USING (capture, connection_id, consumer_id, incarnation)
  LEFT JOIN repeated_subscribes AS a USING (capture, connection_id, consumer_id, incarnation)
  WHERE
    p.baseline_known
    AND (p.capture, p.connection_id, p.consumer_id, p.incarnation) IN (
      SELECT capture, connection_id, consumer_id, incarnation FROM grown_consumers
    )
  GROUP BY p.capture, p.connection_id, p.consumer_id, p.incarnation, n.first_flow_permits
),
message_counts AS (
  SELECT
    s.capture, s.connection_id, s.consumer_id, s.incarnation,
    coalesce(
      CAST(
        sum(
          CASE
            WHEN d.frame_no < s.most_frame_no AND d.batch_size > d.message_count
              THEN d.batch_size - d.message_count
          END
        ) AS BIGINT
      ),
      0
    ) AS acked_before,
    CAST(
      sum(
        CASE
          WHEN
            d.frame_no BETWEEN s.first_flow_frame_no AND s.second_flow_frame_no
            AND d.outcome <> 'acked'
            THEN d.message_count
        END
      ) AS BIGINT
    ) AS dropped
  FROM sums AS s
  JOIN deliveries AS d USING (capture, connection_id, consumer_id, incarnation)
  GROUP BY s.capture, s.connection_id, s.consumer_id, s.incarnation
)
SELECT
  s.capture, s.first_us * 1000 AS first_ns, s.last_us * 1000 AS last_ns,
  CASE
    WHEN s.second_flow_frame_no IS NOT NULL THEN ''
    WHEN
      g.acked_before > 0
      AND abs(s.most_available - s.first_flow_permits - g.acked_before)
      <= greatest($alike * (s.most_available - s.first_flow_permits), 1)
      THEN 'ack_set_overgrant'
    ELSE 'grown'
  END AS variant,
  n.topic AS subject_topic, n.subscription AS subject_subscription,
  n.consumer_name AS subject_consumer_name, n.client_ip AS subject_client_ip,
  s.most_available AS measured_most_available, s.first_flow_permits AS measured_first_flow,
  s.most_available - s.first_flow_permits AS measured_surplus,
  s.over_refills AS measured_over_refills, coalesce(g.acked_before, 0) AS measured_acked_before,
  coalesce(g.dropped, 0) AS measured_dropped, n.client_version AS measured_client_version,
  s.first_flow_frame_no AS frame_flow_before, s.subscribe_frame_no AS frame_second_subscribe,
  s.success_frame_no AS frame_its_success, s.second_flow_frame_no AS frame_second_full_flow,
  s.most_frame_no AS frame_highest_balance
FROM sums AS s
JOIN pulsar_consumers AS n USING (capture, connection_id, consumer_id, incarnation)
LEFT JOIN message_counts AS g USING (capture, connection_id, consumer_id, incarnation)
WHERE s.second_flow_frame_no IS NOT NULL OR s.over_refills >= $refills
