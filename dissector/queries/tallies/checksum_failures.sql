-- checksum_failures: a frame whose checksum does not match, with another copy of its entry
-- first: 1000 by at_ns, capture, frame_no
-- An entry keeps its checksum from SEND to MESSAGE and over every repetition. So a copy is a
-- publish with the same sequence id, or a publish or delivery of the same ledger and entry, whose
-- checksum is the stored or the computed one. One in another capture has no number there.
WITH listed AS (
  SELECT *
  FROM (
    SELECT
      m.*, u.unit, row_number() OVER (PARTITION BY m.capture ORDER BY m.at_ns, m.frame_no) AS place
    FROM mismatches AS m
    JOIN units AS u ON u.capture = m.capture
  ) AS numbered
  WHERE place <= 1000
),
wanted AS (
  SELECT unit, capture, frame_no, is_send, sequence_id, ledger_id, entry_id, crc32c_stored AS crc
  FROM listed
  UNION
  SELECT unit, capture, frame_no, is_send, sequence_id, ledger_id, entry_id, crc32c_computed
  FROM listed
),
others AS (
  SELECT
    own_capture, own_connection_id, TRUE AS of_send, sequence_id, ledger_id, entry_id,
    crc32c_stored AS crc, order_no, request_frame_no AS frame_no
  FROM exchanges
  WHERE
    kind = 'publish' AND request_frame_no IS NOT NULL
    AND crc32c_stored IN (SELECT crc FROM wanted)
  UNION ALL
  SELECT
    own_capture, own_connection_id, FALSE, CAST(NULL AS BIGINT), ledger_id, entry_id,
    crc32c_stored, order_no, frame_no
  FROM deliveries
  WHERE checksum = 'ok' AND crc32c_stored IN (SELECT crc FROM wanted)
),
good AS (
  SELECT u.unit, o.*
  FROM others AS o
  JOIN units AS u ON u.capture = o.own_capture
  WHERE NOT EXISTS (
    SELECT 1 FROM mismatches AS m
    WHERE m.capture = o.own_capture AND m.frame_no = o.frame_no
  )
),
first_sends AS (
  SELECT *
  FROM (
    SELECT
      g.*, row_number() OVER (
        PARTITION BY unit, crc, sequence_id ORDER BY order_no, own_capture, frame_no
      ) AS place
    FROM good AS g
    WHERE of_send
  ) AS numbered
  WHERE place = 1
),
first_entries AS (
  SELECT *
  FROM (
    SELECT
      g.*, row_number() OVER (
        PARTITION BY unit, crc, ledger_id, entry_id ORDER BY order_no, own_capture, frame_no
      ) AS place
    FROM good AS g
  ) AS numbered
  WHERE place = 1
),
copies AS (
  SELECT w.capture, w.frame_no, c.crc, c.order_no, c.own_capture, c.frame_no AS copy_no
  FROM wanted AS w
  JOIN first_sends AS c ON c.unit = w.unit AND c.crc = w.crc AND c.sequence_id = w.sequence_id
  WHERE w.is_send
  UNION ALL
  SELECT w.capture, w.frame_no, c.crc, c.order_no, c.own_capture, c.frame_no
  FROM wanted AS w
  JOIN first_entries AS c
    ON c.unit = w.unit AND c.crc = w.crc AND c.ledger_id = w.ledger_id AND c.entry_id = w.entry_id
  WHERE NOT w.is_send
),
first_copies AS (
  SELECT
    capture, frame_no, crc AS copy_crc32c,
    CASE WHEN own_capture = capture THEN copy_no END AS copy_frame_no
  FROM (
    SELECT
      c.*, row_number() OVER (
        PARTITION BY capture, frame_no ORDER BY order_no, crc, own_capture, copy_no
      ) AS place
    FROM copies AS c
  ) AS numbered
  WHERE place = 1
)
SELECT
  l.capture, l.connection_id, l.frame_no, l.first_packet, l.last_packet, l.at_ns, l.direction,
  l.command, l.topic, l.producer_id, l.consumer_id, l.incarnation, l.sequence_id, l.ledger_id,
  l.entry_id, l.frame_bytes, l.checksum_note, l.crc32c_stored, l.crc32c_computed, l.send_outcome,
  l.send_error_code, l.metadata_bytes, l.payload_bytes, l.verdict, l.evidence_frame_no,
  c.copy_frame_no, c.copy_crc32c
FROM listed AS l
LEFT JOIN first_copies AS c ON c.capture = l.capture AND c.frame_no = l.frame_no
