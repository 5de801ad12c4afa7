/*
number = "V08"
code = "sends_confirmed"
title = "What became of sends"
severity = "info"
section = "send_latency"
fires = ["java-j24_unload.pcap"]
silent = ["java-j01_plain.pcap"]

[thresholds.in_flight]
value = 0.01
unit = "of sends"
why = "so few unanswered ones at the very end are what any capture ends with"

[names]
error = "refused"
dropped_after_close = "unanswered when their producer was closed or opened again"
conn_closed = "unanswered when the connection ended"
unanswered_at_end = "unanswered when the capture ended"
lost_in_gap = "whose answer may lie in bytes that are missing"
response_cut = "whose answer is not whole in the capture"
other_side_not_captured = "whose answers were not captured"
evicted = "given up, since too many waited for an answer"
dup_or_dropped = "with a receipt without a message id (the broker had the message already, or dropped it)"
not_awaited = "that wanted no answer"

[text]
what = "{sends} sends[ with {least}{published} messages][, {stored}][; {no_latency}][; the only receipt that could be timed came after {only_ms:time}][; half of the receipts came within {p50_ms:about}][, the slowest after {slowest_ms:time}][, 99 % within {p99_ms:about}].[ For the application, from publishing to the receipt, half of them took {least_felt}{felt_ms:about}, the slowest {felt_max_ms:time}.][ Not confirmed: {failed:counts}.][ {passed} sends got no receipt though later ones of the same producer did.][ {resent} sends repeated earlier ones.][ {ended}.][ Whether some succeeded is not known: {unknown:counts}.]"

[variant.confirmed]
severity = "ok"

[variant.passed_over]
do = "Ask the application whether it sent them again."

[variant.refused]
do = "Read the reasons that the broker gives."
show = "frames error_code != null"

[variant.closed]
do = "Find out what closed the producers."
show = "frames command == \"CLOSE_PRODUCER\""

[variant.unanswered]
do = "Clients repeat what is not confirmed in time: look for slow sends, and for connections that ended and who closed them (closed_by)."
show = "connections"
*/
WITH numbers AS (
  SELECT
    place, is_evident, send_latency.passed_over[1] AS passed_row,
    coverage.total.gaps + coverage.total.snaplen_cut_bytes AS lacks,
    map_entries(send_latency.total.outcomes) AS entries,
    ['error', 'dropped_after_close', 'conn_closed', 'unanswered_at_end'] AS failures,
    unnest(send_latency.total)
  FROM totals
),
send_numbers AS (
  SELECT
    *, latency_ms['count'] AS receipts,
    -- Publish times are whole milliseconds.
    (application_since['publish_time'] > 0 OR application_since['batch_closed'] > 0)
      AND (
        application_ms['p50'] > 1.2 * latency_ms['p50'] + 2
        OR application_ms['max'] > 1.2 * latency_ms['max'] + 2
      ) AS is_felt,
    map_from_entries(list_filter(entries, lambda e: list_contains(failures, e.key))) AS failed,
    map_from_entries(list_filter(
      entries, lambda e: NOT list_contains(failures || ['ok', 'orphan_response'], e.key)
    )) AS unknown,
    -- Sends without repetitions are as many as messages or batches; each counts as logical when one
    -- of its attempts was confirmed with an id.
    CAST(sends - resent - logical_latency_ms['count'] AS BIGINT) AS never
  FROM numbers
)
SELECT
  place,
  CASE
    WHEN passed_over > 0 THEN 'passed_over'
    WHEN outcomes['error'] > 0 THEN 'refused'
    WHEN outcomes['dropped_after_close'] > 0 THEN 'closed'
    WHEN
      outcomes['conn_closed'] > 0 OR resent > 0
      OR outcomes['unanswered_at_end'] > $in_flight * sends
      THEN 'unanswered'
    WHEN cardinality(failed) + cardinality(unknown) = 0 AND is_evident AND stored > 0
      THEN 'confirmed'
    ELSE ''
  END AS variant,
  passed_row.capture AS capture, passed_row.request_frame_no AS frame_send_without_receipt,
  sends AS measured_sends, published AS measured_published,
  CASE WHEN sends_of_unknown_count > 0 THEN 'at least ' ELSE '' END AS measured_least,
  CASE
    WHEN published > 0 THEN CASE
      -- What messages a send holds that was cut is not known, nor so what all of them are.
      WHEN sends_of_unknown_count > 0 AND 0 < outcomes['ok'] AND outcomes['ok'] < sends
        THEN format('{:,} of the sends confirmed as stored', outcomes['ok'])
      WHEN stored > published
        THEN format('confirmed as stored {:,} time{} in all', stored, if(stored = 1, '', 's'))
      WHEN stored = published THEN if(stored > 1, 'all of them ', '') || 'confirmed as stored'
      WHEN stored > 0 THEN format('{:,} of them confirmed as stored', stored)
      ELSE if(stored = 0, 'none of them confirmed as stored', NULL)
    END
  END AS measured_stored,
  CASE
    WHEN receipts > 0 THEN NULL
    WHEN outcomes['response_cut'] > 0 THEN 'none with a receipt that is whole in the capture'
    ELSE 'none with a receipt that could be timed'
  END AS measured_no_latency,
  CASE WHEN receipts = 1 THEN latency_ms['max'] END AS measured_only_ms,
  CASE WHEN receipts > 1 THEN latency_ms['p50'] END AS measured_p50_ms,
  CASE WHEN receipts BETWEEN 2 AND 99 THEN latency_ms['max'] END AS measured_slowest_ms,
  CASE WHEN receipts > 99 THEN latency_ms['p99'] END AS measured_p99_ms,
  CASE WHEN application_since['batch_closed'] > 0 THEN 'at least ' ELSE '' END AS measured_least_felt,
  CASE WHEN is_felt THEN application_ms['p50'] END AS measured_felt_ms,
  CASE WHEN is_felt THEN application_ms['max'] END AS measured_felt_max_ms,
  failed AS measured_failed, unknown AS measured_unknown,
  nullif(passed_over, 0) AS measured_passed, nullif(resent, 0) AS measured_resent,
  CASE
    WHEN cardinality(failed) > 0 AND resent > 0 AND cardinality(unknown) = 0 THEN CASE
      WHEN never = 0 THEN 'In the end every message was confirmed'
      -- The missing part may contain a further attempt.
      WHEN never > 0 AND lacks = 0
        THEN format('{:,} send{} had no attempt that was confirmed', never, if(never = 1, '', 's'))
    END
  END AS measured_ended
FROM send_numbers
WHERE sends > 0
