/*
number = "V05"
code = "bound_hit"
title = "Numbers are incomplete: a bound was hit"
severity = "error"
section = "coverage"
fires = []
silent = ["java-j01_plain.pcap"]

[thresholds.longest]
value = 4096
unit = "bytes"
why = "longer names would fill the tables of names"

[text]
what = "Some numbers are incomplete: {bounds:notice}."
do = "Read fewer files at once, one by one."
show = "summary"

[variant.names]
severity = "warning"
title = "Names were cut"
what = "Names of more than {longest} bytes were cut: {bounds:notice}. Their beginning, length and digest stand for them."
do = "Find out which client gives names of that length."
show = ""
*/
WITH bounds_hit AS (
  SELECT place, unnest(map_entries(coverage.total.limits_hit)) AS bound FROM totals
),
sorted_bounds AS (
  SELECT place, bound, bound.key = 'long_names_limit' AS is_of_names FROM bounds_hit
)
SELECT
  place, CASE WHEN is_of_names THEN 'names' ELSE '' END AS variant,
  map_from_entries(list(bound ORDER BY bound.key)) AS measured_bounds
FROM sorted_bounds
GROUP BY place, is_of_names
