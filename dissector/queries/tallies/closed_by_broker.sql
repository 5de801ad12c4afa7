-- closed_by_broker: a producer or consumer that the broker closed
-- first: 1000 by capture, closed_frame_no, what, connection_id
SELECT capture, connection_id, what, topic, name, subscription, closed_frame_no, cause
FROM closed_subjects
