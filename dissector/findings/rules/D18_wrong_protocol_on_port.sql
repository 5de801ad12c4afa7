/*
number = "D18"
code = "wrong_protocol_on_port"
title = "A client speaks another protocol than the broker's port"
severity = "error"
verdict = "proven"
protocol = "pulsar"
section = "connecting"
worst = "measured_connections"
references = ["apache/pulsar#5206", "apache/pulsar#3832", "apache/pulsar#5348", "apache/pulsar#6645", "apache/pulsar#3981", "apache/pulsar#12313", "apache/pulsar#13734"]
fires = []
silent = ["java-j34_http_lookup.pcap", "java-j01_plain.pcap"]

[thresholds.alert_bytes]
value = 7
unit = "bytes"
why = "a TLS alert in clear is a header of 5 bytes, its level and its number; no other answer of TLS is as short"

[thresholds.close_s]
value = 1.0
unit = "s"
why = "a decoder gives up at the first bytes; what waits longer waits for something else (D28)"

[text]
what = "{client_ip} spoke {spoken} to {broker_ip}:{broker_port}, where other connections speak Pulsar in clear: on {connections} connections the broker closed without a byte."
known = "The first bytes of the client are those of {spoken}; on other connections to the same port the broker answered CONNECT (frame {pulsar_there})."
rival = "A port that takes both: then this connection was closed for another reason, such as a certificate."
decides = "The broker's log names a frame length: 369295620 and 369296132 are first bytes of TLS, 1195725860 is GET of HTTP."
do = "Correct scheme, host and port in the client's service URL: pulsar:// with brokerServicePort (6650), pulsar+ssl:// with the TLS port (6651), http:// with the web port (8080). Clients of Kafka, MQTT and AMQP need a protocol handler of the broker, which has a port of its own (kafkaListeners, mqttListeners, amqpListeners)."

[variant.default_port]
verdict = "pattern"
title = "A client speaks another protocol on the port for plain Pulsar"
what = "{client_ip} spoke {spoken} to {broker_ip}:{broker_port}: on {connections} connections the broker closed without a byte."
known = "The first bytes of the client are those of {spoken}, and nothing came back; by convention port 6650 is for Pulsar in clear. No other connection shows what the port speaks."
rival = "A broker that has TLS on this port, and closed for another reason."

[variant.plain_on_tls]
title = "A client speaks Pulsar in clear to a port of TLS"
what = "{client_ip} sent CONNECT in clear to {broker_ip}:{broker_port}, where other connections speak TLS: on {connections} connections the broker closed within {close_s} s and answered nothing of Pulsar."
known = "CONNECT (frame {connect}) is readable; on other connections to the same port the broker answered the client's hello of TLS."
rival = "A broker that stops, or does not take this client, and closes without a word."
decides = "The broker's log at that time: NotSslRecordException."
do = "Use pulsar+ssl:// in the client's service URL, or the port for plain Pulsar."

[variant.alert]
severity = "warning"
title = "A port of Pulsar answered a TLS handshake with an alert"
what = "{client_ip} opened TLS to {broker_ip}:{broker_port} on {connections} connections, and all that it was answered were {alert_bytes} bytes: an alert[, {alert}]."
known = "The client's first bytes are a hello of TLS; an answer as short can be no ServerHello. The port is one of Pulsar's: by convention (6650, 6651), or a broker of this capture names it."
rival = "No shared cipher or version (alerts 40, 70), an unknown server name (112), or a peer that speaks no TLS and sent something else."
decides = "The last of the {alert_bytes} bytes is the alert's number: it is in clear, shortly before packet {ended_packet} of the connection."
do = "Compare TLS versions and ciphers of client and broker; the broker's log names the exception."

[variant.pulsar_alert]
title = "CONNECT in clear was answered with a TLS alert"
what = "{client_ip} sent CONNECT in clear to {broker_ip}:{broker_port}, and all that it got on {connections} connections before the close were {alert_bytes} bytes that are no frame of Pulsar."
known = "CONNECT (frame {connect}) is readable; a frame of Pulsar is longer, and an alert of TLS is as long."
verdict = "pattern"
rival = "Another server that answers something else in {alert_bytes} bytes."
decides = "Whether these bytes begin with 15 03: then the port speaks TLS."
do = "Use pulsar+ssl:// in the client's service URL, or the port for plain Pulsar."

[variant.proxy_header]
title = "A PROXY header that the port does not expect"
what = "{client_ip} began with a PROXY header, which names {proxied_ip} as the client, at {broker_ip}:{broker_port}: on {connections} connections the broker closed without a byte."
known = "The header and what stands behind it[, CONNECT (frame {connect}),] are readable; nothing came back.[ On other connections to the same port, without a header, the broker answered CONNECT (frame {pulsar_there}).]"
verdict = "pattern"
rival = "A broker that stops, or does not take this client, and closes without a word."
decides = "The broker's log names a frame length: 1347571548 is the beginning of a PROXY header, 218762510 that of its second version."
do = "Set haProxyProtocolEnabled=true at the broker or the proxy behind this port, or switch the header off at the balancer."
*/
WITH peers AS ( -- Connections of a protocol without an answer in it.
  SELECT
    c.capture, c.connection_id, c.client_ip, c.broker_ip, c.broker_port, c.protocol, c.first_ts_ns,
    c.last_ts_ns, c.ended_packet, c.proxied_client_ip, c.tls_alert_to_client AS alert,
    CASE
      WHEN c.protocol = 'tls' AND c.stream_bytes_to_client = $alert_bytes THEN 'alert'
      WHEN c.protocol = 'pulsar' AND c.stream_bytes_to_client = $alert_bytes THEN 'pulsar_alert'
      WHEN c.protocol = 'pulsar' AND c.proxied_client_ip IS NOT NULL THEN 'proxy_header'
      WHEN c.protocol = 'pulsar' THEN 'plain_on_tls'
      ELSE ''
    END AS kind
  FROM connections AS c
  ANTI JOIN other_legs AS o USING (capture, connection_id)
  WHERE
    c.protocol IN (
      'tls', 'http', 'pulsar', 'kafka', 'mqtt', 'amqp', 'bookkeeper', 'zookeeper'
    )
    AND c.started = 'syn' AND c.ended IN ('fin', 'rst')
    AND c.gaps_to_client = 0 AND c.stream_bytes_to_broker > 0
    AND c.packets_to_client > 0
    AND (
      (c.stream_bytes_to_client = 0 AND c.closed_first_by = 'broker')
      OR c.stream_bytes_to_client = $alert_bytes
    )
    AND (
      c.protocol <> 'pulsar' OR (
        c.frames_to_broker = 1 AND c.frames_to_client = 0
        AND c.last_ts_ns - c.first_ts_ns <= $close_s * 1000000000
      )
    )
),
port_protocols AS ( -- The protocols seen on a port.
  SELECT
    c.capture, c.broker_ip, c.broker_port,
    max(CASE WHEN c.protocol = 'pulsar' AND c.frames_to_client > 0 THEN 1 ELSE 0 END) AS is_pulsar,
    max(
      CASE WHEN c.protocol = 'tls' AND c.stream_bytes_to_client > $alert_bytes THEN 1 ELSE 0 END
    ) AS is_tls,
    min(
      CASE WHEN c.protocol = 'pulsar' AND c.frames_to_client > 0 THEN c.connection_id END
    ) AS pulsar_connection
  FROM connections AS c
  WHERE c.protocol IN ('pulsar', 'tls')
  GROUP BY c.capture, c.broker_ip, c.broker_port
),
tls_ports AS ( -- Ports that LOOKUP_RESPONSEs of the capture name for TLS.
  SELECT DISTINCT
    f.capture, regexp_extract(f.detail, '"pulsar[+]ssl://[^"]*:([0-9]+)/?"', 1) AS port
  FROM frames AS f
  WHERE f.command = 'LOOKUP_RESPONSE' AND f.detail LIKE '%pulsar+ssl://%'
),
assessments AS (
  SELECT
    p.*, s.pulsar_connection,
    CASE
      WHEN p.kind <> '' THEN p.kind
      WHEN s.is_pulsar = 1 THEN ''
      ELSE 'default_port'
    END AS variant
  FROM peers AS p
  LEFT JOIN port_protocols AS s
    ON s.capture = p.capture AND s.broker_ip = p.broker_ip AND s.broker_port = p.broker_port
  LEFT JOIN tls_ports AS n ON n.capture = p.capture AND n.port = CAST(p.broker_port AS STRING)
  WHERE
    CASE
      WHEN p.kind IN ('pulsar_alert', 'proxy_header') THEN TRUE
      -- Any server may answer like this, so only ports of Pulsar are judged.
      WHEN p.kind = 'alert'
        THEN p.broker_port IN (6650, 6651) OR s.is_pulsar = 1 OR n.port IS NOT NULL
      WHEN p.kind = 'plain_on_tls' THEN s.is_tls = 1 AND s.is_pulsar = 0
      ELSE s.is_pulsar = 1 OR (p.broker_port = 6650 AND coalesce(s.is_tls, 0) = 0)
    END
)
SELECT
  j.capture, min(j.first_ts_ns) AS first_ns, max(j.last_ts_ns) AS last_ns, j.variant,
  j.client_ip AS subject_client_ip, j.broker_ip AS subject_broker_ip,
  CAST(j.broker_port AS STRING) AS subject_broker_port,
  CASE j.protocol
    WHEN 'pulsar' THEN 'Pulsar'
    WHEN 'kafka' THEN 'Kafka'
    WHEN 'bookkeeper' THEN 'BookKeeper'
    WHEN 'zookeeper' THEN 'ZooKeeper'
    ELSE upper(j.protocol)
  END AS subject_spoken,
  count(DISTINCT j.connection_id) AS measured_connections,
  min(j.alert) AS measured_alert, max(j.ended_packet) AS measured_ended_packet, min(j.proxied_client_ip) AS measured_proxied_ip,
  min(own.request_frame_no) AS frame_connect, min(e.request_frame_no) AS frame_pulsar_there
FROM assessments AS j
LEFT JOIN exchanges AS own
  ON own.capture = j.capture AND own.connection_id = j.connection_id
  AND own.request_command = 'CONNECT'
LEFT JOIN exchanges AS e
  ON e.capture = j.capture AND e.connection_id = j.pulsar_connection
  AND e.request_command = 'CONNECT' AND e.outcome = 'ok'
GROUP BY j.capture, j.variant, j.client_ip, j.broker_ip, j.broker_port, j.protocol
