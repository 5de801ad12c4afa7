-- capture_notices: findings about a capture as a whole, by their sentences
-- keys: capture, code, text
-- sums: notices
-- They are few: one of each kind, or of each kind of packet that is not read.
SELECT
  capture, code, text,
  count(*) AS notices
FROM notices
WHERE connection_id IS NULL AND text IS NOT NULL
GROUP BY capture, code, text
