/*
number = "D32"
code = "redelivery_loop"
title = "Entries are delivered again and again"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "redelivery"
worst = "measured_most_times"
references = ["apache/pulsar-client-node#368", "apache/pulsar-site PR 1117", "apache/pulsar#3077", "apache/pulsar#100", "apache/pulsar PR 7021", "apache/pulsar PR 24663", "apache/pulsar#20934"]
fires = ["t17-chunked-never-dead-lettered.pcap", "live-ack_timeout.pcap", "live-nack_loop.pcap"]
real = ["live-ack_timeout.pcap", "live-nack_loop.pcap"]
silent = ["t17-chunked-dlq-twin.pcap", "java-j16_dlq_retry.pcap", "cpp-s11_dlq.pcap", "cpp-s08_nack-proxy-any.pcap", "java-j21_seek.pcap", "java-j24_unload.pcap", "java-j61_txn_abort.pcap", "java-j01_plain.pcap"]

[needs]
delivery_kinds = "is_redelivered AND redelivery_cause NOT IN ('seek', 'txn_abort')"

[thresholds.times]
value = 10
unit = "deliveries of one entry"
why = "dead-letter policies mostly give up after three to five; negative acks that succeed reach four"

[thresholds.times_unacked]
value = 5
unit = "deliveries of one entry to a subscription that acknowledges nothing"
why = "where nothing at all is acknowledged, fewer show that it does not get on"

[thresholds.no_dlq_count]
value = 16
unit = "redeliveries as the broker counts"
why = "beyond what dead-letter policies are set to"

[thresholds.queue_share]
value = 0.8
unit = "of the receiver queue"
why = "a timeout that runs on prefetched messages asks for nearly all of them at once"

[text]
what = "{entries} entries of {topic} {entries|was|were} delivered {times_unacked} times or more to subscription {subscription}, one of them {most_times} times, {period_s} s apart (median).[ {chunks} of them are chunks of {chunked} messages.] The subscription acknowledged {acks} ids in this capture."
known = "Each delivery of the same message id is in the capture; none of those counted came of a seek or of an aborted transaction."
rival = "An application that refuses the message on purpose until something else is ready; or a dead-letter policy whose limit is not reached yet."
decides = "Whether the application's log names the same message id each time, and why it failed."
do = "Find out why it fails. Its client has no producer on a topic that ends with -DLQ or -RETRY in this capture: if no dead-letter policy or retry topic is set, set one, so that one bad message does not come for ever."

[variant.nothing_acked]
title = "Entries are delivered again and again, and nothing is acknowledged"
whole = "that nothing is acknowledged can be said of a whole capture only"

[variant.no_dlq]
title = "Entries are delivered again and again, and no dead-letter topic takes them"
what = "{entries} entries of {topic} {entries|was|were} delivered {times_unacked} times or more to subscription {subscription}, one of them {most_times} times; the broker counts {highest_count} redeliveries, and nothing was sent to a dead-letter topic."
rival = "A dead-letter topic with a name of its own, or one written to over a connection that was not captured."

[variant.dlq_unused]
title = "Entries are delivered again and again, and nothing is sent to the dead-letter topic that is open"
what = "{entries} entries of {topic} {entries|was|were} delivered {times_unacked} times or more to subscription {subscription}, one of them {most_times} times, {period_s} s apart (median).[ {chunks} of them are chunks of {chunked} messages.] A producer on {dead_topic} is open[, since frame {dead_letter_producer},] and sent nothing in this capture."
known = "Each delivery of the same message id, and the open of the dead-letter producer, are in the capture; no SEND to its topic is."
rival = "A dead-letter topic of another subscription or consumer of this client; a limit of redeliveries that these entries have not reached."
decides = "The client's log: it says when a message could not be sent to the dead-letter topic."
do = "A dead-letter topic is there: look why the client sends nothing to it. Java clients before apache/pulsar PR 21048 send no chunked message there; a schema that does not fit, or a producer that may not send, stops others."

[variant.dlq_used]
title = "Entries are delivered again and again beside a dead-letter or retry topic"
what = "{entries} entries of {topic} {entries|was|were} delivered {times_unacked} times or more to subscription {subscription}, one of them {most_times} times, {period_s} s apart (median).[ {chunks} of them are chunks of {chunked} messages.] {dead_sent} messages {dead_sent|was|were} sent to {dead_topic} in this capture."
known = "Each delivery of the same message id, and the producer on the other topic, are in the capture."
rival = "A limit of redeliveries that is higher than {most_times}; entries of another consumer than the one that has the policy."
decides = "The dead-letter policy of each consumer of the subscription: its limit, and who has none."
do = "Compare the limit with {most_times} deliveries; give each consumer of the subscription the same policy; find out why the messages fail."

[variant.counter_reset]
severity = "warning"
title = "The redelivery counter of entries started again"
what = "The redelivery counter of {resets} deliveries of {topic} to subscription {subscription} was lower than at the delivery before, at worst {count_before} and then {count_after}. The delivery came again because of: {reset_cause}."
known = "Both deliveries of the same message id, and their counters, are in the capture."
rival = "None: the broker keeps the counter in memory, per dispatcher, and forgets it with the last consumer, an unload or a restart."
decides = "Nothing is open as to that; whether it matters depends on the dead-letter policy: a limit of more than {count_before} is not reached that way."
do = "Where the limit must hold, count with a retry topic (its counter is a property of the message), and keep consumers connected."

[variant.prefetch_timeout]
title = "A timeout asks for the whole queue again, and nothing is acknowledged"
what = "Consumer {consumer_name} of {subscription} on {topic} asked {requests} times for as many messages again as nearly fill its queue (up to {most_asked}; the queue has {queue}), {period_s} s apart (median), and acknowledged {acks} ids in this capture."
known = "The requests name the message ids, and they come at one pace, as a timer does; entries were delivered {most_times} times meanwhile."
rival = "An ack timeout that runs out while the messages wait in the client's queue, or while the application holds them and does not acknowledge; or an application that refuses all of them at one pace."
decides = "Whether the client has an ack timeout, and how long the application takes for a full queue."
do = "Make the queue smaller or the ack timeout longer: it should be twice what a full queue takes. Better switch the ack timeout off and use negative acks."
*/
WITH redeliveries AS ( -- Redeliveries except those after a SEEK; they are few.
  SELECT
    d.capture, d.connection_id, d.frame_no, d.topic, d.subscription, d.consumer_name,
    d.consumer_id, d.incarnation, d.ledger_id, d.entry_id, d.redelivery_count,
    d.redelivery_cause, d.previous_connection_id, d.previous_frame_no, micros(d.ts) AS at_us,
    l.client_ip
  FROM deliveries AS d
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    d.is_redelivered AND d.redelivery_cause NOT IN ('seek', 'txn_abort')
    AND d.topic LIKE 'persistent://%' AND d.subscription IS NOT NULL AND d.entry_id IS NOT NULL
    AND d.topic NOT LIKE '%/__change_events%' AND d.topic NOT LIKE '%/__transaction_%'
),
entries AS (
  SELECT
    a.capture, a.topic, a.subscription, a.ledger_id, a.entry_id, count(*) + 1 AS times,
    max(a.redelivery_count) AS highest_count, min(a.at_us) AS first_us, max(a.at_us) AS last_us,
    min_by(a.previous_frame_no, a.at_us) AS first_frame, min(a.frame_no) AS second_frame,
    max(a.frame_no) AS last_frame, max(a.consumer_name) AS consumer_name,
    min(a.client_ip) AS client_ip,
    (max(a.at_us) - min(a.at_us)) / CASE WHEN count(*) > 1 THEN count(*) - 1 END AS period_us
  FROM redeliveries AS a
  GROUP BY a.capture, a.topic, a.subscription, a.ledger_id, a.entry_id
),
looping_subscriptions AS (
  SELECT
    e.capture, e.topic, e.subscription, count(*) AS entries, max(e.times) AS most_times,
    max(e.highest_count) AS highest_count, min(e.first_us) AS first_us, max(e.last_us) AS last_us,
    median(e.period_us) AS period_us,
    max_by(e.consumer_name, e.times * 1000000000000 - e.second_frame) AS consumer_name,
    max_by(e.first_frame, e.times * 1000000000000 - e.second_frame) AS first_frame,
    max_by(e.second_frame, e.times * 1000000000000 - e.second_frame) AS second_frame,
    max_by(e.last_frame, e.times * 1000000000000 - e.second_frame) AS last_frame,
    max_by(e.client_ip, e.times * 1000000000000 - e.second_frame) AS client_ip,
    count(f.chunk_uuid) AS chunks, count(DISTINCT f.chunk_uuid) AS chunked
  FROM entries AS e
  LEFT JOIN (
    SELECT capture, frame_no, chunk_uuid
    FROM frames
    WHERE chunk_uuid IS NOT NULL AND command = 'MESSAGE'
  ) AS f ON f.capture = e.capture AND f.frame_no = e.last_frame
  WHERE e.times >= $times_unacked
  GROUP BY e.capture, e.topic, e.subscription
),
ack_counts AS (
  SELECT o.capture, o.topic, o.subscription, count(*) AS acks
  FROM looping_subscriptions AS o
  JOIN acks AS a USING (capture, topic, subscription)
  WHERE a.action = 'ack'
  GROUP BY o.capture, o.topic, o.subscription
),
dead_letter_sends AS ( -- Producers on dead-letter and retry topics, by clients' naming, and their sends.
  SELECT
    p.capture, p.topic, p.subscription, min(p.opened_frame_no) AS open_frame,
    min(p.dead_topic) AS dead_topic, count(e.request_frame_no) AS sent
  FROM (
    SELECT
      o.capture, o.topic, o.subscription, p.topic AS dead_topic, p.connection_id, p.producer_id,
      p.incarnation, p.opened_frame_no
    FROM looping_subscriptions AS o
    JOIN producers AS p USING (capture)
    JOIN connections AS l ON l.capture = p.capture AND l.connection_id = p.connection_id
    WHERE
      p.topic IN (
        concat(o.topic, '-', o.subscription, '-DLQ'), concat(o.topic, '-', o.subscription, '-RETRY')
      )
      OR (l.client_ip = o.client_ip AND (p.topic LIKE '%-DLQ' OR p.topic LIKE '%-RETRY'))
  ) AS p
  LEFT JOIN exchanges AS e
    ON e.capture = p.capture AND e.connection_id = p.connection_id AND e.kind = 'publish'
    AND e.producer_id = p.producer_id AND e.incarnation = p.incarnation
  GROUP BY p.capture, p.topic, p.subscription
),
requests AS (
  SELECT
    r.capture, r.topic, r.subscription, count(*) AS requests, max(r.ids) AS most_asked,
    max(r.queue) AS queue, (max(r.at_us) - min(r.at_us)) / (count(*) - 1) AS period_us,
    count(DISTINCT r.connection_id) AS connections, min(r.frame_no) AS first_frame,
    max(r.frame_no) AS last_frame, max(r.pause_us) AS longest_us, min(r.pause_us) AS shortest_us
  FROM (
    SELECT
      q.*,
      q.at_us - lag(q.at_us) OVER (
        PARTITION BY q.capture, q.connection_id, q.topic, q.subscription ORDER BY q.frame_no
      ) AS pause_us
    FROM (
      SELECT
        a.capture, a.connection_id, a.topic, a.subscription, a.frame_no, count(*) AS ids,
        max(c.first_flow_permits) AS queue, min(micros(a.ts)) AS at_us
      FROM looping_subscriptions AS o
      JOIN acks AS a USING (capture, topic, subscription)
      JOIN consumers AS c
        ON c.capture = a.capture AND c.connection_id = a.connection_id
        AND c.consumer_id = a.consumer_id AND c.incarnation = a.incarnation
      WHERE a.action IN ('redeliver', 'nack')
      GROUP BY a.capture, a.connection_id, a.topic, a.subscription, a.frame_no
    ) AS q
    WHERE q.ids > 1 AND q.ids >= $queue_share * q.queue
  ) AS r
  GROUP BY r.capture, r.topic, r.subscription
  HAVING count(*) > 2 AND count(DISTINCT r.connection_id) = 1
),
resets AS (
  SELECT
    a.capture, a.topic, a.subscription, count(*) AS resets, min(a.at_us) AS first_us,
    max(a.at_us) AS last_us, max(b.redelivery_count) AS count_before,
    max_by(a.redelivery_count, b.redelivery_count * 1000000000000 - a.frame_no) AS count_after,
    max_by(a.redelivery_cause, b.redelivery_count * 1000000000000 - a.frame_no) AS reset_cause,
    max_by(b.frame_no, b.redelivery_count * 1000000000000 - a.frame_no) AS before_frame,
    max_by(a.frame_no, b.redelivery_count * 1000000000000 - a.frame_no) AS after_frame,
    max_by(a.consumer_name, b.redelivery_count * 1000000000000 - a.frame_no) AS consumer_name
  FROM redeliveries AS a
  JOIN redeliveries AS b
    ON b.capture = a.capture AND b.connection_id = a.previous_connection_id
    AND b.frame_no = a.previous_frame_no AND b.subscription = a.subscription
    AND b.topic = a.topic AND b.entry_id = a.entry_id AND b.ledger_id = a.ledger_id
  WHERE b.redelivery_count > a.redelivery_count
  GROUP BY a.capture, a.topic, a.subscription
)
SELECT
  o.capture, o.first_us * 1000 AS first_ns, o.last_us * 1000 AS last_ns,
  CASE
    WHEN r.requests IS NOT NULL AND coalesce(k.acks, 0) = 0 AND r.longest_us <= 1.5 * r.shortest_us
      THEN 'prefetch_timeout'
    WHEN x.sent = 0 THEN 'dlq_unused'
    WHEN x.sent > 0 THEN 'dlq_used'
    WHEN o.highest_count >= $no_dlq_count THEN 'no_dlq'
    WHEN o.most_times < $times THEN 'nothing_acked'
    ELSE ''
  END AS variant,
  o.topic AS subject_topic, o.subscription AS subject_subscription,
  o.consumer_name AS subject_consumer_name,
  o.entries AS measured_entries, o.most_times AS measured_most_times,
  coalesce(
    CASE
      WHEN coalesce(k.acks, 0) = 0 AND r.longest_us <= 1.5 * r.shortest_us THEN r.period_us
    END,
    o.period_us
  ) / 1e6 AS measured_period_s,
  o.highest_count AS measured_highest_count, coalesce(k.acks, 0) AS measured_acks,
  r.requests AS measured_requests, r.most_asked AS measured_most_asked, r.queue AS measured_queue,
  CASE WHEN o.chunks > 0 THEN o.chunks END AS measured_chunks,
  CASE WHEN o.chunks > 0 THEN o.chunked END AS measured_chunked,
  x.dead_topic AS measured_dead_topic, x.sent AS measured_dead_sent,
  NULL AS measured_resets, NULL AS measured_count_before,
  NULL AS measured_count_after, NULL AS measured_reset_cause,
  o.first_frame AS frame_first_delivery, o.second_frame AS frame_second_delivery,
  o.last_frame AS frame_last_delivery, r.first_frame AS frame_first_request,
  r.last_frame AS frame_last_request, x.open_frame AS frame_dead_letter_producer
FROM looping_subscriptions AS o
LEFT JOIN ack_counts AS k USING (capture, topic, subscription)
LEFT JOIN dead_letter_sends AS x USING (capture, topic, subscription)
LEFT JOIN requests AS r USING (capture, topic, subscription)
WHERE o.most_times >= $times OR coalesce(k.acks, 0) = 0
UNION ALL BY NAME
SELECT
  r.capture, r.first_us * 1000 AS first_ns, r.last_us * 1000 AS last_ns,
  'counter_reset' AS variant, r.topic AS subject_topic, r.subscription AS subject_subscription,
  r.consumer_name AS subject_consumer_name,
  r.resets AS measured_resets, r.count_before AS measured_count_before,
  r.count_after AS measured_count_after, r.reset_cause AS measured_reset_cause,
  r.before_frame AS frame_first_delivery, r.after_frame AS frame_second_delivery
FROM resets AS r
