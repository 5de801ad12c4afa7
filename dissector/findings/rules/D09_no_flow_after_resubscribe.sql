/*
number = "D09"
code = "no_flow_after_resubscribe"
title = "A consumer came back and never asked for messages"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_silent_s"
references = ["apache/pulsar#15679", "apache/pulsar PR 15852", "apache/pulsar-client-cpp PR 473", "apache/pulsar-client-go PR 1443", "apache/pulsar-client-go#698", "streamnative/pulsar-rs#263"]
fires = []
silent = ["java-j24_unload.pcap", "cpp-c41_unload.pcap", "java-j10_exclusive_rq0.pcap", "java-j01_plain.pcap"]

[needs]
pulsar_consumers = "first_flow_permits IS NULL AND ready_frame_no IS NOT NULL"

[thresholds.silent_s]
value = 10.0
unit = "s"
why = "clients send the first FLOW within milliseconds of the broker's consent"

[ruled_out]
dead = "that the connection was dead: frames came on it after that time"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} subscribed again and sent no FLOW for {silent_s} s; its subscription before had ended with {unused} permits unused, so that it still waited for messages."
known = "SUBSCRIBE, the broker's consent and the connection's later frames are in the capture, and there is no FLOW of this consumer."
rival = "An application that stopped calling receive just then: with a queue of 0 a client asks only when it is called."
decides = "A thread dump of the client: is a thread waiting in receive?"
do = "Look at the client's version: clients with a queue of 0 sent the permit on the old connection (apache/pulsar PR 15852, apache/pulsar-client-cpp PR 473, apache/pulsar-client-go PR 1443). A queue of 1 avoids it."
*/
WITH consumer_lifetimes AS (
  SELECT
    c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription,
    c.consumer_name, c.client_ip, c.opened_frame_no, c.ready_frame_no, c.closed_frame_no,
    c.first_flow_permits,
    lag(c.connection_id) OVER entity AS before_connection_id,
    lag(c.consumer_id) OVER entity AS before_consumer_id,
    lag(c.incarnation) OVER entity AS before_incarnation
  FROM pulsar_consumers AS c
  WHERE c.opened_frame_no IS NOT NULL AND c.topic IS NOT NULL AND c.subscription IS NOT NULL
    AND c.consumer_name IS NOT NULL
  WINDOW entity AS (
    PARTITION BY c.capture, c.topic, c.subscription, c.consumer_name, c.client_ip
    ORDER BY c.opened_frame_no
  )
),
consumers_without_flow AS (
  SELECT * FROM consumer_lifetimes
  WHERE
    first_flow_permits IS NULL AND ready_frame_no IS NOT NULL AND before_connection_id IS NOT NULL
  ORDER BY capture, opened_frame_no
  LIMIT 10000
),
previous_balances AS (
  SELECT
    m.capture, m.opened_frame_no, max_by(p.available_after, p.frame_no) AS unused,
    max(p.frame_no) AS last_frame_no
  FROM consumers_without_flow AS m
  JOIN (
    SELECT
      capture, connection_id, consumer_id, incarnation, frame_no, event, available_after,
      baseline_known
    FROM permits
    WHERE
      baseline_known AND event <> 'reset' AND frame_no IS NOT NULL
      AND (capture, connection_id) IN (SELECT capture, before_connection_id FROM consumers_without_flow)
  ) AS p
    ON p.capture = m.capture AND p.connection_id = m.before_connection_id
    AND p.consumer_id = m.before_consumer_id AND p.incarnation = m.before_incarnation
  GROUP BY m.capture, m.opened_frame_no
),
observed_consumers AS (
  SELECT
    m.capture, m.topic, m.subscription, m.consumer_name, m.client_ip, m.opened_frame_no,
    m.ready_frame_no, m.closed_frame_no, e.unused, e.last_frame_no,
    max(CASE WHEN f.frame_no = m.ready_frame_no THEN f.last_ts_ns END) AS ready_ns,
    max(CASE WHEN f.frame_no = m.closed_frame_no THEN f.last_ts_ns END) AS closed_ns,
    max(f.last_ts_ns) AS last_ns,
    max_by(f.frame_no, f.last_ts_ns) AS alive_frame_no
  FROM consumers_without_flow AS m
  JOIN previous_balances AS e USING (capture, opened_frame_no)
  JOIN (
    SELECT capture, connection_id, frame_no, last_ts_ns
    FROM frames
    WHERE
      status = 'complete'
      AND (capture, connection_id) IN (SELECT capture, connection_id FROM consumers_without_flow)
  ) AS f USING (capture, connection_id)
  WHERE e.unused >= 1
  GROUP BY ALL
)
SELECT
  w.capture, w.ready_ns AS first_ns, least(w.last_ns, coalesce(w.closed_ns, w.last_ns)) AS last_ns,
  w.topic AS subject_topic, w.subscription AS subject_subscription,
  w.consumer_name AS subject_consumer_name, w.client_ip AS subject_client_ip,
  (least(w.last_ns, coalesce(w.closed_ns, w.last_ns)) - w.ready_ns) / 1e9 AS measured_silent_s,
  w.unused AS measured_unused, TRUE AS ruled_out_dead,
  w.last_frame_no AS frame_last_of_the_one_before, w.opened_frame_no AS frame_subscribe,
  w.ready_frame_no AS frame_success, w.alive_frame_no AS frame_still_alive
FROM observed_consumers AS w
WHERE least(w.last_ns, coalesce(w.closed_ns, w.last_ns)) - w.ready_ns >= $silent_s * 1000000000
