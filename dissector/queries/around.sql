-- Views of the rows around what is selected: made only where something is.

-- received_around: a delivery, with names that were learnt late
SELECT
  d.capture, d.ts, d.ledger_id, d.entry_id, d.outcome, d.ack_latency_ns,
  coalesce(d.topic, n.late_topic) AS named_topic,
  coalesce(d.subscription, n.late_subscription) AS named_subscription
FROM deliveries_around AS d
ANTI JOIN twins AS t ON t.capture = d.capture AND t.connection_id = d.connection_id
LEFT JOIN late_consumers AS n
  ON n.capture = d.capture AND n.connection_id = d.connection_id
  AND n.consumer_id = d.consumer_id AND n.incarnation = d.incarnation;
