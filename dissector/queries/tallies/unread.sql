-- unread: frames of Pulsar whose command is known but whose content is not, by kind
-- keys: kind
-- sums: unread
-- A truncated packet may show a MESSAGE but not its consumer: only the table frames has its row.
-- The number is the frames of a connection less the rows that they should have in other tables.
-- kind: delivery, ack, setup (a client finds its broker and opens something there), or request.
WITH command_kinds AS (
  SELECT
    f.capture, f.connection_id, f.command, f.frames,
    CASE
      WHEN f.command = 'MESSAGE' THEN 'delivery'
      WHEN f.command = 'ACK' THEN 'ack'
      WHEN f.command IN ('CONNECT', 'PARTITIONED_METADATA', 'LOOKUP', 'PRODUCER', 'SUBSCRIBE')
        THEN 'setup'
      WHEN f.command IN ('UNSUBSCRIBE', 'SEEK', 'GET_LAST_MESSAGE_ID', 'GET_SCHEMA') THEN 'request'
    END AS kind
  FROM frame_kinds AS f
  ANTI JOIN twins AS t USING (capture, connection_id)
  WHERE f.protocol = 'pulsar'
),
frame_counts AS (
  SELECT capture, connection_id, command, kind, sum(frames) AS number
  FROM command_kinds
  WHERE kind IS NOT NULL
  GROUP BY capture, connection_id, command, kind
),
command_counts AS (
  SELECT own_capture, own_connection_id, 'MESSAGE' AS command, count(*) AS number
  FROM deliveries
  GROUP BY own_capture, own_connection_id
  UNION ALL
  SELECT own_capture, own_connection_id, request_command, count(*)
  FROM exchanges
  WHERE kind <> 'publish'
  GROUP BY own_capture, own_connection_id, request_command
  UNION ALL
  SELECT capture, connection_id, 'ACK', sum(ack_commands)
  FROM acked_commands
  GROUP BY capture, connection_id
),
row_counts AS (
  SELECT own_capture, own_connection_id, command, max(number) AS number
  FROM command_counts
  GROUP BY own_capture, own_connection_id, command
)
SELECT s.capture, s.kind, sum(s.number - coalesce(k.number, 0)) AS unread
FROM frame_counts AS s
LEFT JOIN row_counts AS k
  ON k.own_capture = s.capture AND k.own_connection_id = s.connection_id AND k.command = s.command
WHERE s.number > coalesce(k.number, 0)
GROUP BY s.capture, s.kind
