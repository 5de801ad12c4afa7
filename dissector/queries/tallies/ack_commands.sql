-- ack_commands: ACK commands of a subscription, and the ids in them
-- keys: topic, subscription, ack_type, is_answered, validation_error
-- sums: ack_commands, ids
-- All ids of a command are of one consumer and share what else it says.
SELECT
  capture, topic, subscription, ack_type, is_answered, validation_error,
  count(*) AS ack_commands,
  sum(ids) AS ids
FROM (
  SELECT
    capture, connection_id, frame_no, named_topic AS topic, named_subscription AS subscription,
    ack_type, request_id IS NOT NULL AS is_answered, validation_error,
    count(*) AS ids
  FROM acknowledged
  WHERE action = 'ack'
  GROUP BY ALL
) AS commands
GROUP BY capture, topic, subscription, ack_type, is_answered, validation_error
