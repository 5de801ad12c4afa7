-- ack_commands: ACK commands of a subscription, and the ids in them
-- keys: topic, subscription, ack_type, is_answered, validation_error
-- sums: ack_commands, ids
SELECT
  capture, topic, subscription, ack_type, is_answered, validation_error,
  sum(ack_commands) AS ack_commands,
  sum(ids) AS ids
FROM acked_commands
GROUP BY capture, topic, subscription, ack_type, is_answered, validation_error
