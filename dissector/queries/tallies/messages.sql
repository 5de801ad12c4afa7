-- messages: distinct messages of one producer, to one broker's address, or from one client's
-- keys: grouping, topic, producer_name, client_ip, broker_ip
-- sums: messages
-- A message is distinct by its id within its topic and producer, if both are known (one producer
-- name serves all partitions of a topic with equal ids); else within one incarnation of a producer.
-- It counts as many as the largest of its sends says. Sends without an id count at first attempts.
WITH sent AS (
  SELECT
    u.unit, p.capture, p.client_ip, p.broker_ip, p.message_id, p.is_first,
    coalesce(p.message_count, 0) AS messages, p.topic, p.producer_name,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.capture END AS own_capture,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.connection_id END AS own_connection,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.producer_id END AS own_producer,
    CASE WHEN p.topic IS NULL OR p.producer_name IS NULL THEN p.incarnation END AS own_incarnation
  FROM publishes AS p
  JOIN units AS u ON u.capture = p.capture
  WHERE p.is_request
),
each_message AS (
  SELECT
    unit, min(capture) AS capture, topic, producer_name, own_capture, own_connection, own_producer,
    own_incarnation, client_ip, broker_ip, message_id,
    max(messages) AS largest, sum(CASE WHEN is_first THEN messages ELSE 0 END) AS firsts
  FROM sent
  GROUP BY
    unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
    client_ip, broker_ip, message_id
),
by_producer AS (
  SELECT
    min(capture) AS capture, topic, producer_name,
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END AS messages
  FROM each_message
  GROUP BY
    unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
    message_id
),
by_client AS (
  SELECT
    min(capture) AS capture, client_ip,
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END AS messages
  FROM each_message
  GROUP BY
    unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
    client_ip, message_id
),
by_broker AS (
  SELECT
    min(capture) AS capture, broker_ip,
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END AS messages
  FROM each_message
  GROUP BY
    unit, topic, producer_name, own_capture, own_connection, own_producer, own_incarnation,
    broker_ip, message_id
)
SELECT
  capture, 'producer' AS grouping, topic, producer_name, CAST(NULL AS STRING) AS client_ip,
  CAST(NULL AS STRING) AS broker_ip, sum(messages) AS messages
FROM by_producer
GROUP BY capture, topic, producer_name
UNION ALL
SELECT capture, 'client', NULL, NULL, client_ip, NULL, sum(messages)
FROM by_client
GROUP BY capture, client_ip
UNION ALL
SELECT capture, 'broker', NULL, NULL, NULL, broker_ip, sum(messages)
FROM by_broker
GROUP BY capture, broker_ip
