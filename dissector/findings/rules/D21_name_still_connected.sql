/*
number = "D21"
code = "name_still_connected"
title = "A name or a subscription is taken"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "errors"
worst = "measured_refusals"
references = ["apache/pulsar#13342", "apache/pulsar#13363", "apache/pulsar#15885", "apache/pulsar#7140", "apache/pulsar PR 21144", "apache/pulsar PR 20026", "apache/pulsar-client-python#155", "apache/pulsar-client-cpp#235"]
errors = ["ProducerBusy", "ConsumerBusy", "ProducerFenced", "ConsumerAssignError"]
fires = ["t04-sticky-range-conflict.pcap", "java-j23_errors.pcap", "cpp-s15_errors.pcap"]
real = ["java-j23_errors.pcap", "cpp-s15_errors.pcap"]
silent = ["t04-sticky-range-twin.pcap", "java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[needs]
exchange_kinds = "error_code IN ('ProducerBusy', 'ConsumerBusy', 'ProducerFenced', 'ConsumerAssignError')"

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a single refusal is what a second application meets at once; refused for longer, a client is kept out"

[thresholds.silent_s]
value = 30.0
unit = "s"
why = "clients send a PING every 30 s: one that lives is not silent for longer"

[thresholds.forgotten_s]
value = 120.0
unit = "s"
why = "brokers give up a silent connection after two intervals of keep-alive, 60 s by default, 200 s where they are long"

[text]
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}, '{error_text}'. Its owner: {owner}."
known = "The refusal and the open of the owner (frame {owner_open}) are in the capture, and no close of it before."
rival = "A owner that was about to close: a client that connects again may meet its own earlier connection for a moment."
decides = "The broker's statistics of the topic: address and age of its producers and consumers."
do = "Open a name once, and give each process its own name or subscription."

[variant.not_in_capture_once]
title = "A name or a subscription is taken, by whom is not in the capture"
known = "The refusal is in the capture, an open that could own the name is not."
rival = "Another host that owns the name by right, or the client's own earlier connection from before the capture."

[variant.own_half_open]
severity = "error"
verdict = "pattern"
title = "A client is kept out by its own dead connection"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}. The owner is an earlier connection of the same address, from port {owner_port}, that the broker has not given up: nothing of its client had come for {owner_silent_s} s at the last refusal."
known = "The owner's open (frame {owner_open}) and its last frame (frame {owner_last}) are in the capture, on another connection than the refused one."
rival = "Another process on the same host that owns the name and is idle."
decides = "Whether the process behind port {owner_port} still runs."
do = "Wait until the broker's keep-alive ends the old connection (60 s behind its last frame by default); see what ate its FIN, and set equal keep-alive intervals on both sides."

[variant.own_second_connection]
severity = "warning"
title = "A client is kept out by another connection of the same address"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}. The owner is another connection of the same address, from port {owner_port}, which is alive: its client had last sent {owner_silent_s} s before the last refusal."
known = "The owner's open (frame {owner_open}) and its last frame before the last refusal (frame {owner_last}) are in the capture."
rival = "Two processes on one host, or one client that opened two connections to the broker."
decides = "Which process owns port {owner_port}."
do = "Give each process its own name or subscription, or use a type that takes several consumers."

[variant.own_connection]
severity = "warning"
title = "A client opens what it holds already"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}. The owner was opened on the same connection (frame {owner_open}) and never closed."
known = "Both opens are in the capture, on one connection, and no close between them."
rival = "None on the wire: one process did both."
decides = "Where in the application the name is opened twice."
do = "Close the first producer or consumer before opening it again, or share it."

[variant.other_host]
severity = "error"
title = "A client is kept out by another host"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}. The owner is {owner_ip}, port {owner_port}."
known = "The owner's open (frame {owner_open}) is in the capture, and no close of it before the refusal."
rival = "Two addresses of one process, or a proxy in front of one of them."
decides = "Whether both hosts are meant to run the same application: pods that replace each other overlap for a while."
do = "Give each host its own name or subscription; for a Failover of processes use Failover or WaitForExclusive, which wait instead of being refused."

[variant.other_half_open]
severity = "error"
verdict = "pattern"
title = "A client is kept out by a dead connection of another host"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}. The owner is {owner_ip}, port {owner_port}, whose connection the broker has not given up: nothing of it had come for {owner_silent_s} s at the last refusal."
known = "The owner's open (frame {owner_open}) and its last frame (frame {owner_last}) are in the capture, and no close of it before the last refusal."
rival = "A process on {owner_ip} that owns the name and stands still."
decides = "Whether the process behind {owner_ip}, port {owner_port}, still runs."
do = "Wait until the broker's keep-alive ends the dead connection (60 s behind its last frame by default); see why its host said no FIN: a pod or host that was stopped without closing."

[variant.exclusive]
severity = "warning"
title = "A producer is kept out since another one has the topic for itself"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}, '{error_text}'. Its owner: {owner}."
known = "The broker's text names exclusive access; names of producers do not decide it."
rival = "An exclusive producer that is gone and whose connection the broker has not given up."
decides = "The broker's statistics of the topic: access mode, address and age of its producers."
do = "Let one producer open the topic with Exclusive and no other beside it. One that stands by asks with WaitForExclusive, which waits instead of being refused; one that takes over asks with ExclusiveWithFencing."

[variant.exclusive_once]
like = "exclusive"
severity = "info"
title = "A producer was refused since another one has the topic for itself"

[variant.subscription_type]
severity = "warning"
title = "A consumer asks for another type than its subscription has"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}, '{error_text}'. Its owner: {owner}."
known = "The broker's text says that the subscription has another type while consumers are on it."
rival = "None for the refusal."
decides = "The type that each application gives to the subscription."
do = "Give all consumers of the subscription the same type, or the other application a subscription of its own; the type can change only while no consumer is on it."

[variant.subscription_type_once]
like = "subscription_type"
severity = "info"
title = "A consumer asked for another type than its subscription has"

[variant.range]
severity = "error"
title = "A consumer is refused since its hash range is another one's"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}, a range conflict. The range is owned by {owner}[: {owner_ip}, port {owner_port}]."
known = "The broker's text says that ranges overlap[, and names address {text_address} for the other consumer]."
rival = "A consumer that is gone and whose connection the broker has not given up, if its connection is not in the capture."
decides = "The ranges that each consumer of the subscription asks for (KeySharedPolicy.stickyHashRange)."
do = "Give consumers of a sticky Key_Shared subscription ranges that do not overlap; one that replaces another has to wait until that one is closed."

[variant.range_once]
like = "range"
severity = "info"
title = "A consumer was refused a hash range that is another one's"

[variant.range_half_open]
severity = "error"
verdict = "pattern"
title = "A consumer is kept out of its hash range by a dead connection"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}, a range conflict. The range is owned by {owner_ip}, port {owner_port}, whose connection the broker has not given up: nothing of it had come for {owner_silent_s} s at the last refusal."
known = "[The broker's text names address {text_address} for the other consumer; ]its open (frame {owner_open}) and its last frame (frame {owner_last}) are in the capture, and no close of it before the last refusal."
rival = "A process on {owner_ip} that stands still and lives on."
decides = "Whether the process behind {owner_ip}, port {owner_port}, still runs."
do = "Wait until the broker's keep-alive ends the dead connection (60 s behind its last frame by default); see why its host said no FIN: a pod or host that was stopped without closing. Ranges need no change."

[variant.reopened]
severity = "error"
verdict = "pattern"
title = "A client is kept out by what was opened again behind its own close"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}. The owner is {owner_ip}, port {owner_port}, which had sent its close (frame {owner_close}) and, before that was answered, opened the same id again (frame {owner_open})."
known = "The owner's close, its open behind it and the refusals are in the capture, and no close since."
rival = "An application that uses it and reconnected by itself: clients give a new id to what is created anew."
decides = "Whether the process behind {owner_ip}, port {owner_port}, still knows that it has it open."
do = "End that process or its connection: its application closed this, so that nothing in it will again. Client libraries that reconnect while they are closed do so; use a newer one."

[variant.limit]
severity = "warning"
title = "A topic has as many producers or consumers as it may have"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: '{error_text}'."
known = "The broker's text names a limit: other names are refused, too."
rival = "Dead producers or consumers that still count."
decides = "The broker's statistics of the topic: how many there are, of what age."
do = "Raise the limit of the topic or namespace, or close what is not used."

[variant.limit_once]
like = "limit"
severity = "info"
title = "A producer or consumer was one more than the topic may have"

[variant.not_in_capture]
whole = "whoever holds the name may have opened it before the window"
severity = "error"
title = "A client is kept out by a name that is taken"
what = "The broker refused {command} of {client_ip} on {topic}[ (subscription {subscription})] {refusals} times[ in {refused_s} s]: {error_code}, '{error_text}'. No open of the owner is in this capture."
known = "The refusals are in the capture, an open that could own the name is not."
rival = "Another host that owns the name by right, or the client's own earlier connection from before the capture."
*/
WITH classified_refusals AS ( -- Refusals by cause, from the broker's text: not only names can be in use.
  SELECT
    e.*,
    CASE
      WHEN lower(e.error_text) LIKE '%max%' AND lower(e.error_text) LIKE '%limit%' THEN 'limit'
      WHEN e.error_code = 'ConsumerAssignError' THEN 'range'
      WHEN lower(e.error_text) LIKE '%different type%' THEN 'subscription_type'
      WHEN
        e.error_code = 'ProducerFenced' OR lower(e.error_text) LIKE '%exclusive producer%'
        OR lower(e.error_text) LIKE '%existing shared producers%'
        THEN 'exclusive'
      ELSE 'name'
    END AS cause
  FROM exchanges AS e
  WHERE
    (
      e.error_code IN ('ProducerBusy', 'ConsumerBusy', 'ProducerFenced')
      OR (e.error_code = 'ConsumerAssignError' AND lower(e.error_text) LIKE '%conflict%')
    )
    AND e.response_last_ns IS NOT NULL AND e.request_command IN ('PRODUCER', 'SUBSCRIBE')
),
refusals AS (
  SELECT
    e.capture, e.topic, e.subscription, e.client_ip, e.request_command, e.error_code, e.cause,
    min_by(e.error_text, e.response_frame_no) AS error_text, count(*) AS refusals,
    min(e.response_last_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
    min(e.request_frame_no) AS request_no, min(e.response_frame_no) AS refusal_no,
    max(e.response_frame_no) AS last_no,
    min_by(e.connection_id, e.request_frame_no) AS connection_id
  FROM classified_refusals AS e
  GROUP BY ALL
),
named_refusals AS ( -- Texts about a range end with the owner's address: R:/10.0.0.1:40000]}
  SELECT
    r.*, p.name,
    CASE
      WHEN r.cause = 'range'
        THEN nullif(regexp_extract(r.error_text, 'R:/([0-9a-fA-F.:]+):[0-9]+', 1), '')
    END AS text_ip,
    CASE
      WHEN r.cause = 'range'
        THEN nullif(regexp_extract(r.error_text, 'R:/[0-9a-fA-F.:]+:([0-9]+)', 1), '')
    END AS text_port
  FROM refusals AS r
  LEFT JOIN producers AS p
    ON p.capture = r.capture AND p.connection_id = r.connection_id
    AND p.opened_frame_no = r.request_no
),
name_owners AS ( -- Producers or consumers that owned or excluded the name at its first refusal.
  SELECT
    n.capture, n.request_no, o.connection_id, o.id, o.opened_frame_no, o.opened_ns, o.client_ip,
    o.client_port, o.link_last_ns, o.ended
  FROM named_refusals AS n
  JOIN pulsar_opens AS o
    ON o.capture = n.capture AND o.topic = n.topic
    AND o.kind = CASE n.request_command WHEN 'PRODUCER' THEN 'producer' ELSE 'consumer' END
  LEFT JOIN producers AS p
    ON p.capture = o.capture AND p.connection_id = o.connection_id
    AND p.opened_frame_no = o.opened_frame_no
  WHERE
    n.cause <> 'limit' AND o.outcome = 'ok' AND o.opened_frame_no < n.request_no
    AND (o.closed_frame_no IS NULL OR o.closed_frame_no > n.refusal_no)
    AND o.link_last_ns >= n.first_ns - $forgotten_s * 1000000000
    AND (
      (
        n.request_command = 'SUBSCRIBE' AND o.subscription = n.subscription
        AND (
          n.text_ip IS NULL
          OR (o.client_ip = n.text_ip AND CAST(o.client_port AS STRING) = n.text_port)
        )
      )
      OR (
        n.request_command = 'PRODUCER'
        AND (
          o.name = n.name
          OR (
            n.cause = 'exclusive'
            AND (
              p.access_mode IN ('Exclusive', 'WaitForExclusive', 'ExclusiveWithFencing')
              OR n.error_text LIKE '%shared producers%'
            )
          )
        )
      )
    )
),
last_owners AS (
  SELECT
    h.capture, h.request_no, max_by(h.connection_id, h.opened_frame_no) AS connection_id,
    max(h.opened_frame_no) AS opened_no, max_by(h.id, h.opened_frame_no) AS id,
    max_by(h.client_ip, h.opened_frame_no) AS client_ip,
    max_by(h.client_port, h.opened_frame_no) AS client_port,
    max_by(CASE WHEN h.ended IN ('fin', 'rst') THEN h.link_last_ns END, h.opened_frame_no)
      AS ended_ns
  FROM name_owners AS h
  GROUP BY h.capture, h.request_no
),
reopened_owners AS ( -- Owners that were opened after their own close, before its answer.
  SELECT h.capture, h.request_no, max(e.request_frame_no) AS close_no
  FROM last_owners AS h
  JOIN exchanges AS e
    ON e.capture = h.capture AND e.connection_id = h.connection_id AND e.kind = 'request'
    AND e.request_command IN ('CLOSE_PRODUCER', 'CLOSE_CONSUMER')
    AND coalesce(e.producer_id, e.consumer_id) = h.id AND e.request_frame_no < h.opened_no
  JOIN named_refusals AS n
    ON n.capture = h.capture AND n.request_no = h.request_no
    AND (n.request_command = 'PRODUCER') = (e.request_command = 'CLOSE_PRODUCER')
  WHERE coalesce(e.response_frame_no > h.opened_no, TRUE)
  GROUP BY h.capture, h.request_no
),
owner_activity AS ( -- The last frame from the owner's client before the last refusal.
  SELECT
    h.capture, h.request_no, max(f.last_ts_ns) AS last_sent_ns, max(f.frame_no) AS last_sent_no
  FROM last_owners AS h
  JOIN named_refusals AS n USING (capture, request_no)
  JOIN frames AS f ON f.capture = h.capture AND f.connection_id = h.connection_id
  WHERE f.direction = 'to_broker' AND f.frame_no < n.last_no
  GROUP BY h.capture, h.request_no
),
refusals_with_owner AS (
  SELECT
    n.*, h.connection_id AS owner_connection, h.opened_no, h.client_ip AS owner_ip,
    h.client_port AS owner_port, r.close_no, g.last_sent_no,
    (n.last_ns - g.last_sent_ns) / 1e9 AS silent_s,
    coalesce(
      h.ended_ns < n.first_ns OR n.last_ns - g.last_sent_ns >= $silent_s * 1000000000, FALSE
    ) AS is_dead
  FROM named_refusals AS n
  LEFT JOIN last_owners AS h ON h.capture = n.capture AND h.request_no = n.request_no
  LEFT JOIN reopened_owners AS r ON r.capture = n.capture AND r.request_no = n.request_no
  LEFT JOIN owner_activity AS g ON g.capture = n.capture AND g.request_no = n.request_no
),
assessments AS (
  SELECT
    p.*,
    CASE
      WHEN p.cause = 'limit' THEN 'limit'
      WHEN p.owner_connection IS NULL THEN 'not_in_capture'
      WHEN p.owner_connection = p.connection_id THEN 'own_connection'
      WHEN p.owner_ip <> p.client_ip AND p.is_dead THEN 'other_half_open'
      WHEN p.owner_ip <> p.client_ip THEN 'other_host'
      WHEN p.is_dead THEN 'own_half_open'
      ELSE 'own_second_connection'
    END AS kind,
    p.refusals > 1 AND p.last_ns - p.first_ns >= $lasting_s * 1000000000 AS is_lasting
  FROM refusals_with_owner AS p
)
SELECT
  j.capture, j.first_ns, j.last_ns,
  CASE
    WHEN j.is_lasting AND NOT j.is_dead AND j.close_no IS NOT NULL THEN 'reopened'
    WHEN j.cause = 'name' AND j.is_lasting THEN j.kind
    WHEN j.kind = 'not_in_capture' AND j.cause = 'name' THEN 'not_in_capture_once'
    WHEN j.cause = 'name' THEN ''
    WHEN j.cause = 'range' AND j.is_lasting AND j.is_dead THEN 'range_half_open'
    WHEN j.is_lasting THEN j.cause
    ELSE concat(j.cause, '_once')
  END AS variant,
  j.topic AS subject_topic, j.subscription AS subject_subscription,
  j.client_ip AS subject_client_ip, j.request_command AS subject_command,
  j.error_code AS measured_error_code, j.error_text AS measured_error_text,
  j.refusals AS measured_refusals, CASE WHEN j.refusals > 1 THEN (j.last_ns - j.first_ns) / 1e9 END AS measured_refused_s,
  CASE
    WHEN j.cause = 'range' AND j.kind = 'not_in_capture'
      THEN 'a connection whose open is not in this capture'
    ELSE CASE j.kind
      WHEN 'limit' THEN 'a limit of the topic'
      WHEN 'not_in_capture' THEN 'nobody whose open is in this capture'
      WHEN 'own_connection' THEN 'the same connection'
      WHEN 'other_half_open' THEN concat('another host, ', j.owner_ip, ', which is silent or ended')
      WHEN 'other_host' THEN concat('another host, ', j.owner_ip)
      WHEN 'own_half_open' THEN 'an earlier connection of the same address, which is silent or ended'
      ELSE 'another connection of the same address'
    END
  END AS measured_owner,
  coalesce(j.owner_ip, j.text_ip) AS measured_owner_ip,
  coalesce(CAST(j.owner_port AS STRING), j.text_port) AS measured_owner_port,
  CASE WHEN j.text_ip IS NOT NULL THEN concat(j.text_ip, ':', j.text_port) END
    AS measured_text_address,
  j.silent_s AS measured_owner_silent_s,
  j.request_no AS frame_first_request, j.refusal_no AS frame_first_refusal,
  j.last_no AS frame_last_refusal, j.close_no AS frame_owner_close,
  j.opened_no AS frame_owner_open,
  j.last_sent_no AS frame_owner_last
FROM assessments AS j
