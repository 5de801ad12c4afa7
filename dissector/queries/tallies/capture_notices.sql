-- capture_notices: notices about a capture as a whole, by their texts
-- keys: capture, code, text
-- sums: notices
-- They are few: one per code, or per kind of packet that is not decoded.
SELECT
  capture, code, text,
  count(*) AS notices
FROM notices
WHERE connection_id IS NULL AND text IS NOT NULL
GROUP BY capture, code, text
