-- capture_notices: findings about a capture as a whole, and few ones of a code, by their sentences
-- keys: capture, code, text
-- sums: notices
-- They are few: of the first one of each kind, or of each kind of packet that is not read.
SELECT
  n.capture, n.code, n.text,
  count(*) AS notices
FROM (
  SELECT
    capture, code, text, connection_id, count(*) OVER (PARTITION BY capture, code) AS of_code
  FROM notices
) AS n
WHERE n.text IS NOT NULL AND (n.connection_id IS NULL OR n.of_code <= 3)
GROUP BY n.capture, n.code, n.text
