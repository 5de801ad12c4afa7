-- refused: answers with an error, by request and topic
-- keys: request_command, response_command, error_code, topic
-- sums: answers, incidents, connections, connections_of_code
-- least: first_ns
-- greatest: last_ns
-- connections: counted at their first refusal; connections_of_code: at their first of each code.
WITH ranked_refusals AS (
  SELECT
    r.*,
    row_number() OVER (
      PARTITION BY r.head_capture, r.head_connection_id
      ORDER BY r.at_ns ASC, r.capture ASC, r.response_frame_no ASC NULLS LAST, r.request_frame_no ASC NULLS LAST
    ) AS place,
    row_number() OVER (
      PARTITION BY r.head_capture, r.head_connection_id, r.error_code
      ORDER BY r.at_ns ASC, r.capture ASC, r.response_frame_no ASC NULLS LAST, r.request_frame_no ASC NULLS LAST
    ) AS place_of_code
  FROM refusals AS r
)
SELECT
  capture, request_command, response_command, error_code, topic,
  count(*) AS answers,
  sum(begins) AS incidents,
  count(CASE WHEN place = 1 THEN 1 END) AS connections,
  count(CASE WHEN place_of_code = 1 THEN 1 END) AS connections_of_code,
  min(at_ns) AS first_ns,
  max(at_ns) AS last_ns
FROM ranked_refusals
GROUP BY ALL
