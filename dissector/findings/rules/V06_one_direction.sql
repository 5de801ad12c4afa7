/*
number = "V06"
code = "one_direction"
title = "Only one direction was captured"
severity = "warning"
section = "coverage"
fires = ["tap-oneway.pcap"]
silent = ["java-j01_plain.pcap"]

[text]
what = "{one_way} connections {one_way|was|were} captured in one direction only[, of {connections} in all]."
do = "Capture both directions: on the host itself, or with both directions of the port mirrored; the list has frames to the broker and to the client as a/b."
show = "connections"
*/
WITH numbers AS (
  SELECT
    place, coverage.total.connections AS connections,
    CAST(list_sum(map_values(coverage.total.one_way_connections)) AS BIGINT) AS one_way
  FROM totals
)
SELECT place, one_way AS measured_one_way, nullif(connections, one_way) AS measured_connections
FROM numbers
WHERE one_way > 0
