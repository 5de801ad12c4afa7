-- Views over the balance of permits of consumers, one row of `permits` after the other.
-- The rows of a consumer (one incarnation) are in order of their frames; a reset without a frame is
-- last. It is active from its first grant above zero until a reset, while its balance is known.

-- first_grants: the first grant above zero of a consumer
SELECT
  p.capture, p.connection_id, p.consumer_id, p.incarnation,
  min_by(p.delta, coalesce(p.order_no, 1152921504606846976)) AS first_grant
FROM permits AS p
WHERE p.event = 'grant' AND p.delta > 0
GROUP BY p.capture, p.connection_id, p.consumer_id, p.incarnation;

-- permit_names: a consumer that has permits, with names that may have been learnt late
SELECT
  p.capture, p.connection_id, p.consumer_id, p.incarnation,
  coalesce(p.topic, n.late_topic) AS topic,
  coalesce(p.subscription, n.late_subscription) AS subscription,
  coalesce(p.subscription_type, n.late_type) AS subscription_type, n.late_name AS consumer_name
FROM (
  SELECT
    capture, connection_id, consumer_id, incarnation, max(topic) AS topic,
    max(subscription) AS subscription, max(subscription_type) AS subscription_type
  FROM permits
  GROUP BY capture, connection_id, consumer_id, incarnation
) AS p
LEFT JOIN late_consumers AS n
  ON n.capture = p.capture AND n.connection_id = p.connection_id
  AND n.consumer_id = p.consumer_id AND n.incarnation = p.incarnation;

-- closings: when a frame closed a consumer
SELECT c.capture, c.connection_id, c.consumer_id, c.incarnation, max(micros(f.ts)) AS closed_us
FROM (
  SELECT capture, connection_id, frame_no, ts
  FROM frames
  WHERE
    (capture, connection_id, frame_no) IN (
      SELECT closed_capture, closed_connection_id, closed_no
      FROM consumers
      WHERE closed_no IS NOT NULL
    )
) AS f
JOIN consumers AS c
  ON c.closed_capture = f.capture AND c.closed_connection_id = f.connection_id
  AND c.closed_no = f.frame_no
GROUP BY c.capture, c.connection_id, c.consumer_id, c.incarnation;

-- permit_places: a change of a consumer's balance, with its place among them
-- place: four of each frame, where 0 is a delivery, 1 a grant, and 2 a reset, which comes behind
-- all else that its frame did.
SELECT
  p.capture, p.connection_id, p.consumer_id, p.incarnation, p.frame_no, p.ts, p.event, p.delta,
  p.available_after, p.unacked_after,
  micros(p.ts) AS at_us,
  coalesce(p.order_no, 1152921504606846976) * 4
  + CASE p.event WHEN 'delivery' THEN 0 WHEN 'grant' THEN 1 ELSE 2 END AS place
FROM permits AS p
WHERE
  p.event IN ('grant', 'delivery', 'reset')
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = p.capture AND t.connection_id = p.connection_id
  );

-- permit_neighbours: a change of a consumer's balance, with the rows before and behind it
-- mark, mark_before: the place of the last reset or grant above zero, until here and before it.
SELECT
  p.*,
  lag(p.at_us) OVER consumer AS before_us,
  lead(p.at_us) OVER consumer AS next_us,
  lag(p.place) OVER consumer AS place_before,
  lead(p.place) OVER consumer AS next_place,
  lag(p.available_after) OVER consumer AS available_before,
  max(CASE WHEN p.event = 'reset' OR (p.event = 'grant' AND p.delta > 0) THEN p.place END)
    OVER until_here AS mark,
  max(CASE WHEN p.event = 'reset' OR (p.event = 'grant' AND p.delta > 0) THEN p.place END)
    OVER until_before AS mark_before
FROM permit_places AS p
WINDOW
  consumer AS (
    PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation
    ORDER BY p.place ASC, p.at_us ASC NULLS LAST
  ),
  until_here AS (
    PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation
    ORDER BY p.place ASC, p.at_us ASC NULLS LAST
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ),
  until_before AS (
    PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation
    ORDER BY p.place ASC, p.at_us ASC NULLS LAST
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  );

