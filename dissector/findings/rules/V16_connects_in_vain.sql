/*
number = "V16"
code = "connects_in_vain"
title = "Attempts to connect that came to nothing"
severity = "info"
section = "connecting"
fires = []
silent = ["java-j01_plain.pcap"]

[text]
what = "{attempts} attempts to connect came to nothing: refused or never answered."
do = "Check whether the broker listens there and no firewall stands between."
show = "connections protocol == \"none\""
*/
SELECT place, connecting.total.not_established AS measured_attempts
FROM totals
WHERE connecting.total.not_established > 0
