"""The table frames."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, name, number, text

TABLE: Final = Table(
    "frames",
    "one protocol frame",
    (
        shared.CONNECTION_ID,
        shared.FRAME_NO,
        name("protocol", "pulsar or cursus."),
        shared.DIRECTION,
        name(
            "command",
            "What the frame says, e.g. SEND; UNKNOWN_83 if its number has no name.",
            "the type was not captured",
        ),
        shared.ts("Time of the frame's last byte"),
        number("first_ts_ns", "ns since 1970", "First arrival of the frame's first byte."),
        number("last_ts_ns", "ns since 1970", "Latest first arrival among all its bytes."),
        number("first_packet", "", "Packet that brought the first byte; the capture's first is 1."),
        number("last_packet", "", "Packet that completed the frame."),
        number("stream_offset", "bytes", "Where the frame starts in the stream of its direction."),
        number("frame_bytes", "bytes", "Size of the frame, its length field included."),
        name("status", "complete, cut_by_gap, cut_by_snaplen, cut_by_end or malformed."),
        flag("retransmitted", "Whether some byte was sent again or came out of order."),
        number("request_id", "", "Number that pairs a request with its answer.", "not carried"),
        shared.PRODUCER_ID,
        shared.CONSUMER_ID,
        shared.INCARNATION,
        shared.SEQUENCE_ID,
        number("highest_sequence_id", "", "Last sequence id of a batch.", "not carried"),
        shared.LEDGER_ID,
        shared.ENTRY_ID,
        shared.PARTITION,
        number(
            "message_count",
            "messages",
            "Messages in the entry, as its metadata says.",
            "not SEND or MESSAGE, or the metadata was not read",
        ),
        number("permits", "messages", "Permits that a FLOW grants.", "not FLOW"),
        number(
            "redelivery_count",
            "",
            "Times that the broker was asked to deliver this entry again.",
            "not carried",
        ),
        shared.TOPIC,
        shared.SUBSCRIPTION,
        shared.PRODUCER_NAME,
        shared.CONSUMER_NAME,
        shared.NAME_SOURCE,
        number(
            "producer_epoch", "", "How often the producer reconnected.", "not carried"
        ),
        shared.ERROR_CODE,
        shared.ERROR_TEXT,
        shared.ACK_TYPE,
        shared.VALIDATION_ERROR,
        shared.CHECKSUM,
        name("checksum_note", "What was odd about the checksum or why it was not evaluated.", "nothing"),
        shared.CRC32C_STORED,
        number(
            "crc32c_computed", "", "CRC32C of the bytes that were captured.", "not evaluated"
        ),
        number("metadata_bytes", "bytes", "Size of the message metadata.", "no entry"),
        number(
            "payload_bytes", "bytes", "Size of the payload as sent, compressed.", "no entry"
        ),
        name("compression", "Codec of the payload: NONE, LZ4, ZLIB, ZSTD or SNAPPY.", "no entry"),
        number("uncompressed_bytes", "bytes", "Size of the payload as stated before.", "not stated"),
        flag("is_batch", "Whether the entry holds a batch.", "no metadata was read"),
        flag("is_encrypted", "Whether the payload is encrypted.", "no metadata was read"),
        shared.PUBLISH_TIME_MS,
        shared.EVENT_TIME_MS,
        shared.DELIVER_AT_MS,
        shared.CHUNK_ID,
        number("chunk_count", "", "Chunks of the message.", "not part of a chunked message"),
        text("chunk_uuid", "Name that the chunks of a message share.", "not chunked"),
        shared.TXN_MOST_BITS,
        shared.TXN_LEAST_BITS,
        number(
            "broker_timestamp_ms",
            "ms since 1970",
            "When the broker stored the entry, by its clock.",
            "the broker does not expose it",
        ),
        number(
            "broker_index",
            "",
            "The broker's running number of the entry's last message.",
            "the broker does not expose it",
        ),
        shared.SCHEMA_VERSION_HEX,
        name("replicated_from", "Cluster from which the message was replicated.", "not replicated"),
        number("repl_source_ledger_id", "", "Ledger in the source cluster.", "not replicated"),
        number("repl_source_entry_id", "", "Entry in the source cluster.", "not replicated"),
        name("marker_type", "Kind of the broker's own marker message.", "not a marker"),
        shared.RECONSUME_TIMES,
        shared.REAL_TOPIC,
        name(
            "real_subscription",
            "Subscription from which a retry or dead-letter message came.",
            "no such property",
        ),
        shared.secret_free_detail(),
        shared.ORIGIN_CAPTURE,
    ),
)
