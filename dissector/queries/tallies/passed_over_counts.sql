-- passed_over_counts: how many sends were passed over
-- keys:
-- sums: passed_over
SELECT capture, count(*) AS passed_over FROM passed_sends GROUP BY capture
