-- carried_permits: a change of a consumer's balance that decides what its next changes mean
-- Rows of `permits` that a window leaves to the next one. Of each consumer they are its last change,
-- the last grant above zero or reset, and of a stall that is not over or whose verdict is still to
-- come its beginning, the grant or reset before that, and its end (is_pending). What all rows so far
-- and further ones give is what those rows gave, and what these give with the further ones, less what
-- these give alone.
WITH latest AS (
  SELECT
    consumer_no, max(CASE WHEN kind = 2 OR (kind = 1 AND delta > 0) THEN place END) AS marked,
    max(CASE WHEN is_exhausted AND NOT was_exhausted THEN place END) AS begun
  FROM permit_changes
  GROUP BY consumer_no
),
ends AS (
  SELECT
    c.consumer_no, min(c.place) AS ended, min_by(c.kind = 1 AND c.is_open, c.place) AS is_granted
  FROM permit_changes AS c
  JOIN latest AS l ON l.consumer_no = c.consumer_no
  WHERE c.place > l.begun AND NOT c.is_exhausted
  GROUP BY c.consumer_no
),
opens AS (
  SELECT c.consumer_no, max(c.place) AS opened
  FROM permit_changes AS c
  JOIN latest AS l ON l.consumer_no = c.consumer_no
  WHERE c.place < l.begun AND (c.kind = 2 OR (c.kind = 1 AND c.delta > 0))
  GROUP BY c.consumer_no
),
decided_stalls AS (
  SELECT DISTINCT c.consumer_no
  FROM permit_changes AS c
  JOIN ends AS e ON e.consumer_no = c.consumer_no
  WHERE NOT e.is_granted OR (c.place > e.ended AND c.kind <> 1)
),
wanted AS (
  SELECT
    l.consumer_no, l.marked, l.begun, o.opened, e.ended, j.consumer_no IS NULL AS is_undecided
  FROM latest AS l
  LEFT JOIN ends AS e ON e.consumer_no = l.consumer_no
  LEFT JOIN opens AS o ON o.consumer_no = l.consumer_no
  LEFT JOIN decided_stalls AS j ON j.consumer_no = l.consumer_no
)
SELECT
  n.capture, n.connection_id, n.consumer_id, n.incarnation, n.topic, n.subscription,
  n.subscription_type, c.frame_no, c.at_us AS ts,
  CASE c.kind WHEN 0 THEN 'delivery' WHEN 1 THEN 'grant' ELSE 'reset' END AS event,
  c.delta, c.available_after, c.unacked_after, c.is_last, c.is_open, c.is_exhausted,
  coalesce(w.is_undecided AND c.place = w.begun, FALSE) AS begins,
  coalesce(w.is_undecided AND c.place = w.ended, FALSE) AS is_pending
FROM permit_changes AS c
JOIN wanted AS w ON w.consumer_no = c.consumer_no
JOIN permit_consumers AS n ON n.consumer_no = c.consumer_no
WHERE
  c.is_last OR c.place = w.marked
  OR (w.is_undecided AND (c.place = w.opened OR c.place = w.begun OR c.place = w.ended))