-- permit_changes: a change of a consumer's balance, and the time until the next one
-- until_us: when the next row comes, or the observation ends: with the frame that closed the
-- consumer, else with its connection's last packet, but not before its own last row.
-- is_open, is_exhausted: active with permits left, and without; was_…: the same of the row before.
SELECT
  b.capture, b.connection_id, b.consumer_id, b.incarnation, b.frame_no, b.ts, b.event, b.delta,
  b.available_after, b.unacked_after, b.place, b.at_us,
  b.next_place IS NULL AS is_last,
  b.at_us - b.before_us >= 1000000 AS is_behind_pause,
  b.place_before % 4 = 1 AS is_behind_grant,
  b.next_place % 4 = 1 AS is_before_grant,
  CASE
    WHEN b.next_place IS NOT NULL THEN b.next_us
    ELSE greatest(coalesce(c.closed_us, floor_div(n.last_ts_ns, 1000), b.at_us), b.at_us)
  END AS until_us,
  coalesce(b.event <> 'reset' AND b.mark % 4 = 1 AND b.available_after > 0, FALSE) AS is_open,
  coalesce(b.event <> 'reset' AND b.mark % 4 = 1 AND b.available_after <= 0, FALSE)
    AS is_exhausted,
  coalesce(
    b.place_before % 4 <> 2 AND b.mark_before % 4 = 1 AND b.available_before > 0, FALSE
  ) AS was_open,
  coalesce(
    b.place_before % 4 <> 2 AND b.mark_before % 4 = 1 AND b.available_before <= 0, FALSE
  ) AS was_exhausted
FROM permit_neighbours AS b
LEFT JOIN connections AS n ON n.capture = b.capture AND n.connection_id = b.connection_id
LEFT JOIN closings AS c
  ON c.capture = b.capture AND c.connection_id = b.connection_id
  AND c.consumer_id = b.consumer_id AND c.incarnation = b.incarnation;

-- permit_spans: a time that an active consumer had no permits left, or had some and nothing came
-- is_exhausted: which of both. Of the latter, silences, only those that last a second are all here:
-- they begin with permits left, go on through grants, and end with anything else.
-- is_ended: not so where the observation ended. confirmed: a delivery came within 250 ms after the
-- grant that ended it, so that messages must have waited; null where no grant that left permits did.
SELECT
  s.capture, s.connection_id, s.consumer_id, s.incarnation, s.is_exhausted, s.is_ended,
  s.frame_no AS start_frame_no, s.ts AS start_ts, s.at_us AS start_us,
  CASE WHEN s.is_ended THEN s.end_frame_no END AS end_frame_no,
  CASE WHEN s.is_ended THEN s.end_ts END AS end_ts,
  CASE WHEN s.is_ended THEN s.end_us ELSE coalesce(s.end_until_us, s.until_us) END - s.at_us
    AS lasted_us,
  CASE
    WHEN s.is_exhausted AND s.is_ended AND s.end_event = 'grant' AND s.ends_open
      THEN coalesce(s.verdict = 'delivery' AND s.verdict_us - s.end_us <= 250000, FALSE)
  END AS confirmed
FROM (
  SELECT
    e.*,
    lead(e.frame_no) OVER consumer AS end_frame_no,
    lead(e.ts) OVER consumer AS end_ts,
    lead(e.at_us) OVER consumer AS end_us,
    lead(e.until_us) OVER consumer AS end_until_us,
    lead(e.event) OVER consumer AS end_event,
    lead(e.is_open) OVER consumer AS ends_open,
    coalesce(
      CASE
        WHEN e.is_exhausted THEN NOT lead(e.is_exhausted) OVER consumer
        ELSE lead(e.event <> 'grant' OR NOT e.is_open) OVER consumer
      END,
      FALSE
    ) AS is_ended,
    lead(e.event, 2) OVER consumer AS verdict,
    lead(e.at_us, 2) OVER consumer AS verdict_us
  FROM permit_changes AS e
  -- A stall begins or ends; the first that is no grant behind one; the last row of a consumer. A
  -- silence begins or ends, but for those that the next delivery ends at once. Between the ends of
  -- a span there is no other of these but its consumer's last row.
  WHERE
    e.is_exhausted <> e.was_exhausted OR e.is_last
    OR (e.event <> 'grant' AND e.is_behind_grant AND NOT e.was_exhausted)
    OR (
      e.is_open AND (e.event <> 'grant' OR NOT e.was_open)
      AND (e.is_before_grant OR e.until_us - e.at_us >= 1000000)
    )
    OR (
      e.was_open AND (e.event <> 'grant' OR NOT e.is_open)
      AND (e.event = 'grant' OR e.is_behind_grant OR e.is_behind_pause)
    )
  WINDOW consumer AS (
    PARTITION BY e.capture, e.connection_id, e.consumer_id, e.incarnation
    ORDER BY e.place ASC, e.at_us ASC NULLS LAST
  )
) AS s
WHERE
  (s.is_exhausted AND NOT s.was_exhausted)
  OR (
    s.is_open AND (s.event <> 'grant' OR NOT s.was_open)
    AND (s.is_before_grant OR s.until_us - s.at_us >= 1000000)
  );
