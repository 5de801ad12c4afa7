-- What came before the captures that are read, as one increment of a group leaves it to the next:
-- empty of captures that nothing came before. Frames have the numbers of the whole (n), connections
-- those of their chains.

-- before_end: how many increments there were, and the number of the last frame; the greatest count.
CREATE TABLE before_end AS SELECT 0::BIGINT AS increments, 0::BIGINT AS n;

-- before_frames: frames that came before and count still. is_open: its row is not told yet. What was
-- found of it when it came: attempt and outstanding of requests, the others of deliveries. next_n: the
-- delivery that came next of its entry, whose row may be told already; is_replaced: of another message.
CREATE TABLE before_frames (n BIGINT, is_open BOOLEAN, attempt BIGINT, outstanding BIGINT,
  redelivery_cause VARCHAR, previous_n BIGINT, previous_chain BIGINT, next_n BIGINT,
  is_replaced BOOLEAN);

-- before_consumers: when each was closed, and its balance.
CREATE TABLE before_consumers (chain BIGINT, consumer_id BIGINT, x BIGINT, closed_n BIGINT,
  available BIGINT, unacked BIGINT, open_unread BIGINT, was_unread BOOLEAN, has_message BOOLEAN);

-- before_producers: those that sent something.
CREATE TABLE before_producers (chain BIGINT, producer_id BIGINT, x BIGINT);

-- before_spots: where answers or acks may be hidden.
CREATE TABLE before_spots (hides VARCHAR, chain BIGINT, direction VARCHAR, spot DOUBLE);

-- before_published: when entries were sent that were delivered before, or are now.
CREATE TABLE before_published (topic VARCHAR, chain BIGINT, ledger BIGINT, entry BIGINT,
  sent_ns BIGINT, n BIGINT);

-- before_ranges: between which numbers the messages of each increment lie (from 0): sequence ids by
-- producer, entries by ledger, as text.
CREATE TABLE before_ranges (increment BIGINT, kind VARCHAR, name VARCHAR, least BIGINT,
  greatest BIGINT);

-- before_attempts: how often messages were sent that are sent again.
CREATE TABLE before_attempts (chain BIGINT, topic VARCHAR, producer_name VARCHAR,
  sequence_id BIGINT, chunk_id BIGINT, crc32c_stored BIGINT, attempts BIGINT);

-- before_deliveries: closed deliveries of entries that come again.
CREATE TABLE before_deliveries (n BIGINT, chain BIGINT, consumer_id BIGINT, x BIGINT, ledger BIGINT,
  entry BIGINT, crc BIGINT, outcome VARCHAR);
