-- Views of who talks to whom, for the rules of findings (dissector/findings/rules).

-- pulsar_links: a connection of Pulsar that counts, and that was captured without a hole
SELECT
  c.capture, c.connection_id, c.client_ip, c.client_port, c.broker_ip, c.broker_port,
  c.client_version, c.server_version, c.protocol_version, c.started, c.ended, c.closed_first_by,
  c.first_ts_ns, c.last_ts_ns
FROM connections AS c
ANTI JOIN twins AS t ON t.capture = c.capture AND t.connection_id = c.connection_id
WHERE c.protocol = 'pulsar' AND c.gaps_to_broker = 0 AND c.gaps_to_client = 0;

-- pulsar_opens: a PRODUCER or SUBSCRIBE on such a connection, with its answer, as one subject
-- kind: producer or consumer; its id and incarnation are of the connection, clients use ids again.
SELECT
  o.*, l.client_ip, l.client_port, l.broker_ip, l.client_version, l.server_version,
  l.closed_first_by, l.ended, l.last_ts_ns AS link_last_ns,
  e.request_last_ns AS opened_ns, e.response_last_ns AS answered_ns, e.outcome
FROM (
  SELECT
    'producer' AS kind, p.capture, p.connection_id, p.producer_id AS id, p.incarnation, p.topic,
    p.name, CAST(NULL AS STRING) AS subscription, CAST(NULL AS STRING) AS subscription_type,
    p.opened_frame_no, p.ready_frame_no, p.closed_frame_no, p.closed_by, p.refused_code
  FROM producers AS p
  WHERE p.opened_frame_no IS NOT NULL
  UNION ALL
  SELECT
    'consumer' AS kind, c.capture, c.connection_id, c.consumer_id AS id, c.incarnation, c.topic,
    c.name, c.subscription, c.subscription_type,
    c.opened_frame_no, c.ready_frame_no, c.closed_frame_no, c.closed_by, c.refused_code
  FROM consumers AS c
  WHERE c.opened_frame_no IS NOT NULL
) AS o
JOIN pulsar_links AS l ON l.capture = o.capture AND l.connection_id = o.connection_id
LEFT JOIN exchanges AS e
  ON e.capture = o.capture AND e.connection_id = o.connection_id AND e.kind = 'request'
  AND e.request_command IN ('PRODUCER', 'SUBSCRIBE') AND e.request_frame_no = o.opened_frame_no;

-- pulsar_consumers: a consumer on such a connection, whether or not its SUBSCRIBE was captured
SELECT
  c.capture, c.connection_id, c.consumer_id, c.incarnation, c.topic, c.subscription,
  c.subscription_type, c.name AS consumer_name, c.priority_level, c.first_flow_permits,
  c.opened_frame_no, c.ready_frame_no, c.closed_frame_no, c.closed_by,
  l.client_ip, l.broker_ip, l.client_version, l.server_version
FROM consumers AS c
JOIN pulsar_links AS l ON l.capture = c.capture AND l.connection_id = c.connection_id;
