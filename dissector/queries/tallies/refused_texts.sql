-- refused_texts: answers with an error, by error code and text
-- keys: error_code, error_text
-- sums: answers
-- least: first_ns, first_frame_no
-- first: 500 by answers desc, first_ns, first_frame_no, error_text
-- of: error_code
SELECT
  capture, error_code, error_text,
  count(*) AS answers,
  min(at_ns) AS first_ns,
  min(response_frame_no) AS first_frame_no
FROM refusals
GROUP BY ALL
