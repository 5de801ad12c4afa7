-- placeholders: places of delivered batches that a compaction emptied: paid for, but no messages
-- keys: topic
-- sums: placeholders
SELECT m.capture, m.topic, count(*) AS placeholders
FROM messages AS m
WHERE
  m.is_compacted_out AND m.direction = 'to_client'
  AND NOT EXISTS (
    SELECT 1 FROM twins AS t WHERE t.capture = m.capture AND t.connection_id = m.connection_id
  )
GROUP BY m.capture, m.topic
