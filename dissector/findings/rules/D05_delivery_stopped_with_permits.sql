/*
number = "D05"
code = "delivery_stopped_with_permits"
title = "Delivery stopped although messages wait and the consumer has permits"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_lasted_s"
references = ["apache/pulsar#3131", "apache/pulsar#14082", "apache/pulsar#21104", "apache/pulsar#9788", "apache/pulsar#9789", "apache/pulsar PR 6966", "apache/pulsar#26395", "apache/pulsar#24231"]
fires = ["live-no_acks.pcap"]
real = ["live-no_acks.pcap"]
silent = ["java-j17_blocked_unacked.pcap", "java-j29_delayed.pcap", "java-j11_failover_switch.pcap", "java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[thresholds.floor_s]
value = 5.0
unit = "s"
why = "brokers send what waits within milliseconds while there are permits; reads from storage that is slow take seconds"

[thresholds.usual_times]
value = 20
unit = "times the median wait of the subscription's entries"
why = "a subscription that always lags gets its entries late without a fault"

[thresholds.comb]
value = 3
unit = "waits of equal length"
why = "a rate limit with a long period stops and goes on in a rhythm"

[thresholds.alike]
value = 0.15
unit = "share by which such waits differ"
why = "the broker's timer is more exact than that"

[thresholds.paused_s]
value = 2.0
unit = "s without an answer"
why = "a broker that reads answers requests within milliseconds"

[ruled_out]
permits = "that the consumer asked for too little: it had permits left all the time"
idle = "that the topic was idle: the broker had confirmed the entry that waits"
dead = "that the connection was dead, or the client did not read it: the broker spoke on it meanwhile, five seconds or more after the begin"
unacked = "a limit of unacknowledged messages: half of them or more were acknowledged five seconds before the end, or this type of subscription has no such limit"

[text]
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited, which was stored at the begin of that time or before, and consumer {consumer_name} had {available} permits."
known = "The receipt of the entry and every delivery to the subscription's consumers are in the capture; the entry came to none of them until then, and to none came one behind it. Of {stopped_unacked} messages unacknowledged when it stopped, {left_unacked} {left_unacked|was|were} still so five seconds before the end."
rival = "Another consumer of the subscription outside of this capture that got it; an entry filter, or messages that expired, which leave such holes; a broker whose reads from storage hang."
decides = "The topic's stats-internal at that time: the cursor's readPosition, waitingReadOp and pendingReadOps."
do = "Take stats-internal and a thread dump of the broker before unloading the topic: unloading heals it and destroys the evidence."

[variant.orphan_chunk]
title = "Delivery stopped at a chunk whose message began before"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited, chunk {chunk_id} of a message in several, and consumer {consumer_name} had {available} permits."
rival = "Any other reason for which the broker stopped just before this chunk; another consumer of the subscription outside of this capture."
decides = "Whether delivery goes on when this one entry is skipped (apache/pulsar#26395)."
do = "Take stats-internal, then skip one message of the subscription; look at what acknowledged the first chunk of that message alone."

[variant.inactive]
severity = "info"
title = "A consumer waits because another one is active"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s in this capture while entry {entry} waited; consumer {consumer_name} had {available} permits, but the broker had told it that it is not the active one."
rival = "An active consumer outside of this capture that is stuck, or a broker that chose none."
decides = "The topic's statistics: which consumer is active, and whether it gets messages."
do = "Look at the active consumer of the subscription (consumer_waits_by_design)."

[variant.unacked]
severity = "info"
verdict = "pattern"
title = "Delivery stopped while messages are unacknowledged"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited and consumer {consumer_name} had {available} permits; {stopped_unacked} messages {stopped_unacked|was|were} unacknowledged when it stopped, and {left_unacked} five seconds before the end."
rival = "A limit of unacknowledged messages of the consumer or of the subscription, which is no fault of the broker, or a broker that stopped for another reason."
decides = "The limits of the topic (maxUnackedMessagesPerConsumer, maxUnackedMessagesPerSubscription), and whether delivery goes on when these are acknowledged."
do = "Acknowledge what is old (unacked_limit_plateau says more where acknowledgements were seen)."

[variant.key_shared]
severity = "info"
verdict = "pattern"
title = "Delivery by key stopped while messages are unacknowledged"
what = "Subscription {subscription} of {topic} (Key_Shared) got nothing for {lasted_s} s while entry {entry} waited and consumer {consumer_name} had {available} permits; {left_unacked} of {stopped_unacked} messages {left_unacked|was|were} still unacknowledged five seconds before the end."
rival = "A key, or before Pulsar 4.0 a consumer that joined, waits for older messages of another consumer by design; or a limit of unacknowledged messages; or a broker that stopped for another reason."
decides = "Who holds unacknowledged messages of the same key, and whether delivery goes on when they are acknowledged."
do = "Acknowledge what is old; look for key_shared_blocked."

[variant.delayed]
severity = "info"
title = "Delivery waits for the time that the producer set"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited and consumer {consumer_name} had {available} permits: it is not to be delivered before a time of its own, and nothing else waited."
rival = "None for this entry, as long as the clocks of producer and broker agree."
decides = "Whether it comes when its time has come."
do = "Nothing, if the delay is meant."

[variant.transaction]
severity = "info"
title = "Delivery waits for a transaction"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited and consumer {consumer_name} had {available} permits: it, or an entry before it, is part of a transaction that did not end in this capture before then."
rival = "A transaction that ended outside of this capture, and a broker that stopped for another reason."
decides = "The transaction's state at its coordinator."
do = "Find the application that holds the transaction open; nothing behind its first message is delivered before it ends."

[variant.rate_comb]
severity = "info"
verdict = "pattern"
title = "Delivery stops and goes on in a rhythm"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited and consumer {consumer_name} had {available} permits; {waits_alike} waits of this subscription {waits_alike|is|are} as long as the one before or after them, within 15 %."
rival = "A dispatch rate with a long period, which gives such a comb, or a broker that stops again and again for another reason."
decides = "The dispatch rate of topic, subscription and namespace, and its period."
do = "Raise the dispatch rate, if it is meant to be higher."

[variant.reads_paused]
severity = "info"
verdict = "pattern"
title = "Delivery stopped while the broker did not read"
what = "Subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} waited and consumer {consumer_name} had {available} permits; meanwhile the broker left {paused_requests} requests on this connection without an answer for 2 s or more."
rival = "A broker that stopped reading from this connection, so that grants and acknowledgements lie unread, or one that stands still altogether."
decides = "Whether producers on the same connection are over a publish rate."
do = "Look for broker_reads_paused; connections of their own for producers and consumers part the two."

[variant.others]
severity = "info"
verdict = "pattern"
title = "A consumer gets nothing, and others may"
what = "In this capture subscription {subscription} of {topic} got nothing for {lasted_s} s while entry {entry} was there and consumer {consumer_name} had {available} permits; but {holes} entries before it also came to no consumer of this capture, {strangers} consumers {strangers|has|have} no name here, or none came at all."
rival = "Consumers of the subscription outside of this capture that got them, which is most likely; filters and expiry; or a broker that stopped."
decides = "The topic's statistics: all consumers of the subscription, and its backlog."
do = "Capture at the broker, so that all consumers are in it."
*/
WITH waits AS (
  SELECT
    w.*, w.end_us - w.start_us AS lasted_us,
    lag(w.end_us - w.start_us) OVER following AS before_us,
    lead(w.end_us - w.start_us) OVER following AS behind_us
  FROM withheld AS w
  WINDOW following AS (PARTITION BY w.capture, w.topic, w.subscription ORDER BY w.start_us)
),
long_waits AS (
  SELECT l.*
  FROM (
    SELECT
      w.*, w.lasted_us / 1e6 AS lasted_s,
      coalesce(abs(w.lasted_us - w.before_us) <= $alike * w.lasted_us, FALSE)
        OR coalesce(abs(w.lasted_us - w.behind_us) <= $alike * w.lasted_us, FALSE) AS is_alike,
      count(
        CASE
          WHEN
            abs(w.lasted_us - w.before_us) <= $alike * w.lasted_us
            OR abs(w.lasted_us - w.behind_us) <= $alike * w.lasted_us
            THEN 1
        END
      ) OVER (PARTITION BY w.capture, w.topic, w.subscription) AS waits_alike
    FROM waits AS w
  ) AS l
  WHERE l.lasted_s >= $floor_s AND l.lasted_us >= $usual_times * coalesce(l.usual_us, 0)
),
paused_reads AS (
  SELECT w.capture, w.topic, w.subscription, w.began_us, count(*) AS requests
  FROM long_waits AS w
  JOIN (
    SELECT capture, connection_id, request_last_ns, response_last_ns
    FROM exchanges
    WHERE
      request_command IN ('SEND', 'PING', 'LOOKUP', 'PRODUCER', 'SUBSCRIBE', 'GET_LAST_MESSAGE_ID')
      AND (capture, connection_id) IN (
        SELECT capture, connection_id
        FROM long_waits
        ORDER BY capture, connection_id
        LIMIT 10000
      )
  ) AS e USING (capture, connection_id)
  WHERE
    e.request_last_ns BETWEEN w.start_us * 1000 AND w.end_us * 1000 - $paused_s * 1000000000
    AND (
      e.response_last_ns IS NULL
      OR e.response_last_ns - e.request_last_ns >= $paused_s * 1000000000
    )
  GROUP BY w.capture, w.topic, w.subscription, w.began_us
),
open_transactions AS ( -- Transactions with an entry of the topic that were open until the wait ended.
  SELECT w.capture, w.topic, w.subscription, w.began_us, count(*) AS transactions
  FROM long_waits AS w
  JOIN (
    SELECT
      capture, topic, txn_most_bits, txn_least_bits, min(micros(ts)) AS sent_us
    FROM frames
    WHERE
      txn_least_bits IS NOT NULL AND command = 'SEND'
      AND (capture, topic) IN (SELECT capture, topic FROM long_waits)
    GROUP BY capture, topic, txn_most_bits, txn_least_bits
  ) AS t ON t.capture = w.capture AND t.topic = w.topic AND t.sent_us <= w.stored_us
  LEFT JOIN (
    SELECT capture, txn_most_bits, txn_least_bits, min(micros(ts)) AS ended_us
    FROM frames
    WHERE command IN ('END_TXN', 'END_TXN_ON_PARTITION')
    GROUP BY capture, txn_most_bits, txn_least_bits
  ) AS e
    ON e.capture = t.capture AND e.txn_most_bits = t.txn_most_bits
    AND e.txn_least_bits = t.txn_least_bits
  WHERE e.ended_us IS NULL OR e.ended_us >= w.end_us
  GROUP BY w.capture, w.topic, w.subscription, w.began_us
)
SELECT
  w.capture, w.start_us * 1000 AS first_ns, w.end_us * 1000 AS last_ns,
  CASE
    WHEN w.subscription_type = 'Failover' AND w.is_inactive THEN 'inactive'
    WHEN w.subscription_type = 'Key_Shared' AND w.left_unacked > 0 THEN 'key_shared'
    WHEN
      w.subscription_type = 'Shared'
      AND (
        2 * w.left_unacked > w.stopped_unacked
        OR (w.stopped_unacked > 1 AND w.acked_us - w.began_us >= 1000000)
      )
      THEN 'unacked'
    WHEN w.kind = 'delayed' THEN 'delayed'
    WHEN w.kind = 'transaction' OR t.transactions > 0 THEN 'transaction'
    WHEN
      w.is_alike AND w.waits_alike >= $comb
      THEN 'rate_comb'
    WHEN p.requests > 0 THEN 'reads_paused'
    WHEN
      w.strangers > 0 OR w.last_frame_no IS NULL AND w.subscription_type <> 'Exclusive'
      OR w.holes > 0 AND w.subscription_type IN ('Shared', 'Key_Shared')
      THEN 'others'
    WHEN w.chunk_id > 0 THEN 'orphan_chunk'
    ELSE ''
  END AS variant,
  w.topic AS subject_topic, w.subscription AS subject_subscription,
  w.consumer_name AS subject_consumer_name, w.client_ip AS subject_client_ip,
  w.lasted_s AS measured_lasted_s, w.available AS measured_available,
  concat(CAST(w.ledger_id AS STRING), ':', CAST(w.entry_id AS STRING)) AS measured_entry,
  w.chunk_id AS measured_chunk_id,
  w.stopped_unacked AS measured_stopped_unacked, w.left_unacked AS measured_left_unacked,
  w.holes AS measured_holes, w.strangers AS measured_strangers,
  w.waits_alike AS measured_waits_alike, p.requests AS measured_paused_requests,
  w.server_version AS measured_server_version,
  TRUE AS ruled_out_permits, TRUE AS ruled_out_idle, TRUE AS ruled_out_dead,
  w.subscription_type IN ('Exclusive', 'Failover') OR w.left_unacked = 0
    OR (w.subscription_type = 'Shared' AND 2 * w.left_unacked <= w.stopped_unacked)
    AS ruled_out_unacked,
  w.send_frame_no AS frame_send_that_waits, w.receipt_frame_no AS frame_its_receipt,
  w.last_frame_no AS frame_last_message, w.alive_frame_no AS frame_broker_alive,
  w.next_frame_no AS frame_next_message
FROM long_waits AS w
LEFT JOIN paused_reads AS p USING (capture, topic, subscription, began_us)
LEFT JOIN open_transactions AS t USING (capture, topic, subscription, began_us)
