-- links: a connection that is no twin: its peers, their versions, and who closed it first
-- first: 1000 by frames desc, first_ts_ns, connection_id, capture
SELECT
  c.capture, c.connection_id, c.protocol, c.client_ip, c.client_port, c.broker_ip, c.broker_port,
  c.client_version, c.server_version, c.protocol_version, c.feature_flags, c.started, c.ended,
  c.closed_first_by, c.first_ts_ns, c.last_ts_ns, c.frames_to_broker, c.frames_to_client,
  coalesce(c.frames_to_broker, 0) + coalesce(c.frames_to_client, 0) AS frames
FROM connections AS c
ANTI JOIN twins AS t USING (capture, connection_id)
