-- stalls: a second or more in which an active consumer had no permits left
-- first: 50 by stall_us desc, start_us, capture, connection_id, consumer_id, incarnation
-- Stalls that a grant ended, and with confirmed null those that did not end.
SELECT
  capture, connection_id, consumer_id, incarnation, start_frame_no, end_frame_no, start_us,
  lasted_us AS stall_us, confirmed
FROM permit_spans
WHERE is_exhausted AND lasted_us >= 1000000 AND (confirmed IS NOT NULL OR NOT is_ended)
