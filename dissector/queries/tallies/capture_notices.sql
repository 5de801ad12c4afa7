-- capture_notices: notices about a capture as a whole, or of a code with three notices at most, by text
-- keys: capture, code, text
-- sums: notices
-- They are few: one per code, or per kind of packet that is not decoded.
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
