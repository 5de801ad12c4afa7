"""Columns that several tables have with the same meaning."""

from typing import Final

from dissector.schemas.column import Column, integers, name, number, text
from dissector.schemas.enums import CHECKSUMS, NAME_SOURCES, listed

CONNECTION_ID: Final = number(
    "connection_id", "", "Number of the TCP connection in this capture, from 0 by first packet."
)
FRAME_NO: Final = number(
    "frame_no", "", "Number of the frame in its capture, from 1 in the order of release."
)
INCARNATION: Final = number(
    "incarnation",
    "",
    "How often this producer or consumer id was opened on this connection before, from 0.",
    "the row is about no producer or consumer",
)
PRODUCER_ID: Final = number(
    "producer_id", "", "The client's number of the producer.", "the command carries none"
)
CONSUMER_ID: Final = number(
    "consumer_id", "", "The client's number of the consumer.", "the command carries none"
)
TOPIC: Final = name(
    "topic", "Full name of the topic (of the partition, if partitioned).", "unknown"
)
SUBSCRIPTION: Final = name("subscription", "Name of the subscription.", "unknown or none")
SUBSCRIPTION_TYPE: Final = name(
    "subscription_type",
    "Type of the subscription: Exclusive, Shared, Failover or Key_Shared.",
    "its SUBSCRIBE is not in the capture",
)
PRODUCER_NAME: Final = name("producer_name", "Name of the producer.", "unknown or none")
CONSUMER_NAME: Final = name("consumer_name", "Name of the consumer.", "unknown or none")
NAME_SOURCE: Final = name(
    "name_source",
    f"How the names became known: {listed(NAME_SOURCES)}.",
    "nothing to name",
)
DIRECTION: Final = name(
    "direction", "Where the bytes went: to_broker, to_client, or unknown if the role is."
)
LEDGER_ID: Final = number(
    "ledger_id", "", "Ledger of the entry: first half of a message id.", "unknown or not carried"
)
ENTRY_ID: Final = number(
    "entry_id",
    "",
    "Entry within the ledger: second half of a message id.",
    "unknown or not carried",
)
PARTITION: Final = number(
    "partition", "", "Partition that the message id names.", "not carried, or -1 on the wire"
)
SEQUENCE_ID: Final = number("sequence_id", "", "Sequence id that the producer gave.", "not carried")
SCHEMA_VERSION_HEX: Final = name(
    "schema_version_hex", "Version of the message schema, as hex digits.", "not carried"
)
PUBLISH_TIME_MS: Final = number(
    "publish_time_ms",
    "ms since 1970",
    "When the producer says that it published, by the client's clock.",
    "no metadata was read",
)
EVENT_TIME_MS: Final = number(
    "event_time_ms", "ms since 1970", "Event time that the application set.", "not set"
)
DELIVER_AT_MS: Final = number(
    "deliver_at_ms", "ms since 1970", "Not to be delivered before this time.", "not set"
)
RECONSUME_TIMES: Final = number(
    "reconsume_times",
    "",
    "How often a retry or dead-letter message was consumed before (RECONSUMETIMES).",
    "no such property",
)
REAL_TOPIC: Final = name(
    "real_topic", "Topic from which a retry or dead-letter message came.", "no such property"
)
TXN_MOST_BITS: Final = number(
    "txn_most_bits", "", "High half of the transaction id.", "not in a transaction"
)
TXN_LEAST_BITS: Final = number(
    "txn_least_bits", "", "Low half of the transaction id.", "not in a transaction"
)
ACK_TYPE: Final = name("ack_type", "Individual or Cumulative.", "the command is no acknowledgement")
VALIDATION_ERROR: Final = name(
    "validation_error",
    "Why the client discarded the message instead of taking it, e.g. ChecksumMismatch.",
    "the client did not say so",
)
ERROR_CODE: Final = name(
    "error_code", "Name of the error that the broker answered, e.g. TopicNotFound.", "no error"
)
ERROR_TEXT: Final = name("error_text", "The broker's explanation of the error.", "no error text")
CRC32C_STORED: Final = number(
    "crc32c_stored", "", "CRC32C that the frame carries.", "the frame carries none"
)
CHECKSUM: Final = name(
    "checksum",
    f"Verdict on the entry's CRC32C: {listed(CHECKSUMS)}.",
    "the command carries none",
)
CHUNK_ID: Final = number(
    "chunk_id", "", "Place of this chunk in its message, from 0.", "not part of a chunked message"
)
ACK_SET_LEFT: Final = integers(
    "ack_set",
    "Bit set of the batch as 64-bit words; a bit that is set is a message still not acked.",
    "not carried",
)
# Of a frame (a row, where it has none) before and after `lake compact`: capture, connection_id,
# frame_no. The writer fills it: nobody else knows the id of a capture that is still being read.
CAPTURE: Final = name(
    "capture", "Id of the capture that this row came from, also after `lake compact`."
)
ORIGIN_CAPTURE: Final = name(
    "origin_capture",
    "The same as capture, for queries that were written for schema version 1.",
    "always but in compacted captures",
)


def ts(of: str) -> Column:
    """The column of a row's own time."""
    return Column("ts", "timestamp[us, UTC]", "", f"{of}, in whole microseconds.", "unknown")


def secret_free_detail() -> Column:
    """The column of decoded fields that have no column of their own."""
    return text(
        "detail",
        "Decoded fields without a column of their own as JSON, secrets redacted.",
        "SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW, PING and PONG",
    )
