-- reconsumed: publishes by topic and by the origin that their properties name
-- keys: topic, real_topic, real_subscription, has_reconsume_times
-- sums: publishes, messages
SELECT
  f.capture, coalesce(f.topic, n.late_topic) AS topic, f.real_topic, f.real_subscription,
  f.reconsume_times IS NOT NULL AS has_reconsume_times,
  count(*) AS publishes,
  sum(f.message_count) AS messages
FROM sends_to_any_topic AS f
ANTI JOIN twins AS t USING (capture, connection_id)
LEFT JOIN late_producers AS n USING (capture, connection_id, producer_id, incarnation)
GROUP BY ALL
