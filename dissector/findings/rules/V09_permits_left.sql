/*
number = "V09"
code = "permits_left"
title = "Whether consumers ran out of permits"
severity = "info"
section = "permit_utilization"
fires = []
silent = ["java-j01_plain.pcap"]

[text]
what = "{who} out of permits for a second or longer[ while its balance was known: {partly_ms:time} of all consumers together].[ The balance of one fell to {lowest}: brokers send whole entries.][ Not applicable to {beside} connections of Cursus.]"

[variant.left]
severity = "ok"

[variant.stalls]
what = "{times|Once a consumer was|Consumers were} out of permits for a second or longer[ {several} times], for at most {longest_ms:time}[; {open} still so at the end][; messages were seen waiting {confirmed} times][; {waiting}].[ The balance of one fell to {lowest}: brokers send whole entries.][ Not applicable to {beside} connections of Cursus.]"
do = "Find out what keeps the application busy, or raise its receiver queue size."
*/
WITH numbers AS (
  SELECT
    place, is_evident, nullif(coverage.total.connections_by_protocol['cursus'], 0) AS beside,
    permit_utilization.longest_stalls[1] AS longest, unnest(permit_utilization.total)
  FROM totals
),
permit_numbers AS (
  SELECT
    *,
    consumers - not_evaluated_by_reason['baseline_unknown']
    - not_evaluated_by_reason['delivered_without_known_balance']
      AS known,
    CAST(stalls.confirmed['count'] AS BIGINT) AS confirmed,
    CAST(stalls.open_at_end['count'] AS BIGINT) AS open_at_end,
    CAST(stalls['count'] + stalls.open_at_end['count'] AS BIGINT) AS times
  FROM numbers
)
SELECT
  place,
  CASE
    WHEN times > 0 THEN 'stalls'
    WHEN 2 * not_evaluated_by_reason['baseline_known_partly'] <= known AND is_evident THEN 'left'
    ELSE ''
  END AS variant,
  longest.capture AS capture, longest.start_frame_no AS frame_out_of_permits,
  longest.end_frame_no AS frame_granted_again,
  CASE
    WHEN known = consumers THEN 'No consumer was'
    ELSE format('Of {:,} consumer{} with a known balance, none was', known, if(known = 1, '', 's'))
  END AS measured_who,
  CASE WHEN not_evaluated_by_reason['baseline_known_partly'] > 0 THEN observed_ms END
    AS measured_partly_ms,
  times AS measured_times, CASE WHEN times > 1 THEN times END AS measured_several,
  greatest(coalesce(stalls['longest_ms'], 0), coalesce(stalls.open_at_end['longest_ms'], 0))
    AS measured_longest_ms,
  nullif(open_at_end, 0) AS measured_open, nullif(confirmed, 0) AS measured_confirmed,
  CASE WHEN confirmed = 0 THEN 'whether messages were waiting is not known' END AS measured_waiting,
  CASE WHEN overshoot > 0 THEN 0 - overshoot END AS measured_lowest, beside AS measured_beside
FROM permit_numbers
WHERE not_applicable IS NULL AND known > 0 AND times IS NOT NULL AND observed_ms > 0
