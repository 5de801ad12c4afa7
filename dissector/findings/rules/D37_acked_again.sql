/*
number = "D37"
code = "acked_again"
title = "Acknowledged messages came again: the acks were in flight at a close"
severity = "warning"
verdict = "proven"
protocol = "pulsar"
section = "ack_latency"
worst = "measured_entries"
references = ["apache/pulsar#6731", "apache/pulsar#7683", "apache/pulsar#755", "apache/pulsar PR 15479", "apache/pulsar#20099", "apache/pulsar#19449"]
errors = ["TransactionConflict"]
fires = ["t11-delayed-again-after-unload.pcap", "t07-txn-ack-conflict.pcap", "java-j61_txn_abort.pcap"]
real = ["java-j61_txn_abort.pcap"]
silent = ["t11-delayed-unload-twin.pcap", "t07-txn-ack-twin.pcap", "java-j21_seek.pcap", "cpp-s12_seek-bem.pcap", "java-j60_txn_commit.pcap", "java-j24_unload.pcap", "java-j12_nack_batch_index.pcap", "java-j14_cumulative.pcap", "cpp-c40_killed_Shared.pcap", "java-j01_plain.pcap"]

[needs]
delivery_kinds = "is_redelivered OR outcome = 'ack_rolled_back'"
exchange_kinds = "kind = 'ack' AND outcome = 'error'"
acks = "ack_type = 'Cumulative'"

[thresholds.close_s]
value = 1.0
unit = "s"
why = "acks that are older were surely taken: the broker reads them within milliseconds"

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a client that is refused for so long does not get through by itself"

[text]
what = "{entries} entries of {topic} that consumer {consumer_name} of {subscription} had acknowledged {entries|was|were} delivered again. Their acks were sent {before_close_s} s before the consumer or its connection was closed, or behind the broker's close."
known = "The ACK of the message id, the close and the later delivery of the same id are in the capture; there was no seek, no transaction, and nobody had asked for them again."
rival = "A broker that took the acks and lost its cursor's position (a crash before it was stored)."
decides = "Whether the broker that serves the topic crashed: then older acks are lost, too, not only those of the last second."
do = "Expect it: an ACK has no answer unless the client asks for one. Wait for receipts of acks (isAckReceiptEnabled) where it matters, and make processing safe against messages that come twice."

[variant.not_kept]
verdict = "pattern"
title = "Acknowledged messages came again: the broker had not kept the acks"
what = "{entries} entries of {topic} that consumer {consumer_name} of {subscription} had acknowledged {entries|was|were} delivered again behind a close. Their acks were sent {least_before_close_s} s or more before it, so that the broker had them.[ Entry {hole} before them was not acknowledged then{hole_delay}: the mark-delete position stood before it.]"
known = "The ACK of the message id, the close and the later delivery of the same id are in the capture; the broker refused none of these ACKs; there was no seek, no transaction, and nobody had asked for them again."
rival = "A broker that crashed before it stored its cursor: then all of the last acks are lost, those of other subscriptions, too."
decides = "The subscription's markDeletePosition and individuallyDeletedMessages in stats-internal: an older entry that is not acknowledged, or is delayed, holds the position back, and single acks beyond it are kept only up to a limit, or not at all."
do = "Look for what holds the position back; look at managedLedgerMaxUnackedRangesToPersist and the broker's version; make processing safe against messages that come twice."

[variant.index_acks]
verdict = "pattern"
title = "Acknowledged messages of batches came again: acks of single messages were not kept"
what = "{messages} messages in {entries} batches of {topic} that consumer {consumer_name} of {subscription} had acknowledged one by one came again, with the others of their batches."
known = "The ACKs name the messages of the batch that they leave (ack_set), and the batch was delivered again behind them with more than these."
rival = "Acks that were in flight when the consumer was closed."
decides = "acknowledgmentAtBatchIndexLevelEnabled of the broker: where it is false, acks of single messages of a batch are not kept, and this is so for every batch that comes again."
do = "Switch acknowledgmentAtBatchIndexLevelEnabled on at the brokers, or expect a batch to come again as a whole until all of its messages are acknowledged."

[variant.cumulative_shared]
severity = "error"
title = "Cumulative acknowledgements on a shared subscription: the broker ignores them"
what = "Consumer {consumer_name} of {subscription} on {topic} sent {acks} cumulative ACKs, on a subscription of type {subscription_type}: these acknowledge nothing. {entries} entries that it got, up to the last of them, are not acknowledged[; {again} of these came again in this capture]."
known = "SUBSCRIBE with its type and the ACKs are in the capture. Brokers ignore cumulative acknowledgements on Shared and Key_Shared subscriptions and say so in their log alone, also where the client asks for an answer."
rival = "None: what was acknowledged one by one is not counted here."
decides = "Nothing is open."
do = "Acknowledge each message by itself, or subscribe as Exclusive or Failover."

[variant.refused]
title = "The broker refused acknowledgements"
what = "The broker refused {acks} ACKs of consumer {consumer_name} of {subscription} on {topic} with {error_code}[: '{error_text}']: these acknowledge nothing. The first was of {first_id}[, in transaction {transaction}].[ {elsewhere} of the {entries} message ids in them {elsewhere|is|are} in another ACK of this capture.][ {again} of these came again in this capture.] Behind the last refusal the broker accepted {granted} ACKs of this consumer that asked for an answer."
known = "ACK and the ACK_RESPONSE that refuses it are both in the capture."
rival = "Messages that had been acknowledged before, by another ACK or another transaction: the broker's text says so then, and nothing is lost."
decides = "Whether these message ids come again; for a transaction, how it ended at its coordinator."
do = "Ask dissector explain {error_code} what it means; look at who acknowledged these ids before, and at the broker's log of the transactions, if it was in one."

[variant.refused_elsewhere]
like = "refused"
severity = "info"
title = "The broker refused acknowledgements of what another ACK acknowledged"

[variant.refused_lasting]
like = "refused"
severity = "error"
title = "The broker refuses acknowledgements again and again"

[variant.rolled_back]
severity = "info"
title = "Acknowledgements were rolled back with their transactions"
what = "The acknowledgements of {entries} entries of {topic} by consumer {consumer_name} of {subscription} do not count: {transactions} transactions that they were in {transactions|was|were} aborted. [{again} of these entries came again in this capture. ]The first was {first_id}, in transaction {transaction}."
known = "The ACKs name their transaction[; the END_TXN that aborts the first is frame {abort}]."
rival = "An application that aborts on purpose, as it does when its work on a message fails."
decides = "The application's log of the transaction: why it was aborted."
do = "Nothing, if the application aborts on purpose. Else look for what made it abort: a send or an ack in it that was refused, or its timeout."
*/
WITH refusals AS ( -- ACKs that the broker refused.
  SELECT
    e.capture, e.connection_id, e.request_frame_no, e.response_frame_no, e.error_code,
    e.error_text, floor_div(e.response_last_ns, 1000) AS at_us
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    e.kind = 'ack' AND e.outcome = 'error' AND e.error_code IS NOT NULL
    AND e.request_frame_no IS NOT NULL AND e.response_last_ns IS NOT NULL
),
redelivered AS (
  SELECT
    d.capture, d.topic, d.subscription, d.ledger_id, d.entry_id, d.frame_no, d.message_count,
    d.redelivery_cause, d.redelivery_count, d.previous_connection_id, d.previous_frame_no,
    micros(d.ts) AS at_us
  FROM deliveries AS d
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    d.is_redelivered AND d.topic LIKE 'persistent://%' AND d.previous_frame_no IS NOT NULL
    AND d.redelivery_cause <> 'seek'
),
earlier_acks AS ( -- ACKs between two deliveries of an id; is_part: none was of the whole entry.
  SELECT
    g.capture, g.topic, g.subscription, g.ledger_id, g.entry_id, g.frame_no, g.at_us,
    g.message_count, g.redelivery_cause, g.redelivery_count, g.previous_connection_id,
    g.previous_frame_no, a.connection_id, a.consumer_id, a.incarnation,
    min(CASE WHEN a.ack_set IS NULL THEN 0 ELSE 1 END) AS is_part,
    max(a.frame_no) AS ack_no, max(micros(a.ts)) AS acked_us
  FROM redelivered AS g
  JOIN acks AS a
    ON a.capture = g.capture AND a.connection_id = g.previous_connection_id
    AND a.topic = g.topic AND a.subscription = g.subscription
    AND a.ledger_id = g.ledger_id AND a.entry_id = g.entry_id
  ANTI JOIN refusals AS r
    ON r.capture = a.capture AND r.connection_id = a.connection_id
    AND r.request_frame_no = a.frame_no
  WHERE
    a.action = 'ack' AND a.txn_most_bits IS NULL AND a.validation_error IS NULL
    AND a.ack_type = 'Individual'
    AND a.frame_no > g.previous_frame_no AND a.frame_no < g.frame_no
  GROUP BY ALL
),
consumer_ends AS ( -- The close of the acknowledging consumer, or its connection's end.
  SELECT
    k.*, c.closed_frame_no, coalesce(micros(f.ts), floor_div(l.last_ts_ns, 1000)) AS close_us
  FROM earlier_acks AS k
  JOIN pulsar_consumers AS c
    ON c.capture = k.capture AND c.connection_id = k.connection_id
    AND c.consumer_id = k.consumer_id AND c.incarnation = k.incarnation
  JOIN pulsar_links AS l ON l.capture = k.capture AND l.connection_id = k.connection_id
  LEFT JOIN frames AS f
    ON f.capture = c.capture AND f.connection_id = c.connection_id
    AND f.frame_no = c.closed_frame_no
  WHERE
    k.is_part = 0 AND k.redelivery_count = 0
    AND k.redelivery_cause IN (
      'reconnect', 'unload', 'consumer_gone', 'failover_switch', 'unknown'
    )
),
wrong_cumulative_acks AS ( -- Cumulative ACKs of a subscription type that allows none.
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, c.topic, c.subscription,
    c.subscription_type, count(DISTINCT a.frame_no) AS acks, min(micros(a.ts)) AS acked_us,
    max(micros(a.ts)) AS at_us, max(a.frame_no) AS ack_no,
    max_by(a.ledger_id, a.frame_no) AS ledger_id, max_by(a.entry_id, a.frame_no) AS entry_id
  FROM acks AS a
  JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
  WHERE
    a.action = 'ack' AND a.ack_type = 'Cumulative'
    AND c.subscription_type IN ('Shared', 'Key_Shared')
  GROUP BY ALL
),
refused_ids AS (
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.topic, a.subscription,
    a.ledger_id, a.entry_id, a.frame_no, micros(a.ts) AS acked_us, a.txn_most_bits,
    a.txn_least_bits, r.response_frame_no, r.error_code, r.error_text, r.at_us
  FROM acks AS a
  JOIN refusals AS r
    ON r.capture = a.capture AND r.connection_id = a.connection_id
    AND r.request_frame_no = a.frame_no
  WHERE a.action = 'ack' AND a.entry_id IS NOT NULL
),
accepted_ids AS ( -- Ids of refused ACKs that are in ACKs that were not refused.
  SELECT DISTINCT n.capture, n.topic, n.subscription, n.ledger_id, n.entry_id
  FROM acks AS n
  ANTI JOIN refusals AS t
    ON t.capture = n.capture AND t.connection_id = n.connection_id
    AND t.request_frame_no = n.frame_no
  WHERE
    n.action = 'ack'
    AND (n.capture, n.topic, n.subscription, n.ledger_id, n.entry_id) IN (
      SELECT capture, topic, subscription, ledger_id, entry_id FROM refused_ids
    )
),
vain_acks AS ( -- Ids acknowledged in vain, with connection and consumer of the ACK.
  SELECT
    z.capture, z.connection_id, z.consumer_id, z.incarnation, z.topic, z.subscription,
    z.ledger_id, z.entry_id,
    CASE WHEN z.close_us - z.acked_us > $close_s * 1000000 THEN 'not_kept' ELSE '' END AS way,
    z.acked_us, z.close_us, z.at_us, z.previous_frame_no AS given_no, z.ack_no,
    z.closed_frame_no AS close_no, CAST(NULL AS BIGINT) AS refusal_no, z.frame_no AS redelivered_no,
    CAST(NULL AS BIGINT) AS messages, CAST(NULL AS BIGINT) AS acks,
    CAST(NULL AS STRING) AS error_code, CAST(NULL AS STRING) AS error_text,
    CAST(NULL AS BIGINT) AS txn_most_bits, CAST(NULL AS BIGINT) AS txn_least_bits,
    CAST(NULL AS BIGINT) AS elsewhere
  FROM consumer_ends AS z
  WHERE z.close_us < z.at_us
  UNION ALL
  SELECT
    k.capture, k.connection_id, k.consumer_id, k.incarnation, k.topic, k.subscription,
    k.ledger_id, k.entry_id, 'index_acks', k.acked_us, NULL, k.at_us, k.previous_frame_no,
    k.ack_no, NULL, NULL, k.frame_no, k.message_count - p.message_count + p.messages_acked, NULL,
    NULL, NULL, NULL, NULL, NULL
  FROM earlier_acks AS k
  JOIN deliveries AS p
    ON p.capture = k.capture AND p.connection_id = k.previous_connection_id
    AND p.frame_no = k.previous_frame_no
  WHERE k.is_part = 1 AND k.message_count > p.message_count - p.messages_acked
  UNION ALL
  SELECT
    u.capture, u.connection_id, u.consumer_id, u.incarnation, u.topic, u.subscription,
    d.ledger_id, d.entry_id, 'cumulative_shared', u.acked_us, NULL, u.at_us, d.frame_no, u.ack_no,
    NULL, NULL, g.frame_no, NULL, u.acks, NULL, NULL, NULL, NULL, NULL
  FROM wrong_cumulative_acks AS u
  JOIN deliveries AS d
    ON d.capture = u.capture AND d.connection_id = u.connection_id
    AND d.consumer_id = u.consumer_id AND d.incarnation = u.incarnation
    AND d.frame_no < u.ack_no AND d.outcome <> 'acked'
    AND (d.ledger_id < u.ledger_id OR (d.ledger_id = u.ledger_id AND d.entry_id <= u.entry_id))
  LEFT JOIN redelivered AS g
    ON g.capture = d.capture AND g.previous_connection_id = d.connection_id
    AND g.previous_frame_no = d.frame_no
  UNION ALL
  SELECT
    r.capture, r.connection_id, r.consumer_id, r.incarnation, r.topic, r.subscription,
    r.ledger_id, r.entry_id, 'refused', min(r.acked_us), NULL, max(r.at_us), NULL,
    min(r.frame_no), NULL, min(r.response_frame_no), min(g.frame_no), NULL, NULL, r.error_code,
    min_by(r.error_text, r.frame_no), min_by(r.txn_most_bits, r.frame_no),
    min_by(r.txn_least_bits, r.frame_no),
    CASE WHEN r.subscription IS NOT NULL THEN count(e.entry_id) END
  FROM refused_ids AS r
  LEFT JOIN accepted_ids AS e USING (capture, topic, subscription, ledger_id, entry_id)
  LEFT JOIN redelivered AS g
    ON g.capture = r.capture AND g.topic = r.topic AND g.subscription = r.subscription
    AND g.ledger_id = r.ledger_id AND g.entry_id = r.entry_id
    AND g.frame_no > r.response_frame_no
  GROUP BY
    r.capture, r.connection_id, r.consumer_id, r.incarnation, r.topic, r.subscription,
    r.ledger_id, r.entry_id, r.error_code
  UNION ALL
  SELECT
    a.capture, a.connection_id, a.consumer_id, a.incarnation, a.topic, a.subscription,
    a.ledger_id, a.entry_id, 'rolled_back', min(micros(a.ts)), NULL,
    max(coalesce(g.at_us, micros(a.ts))), min(d.frame_no), min(a.frame_no), min(f.frame_no), NULL,
    min(g.frame_no), NULL, NULL, NULL, NULL, a.txn_most_bits, a.txn_least_bits, NULL
  FROM deliveries AS d
  JOIN acks AS a
    ON a.capture = d.capture AND a.frame_no = d.ack_frame_no AND a.topic = d.topic
    AND a.subscription = d.subscription AND a.ledger_id = d.ledger_id
    AND a.entry_id = d.entry_id AND a.txn_most_bits IS NOT NULL
  LEFT JOIN (
    SELECT capture, txn_most_bits, txn_least_bits, min(frame_no) AS frame_no
    FROM frames
    WHERE command = 'END_TXN' AND detail LIKE '%ABORT%'
    GROUP BY capture, txn_most_bits, txn_least_bits
  ) AS f
    ON f.capture = a.capture AND f.txn_most_bits = a.txn_most_bits
    AND f.txn_least_bits = a.txn_least_bits
  LEFT JOIN redelivered AS g
    ON g.capture = d.capture AND g.previous_connection_id = d.connection_id
    AND g.previous_frame_no = d.frame_no
  WHERE d.outcome = 'ack_rolled_back'
  GROUP BY ALL
),
unkept_acks AS (
  SELECT
    capture, topic, subscription, min(close_us) AS close_us,
    min_by(ledger_id, (ledger_id, entry_id)) AS ledger_id,
    min_by(entry_id, (ledger_id, entry_id)) AS entry_id
  FROM vain_acks
  WHERE way = 'not_kept'
  GROUP BY capture, topic, subscription
),
unacked_gaps AS ( -- The first earlier entry that was stored or delivered, but not acknowledged.
  SELECT
    k.capture, k.topic, k.subscription, min_by(k.hole, (k.ledger_id, k.entry_id)) AS hole,
    min_by(k.due_us, (k.ledger_id, k.entry_id)) AS due_us
  FROM (
    SELECT
      n.capture, n.topic, n.subscription, s.ledger_id, s.entry_id, max(s.due_us) AS due_us,
      concat(CAST(s.ledger_id AS STRING), ':', CAST(s.entry_id AS STRING)) AS hole
    FROM unkept_acks AS n
    JOIN (
      SELECT
        e.capture, e.topic, CAST(NULL AS STRING) AS subscription, e.ledger_id, e.entry_id,
        floor_div(e.response_last_ns, 1000) AS at_us, f.deliver_at_ms * 1000 AS due_us
      FROM exchanges AS e
      JOIN frames AS f
        ON f.capture = e.capture AND f.connection_id = e.connection_id
        AND f.frame_no = e.request_frame_no
      WHERE
        e.kind = 'publish' AND e.outcome = 'ok' AND e.entry_id IS NOT NULL
        AND (e.capture, e.topic) IN (SELECT capture, topic FROM unkept_acks)
      UNION ALL
      SELECT capture, topic, subscription, ledger_id, entry_id, micros(ts), deliver_at_ms * 1000
      FROM deliveries
      WHERE (capture, topic, subscription) IN (SELECT capture, topic, subscription FROM unkept_acks)
    ) AS s
      ON s.capture = n.capture AND s.topic = n.topic AND s.at_us < n.close_us
      AND (s.subscription IS NULL OR s.subscription = n.subscription)
      AND (s.ledger_id < n.ledger_id OR (s.ledger_id = n.ledger_id AND s.entry_id < n.entry_id))
    JOIN (
      SELECT capture, topic, subscription, min(opened_ns) AS opened_ns
      FROM pulsar_opens
      GROUP BY capture, topic, subscription
    ) AS o
      ON o.capture = n.capture AND o.topic = n.topic AND o.subscription = n.subscription
      AND (s.subscription IS NOT NULL OR s.at_us * 1000 > o.opened_ns)
    ANTI JOIN acks AS a
      ON a.capture = n.capture AND a.topic = n.topic AND a.subscription = n.subscription
      AND a.ledger_id = s.ledger_id AND a.entry_id = s.entry_id AND a.action = 'ack'
      AND micros(a.ts) < n.close_us
    ANTI JOIN (
      SELECT capture, topic, subscription FROM acks WHERE ack_type = 'Cumulative'
    ) AS u
      ON u.capture = n.capture AND u.topic = n.topic AND u.subscription = n.subscription
    GROUP BY n.capture, n.topic, n.subscription, s.ledger_id, s.entry_id
  ) AS k
  GROUP BY k.capture, k.topic, k.subscription
),
refusal_totals AS (
  SELECT
    i.capture, i.way, c.topic, c.subscription, c.subscription_type, c.consumer_name, c.client_ip,
    i.error_code, min(i.acked_us) AS acked_us, max(i.at_us) AS at_us, min(i.at_us) AS first_at_us,
    max(i.close_us) AS close_us, count(*) AS entries, max(i.close_us - i.acked_us) AS before_us,
    min(i.close_us - i.acked_us) AS least_us, count(i.redelivered_no) AS redeliveries,
    CAST(sum(i.messages) AS BIGINT) AS messages,
    coalesce(max(i.acks), count(DISTINCT i.ack_no)) AS acks, sum(i.elsewhere) AS elsewhere,
    min_by(i.error_text, (i.ack_no, i.ledger_id, i.entry_id)) AS error_text,
    min_by(i.id, (i.ack_no, i.ledger_id, i.entry_id)) AS first_id,
    count(DISTINCT i.transaction) AS transactions,
    min_by(i.transaction, (i.ack_no, i.ledger_id, i.entry_id)) AS transaction,
    min_by(i.given_no, (i.ack_no, i.ledger_id, i.entry_id)) AS given_no, min(i.ack_no) AS ack_no,
    min_by(i.close_no, CASE WHEN i.close_no IS NOT NULL THEN (i.ack_no, i.ledger_id, i.entry_id) END)
      AS close_no,
    min_by(i.redelivered_no, (i.ack_no, i.ledger_id, i.entry_id))
      FILTER (WHERE i.redelivered_no IS NOT NULL) AS redelivered_no,
    min(i.refusal_no) AS refusal_no,
    max(i.refusal_no) AS last_refusal_no
  FROM (
    SELECT
      *, concat(CAST(ledger_id AS STRING), ':', CAST(entry_id AS STRING)) AS id,
      CASE
        WHEN txn_most_bits IS NOT NULL THEN concat(
          '(', CAST(txn_most_bits AS STRING), ',', CAST(txn_least_bits AS STRING), ')'
        )
      END AS transaction
    FROM vain_acks
  ) AS i
  JOIN pulsar_consumers AS c USING (capture, connection_id, consumer_id, incarnation)
  GROUP BY ALL
),
accepted_acks AS ( -- ACKs with a request id that were accepted after the last refusal.
  SELECT
    s.capture, s.topic, s.subscription, s.consumer_name, s.client_ip, s.error_code,
    count(*) AS acks
  FROM refusal_totals AS s
  JOIN pulsar_consumers AS c USING (capture, topic, subscription, consumer_name, client_ip)
  JOIN exchanges AS e
    ON e.capture = c.capture AND e.connection_id = c.connection_id
    AND e.consumer_id = c.consumer_id AND e.incarnation = c.incarnation
    AND e.kind = 'ack' AND e.outcome = 'ok' AND e.response_last_ns > s.at_us * 1000
  WHERE s.way = 'refused'
  GROUP BY ALL
)
SELECT
  s.capture, s.acked_us * 1000 AS first_ns, s.at_us * 1000 AS last_ns,
  CASE
    WHEN s.way <> 'refused' THEN s.way
    WHEN s.elsewhere = s.entries THEN 'refused_elsewhere'
    WHEN s.acks > 2 AND s.at_us - s.first_at_us >= $lasting_s * 1000000 THEN 'refused_lasting'
    ELSE 'refused'
  END AS variant,
  s.topic AS subject_topic, s.subscription AS subject_subscription,
  s.consumer_name AS subject_consumer_name, s.client_ip AS subject_client_ip,
  s.entries AS measured_entries, s.before_us / 1e6 AS measured_before_close_s,
  s.least_us / 1e6 AS measured_least_before_close_s, h.hole AS measured_hole,
  CASE
    WHEN h.due_us > s.close_us THEN ', since it was not due yet'
    WHEN h.hole IS NOT NULL THEN ''
  END AS measured_hole_delay,
  s.messages AS measured_messages, s.acks AS measured_acks, s.redeliveries AS measured_again,
  s.subscription_type AS measured_subscription_type, s.error_code AS measured_error_code,
  nullif(s.error_text, '') AS measured_error_text, s.first_id AS measured_first_id,
  s.transaction AS measured_transaction, s.transactions AS measured_transactions,
  CAST(s.elsewhere AS BIGINT) AS measured_elsewhere,
  CASE WHEN s.way = 'refused' THEN coalesce(g.acks, 0) END AS measured_granted,
  s.given_no AS frame_first_delivery, s.ack_no AS frame_its_ack,
  s.refusal_no AS frame_first_refusal,
  CASE WHEN s.way <> 'rolled_back' THEN s.close_no END AS frame_close,
  CASE WHEN s.way = 'rolled_back' THEN s.close_no END AS frame_abort,
  s.redelivered_no AS frame_delivered_again, s.last_refusal_no AS frame_last_refusal
FROM refusal_totals AS s
LEFT JOIN unacked_gaps AS h
  ON h.capture = s.capture AND h.topic = s.topic AND h.subscription = s.subscription
  AND s.way = 'not_kept'
LEFT JOIN accepted_acks AS g
  ON g.capture = s.capture AND g.topic = s.topic AND g.subscription = s.subscription
  AND g.consumer_name = s.consumer_name AND g.client_ip = s.client_ip
  AND g.error_code = s.error_code
