-- frames: frames by protocol, direction, command and status; broker legs count too
-- keys: capture, protocol, direction, command, status
-- sums: frames, frame_bytes
SELECT
  capture, protocol, direction, command, status,
  sum(frames) AS frames,
  sum(frame_bytes) AS frame_bytes
FROM frame_kinds
GROUP BY capture, protocol, direction, command, status
