-- The state that earlier increments of a group left for this one; empty for the first one. Frames have
-- the numbers of the whole (n), connections the numbers of their chains.

-- before_end: the number of earlier increments, and the number of their last frame. Readers use the
-- maximum of each column.
CREATE TABLE before_end AS SELECT 0::BIGINT AS increments, 0::BIGINT AS n;

-- before_frames: earlier frames that are still needed. is_open: its row is not written yet. attempt and
-- outstanding were counted when a request came, the other columns when a delivery came. next_n: the next
-- delivery of the entry, whose row may be written already; is_replaced: that one is another message.
CREATE TABLE before_frames (n BIGINT, is_open BOOLEAN, attempt BIGINT, outstanding BIGINT,
  redelivery_cause VARCHAR, previous_n BIGINT, previous_chain BIGINT, next_n BIGINT,
  is_replaced BOOLEAN);

-- before_consumers: consumers with the frame that closed them and their balance.
CREATE TABLE before_consumers (chain BIGINT, consumer_id BIGINT, x BIGINT, closed_n BIGINT,
  available BIGINT, unacked BIGINT, open_unread BIGINT, was_unread BOOLEAN, has_message BOOLEAN);

-- before_producers: producers that sent something. known_n: frame since which it is known which sends
-- wait: all that have no answer if is_oldest, else none from before it.
CREATE TABLE before_producers (chain BIGINT, producer_id BIGINT, x BIGINT, known_n BIGINT,
  is_oldest BOOLEAN);

-- before_spots: spots that may hide answers or acks.
CREATE TABLE before_spots (hides VARCHAR, chain BIGINT, direction VARCHAR, spot DOUBLE);

-- before_published: the send times of entries that were delivered before, or are delivered now.
CREATE TABLE before_published (topic VARCHAR, chain BIGINT, ledger BIGINT, entry BIGINT,
  sent_ns BIGINT, n BIGINT);

-- before_ranges: the lowest and highest number of each increment's messages (increments count from 0):
-- sequence ids by producer, entries by ledger, as text.
CREATE TABLE before_ranges (increment BIGINT, kind VARCHAR, name VARCHAR, least BIGINT,
  greatest BIGINT);

-- before_attempts: the earlier attempts of messages that are sent again.
CREATE TABLE before_attempts (chain BIGINT, topic VARCHAR, producer_name VARCHAR,
  sequence_id BIGINT, chunk_id BIGINT, crc32c_stored BIGINT, attempts BIGINT);

-- before_deliveries: closed deliveries of entries that are delivered again.
CREATE TABLE before_deliveries (n BIGINT, chain BIGINT, consumer_id BIGINT, x BIGINT, ledger BIGINT,
  entry BIGINT, crc BIGINT, outcome VARCHAR);
