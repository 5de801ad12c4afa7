"""The table frames: what each column means, and which of Pulsar's protobuf fields fills it.

A column that is nothing but such a field is declared here and nowhere else: the plan that reads the
fields, the columns in memory and the rows of the table follow.
"""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, name, number, text, wired
from dissector.schemas.enums import STATUSES, listed

_NOT_THAT: Final = "another command, or not carried"

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
        name("status", f"{listed(STATUSES)}."),
        flag("retransmitted", "Some byte was sent again, or out of order, before it came out."),
        wired(
            number("request_id", "", "Number that pairs a request with its answer.", "not carried"),
            "command.*.request_id",
        ),
        wired(shared.PRODUCER_ID, "command.*.producer_id", "command.topicMigrated.resource_id"),
        wired(shared.CONSUMER_ID, "command.*.consumer_id"),
        shared.INCARNATION,
        wired(shared.SEQUENCE_ID, "command.*.sequence_id", "metadata_of_message.sequence_id"),
        wired(
            number("highest_sequence_id", "", "Last sequence id of a batch.", "not carried"),
            "command.*.highest_sequence_id",
            "metadata_of_message.highest_sequence_id",
        ),
        wired(
            shared.LEDGER_ID,
            "command.*.message_id.ledgerId",
            "command.*.start_message_id.ledgerId",
            "command.*.last_message_id.ledgerId",
        ),
        wired(
            shared.ENTRY_ID,
            "command.*.message_id.entryId",
            "command.*.start_message_id.entryId",
            "command.*.last_message_id.entryId",
        ),
        wired(
            shared.PARTITION,
            "command.*.message_id.partition",
            "command.*.start_message_id.partition",
            "command.*.last_message_id.partition",
            null=-1,
        ),
        wired(
            number(
                "message_count",
                "messages",
                "Messages in the entry, as its metadata says.",
                "not SEND or MESSAGE, or the metadata was not read",
            ),
            "metadata.num_messages_in_batch",
            default=1,
            present="is_batch",
        ),
        wired(
            number("permits", "messages", "Permits that a FLOW grants.", "not FLOW"),
            "command.flow.messagePermits",
        ),
        wired(
            number(
                "redelivery_count",
                "",
                "Times that the broker was asked to deliver this entry again.",
                "not carried",
            ),
            "command.message.redelivery_count",
        ),
        shared.TOPIC,
        shared.SUBSCRIPTION,
        shared.PRODUCER_NAME,
        shared.CONSUMER_NAME,
        shared.NAME_SOURCE,
        wired(
            number("producer_epoch", "", "How often the producer reconnected.", "not carried"),
            "command.producer.epoch",
        ),
        wired(shared.ERROR_CODE, "command.*.error", "command.*.error_code"),
        wired(shared.ERROR_TEXT, "command.*.message", "command.*.error_message"),
        wired(shared.ACK_TYPE, "command.ack.ack_type"),
        wired(shared.VALIDATION_ERROR, "command.ack.validation_error"),
        shared.CHECKSUM,
        name(
            "checksum_note",
            "What was odd about the checksum or why it was not evaluated.",
            "nothing",
        ),
        shared.CRC32C_STORED,
        number("crc32c_computed", "", "CRC32C of the bytes that were captured.", "not evaluated"),
        number("metadata_bytes", "bytes", "Size of the message metadata.", "no entry"),
        number("payload_bytes", "bytes", "Size of the payload as sent, compressed.", "no entry"),
        wired(
            name(
                "compression", "Codec of the payload: NONE, LZ4, ZLIB, ZSTD or SNAPPY.", "no entry"
            ),
            "metadata.compression",
            default=0,
        ),
        wired(
            number(
                "uncompressed_bytes", "bytes", "Size of the payload as stated before.", "not stated"
            ),
            "metadata.uncompressed_size",
        ),
        flag("is_batch", "Whether the entry holds a batch.", "no metadata was read"),
        wired(
            flag("is_encrypted", "Whether the payload is encrypted.", "no metadata was read"),
            "metadata.encryption_keys",
            default=0,
        ),
        wired(shared.PUBLISH_TIME_MS, "metadata.publish_time"),
        wired(shared.EVENT_TIME_MS, "metadata.event_time", null=0),
        wired(shared.DELIVER_AT_MS, "metadata.deliver_at_time"),
        wired(shared.CHUNK_ID, "metadata.chunk_id"),
        wired(
            number("chunk_count", "", "Chunks of the message.", "not part of a chunked message"),
            "metadata.num_chunks_from_msg",
        ),
        wired(
            text("chunk_uuid", "Name that the chunks of a message share.", "not chunked"),
            "metadata.uuid",
        ),
        wired(shared.TXN_MOST_BITS, "command.*.txnid_most_bits", "metadata.txnid_most_bits"),
        wired(shared.TXN_LEAST_BITS, "command.*.txnid_least_bits", "metadata.txnid_least_bits"),
        wired(
            number(
                "broker_timestamp_ms",
                "ms since 1970",
                "When the broker stored the entry, by its clock.",
                "the broker does not expose it",
            ),
            "broker_entry.broker_timestamp",
        ),
        wired(
            number(
                "broker_index",
                "",
                "The broker's running number of the entry's last message.",
                "the broker does not expose it",
            ),
            "broker_entry.index",
        ),
        wired(shared.SCHEMA_VERSION_HEX, "command.*.schema_version", "metadata.schema_version"),
        wired(
            name(
                "replicated_from",
                "Cluster from which the message was replicated.",
                "not replicated",
            ),
            "metadata.replicated_from",
        ),
        number("repl_source_ledger_id", "", "Ledger in the source cluster.", "not replicated"),
        number("repl_source_entry_id", "", "Entry in the source cluster.", "not replicated"),
        wired(
            name("marker_type", "Kind of the broker's own marker message.", "not a marker"),
            "metadata.marker_type",
        ),
        shared.RECONSUME_TIMES,
        shared.REAL_TOPIC,
        name(
            "real_subscription",
            "Subscription from which a retry or dead-letter message came.",
            "no such property",
        ),
        shared.secret_free_detail(),
        number(
            "message_permits",
            "messages",
            "Permits that a MESSAGE costs, as a broker of a later version says.",
            "not carried",
        ),
        shared.ACK_SET_LEFT,
        number(
            "watcher_id", "", "The client's number of a watcher or session.", "the command has none"
        ),
        flag("is_ready", "Whether a PRODUCER_SUCCESS makes its producer usable.", _NOT_THAT),
        flag("is_active", "Whether an ACTIVE_CONSUMER_CHANGE makes it active.", _NOT_THAT),
        name("txn_action", "What an END_TXN asks for: COMMIT or ABORT.", _NOT_THAT),
        number(
            "available_permits",
            "messages",
            "Balance of a consumer, as a CONSUMER_STATS_RESPONSE says.",
            _NOT_THAT,
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
