/*
number = "V14"
code = "deliveries_acknowledged"
title = "What became of deliveries"
severity = "info"
section = "ack_latency"
fires = ["fake-f08_badcrc.pcap"]
silent = ["java-j01_plain.pcap"]

[names]
discarded = "discarded by the consumer as unreadable"
ack_refused = "refused by the broker when acknowledged"
ack_rolled_back = "rolled back with a transaction"
ack_uncommitted = "part of a transaction that was still open when the capture ended"
redelivery_requested = "asked for again by the consumer"
consumer_closed = "open when the consumer was closed"
conn_closed = "open when the connection ended"
unacked_at_end = "open when the capture ended"
unknown_gap = "of unknown outcome (the acknowledgement may lie in bytes that are missing)"
unresolved_at_limit = "of unknown outcome (too many were open)"
unknown = "of unknown outcome"
nothing_to_commit = "empty, read without a group, or not readable"

[text]
what = "{deliveries} deliveries: {acked} acknowledged[, {others:counts}].[ Of batches not acknowledged as a whole, {in_part} messages {in_part|was|were}.][ {left} {left|was|were} left open though later ones were acknowledged{seek}.][ The oldest one open at the end, of entry {ledger}:{entry}, had waited {oldest_ms:time} at consumer {owner} of {subscription}.][ Consumers discarded with {errors:shares}: applications never got these.]"

[variant.all]
severity = "ok"

[variant.discarded]
do = "Find out why clients cannot read them: key, codec or damage."
show = "frames validation_error != null"

[variant.refused]
do = "Read the reasons that the broker gives."
show = "frames command == \"ACK_RESPONSE\" and error_code != null"

[variant.left]
do = "Ask the application what it does with these: it neither acknowledges nor rejects them."

[variant.chunks]
do = "See the client's log: these are chunks of {broken} messages, not each of them once, and client libraries drop such a message before the application sees it."
*/
WITH numbers AS (
  SELECT
    place, is_evident, requests.by_command AS commands,
    checksum_failures.total.not_applicable IS NOT NULL AS is_cursus,
    ['consumer_closed', 'conn_closed', 'unacked_at_end'] AS ways,
    ack_latency.passed_over AS passed_rows, unnest(ack_latency.total)
  FROM totals
),
ack_numbers AS (
  SELECT
    *,
    list_filter(passed_rows, lambda e: list_contains(ways, e.outcome)) AS open_rows,
    coalesce(list_sum(list_transform(ways, lambda name: passed_over_by_outcome[name])), 0) AS still,
    map_from_entries(list_transform(
      list_filter(map_entries(not_evaluated_by_reason), lambda e: NOT list_contains(
        ['acked_without_latency', 'message_unread', 'ack_unread'], e.key
      )), lambda e: {
        'key': if(is_cursus AND e.key = 'unknown', 'nothing_to_commit', e.key), 'value': e.value
      }
    )) AS others
  FROM numbers
),
shown_numbers AS (
  SELECT
    *, oldest_unacknowledged AS oldest,
    coalesce(list_filter(open_rows, lambda e: coalesce(e.is_broken, 0) = 0)[1], open_rows[1])
      AS example,
    still = passed_over_by_outcome['consumer_closed'] AND len(list_filter(
      commands, lambda e: e.request_command = 'SEEK' AND e.outcomes['ok'] > 0
    )) > 0 AS is_of_seek
  FROM ack_numbers
)
SELECT
  place,
  CASE
    WHEN not_evaluated_by_reason['discarded'] > 0 OR cardinality(validation_errors) > 0
      THEN 'discarded'
    WHEN not_evaluated_by_reason['ack_refused'] > 0 AND still = 0 THEN 'refused'
    WHEN still > 0 AND coalesce(is_of_seek, false) THEN ''
    WHEN still > 0 THEN if(example.is_broken = 1, 'chunks', 'left')
    WHEN acked = deliveries AND is_evident THEN 'all'
    ELSE ''
  END AS variant,
  coalesce(example.capture, oldest.capture) AS capture,
  if(example.capture IS NULL, oldest.frame_no, example.frame_no) AS frame_left_open,
  if(example.capture IS NULL, oldest.packet, example.packet) AS packet_left_open,
  CAST(oldest.ledger_id AS STRING) AS measured_ledger,
  CAST(oldest.entry_id AS STRING) AS measured_entry,
  CASE WHEN oldest.frame_no IS NOT NULL THEN oldest_unacknowledged_ms END AS measured_oldest_ms,
  CASE
    WHEN oldest.frame_no IS NULL THEN NULL
    ELSE coalesce(oldest.consumer_name, CAST(oldest.consumer_id AS STRING), 'unknown')
  END AS measured_owner,
  oldest.subscription AS measured_subscription,
  acked AS measured_acked, deliveries AS measured_deliveries, others AS measured_others,
  nullif(acked_in_part, 0) AS measured_in_part,
  CAST(nullif(still, 0) AS BIGINT) AS measured_left,
  CAST(len(list_distinct(list_transform(open_rows, lambda e: e.chunk_uuid))) AS BIGINT)
    AS measured_broken,
  if(is_of_seek, ', as a seek leaves them', '') AS measured_seek,
  validation_errors AS measured_errors
FROM shown_numbers
WHERE deliveries > 0 AND acked IS NOT NULL AND (acked > 0 OR cardinality(others) > 0)
