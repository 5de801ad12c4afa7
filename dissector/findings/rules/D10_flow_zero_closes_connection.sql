/*
number = "D10"
code = "flow_zero_closes_connection"
title = "A FLOW of no permits made the broker close the connection"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_closed_after_s"
references = ["apache/pulsar PR 10506", "apache/pulsar PR 10507"]
fires = []
silent = ["java-j10_exclusive_rq0.pcap", "java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[needs]
permits = "event = 'grant' AND delta <= 0"

[thresholds.closed_s]
value = 1.0
unit = "s"
why = "the broker closes within milliseconds of the frame; what both sides need to end their streams comes on top"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} sent a FLOW of {permits} permits; the broker sent nothing more and closed the connection, which was over {closed_after_s} s later."
known = "It was the broker that closed first, and no frame of it lies behind the FLOW."
rival = "A broker that closed this connection at that moment for another reason, such as a restart."
decides = "The broker's log at that time: it names the number of permits that it refused."
do = "Take a client in which pausing a consumer with a queue of 0 sends nothing (apache/pulsar PR 10506 and 10507), or do not pause such consumers. Everything on this connection is sent again, perhaps twice or in another order."
*/
WITH zero_flows AS (
  SELECT p.*
  FROM (
    SELECT capture, connection_id, consumer_id, incarnation, frame_no, delta, micros(ts) AS at_us
    FROM permits
    WHERE event = 'grant' AND delta <= 0
    ORDER BY capture, frame_no
    LIMIT 10000
  ) AS p
),
closed_connections AS (
  SELECT
    n.capture, n.connection_id, n.consumer_id, n.incarnation, n.frame_no, n.delta, n.at_us,
    l.last_ts_ns, l.client_ip
  FROM zero_flows AS n
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    l.closed_first_by = 'broker'
    AND l.last_ts_ns - n.at_us * 1000 BETWEEN 0 AND $closed_s * 1000000000
)
SELECT
  c.capture, c.at_us * 1000 AS first_ns, c.last_ts_ns AS last_ns, n.topic AS subject_topic,
  n.subscription AS subject_subscription, n.name AS subject_consumer_name,
  c.client_ip AS subject_client_ip, c.delta AS measured_permits,
  (c.last_ts_ns - c.at_us * 1000) / 1e9 AS measured_closed_after_s,
  n.opened_frame_no AS frame_subscribe, c.frame_no AS frame_flow_of_nothing
FROM closed_connections AS c
LEFT JOIN consumers AS n USING (capture, connection_id, consumer_id, incarnation)
ANTI JOIN (
  SELECT c.capture, c.connection_id, c.frame_no
  FROM closed_connections AS c
  JOIN (
    SELECT capture, connection_id, frame_no
    FROM frames
    WHERE
      direction = 'to_client'
      AND (capture, connection_id) IN (SELECT capture, connection_id FROM closed_connections)
  ) AS f
    ON f.capture = c.capture AND f.connection_id = c.connection_id AND f.frame_no > c.frame_no
  GROUP BY c.capture, c.connection_id, c.frame_no
) AS a USING (capture, connection_id, frame_no)
