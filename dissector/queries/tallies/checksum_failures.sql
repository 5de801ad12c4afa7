-- checksum_failures: a frame whose checksum does not match, with another copy of its entry
-- first: 1000 by at_ns, capture, frame_no
-- An entry keeps its checksum from SEND to MESSAGE and in every repetition. So a copy is a publish
-- with the same sequence id, or a publish or delivery of the same ledger and entry, with the stored
-- or the computed checksum. A copy in another capture has no frame number here.
WITH first_failures AS (
  SELECT *
  FROM (
    SELECT
      m.*, u.unit, CASE WHEN m.is_send THEN m.sequence_id ELSE m.ledger_id END AS first_id,
      CASE WHEN m.is_send THEN -1 ELSE m.entry_id END AS second_id,
      row_number() OVER (PARTITION BY m.capture ORDER BY m.at_ns, m.frame_no) AS place
    FROM mismatches AS m
    ANTI JOIN twins AS t ON t.capture = m.capture AND t.connection_id = m.connection_id
    JOIN units AS u ON u.capture = m.capture
  ) AS numbered
  WHERE place <= 1000
),
copy_keys AS (
  SELECT unit, capture, frame_no, first_id, second_id, crc32c_stored AS crc FROM first_failures
  UNION
  SELECT unit, capture, frame_no, first_id, second_id, crc32c_computed FROM first_failures
),
matching_sends AS (
  SELECT
    own_capture, crc32c_stored AS crc, sequence_id, ledger_id, entry_id, order_no,
    request_frame_no AS frame_no
  FROM exchanges
  WHERE
    kind = 'publish' AND request_frame_no IS NOT NULL
    AND crc32c_stored IN (SELECT crc FROM copy_keys)
),
candidates AS (
  SELECT own_capture, crc, sequence_id AS first_id, -1 AS second_id, order_no, frame_no FROM matching_sends
  UNION ALL
  SELECT own_capture, crc, ledger_id, entry_id, order_no, frame_no FROM matching_sends
  UNION ALL
  SELECT own_capture, crc32c_stored, ledger_id, entry_id, order_no, frame_no
  FROM deliveries
  WHERE checksum = 'ok' AND crc32c_stored IN (SELECT crc FROM copy_keys)
),
first_candidates AS (
  SELECT
    u.unit, o.*, row_number() OVER (
      PARTITION BY u.unit, o.crc, o.first_id, o.second_id
      ORDER BY o.order_no, o.own_capture, o.frame_no
    ) AS place
  FROM candidates AS o
  JOIN units AS u ON u.capture = o.own_capture
  WHERE NOT EXISTS (
    SELECT 1 FROM mismatched_frames AS f
    WHERE f.capture = o.own_capture AND f.frame_no = o.frame_no
  )
),
copies AS (
  SELECT
    w.capture, w.frame_no, o.crc AS copy_crc32c,
    CASE WHEN o.own_capture = w.capture THEN o.frame_no END AS copy_frame_no,
    row_number() OVER (
      PARTITION BY w.capture, w.frame_no ORDER BY o.order_no, o.crc, o.own_capture, o.frame_no
    ) AS place
  FROM copy_keys AS w
  JOIN first_candidates AS o
    ON o.unit = w.unit AND o.crc = w.crc AND o.first_id = w.first_id
    AND o.second_id = w.second_id AND o.place = 1
)
SELECT
  l.capture, l.connection_id, l.frame_no, l.first_packet, l.last_packet, l.at_ns, l.direction,
  l.command, coalesce(l.topic, p.late_topic, k.late_topic) AS topic, l.producer_id, l.consumer_id, l.incarnation, l.sequence_id, l.ledger_id,
  l.entry_id, l.frame_bytes, l.checksum_note, l.crc32c_stored, l.crc32c_computed, l.send_outcome,
  l.send_error_code, l.metadata_bytes, l.payload_bytes, l.verdict, l.evidence_frame_no,
  c.copy_frame_no, c.copy_crc32c
FROM first_failures AS l
LEFT JOIN copies AS c ON c.capture = l.capture AND c.frame_no = l.frame_no AND c.place = 1
LEFT JOIN late_producers AS p
  ON p.capture = l.capture AND p.connection_id = l.connection_id
  AND p.producer_id = l.producer_id AND p.incarnation = l.incarnation
LEFT JOIN late_consumers AS k
  ON k.capture = l.capture AND k.connection_id = l.connection_id
  AND k.consumer_id = l.consumer_id AND k.incarnation = l.incarnation
