/*
number = "V15"
code = "closed_by_broker"
title = "Producers and consumers that the broker closed"
severity = "info"
section = "connecting"
fires = ["java-j24_unload.pcap"]
silent = ["java-j01_plain.pcap"]

[names]
migrated = "told to go to another cluster (TOPIC_MIGRATED)"
terminated = "on a terminated topic (TopicTerminatedError)"
refused = "after it had refused a send"
not_opened_again = "not allowed to open again"
seek = "on a seek"
opened_again = "opened again later as after an unload"
unknown = "for a reason that the capture does not show"

[text]
what = "The broker closed [{producers} producers][{and}][{consumers} consumers], as it does on a seek."

[variant.closed]
what = "The broker closed [{producers} producers][{and}][{consumers} consumers]: {causes:shares}."
do = "Compare with the broker's log at these times."
show = "frames direction == \"to_client\" and command in (\"CLOSE_PRODUCER\", \"CLOSE_CONSUMER\")"
*/
WITH numbers AS (
  SELECT
    place, closed_by_broker['producers'] AS producers, closed_by_broker['consumers'] AS consumers,
    closed_by_cause AS causes
  FROM (SELECT place, unnest(connecting.total) FROM totals) AS total
)
SELECT
  place,
  CASE WHEN causes['seek'] = list_sum(map_values(causes)) THEN '' ELSE 'closed' END AS variant,
  nullif(producers, 0) AS measured_producers, nullif(consumers, 0) AS measured_consumers,
  CASE WHEN producers > 0 AND consumers > 0 THEN ' and ' END AS measured_and,
  causes AS measured_causes
FROM numbers
WHERE producers + consumers > 0
