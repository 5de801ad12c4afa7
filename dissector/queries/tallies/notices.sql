-- notices: notices by code and severity
-- keys: capture, code, severity
-- sums: notices, bytes
SELECT
  capture, code, severity,
  count(*) AS notices,
  sum(bytes) AS bytes
FROM notices
GROUP BY capture, code, severity
