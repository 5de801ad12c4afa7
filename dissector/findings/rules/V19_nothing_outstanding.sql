/*
number = "V19"
code = "nothing_outstanding"
title = "Whether anything was open at the end"
severity = "info"
section = "requests"
fires = []
silent = ["java-j01_plain.pcap"]

[thresholds.silent_ms]
value = 1000
unit = "ms"
why = "clients that are at work send or get something within a second"

[text]
what = "Nothing was outstanding at the end[; no message was sent, delivered or acknowledged since {since}, for {silent_ms:time}]."

[variant.ok]
severity = "ok"
*/
-- No send or request without an answer, no delivered entry without an accepted ack, however often
-- it was delivered, and no stored entry without a delivery. A seek delivers entries anew, which
-- totals do not show. A part of the time is not evaluated: its numbers lack what was open when it
-- began, and what followed after it.
WITH numbers AS (
  SELECT
    place, is_evident, coverage.total.last_ts AS end_ts, send_latency.total.sends AS sends,
    list_sum(list_transform(
      ['unanswered_at_end', 'conn_closed', 'dropped_after_close'],
      lambda name: coalesce(send_latency.total.outcomes[name], 0)
    )) AS open_sends,
    ack_latency.total.deliveries AS deliveries,
    ack_latency.total.deliveries - redelivery.total.redelivered - ack_latency.total.acked
      AS open_entries,
    redelivery.total.by_cause['seek'] AS sought,
    ack_latency.total.not_evaluated_by_reason['unacked_at_end'] AS open_deliveries,
    requests.total.outcomes['unanswered_at_end'] AS open_requests,
    publish_to_delivery.total.undelivered AS undelivered,
    greatest(
      send_latency.total.last_receipt_ts, send_latency.total.last_message_ts,
      permit_utilization.total.last_delivery_ts, permit_utilization.total.last_ack_ts
    ) AS since
  FROM totals
  WHERE checksum_failures.total.not_applicable IS NULL AND is_of_time = 0
),
timed_numbers AS (
  SELECT
    *,
    date_diff('millisecond', CAST(since AS TIMESTAMP), CAST(end_ts AS TIMESTAMP)) AS silent_ms
  FROM numbers
)
SELECT
  place, 'ok' AS variant, CASE WHEN silent_ms >= $silent_ms THEN since END AS measured_since,
  CASE WHEN silent_ms >= $silent_ms THEN silent_ms END AS measured_silent_ms
FROM timed_numbers
WHERE
  is_evident AND sends + deliveries > 0 AND coalesce(open_sends, 0) = 0
  AND coalesce(open_deliveries, 0) = 0 AND coalesce(open_entries, 0) <= 0
  AND coalesce(sought, 0) = 0 AND coalesce(open_requests, 0) = 0 AND coalesce(undelivered, 0) = 0
