-- Views over the tables of a lake.
-- Each begins with a line `-- name: what one row is`; a view may use those above it and the views
-- that the queries of reports share.

-- sends: one SEND with its receipt, or the reason why there is none
SELECT
  e.capture, e.connection_id, e.request_frame_no AS frame_no, e.ts, e.topic, e.producer_name,
  e.producer_id, e.incarnation, e.sequence_id, e.chunk_id, e.attempt, e.message_count,
  e.request_bytes, e.outcome, e.latency_ns / 1e6 AS latency_ms, e.transmit_ns / 1e6 AS transmit_ms,
  e.tainted, e.response_frame_no, e.ledger_id, e.entry_id, e.error_code, e.error_text,
  e.client_ip, e.broker_ip, e.crc32c_stored, e.latency_ns, e.request_first_ns, e.request_last_ns,
  e.response_last_ns, e.day
FROM exchanges AS e
WHERE e.kind = 'publish';

-- requests: one request except SEND (lookups, pings, seeks, ...) with its answer
SELECT
  e.capture, e.connection_id, e.request_frame_no AS frame_no, e.ts, e.kind, e.request_command,
  e.response_command, e.outcome, e.latency_ns / 1e6 AS latency_ms, e.topic, e.subscription,
  e.producer_name, e.consumer_id, e.response_frame_no, e.error_code, e.error_text, e.client_ip,
  e.broker_ip, e.latency_ns, e.day
FROM exchanges AS e
WHERE e.kind <> 'publish';

-- refused: one request or SEND that the broker answered with an error
SELECT
  e.capture, e.connection_id, e.request_frame_no AS frame_no, e.response_frame_no, e.ts,
  e.request_command, e.error_code, e.error_text, e.topic, e.subscription, e.producer_name,
  e.client_ip, e.broker_ip, e.day
FROM exchanges AS e
WHERE e.outcome = 'error';

-- slow: one answered request of any kind, with the packets of its two frames
SELECT
  e.capture, e.connection_id, e.kind, e.request_command, e.latency_ns / 1e6 AS latency_ms,
  e.tainted, e.topic, e.producer_name, e.sequence_id, e.request_frame_no, q.first_packet,
  e.response_frame_no, a.last_packet, e.ts, e.client_ip, e.broker_ip, e.latency_ns,
  e.day
FROM exchanges AS e
LEFT JOIN frames AS q
  ON q.capture = e.capture AND q.connection_id = e.connection_id
  AND q.frame_no = e.request_frame_no
LEFT JOIN frames AS a
  ON a.capture = e.capture AND a.connection_id = e.connection_id
  AND a.frame_no = e.response_frame_no
WHERE e.latency_ns IS NOT NULL;

-- delivered: one delivery with the SEND that stored its entry, where this capture has it
SELECT
  d.capture, d.connection_id, d.frame_no, d.ts, d.topic, d.subscription, d.consumer_id,
  d.consumer_name, d.ledger_id, d.entry_id, d.message_count, d.redelivery_count, d.is_redelivered,
  d.redelivery_cause, d.outcome, d.ack_frame_no, d.ack_latency_ns / 1e6 AS ack_latency_ms,
  d.publish_to_delivery_ns / 1e6 AS publish_to_delivery_ms, d.checksum,
  s.connection_id AS send_connection_id, s.request_frame_no AS send_frame_no, s.producer_name,
  s.sequence_id, s.attempt, s.latency_ns / 1e6 AS send_latency_ms, s.client_ip AS producer_ip,
  d.day
FROM deliveries AS d
LEFT JOIN exchanges AS s
  ON s.kind = 'publish' AND s.capture = d.capture AND s.topic = d.topic
  AND s.ledger_id = d.ledger_id AND s.entry_id = d.entry_id
  AND s.crc32c_stored = d.crc32c_stored;

-- redeliveries: one delivery of an entry that was delivered before
SELECT
  d.capture, d.connection_id, d.frame_no, d.ts, d.topic, d.subscription, d.consumer_id,
  d.consumer_name, d.ledger_id, d.entry_id, d.message_count, d.redelivery_count,
  d.redelivery_cause, d.previous_frame_no, d.outcome, d.ack_frame_no, d.day
