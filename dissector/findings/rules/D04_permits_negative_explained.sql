/*
number = "D04"
code = "permits_negative_explained"
title = "Permits below zero: a batch was larger than what was left"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "permit_utilization"
worst = "measured_largest_batch"
references = ["apache/pulsar#24418", "apache/pulsar#12370", "apache/pulsar#10813", "apache/pulsar#6054", "apache/pulsar PR 10396"]
fires = ["go-g02_batch_zstd-bem.pcap", "java-j32_encryption.pcap"]
real = ["go-g02_batch_zstd-bem.pcap", "java-j32_encryption.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[needs]
permits = "available_after < $balance"

[thresholds.balance]
value = 0
unit = "permits"
why = "below it more messages came than were granted"

[text]
what = "The permits of consumer {consumer_name} of {subscription} on {topic} fell to {available_min}; the largest entry that came had {largest_batch} messages."
known = "The balance is counted from the consumer's first FLOW, every grant and every delivery."
rival = "None: the last entry was larger than what was left, which brokers allow."
decides = "Nothing is open: the overdraft ({overdraft}) is smaller than the largest entry ({largest_batch})."
do = "Nothing: it is no fault by itself. If this consumer gets nothing for long, look for consumer_out_of_permits."
[variant.overdrawn]
title = "Permits below zero, by more than one entry"
rival = "Entries that were under way when the balance changed, or a broker that sends more than is granted."
decides = "Whether the balance falls below that of one entry ({overdraft} beside {largest_batch}) again and again. The broker is {server_version}, which is none of those that count entries (4.0.0 to 4.0.3)."

[variant.version_unknown]
like = "overdrawn"
title = "Permits below zero, by more than one entry, at a broker of unknown version"
rival = "Brokers 4.0.0 to 4.0.3, which send entries as if a batch cost one permit; or entries that were under way when the balance changed."
decides = "The broker's version, which is not in the capture."

[variant.counts_entries]
title = "Permits below zero: this broker counts entries, not messages"
rival = "Entries that were under way when the balance changed."
decides = "Whether it is so with a broker from 4.0.4 on: this one is {server_version}, and 4.0.0 to 4.0.3 send entries as if a batch cost one permit."
do = "Take a broker from 4.0.4 on (apache/pulsar PR 24092), if consumers get more than they can hold. If this consumer gets nothing for long, look for consumer_out_of_permits."
*/
SELECT
  n.capture, n.at_ns AS first_ns, n.at_ns AS last_ns,
  CASE
    WHEN 0 - n.available_min < n.largest_batch THEN ''
    WHEN r.release IS NULL THEN 'version_unknown'
    WHEN r.release BETWEEN 4000000 AND 4000003 THEN 'counts_entries'
    ELSE 'overdrawn'
  END AS variant,
  n.topic AS subject_topic,
  n.subscription AS subject_subscription, c.name AS subject_consumer_name,
  l.client_ip AS subject_client_ip, n.available_min AS measured_available_min,
  0 - n.available_min AS measured_overdraft,
  n.largest_batch AS measured_largest_batch, l.server_version AS measured_server_version,
  n.frame_no AS frame_lowest_balance
FROM (
  SELECT
    p.capture, p.connection_id, p.consumer_id, p.incarnation, p.topic, p.subscription, p.frame_no,
    p.available_after AS available_min, micros(p.ts) * 1000 AS at_ns,
    max(CASE WHEN p.event = 'delivery' THEN 0 - p.delta END) OVER (
      PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation
    ) AS largest_batch,
    row_number() OVER (
      PARTITION BY p.capture, p.connection_id, p.consumer_id, p.incarnation
      ORDER BY p.available_after, p.frame_no
    ) AS place
  FROM permits AS p
  JOIN (
    SELECT capture, connection_id, consumer_id, incarnation
    FROM permits
    WHERE baseline_known AND available_after < $balance
    GROUP BY capture, connection_id, consumer_id, incarnation
  ) AS b
    ON b.capture = p.capture AND b.connection_id = p.connection_id
    AND b.consumer_id = p.consumer_id AND b.incarnation = p.incarnation
  ANTI JOIN other_legs AS t ON t.capture = p.capture AND t.connection_id = p.connection_id
  WHERE p.baseline_known AND p.available_after IS NOT NULL
) AS n
LEFT JOIN consumers AS c
  ON c.capture = n.capture AND c.connection_id = n.connection_id
  AND c.consumer_id = n.consumer_id AND c.incarnation = n.incarnation
JOIN connections AS l
  ON l.capture = n.capture AND l.connection_id = n.connection_id AND l.protocol = 'pulsar'
LEFT JOIN releases AS r ON r.server_version = l.server_version
WHERE n.place = 1
