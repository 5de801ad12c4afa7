-- The captures of a group as one capture (the whole): a connection's number is its chain, frames are
-- numbered in one order (n), with the incarnations and names that one capture over all of them would
-- have. The tables have the names of a lake's tables, in the schema whole.
-- Inputs: placed, untouched, handovers, merged, message_counts; connections, frames, acks, producers,
-- consumers, deliveries and gaps of the group (gaps: of captures without events), all_events; in the
-- schema whole, the earlier state (before.sql, and carried_frames and so on, which boundary.sql wrote).

CREATE TABLE whole.parts AS
SELECT * FROM main.placed WHERE read_by = 'pulsar' AND chain NOT IN (SELECT chain FROM main.untouched);

-- numbered_parts: the connections whose frames are numbered.
CREATE VIEW whole.numbered_parts AS FROM whole.parts UNION ALL FROM main.sending_connections;

-- turns: the frames that are read, with the packet that orders them. A frame that continues in the next
-- capture is left out if only its producer, consumer or request is known; without these it may be any
-- frame, and is read.
CREATE TABLE whole.turns AS
SELECT p.rank, p.chain, p.floor_ns, f.frame_no, f.last_ts_ns, coalesce(max(f.last_packet) OVER (
    PARTITION BY p.rank, p.chain ORDER BY f.frame_no
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), 0) AS turn
FROM main.frames AS f JOIN whole.numbered_parts AS p USING (capture, connection_id)
WHERE f.protocol = 'pulsar' AND NOT coalesce(
  f.status = 'cut_by_end' AND coalesce(f.request_id, f.producer_id, f.consumer_id) IS NOT NULL
  AND CASE f.direction WHEN 'to_client' THEN p.goes_on_to_client ELSE p.goes_on_to_broker END
  AND NOT coalesce(f.command IN ('SEND', 'MESSAGE')
    AND coalesce(f.producer_id, f.consumer_id) IS NOT NULL, false), false);

-- orders: each frame's number n. A connection that began before its capture numbers its first frames
-- later than one whose start was captured; turns put both in the same order.
CREATE TABLE whole.orders AS
SELECT rank, chain, frame_no, turn,
  row_number() OVER (ORDER BY {time}rank, turn, frame_no) + (SELECT max(n) FROM whole.before_end) AS n
