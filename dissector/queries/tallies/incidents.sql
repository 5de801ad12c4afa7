-- incidents: a request that was refused repeatedly
-- first: 500 by answers desc, first_ns, capture, response_frame_no, connection_id
WITH incidents AS (
  SELECT
    max(CASE WHEN begins = 1 THEN capture END) AS capture,
    max(CASE WHEN begins = 1 THEN connection_id END) AS connection_id,
    max(CASE WHEN begins = 1 THEN request_command END) AS request_command,
    max(CASE WHEN begins = 1 THEN response_command END) AS response_command,
    error_code, topic, subscription,
    max(CASE WHEN begins = 1 THEN error_text END) AS error_text,
    count(*) AS answers,
    count(DISTINCT concat(head_capture, ' ', CAST(head_connection_id AS STRING))) AS connections,
    count(DISTINCT coalesce(client_ip, '')) AS clients,
    min(at_ns) AS first_ns,
    max(at_ns) AS last_ns,
    max(CASE WHEN begins = 1 THEN request_frame_no END) AS request_frame_no,
    max(CASE WHEN begins = 1 THEN response_frame_no END) AS response_frame_no
  FROM refusals
  GROUP BY
    unit, request_of, error_code, topic, subscription, of_producer, of_sequence_id, of_client,
    incident_no
),
ranked AS (
  SELECT
    i.*,
    row_number() OVER (
      PARTITION BY i.capture
      ORDER BY
        i.answers DESC, i.first_ns ASC, i.response_frame_no ASC NULLS LAST, i.connection_id ASC
    ) AS place
  FROM incidents AS i
)
SELECT
  r.capture, r.connection_id, r.request_command, r.response_command, r.error_code, r.topic,
  r.subscription, r.error_text, r.answers, r.connections, r.clients, r.first_ns, r.last_ns,
  r.request_frame_no, r.response_frame_no, f.last_packet AS packet
FROM ranked AS r
LEFT JOIN frames AS f
  ON f.capture = r.capture AND f.connection_id = r.connection_id
  AND f.frame_no = r.response_frame_no
WHERE r.place <= 500
