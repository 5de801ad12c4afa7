/*
number = "D38"
code = "checksum_mismatch"
title = "An entry's bytes do not match its checksum"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "checksum_failures"
worst = "measured_frames"
references = ["apache/pulsar#21557", "apache/pulsar#4051", "apache/pulsar#22601"]
errors = ["ChecksumError", "ChecksumMismatch"]
fires = ["java-j74_corrupt.pcap", "fake-f08_badcrc.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[ruled_out]
capture = "that the capture damaged the bytes: the receiver refused them, too"

[text]
what = "{frames} entries of {topic} in {command} frames do not match their CRC32C (stored {crc32c_stored}, computed {crc32c_computed}), and the receiver refused them."
known = "The checksum was computed over the bytes on the wire, and the peer answered with its own complaint."
rival = "The sender's memory, a device between sender and tap, or, of a MESSAGE, the broker: all give the same bytes here."
decides = "A capture at the other end of the path: the same bytes wrong there means before it, right there means between both."
do = "Test the memory and the network card of the side that sent it, then the path. A capture says where, never that a disk is at fault."

[variant.unconfirmed]
severity = "info"
verdict = "pattern"
title = "A checksum does not match, and nobody complained"
what = "{frames} entries of {topic} in {command} frames do not match their CRC32C (stored {crc32c_stored}, computed {crc32c_computed}); no answer confirms it."
known = "The checksum was computed over the bytes that were captured."
rival = "The capture itself may have damaged the bytes, or the receiver does not verify."
decides = "The answer of the receiver, or a second capture."
*/
SELECT
  m.capture, min(m.at_ns) AS first_ns, max(m.at_ns) AS last_ns,
  CASE WHEN m.verdict = 'confirmed_by_peer' THEN '' ELSE 'unconfirmed' END AS variant,
  m.topic AS subject_topic, m.command AS subject_command, m.connection_id AS subject_connection_id,
  count(*) AS measured_frames,
  min_by(m.crc32c_stored, m.frame_no) AS measured_crc32c_stored,
  min_by(m.crc32c_computed, m.frame_no) AS measured_crc32c_computed,
  m.verdict = 'confirmed_by_peer' AS ruled_out_capture,
  min(m.frame_no) AS frame_first_mismatch,
  min_by(m.evidence_frame_no, m.frame_no) AS frame_complaint,
  max(m.frame_no) AS frame_last_mismatch
FROM mismatches AS m
ANTI JOIN twins AS t ON t.capture = m.capture AND t.connection_id = m.connection_id
WHERE m.verdict <> 'capture_artefact'
GROUP BY m.capture, m.topic, m.command, m.connection_id, m.verdict
