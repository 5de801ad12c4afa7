-- messages: distinct messages of a producer, to a broker's address, or from a client's address
-- keys: grouping, topic, producer_name, client_ip, broker_ip
-- sums: messages
-- A message is distinct by its id within its topic and producer, if both are known (one producer
-- name serves all partitions of a topic with equal ids); else within one incarnation of a producer.
-- Its message_count is the largest of its sends. Sends without an id count as first attempts only.
WITH leaf_sends AS (
  SELECT n.leaf_no, n.is_shared, p.message_id, p.message_count, p.is_first
  FROM publishes AS p
  JOIN senders AS n
    ON n.capture = p.capture AND n.connection_id = p.connection_id
    AND n.producer_id IS NOT DISTINCT FROM p.producer_id
    AND n.incarnation IS NOT DISTINCT FROM p.incarnation
  WHERE p.is_request AND n.is_all
  UNION ALL
  SELECT n.leaf_no, n.is_shared, p.message_id, p.message_count, p.is_first
  FROM publishes AS p
  JOIN senders AS n
    ON n.capture = p.capture AND n.connection_id = p.connection_id
    AND n.producer_id IS NOT DISTINCT FROM p.producer_id
    AND n.incarnation IS NOT DISTINCT FROM p.incarnation
    AND n.topic IS NOT DISTINCT FROM p.topic
    AND n.producer_name IS NOT DISTINCT FROM p.producer_name
    AND n.client_ip IS NOT DISTINCT FROM p.client_ip
    AND n.broker_ip IS NOT DISTINCT FROM p.broker_ip
  WHERE p.is_request AND NOT n.is_all
),
leaf_messages AS (
  SELECT
    leaf_no, is_shared, message_id,
    max(coalesce(message_count, 0)) AS largest,
    sum(CASE WHEN is_first THEN message_count ELSE 0 END) AS firsts
  FROM leaf_sends
  GROUP BY leaf_no, is_shared, message_id
),
shared_messages AS (
  SELECT n.leaf_no, n.producer_no, n.client_no, n.broker_no, m.message_id, m.largest, m.firsts
  FROM leaf_messages AS m
  JOIN senders AS n USING (leaf_no)
  WHERE m.is_shared
),
distinct_messages AS (
  SELECT
    'producer' AS grouping, min(leaf_no) AS leaf_no,
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END AS messages
  FROM shared_messages
  GROUP BY producer_no, message_id
  UNION ALL
  SELECT
    'client', min(leaf_no),
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END
  FROM shared_messages
  GROUP BY client_no, message_id
  UNION ALL
  SELECT
    'broker', min(leaf_no),
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END
  FROM shared_messages
  GROUP BY broker_no, message_id
),
unshared_counts AS (
  SELECT
    leaf_no, sum(CASE WHEN message_id IS NULL THEN firsts ELSE largest END) AS messages
  FROM leaf_messages
  WHERE NOT is_shared
  GROUP BY leaf_no
),
message_counts AS (
  SELECT grouping, leaf_no, sum(messages) AS messages FROM distinct_messages GROUP BY grouping, leaf_no
  UNION ALL
  SELECT 'producer', leaf_no, messages FROM unshared_counts
  UNION ALL
  SELECT 'client', leaf_no, messages FROM unshared_counts
  UNION ALL
  SELECT 'broker', leaf_no, messages FROM unshared_counts
)
SELECT
  n.capture, s.grouping,
  CASE WHEN s.grouping = 'producer' THEN n.topic END AS topic,
  CASE WHEN s.grouping = 'producer' THEN n.producer_name END AS producer_name,
  CASE WHEN s.grouping = 'client' THEN n.client_ip END AS client_ip,
  CASE WHEN s.grouping = 'broker' THEN n.broker_ip END AS broker_ip,
  sum(s.messages) AS messages
FROM message_counts AS s
JOIN senders AS n USING (leaf_no)
GROUP BY ALL
