/*
number = "D28"
code = "connect_unanswered"
title = "CONNECT was never answered"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "connecting"
worst = "measured_connections"
references = ["apache/pulsar#14831", "apache/pulsar#14075", "apache/pulsar PR 14078", "apache/pulsar#10721"]
fires = []
silent = ["fake-f11_auth_challenge.pcap", "cpp-s14_reconnect.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "request_command = 'CONNECT' AND outcome IN ('conn_closed', 'unanswered_at_end', 'other_side_not_captured')"

[thresholds.silent_s]
value = 5.0
unit = "s"
why = "a broker that is well answers CONNECT within milliseconds, with a slow authentication within a second"

[thresholds.loop_opens]
value = 3
unit = "connections"
why = "one could be a broker that was just starting"

[thresholds.window_s]
value = 60.0
unit = "s"
why = "clients give up after 10 s by default: three fit into a minute"

[ruled_out]
network = "that CONNECT was lost on its way: its bytes were not sent again"

[text]
what = "{client_ip} sent CONNECT to {broker_ip}:{broker_port} on {connections} connections and got no frame back; the longest wait was {longest_s} s. {closed_by_client} of the connections {closed_by_client|was|were} closed first by the client."
known = "TCP was open on both sides, CONNECT (frame {connect}) is in the capture, and packets came back; nothing of Pulsar came back until the connection, or the capture, ended."
rival = "A process that is stopped while its kernel goes on accepting, or a proxy that cannot reach its broker."
decides = "A thread dump of the process behind this address, or, for a proxy, its connection to the broker: {twins_seen} of these connections {twins_seen|has its|have their} other leg in the capture."
do = "Look at the process that accepts, and at its free ports and threads; set a connection timeout in the client."

[variant.proxy_timeout]
title = "CONNECT is not answered, and the connection ends after ten seconds again and again"
what = "{client_ip} sent CONNECT to {broker_ip}:{broker_port} on {connections} connections, {closest_opens} of them within {closest_s} s, and got no frame back; the connections ended after {shortest_s} to {longest_s} s."
rival = "Clients with a connection timeout of ten seconds to a broker that is stopped: who closed first tells ({closed_by_client} times the client)."

[variant.waits_on]
title = "CONNECT is not answered, and the client waits on"
what = "{client_ip} sent CONNECT to {broker_ip}:{broker_port} on {connections} connections, got no frame back, and still waits at the capture's end, after {longest_s} s at the longest."
*/
WITH connects AS (
  SELECT
    e.capture, e.connection_id, e.request_frame_no, e.request_last_ns, l.client_ip, l.broker_ip,
    l.broker_port, l.last_ts_ns, l.ended, l.closed_first_by, c.twin_connection_id,
    c.retransmitted_packets_to_broker AS sent_again,
    CASE WHEN l.ended = 'capture_end' THEN x.end_ns ELSE l.last_ts_ns END AS end_ns
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN connections AS c USING (capture, connection_id)
  JOIN (
    SELECT capture, max(last_ts_ns) AS end_ns FROM connections GROUP BY capture
  ) AS x USING (capture)
  WHERE
    e.request_command = 'CONNECT' AND l.started = 'syn'
    AND e.outcome IN ('conn_closed', 'unanswered_at_end', 'other_side_not_captured')
    -- SYN-ACK and the ACK of CONNECT were captured: so is the broker's direction.
    AND c.frames_to_client = 0 AND c.stream_bytes_to_client = 0 AND c.packets_to_client > 1
),
slow_connects AS (
  SELECT
    a.*, a.end_ns - a.request_last_ns AS waited_ns,
    lead(a.request_last_ns, CAST($loop_opens - 1 AS INT)) OVER (
      PARTITION BY a.capture, a.client_ip, a.broker_ip, a.broker_port
      ORDER BY a.request_last_ns, a.request_frame_no
    ) - a.request_last_ns AS loop_ns
  FROM connects AS a
  WHERE a.end_ns - a.request_last_ns >= $silent_s * 1000000000
)
SELECT
  s.capture, min(s.request_last_ns) AS first_ns, max(s.end_ns) AS last_ns,
  CASE
    WHEN
      min(s.loop_ns) <= $window_s * 1000000000 AND min(s.waited_ns) >= 8000000000
      AND max(s.waited_ns) <= 12000000000 THEN 'proxy_timeout'
    WHEN count(CASE WHEN s.ended <> 'capture_end' THEN 1 END) = 0 THEN 'waits_on'
    ELSE ''
  END AS variant,
  s.client_ip AS subject_client_ip, s.broker_ip AS subject_broker_ip,
  CAST(s.broker_port AS STRING) AS subject_broker_port, count(*) AS measured_connections,
  count(CASE WHEN s.closed_first_by = 'client' THEN 1 END) AS measured_closed_by_client,
  count(CASE WHEN s.twin_connection_id >= 0 THEN 1 END) AS measured_twins_seen,
  CAST($loop_opens AS BIGINT) AS measured_closest_opens, min(s.loop_ns) / 1e9 AS measured_closest_s,
  min(s.waited_ns) / 1e9 AS measured_shortest_s, max(s.waited_ns) / 1e9 AS measured_longest_s,
  max(s.sent_again) = 0 AS ruled_out_network,
  min(s.request_frame_no) AS frame_connect, max(s.request_frame_no) AS frame_last_connect
FROM slow_connects AS s
GROUP BY s.capture, s.client_ip, s.broker_ip, s.broker_port
