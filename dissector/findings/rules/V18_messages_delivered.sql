/*
number = "V18"
code = "messages_delivered"
title = "What came of stored messages"
severity = "info"
section = "publish_to_delivery"
fires = ["cpp-c43_pattern.pcap"]
silent = ["java-j01_plain.pcap"]

[thresholds.late_ms]
value = 1000
unit = "ms"
why = "brokers send what is stored within milliseconds while there are permits"

[text]
what = "[From SEND to a consumer's queue the only delivery that could be timed took {only_ms:time}.][From SEND to a consumer's queue half of {timed} first deliveries took {p50_ms:about} or less, the slowest {slowest_ms:time}.][ {undelivered} of {stored} entries that were stored while a subscription took messages never came to it here, the oldest stored at {oldest}.][ Some may lie in the {gaps} {gaps|gap|gaps} of the capture.][ Some may lie in the {cut_bytes:size} that the snap length cut off.][ {unsubscribed} entries were stored in topics that no consumer of this capture subscribed.]"

[variant.quick]
severity = "ok"

[variant.undelivered]
do = "See by subscription (publish_to_delivery) whether they are delayed, in a transaction, or behind a limit, and which consumer they wait for."
show = "connections"
*/
WITH numbers AS (
  SELECT
    place, is_evident, coverage.total.gaps AS capture_gaps,
    coverage.total.snaplen_cut_bytes AS capture_cut_bytes, unnest(publish_to_delivery.total)
  FROM totals
),
judged_numbers AS (
  SELECT *, transit_ms['count'] AS timed FROM numbers
)
SELECT
  place,
  CASE
    WHEN undelivered > 0 THEN 'undelivered'
    WHEN is_evident AND entries_unsubscribed = 0 AND transit_ms['max'] < $late_ms THEN 'quick'
    ELSE ''
  END AS variant,
  CASE WHEN timed = 1 THEN transit_ms['max'] END AS measured_only_ms,
  CASE WHEN timed > 1 THEN timed END AS measured_timed,
  CASE WHEN timed > 1 THEN transit_ms['p50'] END AS measured_p50_ms,
  CASE WHEN timed > 1 THEN transit_ms['max'] END AS measured_slowest_ms,
  nullif(undelivered, 0) AS measured_undelivered,
  CASE WHEN undelivered > 0 THEN stored END AS measured_stored,
  CASE WHEN undelivered > 0 THEN oldest_undelivered_ts END AS measured_oldest,
  CASE WHEN undelivered > 0 THEN nullif(capture_gaps, 0) END AS measured_gaps,
  CASE WHEN undelivered > 0 THEN nullif(capture_cut_bytes, 0) END AS measured_cut_bytes,
  nullif(entries_unsubscribed, 0) AS measured_unsubscribed
FROM judged_numbers
WHERE deliveries > 0 AND (timed > 0 OR undelivered > 0 OR entries_unsubscribed > 0)
