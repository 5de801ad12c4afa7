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
real = ["java-j74_corrupt.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[needs]
mismatched_frames = "checksum = 'mismatch'"
exchange_kinds = "error_code = 'ChecksumError'"

[ruled_out]
capture = "that the capture damaged the bytes: the receiver refused them, too"
tap = "that the bytes were damaged before the tap: they are right in the capture"

[text]
what = "Entries of {topic} ({frames}) in {command} frames do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}), and the receiver refused them."
known = "The checksum was computed over the bytes on the wire, and the peer answered with its own complaint. No second copy of the entry in the lake tells more."
rival = "The sender's memory, a device between sender and tap, or, of a MESSAGE, the broker: all give the same bytes here."
decides = "A capture at the other end of the path: the same bytes wrong there means before it, right there means between both."
do = "Test the memory and the network card of the side that sent it, then the path. A capture says where, never that a disk is at fault."

[variant.sender]
title = "A producer sends bytes that do not match their checksum, twice the same"
what = "Entries of {topic} ({frames}) do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}) when sent, the broker refused them, and the client sent the same wrong bytes again."
known = "Both SENDs have the same stored checksum, and the same wrong bytes by the checksum computed over them."
rival = "A device on the path that damages the same bytes in the same way twice, which is rare."
decides = "The client's own copy of the message: it was changed after its checksum was computed."
do = "Look for code that changes a buffer after it was handed to the producer (interceptors, pooled buffers, appenders that log their own sends); then test the client's memory."

[variant.before_tap]
title = "Bytes of a send changed between the producer's memory and the tap"
what = "Entries of {topic} ({frames}) do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}) in one SEND, the broker refused it, and the same entry was right when it was sent again."
known = "Both SENDs have the same stored checksum; the bytes of the second match it. The client's copy was good."
rival = "A client that wrote the first one from memory that was changing meanwhile."
decides = "A capture at the client: are the bytes of the first SEND wrong there?"
do = "Test the network card and its offloads at the client, and what lies between it and the tap."

[variant.after_tap]
title = "A send was right at the tap, and the broker refused its checksum"
what = "{frames} sends to {topic} {frames|matches its|match their} CRC32C here ({crc32c_stored:hex}), and the broker refused {frames|it|them} with ChecksumError."
known = "The checksum was computed over the bytes that passed the tap, and the refusal is in the capture."
rival = "A broker whose own memory changed the bytes before it looked."
decides = "A capture at the broker: are the bytes wrong there?"
do = "Test what lies between the tap and the broker, then the broker's network card and memory."

[variant.broker_or_path]
title = "An entry was right when sent, and is wrong when delivered"
what = "Entries of {topic} ({frames}) in MESSAGE frames do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}), the consumer refused them, and their SENDs were right."
known = "The SEND of the same message id carries the same checksum, and its bytes match it."
rival = "Storage, the broker, or the path between it and this tap."
decides = "Whether other subscriptions get the entry right."
do = "Read the message id with another subscription, or through another broker."

[variant.stored_or_broker]
title = "An entry was right when sent, and is wrong for all that get it"
what = "Entries of {topic} ({frames}) in MESSAGE frames do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}); their SENDs were right, and all {copies} deliveries of them in the lake are wrong."
known = "The SEND of the same message id carries the same checksum, and its bytes match it; it was delivered more than once."
rival = "A path that all of these consumers share."
decides = "Whether the entry is still wrong after the topic was moved to another broker: then it is stored so."
do = "Move the topic to another broker and read the message id again."

[variant.path]
title = "An entry is wrong for one consumer and right for another"
what = "Entries of {topic} ({frames}) in MESSAGE frames do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}); {good_copies} of {copies} deliveries of them in the lake {good_copies|is|are} right."
known = "The same message id was delivered more than once, and its bytes match the checksum in some of them: what is stored is good."
rival = "A broker that damaged one copy in its memory."
decides = "Whether what is wrong always came over one connection or one host ({client_ip})."
do = "Test the path between the broker and {client_ip}, then the broker's memory."

[variant.unconfirmed]
severity = "info"
verdict = "pattern"
title = "A checksum does not match, and nobody complained"
what = "Entries of {topic} ({frames}) in {command} frames do not match their CRC32C (stored {crc32c_stored:hex}, computed {crc32c_computed:hex}); no answer confirms it."
known = "The checksum was computed over the bytes that were captured."
rival = "The capture itself may have damaged the bytes, or the receiver does not verify."
decides = "The answer of the receiver, or a second capture."
*/
WITH wrong_frames AS ( -- They are very few.
  SELECT
    m.capture, m.connection_id, l.client_ip, m.frame_no, m.at_ns, m.topic, m.command, m.is_send,
    m.verdict, m.crc32c_stored, m.crc32c_computed, m.evidence_frame_no, m.ledger_id, m.entry_id,
    m.sequence_id, p.name AS producer_name
  FROM mismatches AS m
  ANTI JOIN other_legs AS t USING (capture, connection_id)
  JOIN connections AS l USING (capture, connection_id)
  LEFT JOIN producers AS p
    ON p.capture = m.capture AND p.connection_id = m.connection_id
    AND p.producer_id = m.producer_id AND p.incarnation = m.incarnation AND m.is_send
  WHERE m.verdict <> 'capture_artefact'
),
sends_of_checksum AS ( -- Sends with the checksum of a wrong entry, selected first to keep joins small.
  SELECT
    e.capture, e.connection_id, e.request_frame_no, e.topic, e.producer_name, e.sequence_id,
    e.ledger_id, e.entry_id, e.crc32c_stored, e.outcome
  FROM exchanges AS e
  WHERE
    e.kind = 'publish' AND e.request_frame_no IS NOT NULL
    AND e.crc32c_stored IN (SELECT crc32c_stored FROM wrong_frames)
),
sends AS (
  SELECT a.*, f.checksum, f.crc32c_computed
  FROM sends_of_checksum AS a
  JOIN (
    SELECT capture, connection_id, frame_no, checksum, crc32c_computed
    FROM frames
    WHERE command = 'SEND' AND crc32c_stored IN (SELECT crc32c_stored FROM wrong_frames)
  ) AS f
    ON f.capture = a.capture AND f.connection_id = a.connection_id
    AND f.frame_no = a.request_frame_no
),
resends AS (
  SELECT
    b.capture, b.frame_no,
    max(e.request_frame_no) FILTER (
      WHERE e.crc32c_computed = b.crc32c_computed AND e.checksum = 'mismatch'
    ) AS same_frame,
    max(CASE WHEN e.checksum = 'ok' THEN e.request_frame_no END) AS good_frame
  FROM wrong_frames AS b
  JOIN sends AS e USING (capture, topic, producer_name, sequence_id, crc32c_stored)
  WHERE b.is_send AND e.request_frame_no <> b.frame_no
  GROUP BY b.capture, b.frame_no
),
sources AS ( -- The SEND that stored the entry of a wrong MESSAGE, in any capture.
  SELECT
    b.capture, b.frame_no,
    min(CASE WHEN e.capture = b.capture THEN e.request_frame_no END) AS send_frame
  FROM wrong_frames AS b
  JOIN sends AS e USING (topic, ledger_id, entry_id, crc32c_stored)
  WHERE NOT b.is_send AND e.outcome = 'ok' AND e.checksum = 'ok'
  GROUP BY b.capture, b.frame_no
),
entry_deliveries AS (
  SELECT
    b.capture, b.frame_no, count(*) AS copies,
    count(CASE WHEN d.checksum = 'ok' THEN 1 END) AS good_copies,
    max(CASE WHEN d.checksum = 'ok' AND d.capture = b.capture THEN d.frame_no END) AS good_frame
  FROM wrong_frames AS b
  JOIN (
    SELECT capture, connection_id, frame_no, topic, ledger_id, entry_id, crc32c_stored, checksum
    FROM deliveries
    WHERE crc32c_stored IN (SELECT crc32c_stored FROM wrong_frames)
  ) AS d USING (topic, ledger_id, entry_id, crc32c_stored)
  ANTI JOIN twins AS t ON t.capture = d.capture AND t.connection_id = d.connection_id
  WHERE NOT b.is_send AND d.checksum IN ('ok', 'mismatch')
  GROUP BY b.capture, b.frame_no
),
frames_with_copies AS (
  SELECT
    b.*, coalesce(d.copies, 0) AS copies, coalesce(d.good_copies, 0) AS good_copies,
    coalesce(r.same_frame, r.good_frame, s.send_frame) AS copy_frame, d.good_frame,
    CASE
      WHEN b.verdict <> 'confirmed_by_peer' THEN 'unconfirmed'
      WHEN r.same_frame IS NOT NULL THEN 'sender'
      WHEN r.good_frame IS NOT NULL THEN 'before_tap'
      WHEN d.good_copies > 0 THEN 'path'
      WHEN s.frame_no IS NOT NULL AND d.copies > 1 THEN 'stored_or_broker'
      WHEN s.frame_no IS NOT NULL THEN 'broker_or_path'
      ELSE ''
    END AS variant
  FROM wrong_frames AS b
  LEFT JOIN resends AS r ON r.capture = b.capture AND r.frame_no = b.frame_no
  LEFT JOIN sources AS s ON s.capture = b.capture AND s.frame_no = b.frame_no
  LEFT JOIN entry_deliveries AS d ON d.capture = b.capture AND d.frame_no = b.frame_no
),
refused_sends AS ( -- Sends that the broker refused; those with a correct checksum are joined below.
  SELECT
    e.capture, e.connection_id, e.client_ip, e.topic, e.request_frame_no, e.response_frame_no,
    e.response_last_ns
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    e.kind = 'publish' AND e.outcome = 'error' AND e.error_code = 'ChecksumError'
    AND e.request_frame_no IS NOT NULL
)
SELECT
  m.capture, min(m.at_ns) AS first_ns, max(m.at_ns) AS last_ns, m.variant,
  m.topic AS subject_topic, m.command AS subject_command, m.client_ip AS subject_client_ip,
  count(*) AS measured_frames,
  min_by(m.crc32c_stored, m.frame_no) AS measured_crc32c_stored,
  min_by(m.crc32c_computed, m.frame_no) AS measured_crc32c_computed,
  max(m.copies) AS measured_copies, max(m.good_copies) AS measured_good_copies,
  m.verdict = 'confirmed_by_peer' AS ruled_out_capture, FALSE AS ruled_out_tap,
  min(m.frame_no) AS frame_first_mismatch,
  min_by(m.evidence_frame_no, CASE WHEN m.evidence_frame_no IS NOT NULL THEN m.frame_no END) AS frame_complaint,
  min_by(m.copy_frame, CASE WHEN m.copy_frame IS NOT NULL THEN m.frame_no END) AS frame_other_send,
  min_by(m.good_frame, CASE WHEN m.good_frame IS NOT NULL THEN m.frame_no END) AS frame_good_delivery,
  max(m.frame_no) AS frame_last_mismatch
FROM frames_with_copies AS m
GROUP BY m.capture, m.variant, m.topic, m.command, m.client_ip, m.verdict
UNION ALL BY NAME
SELECT
  e.capture, min(f.last_ts_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
  'after_tap' AS variant, e.topic AS subject_topic, 'SEND' AS subject_command,
  e.client_ip AS subject_client_ip, count(*) AS measured_frames,
  min_by(f.crc32c_stored, f.frame_no) AS measured_crc32c_stored,
  min_by(f.crc32c_computed, f.frame_no) AS measured_crc32c_computed,
  FALSE AS ruled_out_capture, TRUE AS ruled_out_tap,
  min(f.frame_no) AS frame_first_mismatch,
  min_by(e.response_frame_no, CASE WHEN e.response_frame_no IS NOT NULL THEN f.frame_no END) AS frame_complaint,
  max(f.frame_no) AS frame_last_mismatch
FROM refused_sends AS e
JOIN (
  SELECT capture, connection_id, frame_no, last_ts_ns, crc32c_stored, crc32c_computed
  FROM frames
  WHERE
    checksum = 'ok' AND status = 'complete' AND NOT retransmitted
    AND (capture, connection_id, frame_no) IN (
      SELECT capture, connection_id, request_frame_no FROM refused_sends
    )
) AS f
  ON f.capture = e.capture AND f.connection_id = e.connection_id
  AND f.frame_no = e.request_frame_no
GROUP BY e.capture, e.topic, e.client_ip
