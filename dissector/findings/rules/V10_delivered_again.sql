/*
number = "V10"
code = "delivered_again"
title = "Whether entries were delivered again"
severity = "info"
section = "redelivery"
fires = ["cpp-s14_reconnect.pcap"]
silent = ["java-j01_plain.pcap"]

[names]
explicit = "asked for by the consumer (negative ack or ack timeout)"
txn_abort = "after an aborted transaction"
consumer_gone = "after their consumer went away"
seek = "after a seek"
failover_switch = "after another consumer became the active one"
reconnect = "after a reconnect"
unload = "after the broker gave the topic away or took it again (unload)"
pre_capture = "delivered first before the capture began"
unknown = "for no reason that the capture shows"
rebalance = "after the members of the group changed"
no_commit = "since their offset had not been committed"
reset = "after the group began at an older offset"

[text]
what = "{deliveries} deliveries[ ({messages} messages)]: nothing was delivered again.[ {retried} messages {retried|was|were} published to retry topics.][ {dead_letters} messages {dead_letters|was|were} published to dead letter topics.]"

[variant.none]
severity = "ok"

[variant.unknown]
what = "{redelivered} of {deliveries} deliveries[ ({redelivered_messages} of {messages} messages)] {redelivered|was a repeat|were repeats}: {causes:shares}.[ They were asked for {asked_ms:time} behind their delivery and came {came_ms:time} later (median).][ {retried} messages {retried|was|were} published to retry topics.][ {dead_letters} messages {dead_letters|was|were} published to dead letter topics.]"
do = "See whether the application takes a message twice without harm."

[variant.pre_capture]
like = "unknown"

[variant.explicit]
like = "unknown"
do = "See why the application rejects messages, or needs longer than its ack timeout."

[variant.txn_abort]
like = "unknown"
do = "See why transactions are aborted."

[variant.consumer_gone]
like = "unknown"
do = "See why consumers went away: a crash, a deployment, a lost connection."

[variant.seek]
like = "unknown"
do = "Ask who moved the subscription back; if it was on purpose, nothing is to be done."

[variant.failover_switch]
like = "unknown"
do = "See why the active consumer changed: a crash, a new consumer, a deployment."

[variant.reconnect]
like = "unknown"
do = "See why connections were lost: the broker's log, the network, keep-alives."

[variant.closed_by_client]
like = "unknown"
do = "See the client's log: it closed its connection itself."

[variant.closed_by_client_refused]
like = "unknown"
do = "See why the broker refused a send: the client closed its connection then."

[variant.closed_by_broker]
like = "unknown"
do = "See the broker's log: it closed the connection."

[variant.closed_by_broker_refused]
like = "unknown"
do = "See why the broker refused a send and closed the connection."

[variant.unload]
like = "unknown"
do = "See the broker's log for unloads: load balancing, a restart, an administrator."

[variant.rebalance]
like = "unknown"
do = "See why members of the group come and go: crashes, deployments, lost heartbeats."

[variant.no_commit]
like = "unknown"
do = "See why the group does not commit what it has read."

[variant.reset]
like = "unknown"
do = "Ask who set the group back; if it was on purpose, nothing is to be done."
*/
WITH numbers AS (
  SELECT place, is_evident, redelivery.examples AS examples, unnest(redelivery.total) FROM totals
),
delivery_numbers AS (
  SELECT
    *,
    list_sort(list_transform(map_entries(by_cause), lambda e: (-e.value, e.key)))[1][2] AS cause,
    list_filter(examples, lambda e: e.redelivery_cause = cause)[1] AS example
  FROM numbers
  WHERE
    deliveries > 0 AND coalesce(messages <> 0, true)
    AND (redelivered > 0 OR coalesce(not_evaluated_by_reason['no_identity'], 0) < deliveries)
)
SELECT
  place,
  CASE
    WHEN redelivered = 0 THEN if(is_evident, 'none', '')
    WHEN cause = 'reconnect' AND example.closed_first_by IN ('client', 'broker')
      THEN 'closed_by_' || example.closed_first_by || if(example.is_refused = 1, '_refused', '')
    ELSE coalesce(cause, 'unknown')
  END AS variant,
  example.capture AS capture, example.previous_frame_no AS frame_earlier_delivery,
  example.frame_no AS frame_repeated_delivery, example.packet AS packet_repeated_delivery,
  deliveries AS measured_deliveries, redelivered AS measured_redelivered,
  redelivered_messages AS measured_redelivered_messages,
  CASE WHEN messages > deliveries THEN messages END AS measured_messages,
  by_cause AS measured_causes,
  CASE WHEN by_cause['explicit'] > 0 THEN asked_after_ms['p50'] END AS measured_asked_ms,
  CASE WHEN by_cause['explicit'] > 0 THEN came_after_ms['p50'] END AS measured_came_ms,
  nullif(retry_publishes, 0) AS measured_retried,
  nullif(dead_letter_publishes, 0) AS measured_dead_letters
FROM delivery_numbers
