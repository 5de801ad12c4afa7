-- checksum_failures: a frame whose checksum does not match, with another copy of its entry
-- first: 1000 by at_ns, capture, frame_no
SELECT
  l.capture, l.connection_id, l.frame_no, l.first_packet, l.last_packet, l.at_ns, l.direction,
  l.command, coalesce(l.topic, p.late_topic, k.late_topic) AS topic, l.producer_id, l.consumer_id, l.incarnation, l.sequence_id, l.ledger_id,
  l.entry_id, l.frame_bytes, l.checksum_note, l.crc32c_stored, l.crc32c_computed, l.send_outcome,
  l.send_error_code, l.metadata_bytes, l.payload_bytes, l.verdict, l.evidence_frame_no,
  c.copy_frame_no, c.copy_crc32c
FROM listed_mismatches AS l
LEFT JOIN sound_copies AS c ON c.capture = l.capture AND c.frame_no = l.frame_no AND c.place = 1
LEFT JOIN late_producers AS p
  ON p.capture = l.capture AND p.connection_id = l.connection_id
  AND p.producer_id = l.producer_id AND p.incarnation = l.incarnation
LEFT JOIN late_consumers AS k
  ON k.capture = l.capture AND k.connection_id = l.connection_id
  AND k.consumer_id = l.consumer_id AND k.incarnation = l.incarnation
