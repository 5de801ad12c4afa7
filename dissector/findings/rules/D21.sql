/*
number = "D21"
code = "name_still_connected"
title = "A name is taken"
severity = "info"
verdict = "proven"
protocol = "pulsar"
section = "errors"
worst = "measured_refusals"
references = ["apache/pulsar#13342", "apache/pulsar#13363", "apache/pulsar#15885", "apache/pulsar#7140", "apache/pulsar PR 21144"]
errors = ["ProducerBusy", "ConsumerBusy", "ProducerFenced"]
fires = ["java-j23_errors.pcap", "cpp-s15_errors.pcap"]
silent = ["java-j01_plain.pcap", "cpp-s02_single_1k.pcap"]

[thresholds.lasting_s]
value = 10.0
unit = "s"
why = "a single refusal is what a second application meets at once; refused for longer, a client is kept out"

[text]
what = "The broker refused {command} on {topic} (subscription {subscription}) for {client_ip} {refusals} times: {error_code}, '{error_text}'."
known = "The refusal is in the capture."
rival = "Another host that holds the name by right; the client's own earlier connection that the broker has not given up; or a limit of the topic."
decides = "Who holds it: an open of the same name earlier in this capture, or the broker's statistics of the topic, with address and age of the holder."
do = "Give each process its own name or subscription; if the holder is the client's own dead connection, wait for the broker's keep-alive to end it and see what ate its FIN."

[variant.kept_out]
severity = "error"
title = "A client is kept out by a name that is taken"
*/
SELECT
  e.capture, min(e.response_last_ns) AS first_ns, max(e.response_last_ns) AS last_ns,
  CASE
    WHEN
      count(*) > 1
      AND max(e.response_last_ns) - min(e.response_last_ns) >= $lasting_s * 1000000000
      THEN 'kept_out'
    ELSE ''
  END AS variant,
  e.topic AS subject_topic, e.subscription AS subject_subscription,
  e.client_ip AS subject_client_ip, e.request_command AS subject_command,
  e.error_code AS measured_error_code, max(e.error_text) AS measured_error_text,
  count(*) AS measured_refusals,
  min(e.request_frame_no) AS frame_first_request, min(e.response_frame_no) AS frame_first_refusal,
  max(e.response_frame_no) AS frame_last_refusal
FROM exchanges AS e
ANTI JOIN twins AS t ON t.capture = e.capture AND t.connection_id = e.connection_id
WHERE
  e.error_code IN ('ProducerBusy', 'ConsumerBusy', 'ProducerFenced')
  AND e.response_last_ns IS NOT NULL AND e.request_command IN ('PRODUCER', 'SUBSCRIBE')
GROUP BY e.capture, e.topic, e.subscription, e.client_ip, e.request_command, e.error_code
