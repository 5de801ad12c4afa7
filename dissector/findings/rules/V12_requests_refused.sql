/*
number = "V12"
code = "requests_refused"
title = "Whether requests were refused"
severity = "info"
section = "errors"
fires = ["fake-f02_errors.pcap"]
silent = ["java-j01_plain.pcap"]

[text]
what = "{granted} answers {granted|was|were} read[, those of {unknown} further requests could not be]: no refusal was seen."

[variant.none]
severity = "ok"

[variant.refused]
what = "{refused} requests {refused|was|were} refused[ in {incidents} incidents]: {codes:shares}[; {expected} of them {expected|is|are} usual with these clients]."
do = "Find out: {code:ask}"

[variant.no_schema]
like = "refused"
do = "A topic has no schema before its first producer brings one."

[variant.usual]
severity = "ok"
what = "{refused} requests {refused|was|were} refused: {codes:shares}; this is usual with these clients."
*/
WITH numbers AS (
  SELECT
    place, is_evident, errors.by_code AS codes, errors.incidents[1] AS example,
    send_latency.total.outcomes AS sent, requests.total.outcomes AS asked, unnest(errors.total)
  FROM totals
),
answer_numbers AS (
  SELECT
    *,
    list_sum(list_transform(
      ['ok', 'dup_or_dropped', 'error', 'orphan_response'],
      lambda name: coalesce(sent[name], 0) + coalesce(asked[name], 0)
    )) AS granted,
    list_sum(list_transform(
      ['lost_in_gap', 'response_cut', 'other_side_not_captured', 'evicted'],
      lambda name: coalesce(sent[name], 0) + coalesce(asked[name], 0)
    )) AS unknown
  FROM numbers
)
SELECT
  place,
  CASE
    WHEN answers > 0 AND expected = answers THEN 'usual'
    WHEN answers > 0 AND codes[1].error_code = 'TopicNotFound'
      AND example.request_command = 'GET_SCHEMA' THEN 'no_schema'
    WHEN answers > 0 THEN 'refused'
    WHEN unknown <= granted AND is_evident THEN 'none'
    ELSE ''
  END AS variant,
  example.capture AS capture, example.request_frame_no AS frame_request,
  example.response_frame_no AS frame_refusal, example.packet AS packet_refusal,
  CAST(granted AS BIGINT) AS measured_granted,
  CAST(nullif(unknown, 0) AS BIGINT) AS measured_unknown,
  answers AS measured_refused,
  map_from_entries(list_transform(codes, lambda e: {
    'key':
    CASE
      WHEN regexp_full_match(e.error_code, '-*[0-9]+') THEN 'code ' || e.error_code
      ELSE coalesce(e.error_code, 'no code')
    END,
    'value': e.answers
  })) AS measured_codes,
  coalesce(codes[1].error_code, 'no code') AS measured_code,
  CASE WHEN incidents < answers THEN incidents END AS measured_incidents,
  nullif(expected, 0) AS measured_expected
FROM answer_numbers
WHERE answers > 0 OR (answers = 0 AND granted > 0)
