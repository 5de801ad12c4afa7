-- closed_causes: producers and consumers that the broker closed, by the cause that the capture shows
-- keys: cause
-- sums: closed
SELECT capture, cause, count(*) AS closed
FROM closed_subjects
GROUP BY capture, cause