FROM deliveries AS d
WHERE d.is_redelivered;

-- keyed: one message with a key that a Key_Shared consumer got, with its slot and whether the consumer asked for that
-- A batch goes where the key of its first message belongs, so that the others may lie elsewhere.
SELECT
  k.capture, k.connection_id, k.frame_no, k.batch_index, k.batch_size, k.ts, k.topic,
  k.subscription, k.consumer_id, k.incarnation, k.consumer_name, k.client_ip, k.partition_key,
  k.ordering_key, k.key_hash, k.slot, k.key_shared_mode, k.sticky_ranges,
  lies_in(k.slot, k.sticky_ranges) AS is_in_range,
  k.redelivery_count, k.ledger_id, k.entry_id, k.day
FROM (
  SELECT
    m.*, d.subscription, d.consumer_id, d.incarnation, d.consumer_name, n.client_ip,
    c.key_shared_mode, c.sticky_ranges, m.key_hash % 65536 AS slot
  FROM deliveries AS d
  JOIN messages AS m
    ON m.capture = d.capture AND m.connection_id = d.connection_id AND m.frame_no = d.frame_no
  JOIN consumers AS c
    ON c.capture = d.capture AND c.connection_id = d.connection_id
    AND c.consumer_id = d.consumer_id AND c.incarnation = d.incarnation
  JOIN connections AS n ON n.capture = d.capture AND n.connection_id = d.connection_id
  WHERE d.subscription_type = 'Key_Shared' AND m.key_hash IS NOT NULL
) AS k;

-- stalls: one period in which a consumer had no permits left, until a grant or the end
-- confirmed: messages were waiting; null where no grant came. The report's are those of a second.
SELECT
  s.capture, s.connection_id, s.consumer_id, s.incarnation, s.topic, s.subscription,
  s.start_ts AS began, s.end_ts AS ended, s.lasted_us / 1e3 AS lasted_ms, s.confirmed,
  s.start_frame_no AS began_frame_no, s.end_frame_no AS ended_frame_no
FROM permit_spans AS s
WHERE s.is_exhausted AND (s.confirmed IS NOT NULL OR NOT s.is_ended);

-- lost_receipts: one SEND without an answer although a later one of its producer has one
-- Those that were dropped since the producer was closed are among them.
SELECT
  s.capture, s.connection_id, s.request_frame_no AS frame_no, s.topic, s.producer_name,
  s.producer_id, s.incarnation, s.sequence_id, s.message_count, s.outcome, s.at_ns
FROM passed_sends AS s
UNION ALL
SELECT
  e.capture, e.connection_id, e.request_frame_no, e.topic, e.producer_name, e.producer_id,
  e.incarnation, e.sequence_id, e.message_count, e.outcome, e.request_last_ns
FROM exchanges AS e
WHERE e.kind = 'publish' AND e.outcome = 'dropped_after_close';

-- wrong_checksums: one frame whose CRC32C does not match its bytes
SELECT
  f.capture, f.connection_id, f.frame_no, f.ts, f.direction, f.command, f.first_packet,
  f.last_packet, f.topic, f.producer_name, f.subscription, f.sequence_id, f.ledger_id, f.entry_id,
  f.frame_bytes, f.crc32c_stored, f.crc32c_computed, f.checksum_note,
  f.day
FROM frames AS f
WHERE f.checksum = 'mismatch';

-- transactions: one transaction of Pulsar with its contents, its client and its end
-- id is as brokers print it, its first number the coordinator. Frames that name it have both numbers.
SELECT
  s.capture, concat('(', s.txn_most_bits, ',', s.txn_least_bits, ')') AS id, s.txn_most_bits,
  s.txn_least_bits, s.client_ip, s.connection_id, s.first_frame_no, s.state, s.timeout_ms,
  s.sends, s.acks, s.acks_refused, s.topic, (s.ended_us - s.first_us) / 1e3 AS lasted_ms,
  s.end_error, s.first_send_frame_no, s.first_ack_frame_no, s.end_frame_no
FROM selected_transactions AS s;
