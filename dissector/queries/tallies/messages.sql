-- messages: distinct messages of one producer, to one broker's address, or from one client's
-- keys: grouping, topic, producer_name, client_ip, broker_ip
-- sums: messages
-- A message is distinct by its id within its topic and producer, if both are known (one producer
-- name serves all partitions of a topic with equal ids); else within one incarnation of a producer.
-- It counts as many as the largest of its sends says. Sends without an id count at first attempts.
-- Producers get numbers first: to tell half a million messages apart by names takes ten times as
-- long. A leaf is what has one name of each kind; a producer mostly is one (not is_shared), and what
-- sends under one incarnation, too (is_all).
WITH leaves AS (
  SELECT DISTINCT
    p.capture, p.connection_id, p.producer_id, p.incarnation, p.topic, p.producer_name,
    p.client_ip, p.broker_ip
  FROM publishes AS p
  WHERE p.is_request
),
owned AS (
  SELECT
    l.*, u.unit,
    CASE
      WHEN l.topic IS NULL OR l.producer_name IS NULL
        THEN dense_rank() OVER (
          ORDER BY l.capture, l.connection_id, l.producer_id, l.incarnation
        )
    END AS owner_no,
    row_number() OVER (
      ORDER BY
        l.capture, l.connection_id, l.producer_id, l.incarnation, l.topic, l.producer_name,
        l.client_ip, l.broker_ip
    ) AS leaf_no
  FROM leaves AS l
  JOIN units AS u ON u.capture = l.capture
),
numbered AS (
  SELECT
    o.*,
    dense_rank() OVER (ORDER BY unit, topic, producer_name, owner_no) AS producer_no,
    dense_rank() OVER (ORDER BY unit, topic, producer_name, owner_no, client_ip) AS client_no,
    dense_rank() OVER (ORDER BY unit, topic, producer_name, owner_no, broker_ip) AS broker_no,
    count(*) OVER (PARTITION BY unit, topic, producer_name, owner_no) > 1 AS is_shared,
    count(*) OVER (PARTITION BY capture, connection_id, producer_id, incarnation) = 1 AS is_all
  FROM owned AS o
),
each_message AS (
  SELECT
    n.leaf_no, n.is_shared, p.message_id,
    max(coalesce(p.message_count, 0)) AS largest,
    sum(CASE WHEN p.is_first THEN p.message_count ELSE 0 END) AS firsts
  FROM publishes AS p
  JOIN numbered AS n
    ON n.capture = p.capture AND n.connection_id = p.connection_id
    AND n.producer_id IS NOT DISTINCT FROM p.producer_id
    AND n.incarnation IS NOT DISTINCT FROM p.incarnation
    AND (
      n.is_all OR (
        n.topic IS NOT DISTINCT FROM p.topic
        AND n.producer_name IS NOT DISTINCT FROM p.producer_name
        AND n.client_ip IS NOT DISTINCT FROM p.client_ip
        AND n.broker_ip IS NOT DISTINCT FROM p.broker_ip
      )
    )
  WHERE p.is_request
  GROUP BY n.leaf_no, n.is_shared, p.message_id
),
shared AS (
  SELECT n.leaf_no, n.producer_no, n.client_no, n.broker_no, m.message_id, m.largest, m.firsts
  FROM each_message AS m
  JOIN numbered AS n ON n.leaf_no = m.leaf_no
  WHERE m.is_shared
),
once AS (
  SELECT
    'producer' AS grouping, min(leaf_no) AS leaf_no,
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END AS messages
  FROM shared
  GROUP BY producer_no, message_id
  UNION ALL
  SELECT
    'client', min(leaf_no),
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END
  FROM shared
  GROUP BY client_no, message_id
  UNION ALL
  SELECT
    'broker', min(leaf_no),
    CASE WHEN message_id IS NULL THEN sum(firsts) ELSE max(largest) END
  FROM shared
  GROUP BY broker_no, message_id
),
alone AS (
  SELECT
    leaf_no, sum(CASE WHEN message_id IS NULL THEN firsts ELSE largest END) AS messages
  FROM each_message
  WHERE NOT is_shared
  GROUP BY leaf_no
),
summed AS (
  SELECT grouping, leaf_no, sum(messages) AS messages FROM once GROUP BY grouping, leaf_no
  UNION ALL
  SELECT 'producer', leaf_no, messages FROM alone
  UNION ALL
  SELECT 'client', leaf_no, messages FROM alone
  UNION ALL
  SELECT 'broker', leaf_no, messages FROM alone
)
SELECT
  n.capture, s.grouping,
  CASE WHEN s.grouping = 'producer' THEN n.topic END AS topic,
  CASE WHEN s.grouping = 'producer' THEN n.producer_name END AS producer_name,
  CASE WHEN s.grouping = 'client' THEN n.client_ip END AS client_ip,
  CASE WHEN s.grouping = 'broker' THEN n.broker_ip END AS broker_ip,
  sum(s.messages) AS messages
FROM summed AS s
JOIN numbered AS n ON n.leaf_no = s.leaf_no
GROUP BY ALL
