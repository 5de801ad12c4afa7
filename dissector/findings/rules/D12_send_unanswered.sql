/*
number = "D12"
code = "send_unanswered"
title = "Sends got no answer for long"
severity = "error"
verdict = "pattern"
protocol = "pulsar"
section = "send_latency"
worst = "measured_longest_s"
references = ["apache/pulsar#8321", "apache/pulsar#18750", "apache/pulsar#3056", "apache/pulsar#12533", "apache/pulsar-client-cpp#576"]
fires = ["live-publish_rate.pcap", "live-broker_restart.pcap"]
real = ["live-publish_rate.pcap", "live-broker_restart.pcap"]
silent = ["fake-f12_noreceipt.pcap", "cpp-s27_crash_client.pcap", "java-j24_unload.pcap", "java-j38_throttled.pcap", "java-j74_corrupt.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind = 'publish' AND (slowest_ns >= $floor_s * 1000000000 OR outcome IN ('conn_closed', 'unanswered_at_end', 'dropped_after_close'))"

[thresholds.floor_s]
value = 10.0
unit = "s"
why = "brokers store within milliseconds, and clients give a send up after 30 s by default: a third of it is waiting, not load"

[thresholds.alive_s]
value = 1.0
unit = "s"
why = "a broker that reads its connection answers a PING within milliseconds"

[thresholds.given_up_s]
value = 30.0
unit = "s"
why = "clients report a send as failed that got no receipt for so long, by default"

[text]
what = "{sends} sends of producer {producer_name} to {topic} got no answer for {floor_s} s or more; the longest waited {longest_s} s. {answered} of them {answered|was|were} answered in the end. {outstanding} sends of the producer {outstanding|was|were} waiting when the first of them went out."
known = "The SENDs are in the capture: they left the client. No receipt and no error for them lies between, also not for one sent again. On the same connection {pongs} PINGs {pongs|was|were} answered within {alive_s} s meanwhile, and {other_receipts} sends to other topics."
rival = "A path that lost the SEND behind the tap, a broker that no longer reads, or storage of the topic that does not finish: without other answers to compare with they look alike."
decides = "What the broker's log says about the topic at that time, and whether TCP of the broker acknowledged the SEND (packet of the evidence)."
do = "Compare with other producers of the same broker at that time. Sends of which the client says that it could not send the message to the broker within the given timeout (TimeoutException), and that are not in the capture, never left it: look at the client's memory limit and queue then."

[variant.swallowed_after_close]
verdict = "proven"
title = "Sends behind the broker's close were swallowed"
what = "{sends} sends of producer {producer_name} to {topic} {sends|was|were} never answered, since the broker had closed the producer on that connection; for {longest_s} s no answer came to a send of the same sequence ids either."
known = "The producer was closed by the broker, or its id was opened again, before an answer came; the SENDs and what follows are in the capture, and no receipt for these SENDs is. {answered} of them {answered|was|were} sent again and answered."
rival = "A client that sends them again later than this capture lasts, or over a connection that was not captured."
decides = "Whether the client's log says that it reconnected the producer, and when."
do = "Look why the producer was not opened again at once: lookups and PRODUCER requests of this client behind the close."

[variant.swallowed_after_close_answered]
severity = "warning"
verdict = "proven"
title = "Sends behind the broker's close were swallowed, sent again and answered late"
what = "{sends} sends of producer {producer_name} to {topic} {sends|was|were} not answered, since the broker had closed the producer on that connection; sent again, {sends|it was|they were} answered after {longest_s} s at the most."
known = "The producer was closed by the broker, or its id was opened again, before an answer came; no receipt for these SENDs is in the capture, and receipts for the same sequence ids, sent again, are."
rival = "None for what happened. The wait may be the broker's, which restarted or moved the topic, or the client's, which paused before it tried again."
decides = "The lookups and PRODUCER requests of this client between both sends: those refused or unanswered are the broker's part, pauses before them the client's."
do = "Nothing, if the broker was restarted or the topic moved on purpose: clients send such messages again by themselves. Else look for what kept the topic closed."

[variant.one_topic]
title = "Sends to one topic got no answer while others on the connection did"
what = "{sends} sends of producer {producer_name} to {topic} got no answer for up to {longest_s} s, while {other_receipts} sends to other topics on the same connection got {other_receipts|its receipt|their receipts}."
known = "Both are on one connection: the broker read it, and the path works in both directions. {answered} of the sends {answered|was|were} answered in the end."
rival = "A publish limit of that topic (then receipts come at an even pace afterwards), or the broker holding back this topic for a reason of its own."
decides = "What the broker's log says about the ledger of {topic} at that time, and the write latency of the bookies of that ledger."
do = "It is neither the network nor the connection: look at the storage of this topic, its ledger and that ledger's bookies."

[variant.ledger_rollover]
title = "Sends to one topic waited until it had a new ledger"
what = "{sends} sends of producer {producer_name} to {topic} got no answer for up to {longest_s} s; the next receipt was of ledger {next_ledger_id}, before it was {last_ledger_id}."
known = "Receipts name the ledger: the topic went on in another one. On the same connection {other_receipts} sends to other topics {other_receipts|was|were} answered meanwhile."
rival = "A ledger that was closed because of the failure: then the change is how the broker recovered, not what it waited for."
decides = "When the broker's log says that ledger {last_ledger_id} was closed and {next_ledger_id} was created."
do = "Look at the broker's log between these two lines, and at the metadata store's latency at that time: a new ledger needs it."

[variant.one_broker]
title = "All sends to one broker got no answer while other brokers answered"
what = "{sends} sends of producer {producer_name} to {topic} got no answer for up to {longest_s} s. None of the {broker_topics} topics with waiting sends at this broker got a receipt from it meanwhile; other brokers gave {elsewhere_receipts}."
known = "Receipts of the other brokers in the same capture: the clients and the tap worked."
rival = "The path to that broker alone."
decides = "PINGs to that broker: {pongs} {pongs|was|were} answered on this connection within {alive_s} s; with answers it is not the path."
do = "Look at that broker: its load, its garbage collection, its connection to the bookies."

[variant.reads_paused]
title = "Sends got no answer, nor did anything else on the connection"
what = "{sends} sends of producer {producer_name} to {topic} got no answer for up to {longest_s} s, and nothing else on the connection was answered either, though {others_waiting} other PINGs, requests or sends to other topics waited."
known = "Nothing that the client asked on that connection was answered from the first of these sends on."
rival = "A broker that hangs as a whole, or a path that went silent."
decides = "Whether other connections to the same broker got answers at that time, and whether its TCP acknowledged the bytes."
do = "Look for broker_reads_paused and its advice: publish-rate limits and limits of pending sends stop the reading of whole connections."

[variant.answered]
severity = "warning"
title = "Sends were answered, but late"
rival = "A publish rate that holds the reading back, storage that is slow, or a broker or path that stood still for a time: without other answers to compare with they look alike."
decides = "The pace of the receipts: an even one is a limit's (broker_reads_paused names it), one long pause is storage, the broker or the path; the broker's log says which of them."

[variant.one_topic_answered]
like = "one_topic"
severity = "warning"
title = "Sends to one topic were answered late while others on the connection were not"

[variant.ledger_rollover_answered]
like = "ledger_rollover"
severity = "warning"
title = "Sends to one topic waited until it had a new ledger, and were answered then"

[variant.one_broker_answered]
like = "one_broker"
severity = "warning"
title = "All sends to one broker were answered late while other brokers answered at once"

[variant.reads_paused_answered]
like = "reads_paused"
severity = "warning"
title = "Sends were answered late, as was all else on the connection"
*/
WITH candidate_sends AS (
  SELECT
    e.capture, e.connection_id, l.client_ip, l.broker_ip, e.topic, e.producer_name, e.sequence_id,
    e.chunk_id, e.outcome, e.request_frame_no, e.response_frame_no, e.request_last_ns,
    e.outstanding_before,
    coalesce(
      e.response_last_ns, CASE WHEN e.outcome = 'conn_closed' THEN l.last_ts_ns ELSE x.end_ns END
    ) AS until_ns
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  JOIN (
    SELECT capture, max(last_ts_ns) AS end_ns FROM capture_files GROUP BY capture
  ) AS x USING (capture)
  WHERE
    e.kind = 'publish' AND NOT e.tainted AND e.request_last_ns IS NOT NULL
    AND e.topic IS NOT NULL AND e.producer_name IS NOT NULL
    AND (
      e.latency_ns >= $floor_s * 1000000000
      OR e.outcome IN ('conn_closed', 'unanswered_at_end', 'dropped_after_close')
    )
),
late_sends AS ( -- A send that was repeated may have been answered at its repetition.
  SELECT
    a.capture, a.connection_id, a.client_ip, a.broker_ip, a.topic, a.producer_name, a.sequence_id,
    a.outcome, a.request_frame_no, a.response_frame_no, a.request_last_ns, a.outstanding_before,
    least(a.until_ns, coalesce(min(r.response_last_ns), a.until_ns)) AS until_ns,
    min(r.response_last_ns) IS NOT NULL AS is_answered
  FROM candidate_sends AS a
  LEFT JOIN exchanges AS r
    ON r.capture = a.capture AND r.topic = a.topic AND r.producer_name = a.producer_name
    AND r.sequence_id = a.sequence_id AND coalesce(r.chunk_id, -1) = coalesce(a.chunk_id, -1)
    AND r.kind = 'publish' AND r.outcome IN ('ok', 'dup_or_dropped', 'error')
    AND r.response_last_ns >= a.request_last_ns
  WHERE a.until_ns - a.request_last_ns >= $floor_s * 1000000000
  GROUP BY
    a.capture, a.connection_id, a.client_ip, a.broker_ip, a.topic, a.producer_name, a.sequence_id,
    a.outcome, a.request_frame_no, a.response_frame_no, a.request_last_ns, a.outstanding_before,
    a.until_ns
),
waits AS (
  SELECT
    w.capture, w.connection_id, w.client_ip, w.broker_ip, w.topic, w.producer_name,
    count(*) AS sends, count(CASE WHEN w.is_answered THEN 1 END) AS answered,
    count(CASE WHEN w.outcome = 'dropped_after_close' THEN 1 END) AS dropped,
    min(w.request_last_ns) AS first_ns, max(w.until_ns) AS until_ns,
    max(w.until_ns - w.request_last_ns) AS longest_ns,
    min_by(w.outstanding_before, w.request_frame_no) AS outstanding,
    min(w.request_frame_no) AS oldest_frame,
    max(w.request_frame_no) AS newest_frame,
    min_by(w.response_frame_no, w.request_frame_no) AS answer_frame,
    CASE
      WHEN
        count(*) = count(CASE WHEN w.is_answered THEN 1 END)
        AND max(w.until_ns - w.request_last_ns) < $given_up_s * 1000000000
        THEN '_answered'
      ELSE ''
    END AS suffix
  FROM late_sends AS w
  WHERE w.until_ns - w.request_last_ns >= $floor_s * 1000000000
  GROUP BY w.capture, w.connection_id, w.client_ip, w.broker_ip, w.topic, w.producer_name
),
pings AS ( -- PINGs of the client: the broker's own do not show that it reads.
  SELECT
    w.capture, w.connection_id, w.topic, w.producer_name,
    count(CASE WHEN a.latency_ns <= $alive_s * 1000000000 THEN 1 END) AS pongs,
    count(*) FILTER (WHERE a.response_last_ns < w.until_ns - $alive_s * 1000000000) AS answers,
    count(*) FILTER (
      WHERE coalesce(a.response_last_ns, w.until_ns) - a.request_last_ns >= $alive_s * 1000000000
    ) AS waiting,
    max(CASE WHEN a.latency_ns <= $alive_s * 1000000000 THEN a.response_frame_no END) AS pong_frame
  FROM waits AS w
  JOIN exchanges AS a USING (capture, connection_id)
  JOIN frames AS f
    ON f.capture = a.capture AND f.connection_id = a.connection_id
    AND f.frame_no = a.request_frame_no AND f.command = 'PING' AND f.direction = 'to_broker'
  WHERE a.request_last_ns >= w.first_ns AND a.request_last_ns < w.until_ns AND a.kind = 'ping'
  GROUP BY w.capture, w.connection_id, w.topic, w.producer_name
),
other_requests AS ( -- Other requests on the connection meanwhile, and their answers.
  SELECT
    w.capture, w.connection_id, w.topic, w.producer_name,
    count(*) FILTER (WHERE a.response_last_ns < w.until_ns - $alive_s * 1000000000) AS answers,
    count(*) FILTER (
      WHERE a.kind = 'publish' AND a.outcome = 'ok' AND a.topic <> w.topic
        AND a.request_last_ns >= w.first_ns AND a.response_last_ns < w.until_ns
        AND a.latency_ns < $floor_s * 1000000000
    ) AS other_receipts,
    max(a.response_frame_no) FILTER (
      WHERE a.kind = 'publish' AND a.outcome = 'ok' AND a.topic <> w.topic
        AND a.request_last_ns >= w.first_ns AND a.response_last_ns < w.until_ns
        AND a.latency_ns < $floor_s * 1000000000
    ) AS receipt_frame,
    count(*) FILTER (
      WHERE (a.kind <> 'publish' OR a.topic <> w.topic) AND a.request_last_ns >= w.first_ns
        AND coalesce(a.response_last_ns, w.until_ns) - a.request_last_ns >= $alive_s * 1000000000
    ) AS waiting
  FROM waits AS w
  JOIN exchanges AS a USING (capture, connection_id)
  WHERE
    a.kind IN ('publish', 'request') AND a.request_last_ns < w.until_ns
    AND (a.response_last_ns >= w.first_ns OR a.response_last_ns IS NULL)
  GROUP BY w.capture, w.connection_id, w.topic, w.producer_name
),
ledgers AS (
  SELECT
    w.capture, w.connection_id, w.topic, w.producer_name,
    max_by(
      CASE WHEN a.response_last_ns < w.first_ns THEN a.ledger_id END,
      CASE WHEN a.response_last_ns < w.first_ns THEN a.response_last_ns END
    ) AS last_ledger_id,
    max(CASE WHEN a.response_last_ns < w.first_ns THEN a.response_frame_no END) AS last_frame,
    min_by(
      CASE WHEN a.request_last_ns >= w.first_ns THEN a.ledger_id END,
      CASE WHEN a.request_last_ns >= w.first_ns THEN a.response_last_ns END
    ) AS next_ledger_id,
    min(CASE WHEN a.request_last_ns >= w.first_ns THEN a.response_frame_no END) AS next_frame
  FROM waits AS w
  JOIN exchanges AS a USING (capture, topic)
  WHERE a.kind = 'publish' AND a.outcome = 'ok' AND a.ledger_id IS NOT NULL
  GROUP BY w.capture, w.connection_id, w.topic, w.producer_name
),
brokers AS ( -- Entries that this and other brokers stored while sends waited here.
  SELECT
    b.capture, b.broker_ip, b.topics,
    count(CASE WHEN a.broker_ip = b.broker_ip THEN 1 END) AS own_receipts,
    count(CASE WHEN a.broker_ip <> b.broker_ip THEN 1 END) AS elsewhere_receipts
  FROM (
    SELECT
      capture, broker_ip, count(DISTINCT topic) AS topics, max(first_ns) AS first_ns,
      min(until_ns) AS until_ns
    FROM waits
    GROUP BY capture, broker_ip
  ) AS b
  LEFT JOIN exchanges AS a
    ON a.capture = b.capture AND a.kind = 'publish' AND a.outcome = 'ok'
    AND a.response_last_ns >= b.first_ns AND a.response_last_ns < b.until_ns
  GROUP BY b.capture, b.broker_ip, b.topics
)
SELECT
  w.capture, w.first_ns, w.until_ns AS last_ns,
  CASE
    WHEN w.dropped = w.sends THEN concat('swallowed_after_close', w.suffix)
    WHEN g.next_ledger_id <> g.last_ledger_id AND b.other_receipts > 0
      THEN concat('ledger_rollover', w.suffix)
    WHEN b.other_receipts > 0 THEN concat('one_topic', w.suffix)
    WHEN s.topics > 1 AND s.own_receipts = 0 AND s.elsewhere_receipts > 0
      THEN concat('one_broker', w.suffix)
    WHEN
      coalesce(b.answers, 0) + coalesce(p.answers, 0) = 0
      AND coalesce(b.waiting, 0) + coalesce(p.waiting, 0) > 0
      THEN concat('reads_paused', w.suffix)
    WHEN w.suffix <> '' THEN 'answered'
    ELSE ''
  END AS variant,
  w.topic AS subject_topic, w.producer_name AS subject_producer_name,
  w.client_ip AS subject_client_ip, w.broker_ip AS subject_broker_ip,
  w.sends AS measured_sends, w.answered AS measured_answered,
  w.longest_ns / 1e9 AS measured_longest_s, w.outstanding AS measured_outstanding,
  coalesce(p.pongs, 0) AS measured_pongs,
  coalesce(b.other_receipts, 0) AS measured_other_receipts,
  coalesce(b.waiting, 0) + coalesce(p.waiting, 0) AS measured_others_waiting,
  s.topics AS measured_broker_topics, s.elsewhere_receipts AS measured_elsewhere_receipts,
  g.last_ledger_id AS measured_last_ledger_id, g.next_ledger_id AS measured_next_ledger_id,
  w.oldest_frame AS frame_oldest_send, w.newest_frame AS frame_newest_send,
  w.answer_frame AS frame_its_answer, g.last_frame AS frame_receipt_before,
  g.next_frame AS frame_next_receipt, b.receipt_frame AS frame_receipt_beside,
  p.pong_frame AS frame_pong_beside
FROM waits AS w
LEFT JOIN other_requests AS b USING (capture, connection_id, topic, producer_name)
LEFT JOIN pings AS p USING (capture, connection_id, topic, producer_name)
LEFT JOIN ledgers AS g USING (capture, connection_id, topic, producer_name)
LEFT JOIN brokers AS s USING (capture, broker_ip)
