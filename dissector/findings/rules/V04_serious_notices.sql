/*
number = "V04"
code = "serious_notices"
title = "The dissection met something serious"
severity = "warning"
section = "coverage"
fires = ["go-auth_sasl.pcap"]
silent = ["java-j01_plain.pcap"]

[text]
what = "{sentences}."
do = "The table `notices` of a lake names the connection, packet and byte."
show = "notices"
*/
WITH notice_sentences AS (
  SELECT
    place, array_to_string(coverage.total.serious_notices, '; ') AS sentences
  FROM totals
)
SELECT place, upper(sentences[1]) || sentences[2:] AS measured_sentences
FROM notice_sentences
WHERE sentences <> ''
