-- carried_permits: a change of a consumer's balance that decides what its next changes mean
-- Rows of `permits` that a window passes to the next one. For each consumer: its last change, and
-- its last grant above zero or reset. For a stall without an end or a verdict: its beginning, the
-- grant or reset before that, and its end (is_pending). The result over all rows is the result so
-- far, plus the result over these and the new rows, minus the result over these alone.
WITH latest AS (
  SELECT
    consumer_no, max(CASE WHEN kind = 2 OR (kind = 1 AND delta > 0) THEN place END) AS marked,
    max(CASE WHEN is_exhausted AND NOT was_exhausted THEN place END) AS begun
  FROM permit_changes
  GROUP BY consumer_no
),
stall_ends AS (
  SELECT
    c.consumer_no, min(c.place) AS ended, min_by(c.kind = 1 AND c.is_open, c.place) AS is_granted
  FROM permit_changes AS c
  JOIN latest AS l USING (consumer_no)
  WHERE c.place > l.begun AND NOT c.is_exhausted
  GROUP BY c.consumer_no
),
stall_grants AS (
  SELECT c.consumer_no, max(c.place) AS opened
  FROM permit_changes AS c
  JOIN latest AS l USING (consumer_no)
  WHERE c.place < l.begun AND (c.kind = 2 OR (c.kind = 1 AND c.delta > 0))
  GROUP BY c.consumer_no
),
decided_stalls AS (
  SELECT DISTINCT c.consumer_no
  FROM permit_changes AS c
  JOIN stall_ends AS e USING (consumer_no)
  WHERE NOT e.is_granted OR (c.place > e.ended AND c.kind <> 1)
),
carried_places AS (
  SELECT
    l.consumer_no, l.marked, l.begun, o.opened, e.ended, j.consumer_no IS NULL AS is_undecided
  FROM latest AS l
  LEFT JOIN stall_ends AS e USING (consumer_no)
  LEFT JOIN stall_grants AS o USING (consumer_no)
  LEFT JOIN decided_stalls AS j USING (consumer_no)
)
SELECT
  n.capture, n.connection_id, n.consumer_id, n.incarnation, n.topic, n.subscription,
  n.subscription_type, c.frame_no, c.at_us AS ts,
  CASE c.kind WHEN 0 THEN 'delivery' WHEN 1 THEN 'grant' ELSE 'reset' END AS event,
  c.delta, c.available_after, c.unacked_after, c.is_last, c.is_open, c.is_exhausted,
  coalesce(w.is_undecided AND c.place = w.begun, FALSE) AS begins,
  coalesce(w.is_undecided AND c.place = w.ended, FALSE) AS is_pending
FROM permit_changes AS c
JOIN carried_places AS w USING (consumer_no)
JOIN permit_consumers AS n USING (consumer_no)
WHERE
  c.is_last OR c.place = w.marked
  OR (w.is_undecided AND (c.place = w.opened OR c.place = w.begun OR c.place = w.ended))
