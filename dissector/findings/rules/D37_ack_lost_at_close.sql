/*
number = "D37"
code = "ack_lost_at_close"
title = "Acknowledged messages came again: the acks were lost at a close"
severity = "warning"
verdict = "proven"
protocol = "pulsar"
section = "ack_latency"
worst = "measured_entries"
references = ["apache/pulsar#6731", "apache/pulsar#7683", "apache/pulsar#755", "apache/pulsar PR 15479", "apache/pulsar#20099"]
fires = ["t11-delayed-again-after-unload.pcap"]
silent = ["t11-delayed-unload-twin.pcap", "java-j21_seek.pcap", "cpp-s12_seek-bem.pcap", "java-j61_txn_abort.pcap", "java-j24_unload.pcap", "java-j12_nack_batch_index.pcap", "cpp-c40_killed_Shared.pcap", "java-j01_plain.pcap"]

[needs]
delivery_kinds = "is_redelivered AND redelivery_cause IN ('reconnect', 'unload', 'consumer_gone', 'failover_switch', 'unknown')"

[thresholds.close_s]
value = 1.0
unit = "s"
why = "acks that are older were surely taken: the broker reads them within milliseconds"

[text]
what = "{entries} entries of {topic} that consumer {consumer_name} of {subscription} had acknowledged {entries|was|were} delivered again. Their acks were sent {before_close_s} s before the consumer or its connection was closed, or behind the broker's close."
known = "The ACK of the message id, the close and the later delivery of the same id are in the capture; there was no seek, no transaction, and nobody had asked for them again."
rival = "A broker that took the acks and lost its cursor's position (a crash before it was stored)."
decides = "Whether the broker that serves the topic crashed: then older acks are lost, too, not only those of the last second."
do = "Expect it: an ACK has no answer unless the client asks for one. Wait for receipts of acks (isAckReceiptEnabled) where it matters, and make processing safe against messages that come twice."

[variant.not_kept]
verdict = "pattern"
title = "Acknowledged messages came again: the broker had not kept the acks"
what = "{entries} entries of {topic} that consumer {consumer_name} of {subscription} had acknowledged {entries|was|were} delivered again behind a close. Their acks were sent {least_before_close_s} s or more before it, so that the broker had them."
known = "The ACK of the message id, the close and the later delivery of the same id are in the capture; the broker refused none of these ACKs; there was no seek, no transaction, and nobody had asked for them again."
rival = "A broker that crashed before it stored its cursor: then all of the last acks are lost, those of other subscriptions, too."
decides = "The subscription's markDeletePosition and individuallyDeletedMessages in stats-internal: an older entry that is not acknowledged, or is delayed, holds the position back, and single acks beyond it are kept only up to a limit, or not at all."
do = "Look for what holds the position back; look at managedLedgerMaxUnackedRangesToPersist and the broker's version; make processing safe against messages that come twice."
*/
WITH late_redeliveries AS (
  SELECT
    d.capture, d.topic, d.subscription, d.ledger_id, d.entry_id, d.frame_no,
    d.previous_connection_id, d.previous_frame_no, micros(d.ts) AS at_us
  FROM deliveries AS d
  JOIN pulsar_links AS l ON l.capture = d.capture AND l.connection_id = d.connection_id
  WHERE
    d.is_redelivered AND d.redelivery_cause IN (
      'reconnect', 'unload', 'consumer_gone', 'failover_switch', 'unknown'
    )
    AND d.topic LIKE 'persistent://%' AND d.previous_frame_no IS NOT NULL
    AND d.redelivery_count = 0
),
acked AS (
  SELECT
    g.capture, g.topic, g.subscription, g.ledger_id, g.entry_id, g.frame_no, g.at_us,
    g.previous_frame_no, a.connection_id, a.consumer_id, a.incarnation,
    max(a.frame_no) AS ack_frame, max(micros(a.ts)) AS ack_us
  FROM late_redeliveries AS g
  JOIN acks AS a
    ON a.capture = g.capture AND a.connection_id = g.previous_connection_id
    AND a.topic = g.topic AND a.subscription = g.subscription
    AND a.ledger_id = g.ledger_id AND a.entry_id = g.entry_id
  ANTI JOIN (
    SELECT capture, connection_id, request_frame_no
    FROM exchanges
    WHERE kind = 'ack' AND outcome = 'error'
  ) AS r
    ON r.capture = a.capture AND r.connection_id = a.connection_id
    AND r.request_frame_no = a.frame_no
  WHERE
    a.action = 'ack' AND a.ack_set IS NULL AND a.txn_most_bits IS NULL
    AND a.validation_error IS NULL AND a.ack_type = 'Individual'
    AND a.frame_no > g.previous_frame_no AND a.frame_no < g.frame_no
  GROUP BY
    g.capture, g.topic, g.subscription, g.ledger_id, g.entry_id, g.frame_no, g.at_us,
    g.previous_frame_no, a.connection_id, a.consumer_id, a.incarnation
),
closed AS ( -- When the consumer that acknowledged was closed, or its connection ended.
  SELECT
    k.capture, k.topic, k.subscription, k.ledger_id, k.entry_id, k.frame_no, k.at_us,
    k.previous_frame_no, k.ack_frame, k.ack_us, c.consumer_name, c.client_ip, c.closed_frame_no,
    coalesce(micros(f.ts), floor_div(l.last_ts_ns, 1000)) AS close_us
  FROM acked AS k
  JOIN pulsar_consumers AS c
    ON c.capture = k.capture AND c.connection_id = k.connection_id
    AND c.consumer_id = k.consumer_id AND c.incarnation = k.incarnation
  JOIN pulsar_links AS l ON l.capture = k.capture AND l.connection_id = k.connection_id
  LEFT JOIN frames AS f
    ON f.capture = c.capture AND f.connection_id = c.connection_id
    AND f.frame_no = c.closed_frame_no
)
SELECT
  z.capture, min(z.ack_us) * 1000 AS first_ns, max(z.at_us) * 1000 AS last_ns,
  CASE WHEN z.close_us - z.ack_us > $close_s * 1000000 THEN 'not_kept' ELSE '' END AS variant,
  z.topic AS subject_topic, z.subscription AS subject_subscription,
  z.consumer_name AS subject_consumer_name, z.client_ip AS subject_client_ip,
  count(*) AS measured_entries, max(z.close_us - z.ack_us) / 1e6 AS measured_before_close_s,
  min(z.close_us - z.ack_us) / 1e6 AS measured_least_before_close_s,
  min_by(z.previous_frame_no, z.frame_no) AS frame_first_delivery,
  min_by(z.ack_frame, z.frame_no) AS frame_its_ack,
  min_by(z.closed_frame_no, z.frame_no) AS frame_close, min(z.frame_no) AS frame_delivered_again
FROM closed AS z
WHERE z.close_us < z.at_us
GROUP BY
  z.capture, z.topic, z.subscription, z.consumer_name, z.client_ip,
  z.close_us - z.ack_us > $close_s * 1000000
