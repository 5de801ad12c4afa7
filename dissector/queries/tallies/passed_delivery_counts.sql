-- passed_delivery_counts: deliveries that were passed over, by outcome
-- keys: outcome
-- sums: passed_over
SELECT capture, outcome, count(*) AS passed_over FROM passed GROUP BY capture, outcome
