-- Views over the permit balances of consumers, in the order of the rows of `permits`. The meaning
-- of a balance depends on the rows around it, so the rows of all times are read; a time range
-- counts with its part in the selected time.
-- The rows of a consumer (one incarnation) are in order of their frames; a reset without a frame is
-- last. It is active from its first grant above zero until a reset, if its balance is known.

-- closings: a consumer, and the time of the frame that closed it
SELECT c.capture, c.connection_id, c.consumer_id, c.incarnation, max(micros(f.ts)) AS closed_us
FROM (
  SELECT capture, connection_id, frame_no, ts
  FROM frames_around
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

-- permit_consumers: a consumer with permits, and a number, by which sorting is faster than by keys
-- materialized
-- first_grant: the first one above zero. end_us: the end of the observation, the frame that closed
-- the consumer or else its connection's last packet. The names may have been learnt late.
SELECT
  row_number() OVER (ORDER BY p.capture, p.connection_id, p.consumer_id, p.incarnation)
    AS consumer_no,
  p.capture, p.connection_id, p.consumer_id, p.incarnation,
  coalesce(p.topic, n.late_topic) AS topic,
  coalesce(p.subscription, n.late_subscription) AS subscription,
  coalesce(p.subscription_type, n.late_type) AS subscription_type, n.late_name AS consumer_name,
  coalesce(p.first_grant, 0) AS first_grant,
  coalesce(c.closed_us, floor_div(l.last_ts_ns, 1000)) AS end_us
FROM (
  SELECT
    capture, connection_id, consumer_id, incarnation, max(topic) AS topic,
    max(subscription) AS subscription, max(subscription_type) AS subscription_type,
    min_by(
      CASE WHEN event = 'grant' AND delta > 0 THEN delta END,
      CASE WHEN event = 'grant' AND delta > 0 THEN coalesce(order_no, 1152921504606846976) END
    ) AS first_grant
  FROM permits_around
  GROUP BY capture, connection_id, consumer_id, incarnation
) AS p
LEFT JOIN late_consumers AS n USING (capture, connection_id, consumer_id, incarnation)
LEFT JOIN connections AS l USING (capture, connection_id)
LEFT JOIN closings AS c USING (capture, connection_id, consumer_id, incarnation);

-- permit_places: a change of a consumer's balance, with its rank (place) among the consumer's changes
-- place: four per frame: 0 is a delivery, 1 a grant, and 2 a reset, which follows all other changes
-- of its frame.
SELECT
  c.consumer_no, p.frame_no, p.ts, p.delta, p.available_after, p.unacked_after,
  coalesce(p.order_no, 1152921504606846976) * 4
  + CASE p.event WHEN 'delivery' THEN 0 WHEN 'grant' THEN 1 ELSE 2 END AS place
FROM permits_around AS p
ANTI JOIN twins AS t USING (capture, connection_id)
JOIN permit_consumers AS c
  ON c.capture = p.capture AND c.connection_id = p.connection_id
  AND c.consumer_id IS NOT DISTINCT FROM p.consumer_id
  AND c.incarnation IS NOT DISTINCT FROM p.incarnation
WHERE p.event IN ('grant', 'delivery', 'reset');

-- permit_neighbours: a change of a consumer's balance, with values of the previous and next one
-- mark_before: the place of the last reset or grant above zero before it.
SELECT
  p.*,
  lag(p.ts) OVER consumer AS ts_before,
  lead(p.ts) OVER consumer AS next_ts,
  lag(p.place) OVER consumer AS place_before,
  lead(p.place) OVER consumer AS next_place,
  lag(p.available_after) OVER consumer AS available_before,
  last_value(
    CASE WHEN p.place % 4 = 2 OR (p.place % 4 = 1 AND p.delta > 0) THEN p.place END IGNORE NULLS
  ) OVER until_before AS mark_before
FROM permit_places AS p
WINDOW
  consumer AS (PARTITION BY p.consumer_no ORDER BY p.place ASC, p.ts ASC NULLS LAST),
  until_before AS (
    PARTITION BY p.consumer_no ORDER BY p.place ASC, p.ts ASC NULLS LAST
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  );

-- permit_changes: a change of a consumer's balance, and the time until the next one
-- materialized
-- kind: 0 a delivery, 1 a grant, 2 a reset. until_us: the time of the next row, or the end of the
-- observation if that is not earlier. is_open, is_exhausted: active with permits left, or without;
-- was_…: the same for the previous row.
SELECT
  b.consumer_no, b.place % 4 AS kind, b.frame_no, b.ts, b.delta, b.available_after,
  b.unacked_after, b.place, micros(b.ts) AS at_us,
  b.next_place IS NULL AS is_last,
  micros(b.ts) - micros(b.ts_before) >= 1000000 AS is_behind_pause,
  b.place_before % 4 = 1 AS is_behind_grant,
  b.next_place % 4 = 1 AS is_before_grant,
  CASE
    WHEN b.next_place IS NOT NULL THEN micros(b.next_ts)
    ELSE greatest(coalesce(c.end_us, micros(b.ts)), micros(b.ts))
  END AS until_us,
  coalesce(
    b.place % 4 <> 2 AND ((b.place % 4 = 1 AND b.delta > 0) OR b.mark_before % 4 = 1)
      AND b.available_after > 0,
    FALSE
  ) AS is_open,
  coalesce(
    b.place % 4 <> 2 AND ((b.place % 4 = 1 AND b.delta > 0) OR b.mark_before % 4 = 1)
      AND b.available_after <= 0,
    FALSE
  ) AS is_exhausted,
  coalesce(
    b.place_before % 4 <> 2 AND b.mark_before % 4 = 1 AND b.available_before > 0, FALSE
  ) AS was_open,
  coalesce(
    b.place_before % 4 <> 2 AND b.mark_before % 4 = 1 AND b.available_before <= 0, FALSE
  ) AS was_exhausted
FROM permit_neighbours AS b
JOIN permit_consumers AS c USING (consumer_no);

-- permit_sums: a consumer's grants, deliveries and balance; times in µs
-- materialized
-- occupied: used permits times their duration. A balance counts if it lasts into the selected time,
-- a change if it happens in it.
SELECT
  c.consumer_no,
  count(CASE WHEN c.kind = 1 AND c.is_in THEN 1 END) AS grants,
  sum(CASE WHEN c.kind = 1 AND c.is_in THEN c.delta END) AS granted,
  count(CASE WHEN c.kind = 0 AND c.is_in THEN 1 END) AS deliveries,
  sum(CASE WHEN c.kind = 0 AND c.is_in THEN try_subtract(0, c.delta) END) AS delivered,
  count(CASE WHEN c.is_known THEN 1 END) AS known_rows,
  count(CASE WHEN c.kind <> 2 AND NOT c.is_known THEN 1 END) AS unknown_rows,
  sum(CASE WHEN c.kind = 1 AND c.is_known AND c.is_in THEN c.delta END) AS known_granted,
  sum(CASE WHEN c.kind = 0 AND c.is_known AND c.is_in THEN try_subtract(0, c.delta) END)
    AS known_delivered,
  min_by(
    CASE
      WHEN c.is_known
        THEN try_subtract(c.available_after, CASE WHEN c.is_in THEN coalesce(c.delta, 0) ELSE 0 END)
    END,
    CASE WHEN c.is_known THEN c.place END
  ) AS start_balance,
  max(c.first_grant) AS first_grant,
  sum(c.passed_us) AS observed_us,
  sum(
    try_multiply(greatest(try_subtract(c.first_grant, c.available_after), 0), c.passed_us)
  ) AS occupied,
  sum(CASE WHEN c.is_exhausted THEN c.passed_us END) AS exhausted_us,
  min(CASE WHEN c.is_known THEN c.available_after END) AS available_min,
  max(CASE WHEN c.is_known THEN c.available_after END) AS available_max,
  max(CASE WHEN c.kind <> 2 THEN c.unacked_after END) AS unacked_max,
  max(CASE WHEN c.kind = 1 AND c.is_in THEN c.at_us END) AS last_grant_us,
  max_by(c.available_after, CASE WHEN c.available_after IS NOT NULL THEN c.place END)
    AS available_last,
  max_by(c.unacked_after, CASE WHEN c.unacked_after IS NOT NULL THEN c.place END) AS unacked_last
FROM (
  SELECT
    p.*, n.first_grant, is_selected(p.at_us) AS is_in,
    p.kind <> 2 AND p.available_after IS NOT NULL AS is_known,
    CASE WHEN p.is_open OR p.is_exhausted THEN selected_us(p.at_us, p.until_us) ELSE 0 END
      AS passed_us
  FROM permit_changes AS p
  JOIN permit_consumers AS n ON n.consumer_no = p.consumer_no
) AS c
WHERE c.is_in OR c.passed_us > 0
GROUP BY c.consumer_no;

-- consumer_latest: a consumer's last delivery and last acknowledgement; times in µs
-- oldest_unacked_frame_no is -1 for a frame outside the first capture of a joined connection.
SELECT
  d.capture, d.connection_id, d.consumer_id, d.incarnation,
  max(CASE WHEN is_selected(d.at_us) THEN d.at_us END) AS last_delivery_us,
  max(CASE WHEN is_selected(d.acked_us) THEN d.acked_us END) AS last_ack_us,
  min_by(
    CASE WHEN d.own_capture = d.capture THEN d.frame_no ELSE -1 END,
    CASE WHEN is_selected(d.at_us) AND d.outcome = 'unacked_at_end' THEN d.order_no END
  ) AS oldest_unacked_frame_no
FROM (
  SELECT
    capture, connection_id, consumer_id, incarnation, own_capture, order_no, frame_no, outcome,
    micros(ts) AS at_us,
    CASE
      WHEN outcome = 'acked'
        THEN try_subtract(micros(ts), floor_div(try_subtract(0, ack_latency_ns), 1000))
    END AS acked_us
  FROM deliveries_around
) AS d
GROUP BY d.capture, d.connection_id, d.consumer_id, d.incarnation;

-- permit_spans: a stall (no permits left) or a silence (permits left, no delivery) of an active consumer
-- materialized
-- is_exhausted: a stall. Only silences of a second or more are complete here: a silence begins with
-- permits left, continues through grants, and ends with any other change.
-- is_ended: FALSE if the observation ended first. confirmed: a delivery followed within 250 ms
-- after the grant that ended the stall, so messages must have waited; null if no such grant left
-- permits. A span that reaches into the selected time has its whole duration.
SELECT *
FROM (
  SELECT
    n.capture, n.connection_id, n.consumer_id, n.incarnation, n.topic, n.subscription, s.consumer_no,
    s.is_exhausted, s.is_ended,
    s.frame_no AS start_frame_no, s.ts AS start_ts, s.at_us AS start_us,
    CASE WHEN s.is_ended THEN s.end_frame_no END AS end_frame_no,
    CASE WHEN s.is_ended THEN s.end_ts END AS end_ts,
    CASE WHEN s.is_ended THEN s.end_us ELSE coalesce(s.end_until_us, s.until_us) END - s.at_us
      AS lasted_us,
    CASE
      WHEN s.is_exhausted AND s.is_ended AND s.end_kind = 1 AND s.ends_open
        THEN coalesce(s.verdict = 0 AND s.verdict_us - s.end_us <= 250000, FALSE)
    END AS confirmed
  FROM (
    SELECT
      e.*,
      lead(e.frame_no) OVER consumer AS end_frame_no,
      lead(e.ts) OVER consumer AS end_ts,
      lead(e.at_us) OVER consumer AS end_us,
      lead(e.until_us) OVER consumer AS end_until_us,
      lead(e.kind) OVER consumer AS end_kind,
      lead(e.is_open) OVER consumer AS ends_open,
      coalesce(
        CASE
          WHEN e.is_exhausted THEN NOT lead(e.is_exhausted) OVER consumer
          ELSE lead(e.kind <> 1 OR NOT e.is_open) OVER consumer
        END,
        FALSE
      ) AS is_ended,
      lead(e.kind, 2) OVER consumer AS verdict,
      lead(e.at_us, 2) OVER consumer AS verdict_us
    FROM permit_changes AS e
    -- The rows that begin or end a stall, the first change after a stall that is no grant, and the
    -- last row of a consumer; also those that begin or end a silence, except silences that the next
    -- delivery ends at once. Inside a span there is only its consumer's last row of these.
    WHERE
      e.is_exhausted <> e.was_exhausted OR e.is_last
      OR (e.kind <> 1 AND e.is_behind_grant AND NOT e.was_exhausted)
      OR (
        e.is_open AND (e.kind <> 1 OR NOT e.was_open)
        AND (e.is_before_grant OR e.until_us - e.at_us >= 1000000)
      )
      OR (
        e.was_open AND (e.kind <> 1 OR NOT e.is_open)
        AND (e.kind = 1 OR e.is_behind_grant OR e.is_behind_pause)
      )
    WINDOW consumer AS (
      PARTITION BY e.consumer_no ORDER BY e.place ASC, e.at_us ASC NULLS LAST
    )
  ) AS s
  JOIN permit_consumers AS n USING (consumer_no)
  WHERE
    (s.is_exhausted AND NOT s.was_exhausted)
    OR (
      s.is_open AND (s.kind <> 1 OR NOT s.was_open)
      AND (s.is_before_grant OR s.until_us - s.at_us >= 1000000)
    )
) AS t
WHERE reaches_selection(t.start_us, t.start_us + t.lasted_us);
