-- bursts: a client that opened ten connections to one broker, or more, within ten seconds
-- first: 50 by within_10_s desc, client_ip, broker_ip, broker_port, capture
SELECT capture, client_ip, broker_ip, broker_port, opened, within_10_s, vain, at_ns
FROM storms
WHERE within_10_s >= 10
