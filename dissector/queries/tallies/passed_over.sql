-- passed_over: a send that was never answered although a later one of its producer was
-- first: 1000 by at_ns, capture, request_frame_no
SELECT
  s.capture, s.connection_id, s.producer_id, s.incarnation, s.topic, s.producer_name,
  s.sequence_id, s.message_count, s.outcome, s.at_ns, s.request_frame_no,
  f.last_packet AS request_packet
FROM passed_sends AS s
LEFT JOIN frames AS f
  ON f.capture = s.capture AND f.connection_id = s.connection_id
  AND f.frame_no = s.request_frame_no
