/*
number = "D44"
code = "transaction_never_ended"
title = "A transaction outlived its timeout and was never ended"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "requests"
worst = "measured_open_s"
whole = "the END_TXN may come later"
references = ["apache/pulsar#10306", "apache/pulsar#19200", "apache/pulsar#19786"]
fires = []
silent = ["live-transaction_open.pcap", "java-j60_txn_commit.pcap", "java-j61_txn_abort.pcap", "go-g06_txn-bem.pcap", "t07-txn-ack-twin.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "request_command = 'NEW_TXN' OR request_command = 'END_TXN'"

[thresholds.open_s]
value = 30.0
unit = "s"
why = "transactions do their work within seconds, and hold back all that is stored behind them"

[thresholds.unanswered_s]
value = 10.0
unit = "s"
why = "a coordinator answers within milliseconds"

[text]
what = "Transaction {transaction} of {client_ip}, with {sends} sends[ (the first to {topic})] and {acks} ACKs in it, was opened and neither committed nor aborted in {open_s} s, though its timeout is {timeout_s} s."
known = "NEW_TXN with its timeout and every frame that names the transaction are in the capture, and no END_TXN is among them."
rival = "An END_TXN on a connection that is not in this capture."
decides = "The transaction's state at its coordinator: pulsar-admin transactions transaction-metadata -m {most} -l {least}."
do = "Find out why the application neither commits nor aborts. The coordinator aborts a transaction at its timeout: its sends are never delivered, and what it acknowledged comes again. Until then nothing behind its first message is delivered. frames -Y 'txn_least_bits == {least} and txn_most_bits == {most}' shows what is in it."

[variant.abandoned]
title = "A client went away and left a transaction open"
what = "Transaction {transaction} of {client_ip}, with {sends} sends[ (the first to {topic})] and {acks} ACKs in it, was neither committed nor aborted when its client's connection ended, {open_s} s behind its beginning[; its timeout is {timeout_s} s]."
known = "Every frame that names the transaction and the end of its connection are in the capture, and no END_TXN is among them."

[variant.still_open]
severity = "warning"
title = "A transaction is open for long"
what = "Transaction {transaction} of {client_ip}, with {sends} sends[ (the first to {topic})] and {acks} ACKs in it, was open for {open_s} s when its connection was last seen[; its timeout is {timeout_s} s]."
known = "Every frame that names the transaction is in the capture, and no END_TXN is among them."
do = "See how long the application keeps transactions open: until one ends, nothing behind its first message is delivered, and its sends and ACKs do not count. frames -Y 'txn_least_bits == {least} and txn_most_bits == {most}' shows what is in it."

[variant.unanswered]
title = "The end of a transaction was asked for and never answered"
what = "{client_ip} asked for the end of transaction {transaction}, with {sends} sends[ (the first to {topic})] and {acks} ACKs in it, and no answer came in {waited_s} s."
known = "END_TXN is in the capture, and no answer to it."
rival = "An answer on bytes that were not captured."
do = "Look at the log of the transaction coordinator's broker; until the transaction ends, nothing behind its first message is delivered."
*/
SELECT
  t.capture, t.first_us * 1000 AS first_ns, t.until_us * 1000 AS last_ns, t.variant,
  t.client_ip AS subject_client_ip,
  concat('(', CAST(t.txn_most_bits AS STRING), ',', CAST(t.txn_least_bits AS STRING), ')')
    AS subject_transaction,
  CAST(t.txn_most_bits AS STRING) AS measured_most,
  CAST(t.txn_least_bits AS STRING) AS measured_least, t.topic AS measured_topic,
  t.sends AS measured_sends, t.acks AS measured_acks, t.timeout_ms / 1e3 AS measured_timeout_s,
  (t.until_us - t.first_us) / 1e6 AS measured_open_s,
  (t.until_us - t.end_asked_us) / 1e6 AS measured_waited_s,
  t.first_frame_no AS frame_begin, t.first_send_frame_no AS frame_first_send,
  t.first_ack_frame_no AS frame_first_ack, t.end_frame_no AS frame_end_asked_for,
  t.last_frame_no AS frame_last
FROM (
  SELECT
    s.*, floor_div(l.last_ts_ns, 1000) AS until_us,
    CASE
      WHEN s.state = 'ending' THEN 'unanswered'
      WHEN l.ended IN ('fin', 'rst') THEN 'abandoned'
      WHEN floor_div(l.last_ts_ns, 1000) - s.first_us > s.timeout_ms * 1000 THEN ''
      ELSE 'still_open'
    END AS variant
  FROM transaction_states AS s
  JOIN pulsar_links AS l ON l.capture = s.capture AND l.connection_id = s.connection_id
  JOIN frames AS f
    ON f.capture = s.capture AND f.connection_id = s.connection_id
    AND f.frame_no = s.first_frame_no
  WHERE s.state IN ('open', 'ending') AND f.command = 'NEW_TXN_RESPONSE'
) AS t
WHERE
  t.variant = '' OR (t.variant = 'abandoned' AND t.sends + t.acks > 0)
  OR (t.variant = 'still_open' AND t.until_us - t.first_us >= $open_s * 1000000)
  OR (t.variant = 'unanswered' AND t.until_us - t.end_asked_us >= $unanswered_s * 1000000)
