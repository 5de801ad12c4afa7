/*
number = "V03"
code = "packets_dropped"
title = "The interface dropped packets while capturing"
severity = "warning"
section = "coverage"
fires = []
silent = ["java-j01_plain.pcap"]

[text]
what = "The interface dropped {packets} packets while capturing."
do = "Capture with a larger buffer (tcpdump -B 65536) and a filter for the brokers' ports."
*/
SELECT place, coverage.total.dropped_by_interface AS measured_packets
FROM totals
WHERE coverage.total.dropped_by_interface > 0
