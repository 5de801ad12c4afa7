/*
number = "D20"
code = "keepalive_close"
title = "A connection was given up because PINGs were not answered"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "connecting"
worst = "measured_unanswered_s"
references = ["apache/pulsar#14180", "apache/pulsar#13363", "apache/pulsar PR 13538", "apache/pulsar-client-cpp#479", "apache/pulsar-client-cpp#480"]
fires = ["live-stopped_client.pcap"]
real = ["live-stopped_client.pcap"]
silent = ["java-j36_keepalive.pcap", "cpp-s18_keepalive.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind = 'ping' AND (outcome = 'conn_closed' OR slowest_ns >= $unanswered_s * 1000000000)"

[thresholds.unanswered_s]
value = 25.0
unit = "s"
why = "clients and brokers send a PING every 30 s and look at the next one whether it was answered"

[ruled_out]
network = "that the PING was lost on its way: its bytes were not sent again, so that the other side's kernel acknowledged them"
idle = "that the other side was silent altogether: frames came from it behind the PING"

[text]
what = "The {giver_up} closed the connection of {client_ip} to {broker_ip}: its PING had no PONG for {unanswered_s} s. Of its {pings_sent} PINGs on the connection {pings_answered} {pings_answered|was|were} answered[, the slowest after {max_pong_ms} ms]."
known = "The PING (frame {ping}), no PONG behind it, and that the {giver_up} closed first are in the capture, which has no hole in this connection."
rival = "Frames that the capturing side dropped without a trace in the TCP sequence: then other connections show gaps."
decides = "Whether the other side's log shows the PING as received."
do = "Look at the side that did not answer: was it stopped, collecting garbage, or not reading?"

[variant.peer_tcp_alive]
title = "A process stopped answering while its host went on"
what = "The {giver_up} closed the connection of {client_ip} to {broker_ip}: its PING had no PONG for {unanswered_s} s, and no frame came back meanwhile. Of its {pings_sent} PINGs on the connection {pings_answered} {pings_answered|was|were} answered[, the slowest after {max_pong_ms} ms]."
known = "The PING (frame {ping}) was not sent again, so that the other host's TCP took it; its process said nothing until the {giver_up} closed."
rival = "A process that is stopped or collects garbage, or a broker that pauses reading from this connection (publish-rate limits)."
decides = "A thread dump or the pause log of the silent process at that time; for a broker, whether MESSAGEs went on to others."
do = "Look at the process that did not answer, not at the network."

[variant.ping_but_no_pong]
title = "A side that lives never answers PINGs"
what = "The {giver_up} closed the connection of {client_ip} to {broker_ip}: its PING had no PONG for {unanswered_s} s although {frames_behind} frames came from the other side behind it ({pings_behind} of them PINGs of its own)."
known = "The PING (frame {ping}), the frames behind it and the close are in the capture."
rival = "A side that answers late because its writes are stuck behind much else."
decides = "Whether it ever answered a PING on this connection: {pings_answered} of {pings_sent} here."
do = "Look at the version of the silent side: C++ clients up to 3.7.0 took any frame for life, clients whose write loop is stuck send no PONG."

[variant.answered_too_late]
verdict = "pattern"
title = "A process stood still until its connection was given up, and answered then"
what = "The {giver_up} closed the connection of {client_ip} to {broker_ip}; the PONG to its PING came behind the close, {unanswered_s} s after the PING."
known = "The PING (frame {ping}), the close and the PONG behind it (frame {late_pong}) are in the capture, which has no hole in this connection."
rival = "A close for another reason, such as a restart, while the other process stood still."
decides = "The pause log of the process that answered late, and the reason that the log of the {giver_up} gives for the close."
do = "Look at the process that answered late: was it stopped, suspended with its host, or collecting garbage?"

[variant.peer_gone]
severity = "warning"
title = "A connection was given up because the other host did not answer"
what = "The {giver_up} closed the connection of {client_ip} to {broker_ip}: its PING had no PONG for {unanswered_s} s, no frame came back, and {retransmitted} packets of the connection had to be sent again."
known = "The PING (frame {ping}), the packets sent again and the close are in the capture."
rival = "A path that loses packets of one direction, or a firewall that forgot the connection."
decides = "Whether the other host took part in other connections at that time."
do = "Look at the path between both, and at the other host's uptime."
*/
WITH pings AS ( -- PINGs without a PONG, or with one long after the close.
  SELECT
    e.capture, e.connection_id, e.request_frame_no, e.request_last_ns,
    coalesce(e.response_last_ns, l.last_ts_ns) AS end_ns, e.response_frame_no AS pong_no,
    l.client_ip, l.broker_ip, l.closed_first_by AS giver_up,
    CASE l.closed_first_by WHEN 'client' THEN 'to_broker' ELSE 'to_client' END AS direction,
    CASE l.closed_first_by
      WHEN 'client' THEN c.retransmitted_packets_to_broker
      ELSE c.retransmitted_packets_to_client
    END AS retransmitted
  FROM exchanges AS e
  JOIN pulsar_links AS l
    ON l.capture = e.capture AND l.connection_id = e.connection_id AND l.ended IN ('fin', 'rst')
    AND l.closed_first_by IS NOT NULL
  JOIN connections AS c
    ON c.capture = e.capture AND c.connection_id = e.connection_id
    AND c.packets_to_broker > 0 AND c.packets_to_client > 0
  LEFT JOIN frames AS r
    ON r.capture = e.capture AND r.connection_id = e.connection_id
    AND r.frame_no = e.response_frame_no AND r.command = 'PONG'
  WHERE
    e.kind = 'ping' AND e.request_command = 'PING'
    AND (
      e.outcome = 'conn_closed'
      OR e.outcome = 'ok'
      AND r.first_packet > CASE l.closed_first_by
        WHEN 'client' THEN c.fin_packet_to_broker
        ELSE c.fin_packet_to_client
      END
    )
    AND coalesce(e.response_last_ns, l.last_ts_ns) - e.request_last_ns
    >= $unanswered_s * 1000000000
),
first_unanswered AS ( -- The first one from the side that closed.
  SELECT
    p.capture, p.connection_id, p.client_ip, p.broker_ip, p.giver_up, p.direction,
    p.retransmitted, min(p.request_frame_no) AS ping_no, min(p.request_last_ns) AS ping_ns,
    max(p.end_ns) AS end_ns, max(p.pong_no) AS pong_no
  FROM pings AS p
  JOIN frames AS f
    ON f.capture = p.capture AND f.connection_id = p.connection_id
    AND f.frame_no = p.request_frame_no AND f.direction = p.direction AND f.command = 'PING'
  GROUP BY ALL
),
later_traffic AS (
  SELECT
    g.capture, g.connection_id, g.ping_no, g.ping_ns, g.pong_no, g.end_ns, g.client_ip,
    g.broker_ip, g.giver_up, g.retransmitted,
    count(*) FILTER (WHERE f.direction <> g.direction AND f.frame_no > g.ping_no) AS frames_behind,
    count(*) FILTER (
      WHERE f.direction <> g.direction AND f.frame_no > g.ping_no AND f.command = 'PING'
    ) AS pings_behind,
    count(*) FILTER (
      WHERE f.direction <> g.direction AND f.frame_no > g.ping_no AND f.command = 'PONG'
    ) AS pongs_behind,
    max(f.frame_no) FILTER (
      WHERE f.direction <> g.direction AND (g.pong_no IS NULL OR f.frame_no < g.ping_no)
    ) AS last_received,
    max(CASE WHEN f.direction = g.direction THEN f.frame_no END) AS last_said
  FROM first_unanswered AS g
  JOIN frames AS f USING (capture, connection_id)
  GROUP BY
    g.capture, g.connection_id, g.ping_no, g.ping_ns, g.pong_no, g.end_ns, g.client_ip,
    g.broker_ip, g.giver_up, g.retransmitted, g.direction
),
ping_counts AS ( -- The PINGs of the side that closed.
  SELECT
    b.capture, b.connection_id, count(*) AS sent, count(e.latency_ns) AS answered,
    max(e.latency_ns) AS slowest_ns
  FROM later_traffic AS b
  JOIN exchanges AS e
    ON e.capture = b.capture AND e.connection_id = b.connection_id AND e.kind = 'ping'
  JOIN frames AS f
    ON f.capture = e.capture AND f.connection_id = e.connection_id
    AND f.frame_no = e.request_frame_no AND f.command = 'PING'
  WHERE f.direction = CASE b.giver_up WHEN 'client' THEN 'to_broker' ELSE 'to_client' END
  GROUP BY b.capture, b.connection_id
)
SELECT
  b.capture, b.ping_ns AS first_ns, b.end_ns AS last_ns,
  CASE
    WHEN b.pong_no IS NOT NULL THEN 'answered_too_late'
    WHEN b.frames_behind > 0 THEN 'ping_but_no_pong'
    WHEN b.retransmitted = 0 THEN 'peer_tcp_alive'
    ELSE 'peer_gone'
  END AS variant,
  b.client_ip AS subject_client_ip, b.broker_ip AS subject_broker_ip,
  b.giver_up AS subject_giver_up,
  (b.end_ns - b.ping_ns) / 1e9 AS measured_unanswered_s,
  p.sent AS measured_pings_sent, p.answered AS measured_pings_answered,
  p.slowest_ns / 1e6 AS measured_max_pong_ms, b.frames_behind AS measured_frames_behind,
  b.pings_behind AS measured_pings_behind, b.retransmitted AS measured_retransmitted,
  b.retransmitted = 0 AS ruled_out_network,
  b.frames_behind > 0 AND b.pong_no IS NULL AS ruled_out_idle,
  b.ping_no AS frame_ping, b.last_received AS frame_last_of_the_silent_side,
  b.last_said AS frame_last_of_the_other_side, b.pong_no AS frame_late_pong
FROM later_traffic AS b
JOIN ping_counts AS p USING (capture, connection_id)
WHERE b.pongs_behind = 0 OR b.pong_no IS NOT NULL
