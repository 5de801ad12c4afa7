-- connections: connections by protocol, beginning and end, with the sums of both directions
-- keys: capture, protocol, started, ended
-- sums: connections, payload_bytes, stream_bytes, decoded_bytes, gaps, gap_bytes,
--   snaplen_cut_bytes, dropped_bytes, conflict_bytes, unparsed_bytes, retransmitted_packets,
--   duplicate_packets, out_of_order_packets
SELECT
  capture, protocol, started, ended,
  count(*) AS connections,
  sum(coalesce(payload_bytes_to_broker, 0) + coalesce(payload_bytes_to_client, 0))
    AS payload_bytes,
  -- Of TLS that was decrypted: the plain stream.
  sum(
    coalesce(stream_bytes_to_broker, 0) - coalesce(tls_overhead_bytes_to_broker, 0)
    + coalesce(stream_bytes_to_client, 0) - coalesce(tls_overhead_bytes_to_client, 0)
  ) AS stream_bytes,
  sum(coalesce(decoded_bytes_to_broker, 0) + coalesce(decoded_bytes_to_client, 0))
    AS decoded_bytes,
  sum(coalesce(gaps_to_broker, 0) + coalesce(gaps_to_client, 0)) AS gaps,
  sum(coalesce(gap_bytes_to_broker, 0) + coalesce(gap_bytes_to_client, 0)) AS gap_bytes,
  sum(coalesce(snaplen_cut_bytes_to_broker, 0) + coalesce(snaplen_cut_bytes_to_client, 0))
    AS snaplen_cut_bytes,
  sum(coalesce(dropped_bytes_to_broker, 0) + coalesce(dropped_bytes_to_client, 0))
    AS dropped_bytes,
  sum(coalesce(conflict_bytes_to_broker, 0) + coalesce(conflict_bytes_to_client, 0))
    AS conflict_bytes,
  sum(coalesce(unparsed_bytes_to_broker, 0) + coalesce(unparsed_bytes_to_client, 0))
    AS unparsed_bytes,
  sum(coalesce(retransmitted_packets_to_broker, 0) + coalesce(retransmitted_packets_to_client, 0))
    AS retransmitted_packets,
  sum(coalesce(duplicate_packets_to_broker, 0) + coalesce(duplicate_packets_to_client, 0))
    AS duplicate_packets,
  sum(coalesce(out_of_order_packets_to_broker, 0) + coalesce(out_of_order_packets_to_client, 0))
    AS out_of_order_packets
FROM connections
GROUP BY capture, protocol, started, ended
