-- slow_chains: a slow opening of a producer or consumer, from the first request for its topic
-- first: 50 by chain_ns desc, first_ns, capture, response_frame_no, connection_id, request_frame_no, refused
SELECT
  capture, connection_id, topic, client_ip, opened, first_ns, chain_ns, lookup_ns, connect_took_ns,
  open_ns, lookups, refused, request_frame_no, response_frame_no
FROM chains
