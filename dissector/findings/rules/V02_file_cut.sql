/*
number = "V02"
code = "file_cut"
title = "A file of the capture is cut"
severity = "warning"
section = "coverage"
fires = []
silent = ["java-j01_plain.pcap"]

[text]
what = "{files} files {files|is|are} cut: what came behind is missing."
do = "Copy it again; if the capture was still running, end it before."
*/
SELECT place, coverage.total.truncated_files AS measured_files
FROM totals
WHERE coverage.total.truncated_files > 0
