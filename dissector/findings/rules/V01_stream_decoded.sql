/*
number = "V01"
code = "stream_decoded"
title = "What of the streams could be read"
severity = "ok"
section = "coverage"
fires = ["var-snaplen96.pcap", "java-j35_tls.pcap"]
silent = ["java-j01_plain.pcap"]

[thresholds.enough]
value = 0.99
unit = "of the stream"
why = "what is lacking then hardly moves a number"

[text]
what = "{share:share} of the TCP stream ({readable_bytes:size}) is decoded; [{no_gaps}][{gaps} gaps of {gap_bytes:size} in all][{and_cut}{cut_bytes:size} {cut_how}][{and_unused}{unused_bytes:size} outside their streams not used].[ Left out: connections of other protocols ({others:counts}), {other_bytes:size}.][ {http} connections {http|speaks|speak} HTTP{http_rest}.][ {tls} connections {tls|is|are} encrypted by TLS and cannot be decoded.][ {strange} connections {strange|speaks|speak} an unknown protocol.][ {lossy}][ {nothing}][ Beside it, {unfinished_frames} frames of {unfinished} connections {unfinished_frames|is|are} decoded whose row comes at the end of the connection.]"

[variant.unused]
severity = "warning"
do = "Look at payload that came after the end of its connection, or far outside it."
show = "connections dropped_bytes_to_broker > 0 or dropped_bytes_to_client > 0"

[variant.tls]
severity = "warning"
do = "Give the key log of the clients (--keylog FILE), which opens connections that were captured from their beginning, or capture where the traffic is plain: behind the proxy that ends TLS, or on a listener without it."
show = "$ tcpdump -s 0 -i INTERFACE -w night.pcap port 6650"

[variant.gaps]
severity = "warning"
do = "Capture nearer to the traffic or with a larger buffer (tcpdump -B 65536)."
show = "connections gap_bytes_to_broker > 0 or gap_bytes_to_client > 0"

[variant.cut]
severity = "warning"
do = "Capture whole packets."
show = "$ tcpdump -s 0 -i INTERFACE -w night.pcap port 6650"

[variant.shortened]
severity = "warning"
do = "Let the mirror, switch or tool that shortened the packets pass them whole."

[variant.strange]
severity = "warning"
do = "Name the port if it is one of Pulsar (-d 6655=pulsar) or Cursus (-d 9000=cursus)."
show = "connections protocol == \"unknown\""

[variant.not_recognised]
severity = "warning"
do = "Check interface, filter and ports of the capture."
show = "connections"

[variant.damaged]
severity = "warning"
do = "Look at frames that are not whole."
show = "frames status != \"complete\""

[variant.open]
severity = "info"
what = "{unfinished_frames} frames of {unfinished} connections {unfinished_frames|is|are} decoded whose row comes at the end of the connection. How much of the stream that is, is not known before."
do = "Ask again when connections have ended, or the tap has."

[variant.nothing]
severity = "warning"
what = "Nothing could be decoded: {packets} packets, {segments} of TCP among them[, with {unused_bytes:size} of payload that fit no stream].[ {tls} connections {tls|is|are} encrypted by TLS and cannot be decoded.][ Left out: connections of other protocols ({others:counts}), {other_bytes:size}.][ Not read: {unread:counts}.][ {nothing}]"
do = "Check interface, filter and time of the capture."
show = "connections"

[variant.empty]
severity = "info"
what = "No packet was captured: there is nothing to judge."
do = "If there was to be traffic, check interface, filter and time of the capture."

[variant.wrapped]
like = "nothing"
do = "Capture where the traffic is not wrapped so, or unwrap it before it is read."
show = ""
*/
WITH numbers AS (
  SELECT
    place, stream_bytes - other_protocols_bytes AS readable,
    coalesce(connections_by_protocol['unknown'], 0) AS strange,
    decoded_share_of_recognised AS recognised, total.*
  FROM (SELECT place, unnest(coverage.total) FROM totals) AS total
)
SELECT
  place,
  CASE
    WHEN readable > 0 THEN CASE
      WHEN decoded_share >= $enough OR (recognised >= $enough AND strange = 0) THEN CASE
        WHEN dropped_bytes > 0 THEN 'unused'
        WHEN tls_opaque_connections > 0 THEN 'tls'
        WHEN coalesce(recognised, 0) = 0 THEN 'not_recognised'
        ELSE ''
      END
      WHEN shortened_bytes > 0 AND shortened_bytes >= snaplen_cut_bytes THEN 'shortened'
      WHEN snaplen_cut_bytes > 0 THEN 'cut'
      WHEN gaps > 0 THEN 'gaps'
      WHEN strange > 0 THEN 'strange'
      WHEN tls_opaque_connections > 0 THEN 'tls'
      ELSE 'damaged'
    END
    WHEN packets = 0 THEN 'empty'
    WHEN unfinished_connections > 0 THEN 'open'
    WHEN len(map_keys(packets_unread_by_kind)) > 0 THEN 'wrapped'
    ELSE 'nothing'
  END AS variant,
  decoded_share AS measured_share, readable AS measured_readable_bytes,
  CASE WHEN gaps + snaplen_cut_bytes + dropped_bytes = 0 THEN 'no gaps' END AS measured_no_gaps,
  nullif(gaps, 0) AS measured_gaps, gap_bytes AS measured_gap_bytes,
  CASE WHEN gaps > 0 THEN ' and ' ELSE '' END AS measured_and_cut,
  nullif(snaplen_cut_bytes, 0) AS measured_cut_bytes,
  CASE
    WHEN shortened_bytes = 0 THEN 'cut by the snap length'
    WHEN shortened_bytes < snaplen_cut_bytes
      THEN 'cut by the snap length or missing from packets that are shorter than they say'
    ELSE 'missing from packets that are shorter than their IP header says'
  END AS measured_cut_how,
  CASE WHEN gaps + snaplen_cut_bytes > 0 THEN ' and ' ELSE '' END AS measured_and_unused,
  nullif(dropped_bytes, 0) AS measured_unused_bytes,
  CASE
    WHEN other_protocols_bytes > 0 THEN map_from_entries(list_filter(
      map_entries(connections_by_protocol),
      lambda e:
      NOT list_contains(['pulsar', 'cursus', 'tls', 'http', 'unknown', 'none'], e.key)
    ))
  END AS measured_others,
  other_protocols_bytes AS measured_other_bytes,
  connections_by_protocol['http'] AS measured_http,
  CASE
    WHEN decoded_share < $enough AND recognised >= $enough AND strange = 0
      THEN ', which explains the rest'
    ELSE ''
  END AS measured_http_rest,
  nullif(tls_opaque_connections, 0) AS measured_tls, nullif(strange, 0) AS measured_strange,
  CASE
    WHEN decoded_share < $enough AND gaps + snaplen_cut_bytes > 0
      THEN 'What follows counts only what was seen.'
  END AS measured_lossy,
  CASE
    WHEN frames = 0
      THEN 'No frame of Pulsar or Cursus was decoded: nothing else can be judged.'
  END AS measured_nothing,
  unfinished_frames AS measured_unfinished_frames,
  nullif(unfinished_connections, 0) AS measured_unfinished,
  packets AS measured_packets, packets_tcp AS measured_segments,
  packets_unread_by_kind AS measured_unread
FROM numbers
