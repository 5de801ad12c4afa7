/*
number = "D14"
code = "publish_latency_spike"
title = "Sends were slow for a time"
severity = "warning"
verdict = "pattern"
protocol = "pulsar"
section = "send_latency"
worst = "measured_slow_ms"
references = ["apache/pulsar#15792", "apache/pulsar PR 20607", "apache/pulsar PR 20647", "apache/pulsar#12533", "apache/pulsar PR 17425"]
fires = []
silent = ["java-j38_throttled.pcap", "java-j02_pipelined.pcap", "cpp-s30_latency_mix.pcap", "cpp-s02_single_1k.pcap", "java-j01_plain.pcap"]

[needs]
exchange_kinds = "kind = 'publish' AND outcome = 'ok' AND slowest_ns >= $slow_floor_ms * 1000000"

[thresholds.slow_floor_ms]
value = 100.0
unit = "ms"
why = "storing takes a few milliseconds; below this applications hardly notice"

[thresholds.times]
value = 5.0
unit = "times the 99th percentile of the calm time"
why = "percentiles of neighbouring times differ by two or three without a cause"

[thresholds.slot_s]
value = 10
unit = "s"
why = "long enough for a percentile, short enough to show when it was"

[thresholds.sends]
value = 30
unit = "sends in the time"
why = "of fewer, single slow ones say nothing"

[thresholds.slow_sends]
value = 3
unit = "slow sends in the time"
why = "one or two happen when a ledger is changed"

[thresholds.calm_sends]
value = 100
unit = "sends in the calm time"
why = "a 99th percentile needs as many"

[thresholds.slow_share]
value = 0.01
unit = "of the sends of the time"
why = "that many make its 99th percentile slow"

[thresholds.tainted_share]
value = 0.5
unit = "of the slow sends"
why = "where most of the slow ones were retransmitted, it is the network"

[thresholds.others_ms]
value = 50.0
unit = "ms"
why = "PINGs and lookups are answered within a few milliseconds by a broker that is well"

[text]
what = "{slow} of {sends_seen} sends to {topic} took {slow_floor_ms} ms or more within {slot_s} s, half of them {slow_ms} ms or more; in the calm time of this capture 99 of 100 took at most {calm_ms} ms. {topics} topics of broker {broker_ip} {topics|was|were} slow then, {ledgers} ledgers took the slow entries of this one."
known = "SENDs and receipts are in the capture; {tainted} of the slow ones {tainted|was|were} touched by a retransmission. No PING or request was asked and answered while they waited, to compare with."
rival = "A publish limit, a busy broker or slow storage: without other answers they look alike."
decides = "The broker's and the bookies' latency at that minute."
do = "Compare with the write latency of the bookies at that minute, and look for broker_reads_paused."

[variant.network]
title = "Sends were slow for a time: packets were sent again"
known = "{tainted} of the slow sends, or their receipts, {tainted|was|were} touched by a retransmission."
rival = "A broker or client so busy that its TCP answered late."
decides = "Whether PINGs and other connections on the same path were slow, too."
do = "Look for network_loss, and at the path between {broker_ip} and its clients."

[variant.broker]
title = "Sends were slow for a time, and so was all else at the broker"
known = "PINGs and requests of the same broker took up to {others_slowest_ms} ms then; {tainted} of the slow sends {tainted|was|were} touched by a retransmission."
rival = "The path to that broker, delayed without loss."
decides = "The broker's garbage collection and load at that minute."
do = "Look at the broker itself: its pauses, its CPU, how many producers were opened then."

[variant.storage]
title = "Sends were slow for a time while the broker answered all else at once"
known = "{others} PINGs and requests of the same broker, asked and answered while such sends waited, took at most {others_slowest_ms} ms; {tainted} of the slow sends {tainted|was|were} touched by a retransmission."
rival = "A publish limit of these topics: then their receipts come at an even pace."
decides = "The write latency of the bookies of ledger {ledger_id} at that minute."
do = "Compare with the write latency of the bookies at that minute: journal disk, garbage collection, network between broker and bookies."
*/
WITH spikes AS (
  SELECT
    e.capture, e.topic, e.broker_ip,
    floor_div(e.request_last_ns, CAST($slot_s AS BIGINT) * 1000000000) AS slot,
    count(*) AS slow, count(CASE WHEN e.tainted THEN 1 END) AS tainted,
    median(e.latency_ns) AS slow_ns, min(e.request_last_ns) AS first_ns,
    max(e.response_last_ns) AS last_ns, max(e.ledger_id) AS ledger_id,
    count(DISTINCT e.ledger_id) AS ledgers,
    max_by(e.request_frame_no, e.latency_ns) AS slowest_frame,
    max_by(e.response_frame_no, e.latency_ns) AS its_frame,
    min(e.request_frame_no) AS first_frame, max(e.request_frame_no) AS last_frame
  FROM exchanges AS e
  JOIN pulsar_links AS l USING (capture, connection_id)
  WHERE
    e.kind = 'publish' AND e.outcome = 'ok' AND e.topic IS NOT NULL
    AND e.latency_ns >= $slow_floor_ms * 1000000
  GROUP BY ALL
  HAVING count(*) >= $slow_sends
),
buckets AS ( -- All sends of these topics, by time and size of the latency.
  SELECT
    e.capture, e.topic, e.broker_ip,
    floor_div(e.request_last_ns, CAST($slot_s AS BIGINT) * 1000000000) AS slot,
    e.latency_bucket, count(*) AS sends, max(e.latency_ns) AS most_ns,
    count(CASE WHEN e.latency_ns >= $slow_floor_ms * 1000000 THEN 1 END) AS slow
  FROM exchanges AS e
  WHERE
    e.kind = 'publish' AND e.outcome = 'ok' AND e.latency_ns IS NOT NULL
    AND (e.capture, e.topic) IN (SELECT capture, topic FROM spikes)
  GROUP BY ALL
),
slots AS (
  SELECT b.capture, b.topic, b.broker_ip, b.slot, sum(b.sends) AS sends, sum(b.slow) AS slow
  FROM buckets AS b
  GROUP BY b.capture, b.topic, b.broker_ip, b.slot
),
baseline_latencies AS (
  SELECT
    q.capture, q.topic, q.broker_ip, max(q.sends_up_to) AS sends,
    min(CASE WHEN q.sends_up_to >= 0.99 * q.all_sends THEN q.most_ns END) AS p99_ns
  FROM (
    SELECT
      b.capture, b.topic, b.broker_ip, b.latency_bucket, max(b.most_ns) AS most_ns,
      sum(sum(b.sends)) OVER (
        PARTITION BY b.capture, b.topic, b.broker_ip ORDER BY b.latency_bucket
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS sends_up_to,
      sum(sum(b.sends)) OVER (PARTITION BY b.capture, b.topic, b.broker_ip) AS all_sends
    FROM buckets AS b
    JOIN slots AS s USING (capture, topic, broker_ip, slot)
    WHERE s.slow < $slow_share * s.sends
    GROUP BY b.capture, b.topic, b.broker_ip, b.latency_bucket
  ) AS q
  GROUP BY q.capture, q.topic, q.broker_ip
),
clear_spikes AS (
  SELECT
    k.*, s.sends, c.p99_ns,
    count(*) OVER (PARTITION BY k.capture, k.broker_ip, k.slot) AS topics
  FROM spikes AS k
  JOIN slots AS s
    ON s.capture = k.capture AND s.topic = k.topic AND s.broker_ip = k.broker_ip
    AND s.slot = k.slot
  JOIN baseline_latencies AS c
    ON c.capture = k.capture AND c.topic = k.topic AND c.broker_ip = k.broker_ip
  WHERE
    s.sends >= $sends AND k.slow >= $slow_share * s.sends AND c.sends >= $calm_sends
    AND k.slow_ns >= $times * c.p99_ns
),
other_sends AS ( -- Fast sends count only if slow sends still waited after them.
  SELECT
    k.capture, k.broker_ip, k.slot, count(*) AS others, max(e.latency_ns) AS slowest_ns,
    max_by(e.response_frame_no, e.latency_ns) AS slowest_frame
  FROM (
    SELECT capture, broker_ip, slot, min(first_ns) AS first_ns, max(last_ns) AS last_ns
    FROM clear_spikes
    GROUP BY capture, broker_ip, slot
  ) AS k
  JOIN exchanges AS e USING (capture, broker_ip)
  WHERE
    e.kind IN ('ping', 'request') AND e.outcome = 'ok' AND e.latency_ns IS NOT NULL
    AND e.request_command NOT IN ('PRODUCER', 'SUBSCRIBE', 'CONNECT')
    AND floor_div(e.request_last_ns, CAST($slot_s AS BIGINT) * 1000000000) = k.slot
    AND (
      e.latency_ns >= $others_ms * 1000000
      OR e.request_last_ns >= k.first_ns
      AND e.response_last_ns <= k.last_ns - $slow_floor_ms * 1000000
    )
  GROUP BY k.capture, k.broker_ip, k.slot
)
SELECT
  k.capture, k.first_ns, k.last_ns,
  CASE
    WHEN k.tainted >= $tainted_share * k.slow THEN 'network'
    WHEN o.slowest_ns >= $others_ms * 1000000 THEN 'broker'
    WHEN o.others > 0 THEN 'storage'
    ELSE ''
  END AS variant,
  k.topic AS subject_topic, k.broker_ip AS subject_broker_ip,
  k.slow AS measured_slow, k.sends AS measured_sends_seen, k.slow_ns / 1e6 AS measured_slow_ms,
  k.p99_ns / 1e6 AS measured_calm_ms, k.tainted AS measured_tainted, k.topics AS measured_topics,
  k.ledgers AS measured_ledgers, k.ledger_id AS measured_ledger_id,
  coalesce(o.others, 0) AS measured_others, o.slowest_ns / 1e6 AS measured_others_slowest_ms,
  k.slowest_frame AS frame_slowest_send, k.its_frame AS frame_its_receipt,
  k.first_frame AS frame_first_slow, k.last_frame AS frame_last_slow,
  o.slowest_frame AS frame_other_answer
FROM clear_spikes AS k
LEFT JOIN other_sends AS o USING (capture, broker_ip, slot)
