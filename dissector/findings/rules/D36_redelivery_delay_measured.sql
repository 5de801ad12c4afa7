/*
number = "D36"
code = "redelivery_delay_measured"
title = "How long messages wait until they are delivered again"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "redelivery"
worst = "measured_messages"
references = ["apache/pulsar#6461", "apache/pulsar#5344"]
fires = ["java-j12_nack.pcap", "cpp-s08_nack.pcap", "cpp-s08_nack-proxy-any.pcap"]
real = ["java-j12_nack.pcap", "cpp-s08_nack.pcap", "cpp-s08_nack-proxy-any.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[needs]
acks = "action = 'redeliver'"

[thresholds.messages]
value = 3
unit = "entries"
why = "fewer show no delay"

[text]
what = "Consumer {consumer_name} of {subscription} on {topic} asked for {messages} entries to be delivered again, {asked_median_s} s after their delivery in the median ({asked_least_s} s to {asked_most_s} s); they came again {came_median_s} s later in the median (to {came_most_s} s, {came} of them)."
known = "Every delivery and every REDELIVER_UNACKNOWLEDGED_MESSAGES that names them is in the capture."
rival = "A negative acknowledgement of the application and an ack timeout of the client look the same: the configured delay is not on the wire, and the client's timer ticks at a third of it."
decides = "Negative ack redelivery delay and ack timeout in the consumer's configuration."
do = "Nothing, if the delay is as configured. Else set it to what the application needs; expect up to a third of it more."
*/
WITH asked AS (
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.frame_no, a.ledger_id, a.entry_id,
    micros(a.ts) AS at_us, c.topic, c.subscription, c.consumer_name, c.client_ip
  FROM (
    SELECT
      capture, connection_id, consumer_id, incarnation, frame_no, ledger_id, entry_id, ts
    FROM acks
    WHERE action = 'redeliver' AND ledger_id IS NOT NULL
    ORDER BY capture, frame_no
    LIMIT 1000000
  ) AS a
  JOIN pulsar_consumers AS c
    ON c.capture = a.capture AND c.connection_id = a.connection_id
    AND c.consumer_id = a.consumer_id AND c.incarnation = a.incarnation
  WHERE c.topic LIKE 'persistent://%' AND c.subscription_type IN ('Shared', 'Key_Shared')
),
given AS (
  SELECT
    capture, topic, subscription, connection_id, consumer_id, incarnation, frame_no, ledger_id,
    entry_id, micros(ts) AS at_us
  FROM deliveries
  WHERE (capture, topic, subscription) IN (SELECT capture, topic, subscription FROM asked)
),
waits AS (
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.topic, a.subscription,
    a.consumer_name, a.client_ip, a.frame_no, a.ledger_id, a.entry_id, a.at_us,
    a.at_us - max(
      CASE
        WHEN
          g.frame_no < a.frame_no AND g.connection_id = a.connection_id
          AND g.consumer_id = a.consumer_id AND g.incarnation = a.incarnation
          THEN g.at_us
      END
    ) AS asked_us,
    max(CASE WHEN g.frame_no < a.frame_no THEN g.frame_no END) AS given_frame_no,
    min(CASE WHEN g.frame_no > a.frame_no THEN g.at_us END) - a.at_us AS came_us,
    min(CASE WHEN g.frame_no > a.frame_no THEN g.frame_no END) AS came_frame_no
  FROM asked AS a
  JOIN given AS g
    ON g.capture = a.capture AND g.topic = a.topic AND g.subscription = a.subscription
    AND g.ledger_id = a.ledger_id AND g.entry_id = a.entry_id
  GROUP BY
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.topic, a.subscription,
    a.consumer_name, a.client_ip, a.frame_no, a.ledger_id, a.entry_id, a.at_us
)
SELECT
  w.capture, min(w.at_us) * 1000 AS first_ns, max(w.at_us) * 1000 AS last_ns,
  w.topic AS subject_topic, w.subscription AS subject_subscription,
  w.consumer_name AS subject_consumer_name, w.client_ip AS subject_client_ip,
  count(*) AS measured_messages, min(w.asked_us) / 1e6 AS measured_asked_least_s,
  median(w.asked_us) / 1e6 AS measured_asked_median_s, max(w.asked_us) / 1e6 AS measured_asked_most_s,
  count(w.came_us) AS measured_came, median(w.came_us) / 1e6 AS measured_came_median_s,
  max(w.came_us) / 1e6 AS measured_came_most_s,
  min_by(w.given_frame_no, (w.frame_no, w.given_frame_no)) AS frame_first_delivery, min(w.frame_no) AS frame_first_request,
  min_by(w.came_frame_no, (w.frame_no, w.given_frame_no)) AS frame_first_redelivery, max(w.frame_no) AS frame_last_request
FROM waits AS w
WHERE w.asked_us IS NOT NULL
GROUP BY
  w.capture, w.connection_id, w.consumer_id, w.incarnation, w.topic, w.subscription,
  w.consumer_name, w.client_ip
HAVING count(*) >= $messages
