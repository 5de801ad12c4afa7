/*
number = "V07"
code = "lost_between_captures"
title = "Captures lose frames between them, or hold the same traffic"
severity = "warning"
section = "closing"
fires = []
silent = ["java-j01_plain.pcap"]

[text]
what = "[{lost} frames at the boundary of two captures {lost|is|are} lost][{and}][{copies} captures {copies|shows|show} the same traffic as another one, which counts once]."
do = "Let dumpcap or `dissector tap` rotate the files: they lose nothing between two of them."

[variant.copies]
do = "Land only one of captures that show the same traffic."
*/
WITH numbers AS (
  SELECT
    place, closing.total.frames_lost AS lost,
    CAST(len(closing.copies) AS BIGINT) AS copies
  FROM totals
)
SELECT
  place, CASE WHEN lost = 0 THEN 'copies' ELSE '' END AS variant,
  nullif(lost, 0) AS measured_lost,
  CASE WHEN lost > 0 AND copies > 0 THEN '; ' END AS measured_and,
  nullif(copies, 0) AS measured_copies
FROM numbers
WHERE lost + copies > 0
