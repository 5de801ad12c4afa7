-- closed_causes: producers and consumers that the broker closed, by what the capture shows of why
-- keys: cause
-- sums: closed
SELECT capture, cause, count(*) AS closed
FROM closed_subjects
GROUP BY capture, cause
