-- placeholders: batch indexes of deliveries that compaction emptied: they use permits, but are no messages
-- keys: topic
-- sums: placeholders
SELECT m.capture, m.topic, count(*) AS placeholders
FROM messages AS m
ANTI JOIN twins AS t USING (capture, connection_id)
WHERE m.is_compacted_out AND m.direction = 'to_client'
GROUP BY m.capture, m.topic
