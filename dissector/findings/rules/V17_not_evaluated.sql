/*
number = "V17"
code = "not_evaluated"
title = "What the capture cannot tell"
severity = "info"
section = "coverage"
fires = ["tap-oneway.pcap"]
silent = ["java-j01_plain.pcap"]

[text]
what = "[{sends}.][ {permits}.][ {redeliveries}.][ {checksums}.][ {refusals}.]"
*/
WITH reasons AS (
  SELECT
    place,
    CASE
      WHEN send_latency.total.sends IS NULL
        THEN 'Sends cannot be evaluated: what clients send is not in the capture'
      WHEN send_latency.total.sends = 0 AND publish_to_delivery.total.entries_confirmed > 0
        THEN 'No send is selected, as sends name no subscription'
      WHEN send_latency.total.sends = 0 THEN 'No send was seen'
    END AS measured_sends,
    CASE
      WHEN permit_utilization.total.not_applicable IS NOT NULL
        THEN 'Permits: not applicable, ' || permit_utilization.total.not_applicable
      WHEN permit_utilization.total.consumers = 0 THEN 'No consumer was seen'
      WHEN coalesce(permit_utilization.total.observed_ms, 0) = 0
        THEN 'Whether consumers ran out of permits cannot be evaluated: no balance is known'
    END AS measured_permits,
    CASE
      WHEN
        redelivery.total.deliveries IS NULL
        AND redelivery.total.not_evaluated_by_reason['message_unread'] > 0
        THEN 'Redeliveries cannot be evaluated: too little was captured of what brokers send'
      WHEN redelivery.total.deliveries IS NULL
        THEN 'Redeliveries cannot be evaluated: what brokers send is not in the capture'
      WHEN redelivery.total.deliveries = 0 THEN 'No delivery was seen'
      WHEN redelivery.total.messages = 0
        THEN 'Redeliveries cannot be evaluated: no message was seen in any delivery'
      WHEN
        redelivery.total.redelivered = 0
        AND redelivery.total.not_evaluated_by_reason['no_identity'] >= redelivery.total.deliveries
        THEN 'Redeliveries cannot be evaluated: entries of non-persistent topics have no id'
    END AS measured_redeliveries,
    CASE
      WHEN checksum_failures.total.not_applicable IS NOT NULL
        THEN 'Checksums: not applicable, ' || checksum_failures.total.not_applicable
      WHEN checksum_failures.total.evaluated = 0 THEN 'No checksum could be evaluated'
    END AS measured_checksums,
    CASE
      WHEN errors.total.answers IS NULL
        THEN 'Refusals cannot be evaluated: what brokers send is not in the capture'
      WHEN errors.total.answers = 0 AND list_sum(list_transform(
        ['ok', 'dup_or_dropped', 'error', 'orphan_response'],
        lambda name: coalesce(send_latency.total.outcomes[name], 0)
        + coalesce(requests.total.outcomes[name], 0)
      )) = 0 THEN 'Refusals cannot be evaluated: no answer was decoded'
    END AS measured_refusals
  FROM totals
  WHERE coverage.total.frames > 0
)
SELECT *
FROM reasons
WHERE
  coalesce(
    measured_sends, measured_permits, measured_redeliveries, measured_checksums, measured_refusals
  ) IS NOT NULL