FROM (SELECT *, greatest(floor_ns, max(last_ts_ns) OVER (PARTITION BY rank ORDER BY turn, frame_no
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) AS time FROM whole.turns)
UNION ALL BY NAME SELECT rank, chain, frame_no, n FROM whole.carried_places;

INSERT INTO whole.before_published BY NAME
SELECT e.topic, p.chain, e.ledger_id AS ledger, e.entry_id AS entry, e.request_last_ns AS sent_ns, o.n
FROM main.exchanges AS e JOIN main.sending_connections AS p USING (capture, connection_id)
JOIN whole.orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = e.response_frame_no
WHERE e.kind = 'publish' AND e.response_command = 'SEND_RECEIPT' AND e.ledger_id >= 0
  AND e.entry_id >= 0 AND e.response_frame_no > e.request_frame_no
  AND NOT coalesce(e.topic LIKE 'non-persistent://%', e.ledger_id = 0 AND e.entry_id = 0);

-- ends: the frame numbers behind which each FIN and the end of a connection come.
CREATE TABLE whole.ends AS
WITH packets AS (
  UNPIVOT (SELECT p.chain, p.rank, c.fin_packet_to_broker, c.fin_packet_to_client, c.ended_packet
    FROM whole.parts AS p JOIN main.connections AS c USING (capture, connection_id))
  ON fin_packet_to_broker, fin_packet_to_client, ended_packet INTO NAME what VALUE packet
),
turn_ends AS (
  SELECT rank, turn, max(n) AS n FROM whole.orders GROUP BY rank, turn
),
starts AS (SELECT rank, min(n) AS n FROM whole.orders GROUP BY rank),
positions AS (
  SELECT e.chain, e.what, coalesce(f.n + 0.5, s.n - 0.5) AS n
  FROM packets AS e ASOF LEFT JOIN turn_ends AS f ON f.rank = e.rank AND f.turn <= e.packet
  LEFT JOIN starts AS s ON s.rank = e.rank
)
SELECT chain, min(n) FILTER (what = 'fin_packet_to_broker') AS fin_packet_to_broker,
  min(n) FILTER (what = 'fin_packet_to_client') AS fin_packet_to_client,
  min(n) FILTER (what = 'ended_packet') AS ended_packet
FROM positions GROUP BY chain;

-- connections: of this increment, and those that ended before it.
CREATE TABLE whole.connections AS
WITH ends AS (
  SELECT chain, min(fin_packet_to_broker) AS fin_packet_to_broker,
    min(fin_packet_to_client) AS fin_packet_to_client, min(ended_packet) AS ended_packet
  FROM (FROM whole.ends UNION ALL BY NAME SELECT connection_id AS chain, fin_packet_to_broker,
    fin_packet_to_client, ended_packet FROM whole.carried_connections)
  GROUP BY chain
),
present AS (
  SELECT m.* REPLACE (p.chain AS connection_id, '' AS capture, 'pulsar' AS protocol,
    e.fin_packet_to_broker AS fin_packet_to_broker, e.fin_packet_to_client AS fin_packet_to_client,
    CASE WHEN m.ended <> 'capture_end' THEN coalesce(e.ended_packet,
      greatest(e.fin_packet_to_broker, e.fin_packet_to_client)) END AS ended_packet)
  FROM main.merged AS m
  JOIN whole.numbered_parts AS p ON p.capture = m.capture AND p.connection_id = m.connection_id
  LEFT JOIN ends AS e ON e.chain = p.chain
)
FROM present UNION ALL BY NAME FROM whole.carried_connections ANTI JOIN present USING (connection_id);

-- openings: PRODUCER and SUBSCRIBE frames that are answered in a later capture; or in their own, if the
-- request id was used before, when a dissection may pair them with the answer to the earlier request.
CREATE TABLE whole.openings AS
WITH opening_frames AS (
  SELECT p.chain, p.rank, o.n, f.command, f.request_id, f.producer_name, f.error_code,
    f.schema_version_hex, coalesce(f.is_ready, f.detail NOT LIKE '%"producer_ready":false%', true)
      AS is_ready,
    CAST(regexp_extract(f.detail, '"last_sequence_id":(-?[0-9]+)', 1) AS VARCHAR) AS last_sequence,
    CAST(regexp_extract(f.detail, '"topic_epoch":([0-9]+)', 1) AS VARCHAR) AS topic_epoch
  FROM main.frames AS f JOIN whole.parts AS p USING (capture, connection_id)
  JOIN whole.orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.frame_no
  WHERE f.command IN ('PRODUCER', 'SUBSCRIBE', 'PRODUCER_SUCCESS', 'SUCCESS', 'ERROR')
    AND f.request_id IS NOT NULL AND f.status <> 'malformed'
  UNION ALL BY NAME
  SELECT f.connection_id AS chain, o.rank, o.n, f.command, f.request_id, true AS is_ready
  FROM whole.carried_frames AS f JOIN whole.orders AS o ON o.n = f.frame_no
  WHERE f.command IN ('PRODUCER', 'SUBSCRIBE') AND f.request_id IS NOT NULL
    AND f.status <> 'malformed'
),
request_id_uses AS (
  SELECT p.chain, f.request_id, min(p.rank) AS first_rank
  FROM main.frames AS f JOIN whole.parts AS p USING (capture, connection_id)
  SEMI JOIN opening_frames AS o ON o.chain = p.chain AND o.request_id = f.request_id
  GROUP BY p.chain, f.request_id
),
answered_openings AS (
  SELECT *, lead(n) OVER turns AS answer_n, lead(rank) OVER turns AS answer_rank,
    lead(command) OVER turns AS answer, lead(producer_name) OVER turns AS name,
    lead(error_code) OVER turns AS code, lead(schema_version_hex) OVER turns AS version_hex,
    lead(last_sequence) OVER turns AS last_sequence_id, lead(topic_epoch) OVER turns AS epoch,
    coalesce(first_rank < rank, false) OR (chain, request_id) IN (
      SELECT connection_id, request_id FROM whole.carried_frames WHERE request_id IS NOT NULL
    ) AS is_used_again
  FROM opening_frames LEFT JOIN request_id_uses USING (chain, request_id) WHERE is_ready
  WINDOW turns AS (PARTITION BY chain, request_id ORDER BY n)
)
SELECT chain, n, answer_n, answer_rank, answer, name, code, version_hex,
  TRY_CAST(last_sequence_id AS BIGINT) AS last_sequence_id, TRY_CAST(epoch AS BIGINT) AS epoch
FROM answered_openings WHERE command IN ('PRODUCER', 'SUBSCRIBE') AND (answer_rank > rank OR is_used_again)
  AND answer IN ('PRODUCER_SUCCESS', 'SUCCESS', 'ERROR');

-- handles: producers and consumers of each capture, with their incarnation in the whole and the names
-- that earlier captures give them. A capture without the broker's direction takes each opening for a
-- new incarnation (closed_by null: what closed the one before was not captured), another one only that
-- of an id that was there before, and else an opening of what is open for a repetition: what the whole
-- has of both directions, and of earlier captures, decides.
CREATE TABLE whole.handles AS
WITH parts AS (
  SELECT p.*, c.packets_to_broker > 0 AND c.packets_to_client > 0 AS sees_both
  FROM whole.parts AS p JOIN main.connections AS c USING (capture, connection_id)
),
present AS (
  SELECT 'producer' AS kind, p.chain, p.rank, t.producer_id AS id, t.incarnation AS own,
    p.sees_both, t.* EXCLUDE (producer_id, incarnation, capture, connection_id, origin_capture, place)
  FROM main.all_producers AS t JOIN parts AS p USING (capture, connection_id)
  UNION ALL BY NAME
  SELECT 'consumer' AS kind, p.chain, p.rank, t.consumer_id AS id, t.incarnation AS own,
    p.sees_both, t.* EXCLUDE (consumer_id, incarnation, capture, connection_id, origin_capture, place)
  FROM main.all_consumers AS t JOIN parts AS p USING (capture, connection_id)
),
present_and_before AS (
  SELECT t.* REPLACE (o.n AS opened_frame_no, r.n AS ready_frame_no, c.n AS closed_frame_no),
    NULL::BOOLEAN AS is_refused, NULL::BIGINT AS answer_n, NULL::VARCHAR AS code,
    NULL::VARCHAR AS given_name, NULL::BOOLEAN AS is_repetition
  FROM present AS t
  LEFT JOIN whole.orders AS o
    ON o.rank = t.rank AND o.chain = t.chain AND o.frame_no = t.opened_frame_no
  LEFT JOIN whole.orders AS r
    ON r.rank = t.rank AND r.chain = t.chain AND r.frame_no = t.ready_frame_no
  LEFT JOIN whole.orders AS c
    ON c.rank = t.rank AND c.chain = t.chain AND c.frame_no = t.closed_frame_no
  UNION ALL BY NAME FROM whole.carried_handles
),
ordered_handles AS (
  SELECT t.* REPLACE (
    coalesce(t.ready_frame_no, CASE WHEN a.answer <> 'ERROR' THEN a.answer_n END) AS ready_frame_no,
    coalesce(t.schema_version_hex, a.version_hex) AS schema_version_hex,
    coalesce(t.last_sequence_id, a.last_sequence_id) AS last_sequence_id,
    coalesce(t.topic_epoch, a.epoch) AS topic_epoch,
    coalesce(a.answer = 'ERROR', t.is_refused) AS is_refused,
    coalesce(a.answer_n, t.answer_n) AS answer_n, coalesce(a.code, t.code) AS code,
    coalesce(a.name, t.given_name) AS given_name)
  FROM present_and_before AS t
  LEFT JOIN whole.openings AS a ON a.chain = t.chain AND a.n = t.opened_frame_no
),
-- is_repetition: an error answered the opening of an id that earlier captures hold open, or whose
-- opening there waits for its answer (up to frame open_until). It closes nothing.
counted_closes AS (
  SELECT *, count(*) FILTER (refused_code IS NULL AND closed_frame_no IS NOT NULL) OVER earlier AS closes,
    CASE WHEN closed_by <> 'capture_end' OR closed_frame_no IS NOT NULL THEN NULL
      WHEN ready_frame_no IS NOT NULL THEN 2e18
      WHEN opened_frame_no IS NOT NULL THEN coalesce(answer_n, 2e18) END AS open_until
  FROM ordered_handles WINDOW earlier AS (PARTITION BY kind, chain, id ORDER BY rank, own
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
repetitions AS (
  SELECT * EXCLUDE (closes, open_until) REPLACE (coalesce(is_repetition,
    refused_code IS NOT NULL AND closed_frame_no < max(open_until) OVER (
      PARTITION BY kind, chain, id, closes ORDER BY rank, own
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS is_repetition)
  FROM counted_closes
),
incarnation_starts AS (
  SELECT t.* REPLACE (
      CASE WHEN is_repetition THEN 'capture_end' ELSE closed_by END AS closed_by,
      CASE WHEN NOT is_repetition THEN closed_frame_no END AS closed_frame_no,
      CASE WHEN NOT is_repetition THEN refused_code END AS refused_code),
    CASE WHEN lag(own) OVER turns IS NULL THEN 1
    WHEN lag(is_repetition) OVER turns THEN 0
    WHEN lag(closed_by) OVER turns IS NULL THEN (CASE last_value(CASE
        WHEN closed_by = 'capture_end' AND closed_frame_no IS NULL AND NOT coalesce(is_refused, false)
          THEN 'open'
        WHEN closed_by IS NOT NULL THEN 'closed'
        WHEN opened_frame_no IS NOT NULL THEN 'unknown' END IGNORE NULLS) OVER (turns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
      WHEN 'closed' THEN true WHEN 'open' THEN NOT is_two_way WHEN 'unknown' THEN NOT is_two_way
      ELSE NOT is_two_way OR sees_both END)::INT
    WHEN own > 0 THEN 1
    WHEN opened_frame_no IS NULL THEN 0
    WHEN lag(closed_by) OVER turns = 'capture_end' AND lag(closed_frame_no) OVER turns IS NULL
      AND NOT coalesce(lag(is_refused) OVER turns, false) THEN (NOT is_two_way)::INT ELSE 1 END
      AS begins
  FROM repetitions AS t JOIN (SELECT connection_id,
    packets_to_broker > 0 AND packets_to_client > 0 AS is_two_way FROM whole.connections
  ) AS k ON k.connection_id = t.chain WINDOW turns AS (PARTITION BY kind, chain, id ORDER BY rank, own)
),
numbered_handles AS (
  SELECT *, sum(begins) OVER (PARTITION BY kind, chain, id ORDER BY rank, own)::BIGINT - 1
    AS incarnation
  FROM incarnation_starts
)
SELECT *,
  first_value(topic IGNORE NULLS) OVER earlier AS topic_before,
  coalesce(first_value(name IGNORE NULLS) OVER earlier,
    first_value(given_name IGNORE NULLS) OVER earlier) AS name_before,
  first_value(subscription IGNORE NULLS) OVER earlier AS subscription_before
FROM numbered_handles WINDOW earlier AS (PARTITION BY kind, chain, id, incarnation
  ORDER BY rank, own ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING);

-- first_flows: the permits of the first FLOW of each consumer.
CREATE VIEW whole.first_flows AS
SELECT p.chain, f.consumer_id AS id, h.incarnation, arg_min(f.permits, o.n) AS permits
FROM main.frames AS f JOIN whole.parts AS p USING (capture, connection_id)
JOIN whole.orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.frame_no
JOIN whole.handles AS h ON h.kind = 'consumer' AND h.chain = p.chain AND h.rank = p.rank
  AND h.own = f.incarnation AND h.id = f.consumer_id
WHERE f.command = 'FLOW' GROUP BY p.chain, f.consumer_id, h.incarnation;

-- merged_handles: one row per producer or consumer. A column has its first known value, except for the
-- epoch, which each repeated opening steps. If an opening was lost, the first close closes the id. An
-- answer behind the close opens nothing.
CREATE TABLE whole.merged_handles AS
WITH merged_parts AS (
  SELECT kind, chain, id, incarnation,
    arg_min(COLUMNS(* EXCLUDE (kind, chain, rank, id, own, place, incarnation, closed_frame_no, closed_by,
      refused_code, is_refused, is_repetition, sees_both, begins, topic_before, name_before,
      subscription_before, epoch)), place) AS '\0',
    arg_max(epoch, place) AS epoch,
    coalesce(arg_min(closed_frame_no, place) FILTER (closed_by IN ('client', 'broker')),
      arg_max(closed_frame_no, place)) AS closed_frame_no,
    coalesce(arg_min(closed_by, place) FILTER (closed_by IN ('client', 'broker')),
      arg_max(closed_by, place)) AS closed_by,
    arg_max(refused_code, place) AS refused_code,
    bool_or(is_refused) AND NOT coalesce(arg_max(closed_frame_no, place) < arg_min(answer_n, place),
      false) AS is_refused
  FROM (SELECT *, row(rank, own) AS place FROM whole.handles)
  GROUP BY kind, chain, id, incarnation
)
SELECT h.* EXCLUDE (is_refused, code, answer_n, given_name) REPLACE (
    coalesce(h.name, h.given_name) AS name,
    CASE WHEN h.closed_frame_no < h.ready_frame_no THEN NULL ELSE h.ready_frame_no END
      AS ready_frame_no,
    coalesce(h.first_flow_permits, CASE WHEN h.opened_frame_no IS NOT NULL THEN f.permits END)
      AS first_flow_permits,
    CASE WHEN is_refused THEN 'broker'
      WHEN h.closed_by = 'capture_end' AND h.closed_frame_no IS NULL AND h.incarnation < max(h.incarnation)
        OVER (PARTITION BY h.kind, h.chain, h.id) THEN NULL
      WHEN h.closed_by = 'capture_end' AND c.ended <> 'capture_end' THEN 'connection'
      ELSE h.closed_by END AS closed_by,
    CASE WHEN is_refused THEN h.code ELSE h.refused_code END AS refused_code,
    CASE WHEN is_refused THEN h.answer_n ELSE h.closed_frame_no END AS closed_frame_no),
  h.chain AS connection_id, '' AS capture, NULL AS origin_capture,
  CASE WHEN h.kind = 'producer' THEN h.id END AS producer_id,
  CASE WHEN h.kind = 'consumer' THEN h.id END AS consumer_id
FROM merged_parts AS h JOIN whole.connections AS c ON c.connection_id = h.chain
LEFT JOIN whole.first_flows AS f
  ON h.kind = 'consumer' AND f.chain = h.chain AND f.id = h.id AND f.incarnation = h.incarnation;

CREATE VIEW whole.producers AS SELECT * FROM whole.merged_handles WHERE kind = 'producer';
CREATE VIEW whole.consumers AS SELECT * FROM whole.merged_handles WHERE kind = 'consumer';

-- frames: packets have the frames' numbers, so that they compare across captures. Values that captures
-- of older schema versions have only in `detail` or in deliveries are in columns, too.
CREATE VIEW whole.frames AS
SELECT f.* REPLACE (
  '' AS capture, p.chain AS connection_id, o.n AS frame_no, o.n AS first_packet,
  o.n AS last_packet,
  coalesce(m.message_count, f.message_count) AS message_count,
  coalesce(f.ack_set, d.ack_set) AS ack_set,
  coalesce(f.is_ready, f.detail NOT LIKE '%"producer_ready":false%') AS is_ready,
  coalesce(f.is_active, f.detail LIKE '%"is_active":true%') AS is_active,
  coalesce(f.txn_action, nullif(regexp_extract(f.detail, '"txn_action":"([A-Z]+)"', 1), ''))
    AS txn_action,
  coalesce(h.incarnation, f.incarnation) AS incarnation,
  coalesce(h.topic_before, f.topic) AS topic,
  coalesce(h.subscription_before, f.subscription) AS subscription,
  CASE WHEN h.kind = 'producer' THEN coalesce(h.name_before, f.producer_name)
    ELSE f.producer_name END AS producer_name)
FROM main.frames AS f JOIN whole.parts AS p USING (capture, connection_id)
JOIN whole.orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.frame_no
LEFT JOIN whole.handles AS h ON h.chain = p.chain AND h.rank = p.rank AND h.own = f.incarnation
  AND h.id = coalesce(f.consumer_id, f.producer_id)
  AND h.kind = CASE WHEN f.consumer_id IS NULL THEN 'producer' ELSE 'consumer' END
LEFT JOIN main.message_counts AS m
  ON m.capture = f.capture AND m.connection_id = f.connection_id AND m.frame_no = f.frame_no
LEFT JOIN (
  SELECT capture, connection_id, frame_no, ack_set FROM main.deliveries WHERE ack_set IS NOT NULL
) AS d ON d.capture = f.capture AND d.connection_id = f.connection_id AND d.frame_no = f.frame_no
UNION ALL BY NAME FROM whole.carried_frames;

CREATE VIEW whole.acks AS
SELECT a.* REPLACE ('' AS capture, p.chain AS connection_id, o.n AS frame_no,
  coalesce(h.incarnation, a.incarnation) AS incarnation)
FROM main.acks AS a JOIN whole.parts AS p USING (capture, connection_id)
JOIN whole.orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = a.frame_no
LEFT JOIN whole.handles AS h ON h.kind = 'consumer' AND h.chain = p.chain AND h.rank = p.rank
  AND h.own = a.incarnation AND h.id = a.consumer_id
UNION ALL BY NAME FROM whole.carried_acks;

-- first_frames: the first frame of each direction, where a border may hide something.
CREATE VIEW whole.first_frames AS
SELECT capture, connection_id, direction, min(frame_no) AS frame_no,
  min(stream_offset) AS stream_offset
FROM main.frames SEMI JOIN (
  SELECT capture, connection_id FROM main.all_events WHERE event = 'skipped'
  UNION ALL SELECT capture, connection_id FROM main.notices WHERE code = 'gap_lost'
  UNION ALL SELECT after_capture, after_connection_id FROM main.handovers WHERE missing > 0
) USING (capture, connection_id)
GROUP BY capture, connection_id, direction;

-- skipped_at_borders: bytes that a capture skipped before its first frame of a direction that goes on
-- from the previous capture. They are the rest of a frame, up to that frame's end (rests).
CREATE VIEW whole.skipped_at_borders AS
SELECT e.capture, e.connection_id, e.direction, e.stream_offset,
  coalesce(e.bytes > r.bytes, false) AS is_hole
FROM main.all_events AS e JOIN whole.parts AS p USING (capture, connection_id)
LEFT JOIN whole.first_frames AS b USING (capture, connection_id, direction)
LEFT JOIN main.rests AS r USING (capture, connection_id, direction)
WHERE e.event = 'skipped' AND coalesce(b.frame_no > e.behind_frame_no, true)
  AND CASE e.direction WHEN 'to_client' THEN p.comes_from_to_client
    ELSE p.comes_from_to_broker END;

-- border_gaps: bytes without frames before the first frame of a direction: missing between captures,
-- or before the capture knew the protocol, when it wrote a notice but no event; skipped; of a capture
-- that never knew the protocol. They may lie behind any frame from from_n on, before until_n: from the
-- end of the last capture that has frames of the direction to the first one of these behind the border.
CREATE VIEW whole.border_gaps AS
WITH before_first AS (
  SELECT after_capture AS capture, after_connection_id AS connection_id, direction
  FROM main.handovers WHERE missing > 0
  UNION
  SELECT capture, connection_id, direction FROM whole.skipped_at_borders WHERE is_hole
  UNION
  SELECT c.capture, c.connection_id, r.direction
  FROM main.connections AS c JOIN main.rests AS r USING (capture, connection_id)
  WHERE c.protocol = 'unknown' AND CASE r.direction WHEN 'to_client' THEN c.stream_bytes_to_client
    ELSE c.stream_bytes_to_broker END > r.bytes
  UNION
  SELECT g.capture, g.connection_id, g.direction
  FROM main.notices AS g JOIN whole.parts AS p USING (capture, connection_id)
  LEFT JOIN whole.first_frames AS b USING (capture, connection_id, direction)
  ANTI JOIN main.all_events AS e ON e.capture = g.capture AND e.connection_id = g.connection_id
    AND e.direction = g.direction AND e.event = 'gap' AND e.stream_offset = g.stream_offset
  WHERE g.code = 'gap_lost' AND coalesce(g.stream_offset < b.stream_offset, true)
    AND CASE g.direction WHEN 'to_client' THEN p.comes_from_to_client
      ELSE p.comes_from_to_broker END
),
borders AS (
  SELECT p.chain, p.rank, s.direction FROM before_first AS s
  JOIN whole.parts AS p USING (capture, connection_id)
),
spans AS (
  SELECT p.chain, p.rank, f.direction, min(o.n) AS n
  FROM main.frames AS f JOIN whole.parts AS p USING (capture, connection_id)
  SEMI JOIN borders AS b ON b.chain = p.chain
  JOIN whole.orders AS o ON o.rank = p.rank AND o.chain = p.chain AND o.frame_no = f.frame_no
  GROUP BY p.chain, p.rank, f.direction
),
chain_spans AS (SELECT chain, rank, min(n) AS n FROM spans GROUP BY chain, rank),
earlier AS (
  SELECT b.*, coalesce(l.rank + 1, b.rank) AS from_rank FROM borders AS b
  ASOF LEFT JOIN spans AS l
    ON l.chain = b.chain AND l.direction = b.direction AND l.rank < b.rank
)
SELECT b.chain, b.direction, coalesce(s.n - 1, (SELECT max(n) FROM whole.orders)) AS from_n,
  f.n AS until_n
FROM earlier AS b
ASOF LEFT JOIN chain_spans AS s ON s.chain = b.chain AND s.rank >= b.from_rank
ASOF LEFT JOIN spans AS f
  ON f.chain = b.chain AND f.direction = b.direction AND f.rank >= b.rank;

-- events: holes, including those between captures.
CREATE VIEW whole.events AS
WITH event_positions AS (
  SELECT p.rank, p.chain, e.direction, e.is_inside, e.behind_frame_no, e.event
  FROM main.all_events AS e JOIN whole.parts AS p USING (capture, connection_id)
  ANTI JOIN whole.skipped_at_borders AS s ON s.capture = e.capture
    AND s.connection_id = e.connection_id AND s.direction = e.direction
    AND s.stream_offset = e.stream_offset AND e.event = 'skipped'
  WHERE e.event IN ('gap', 'skipped')
),
first_numbers AS (SELECT rank, chain, min(n) AS n FROM whole.orders GROUP BY rank, chain),
gap_positions AS (
  SELECT g.rank, g.chain, g.direction, g.frames_missing = 0 AS is_inside, g.stream_offset,
    max(o.n) AS n
  FROM main.gaps AS g LEFT JOIN whole.orders AS o ON o.rank = g.rank AND o.chain = g.chain
    AND CASE WHEN g.turn IS NULL THEN o.frame_no <= g.frame_no
      ELSE o.turn < g.turn OR (o.turn = g.turn AND o.frame_no <= g.frame_no) END
  WHERE g.rank NOT IN (SELECT rank FROM whole.parts SEMI JOIN main.all_events USING (capture))
  GROUP BY ALL
)
SELECT '' AS capture, e.chain AS connection_id, e.event, e.direction, e.is_inside,
  coalesce(o.n, l.n - 1, 0) AS behind_frame_no
FROM event_positions AS e
ASOF LEFT JOIN (FROM whole.orders SEMI JOIN event_positions USING (rank, chain)) AS o
  ON o.rank = e.rank AND o.chain = e.chain AND o.frame_no <= e.behind_frame_no
LEFT JOIN first_numbers AS l ON l.rank = e.rank AND l.chain = e.chain
UNION ALL
SELECT '', g.chain, 'gap', g.direction, g.is_inside, coalesce(g.n, l.n - 1, 0)
FROM gap_positions AS g LEFT JOIN first_numbers AS l ON l.rank = g.rank AND l.chain = g.chain
UNION ALL
SELECT '', b.chain, 'gap', b.direction, false, o.n
FROM whole.border_gaps AS b JOIN (
  SELECT chain, n FROM whole.orders UNION ALL SELECT DISTINCT chain, from_n FROM whole.border_gaps
) AS o ON o.chain = b.chain AND o.n >= b.from_n AND coalesce(o.n < b.until_n, true);
