"""The table messages."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Column, Table, flag, number, text

TABLE: Final = Table(
    "messages",
    "one application message, batches opened, of a complete frame whose checksum is not wrong",
    (
        shared.CONNECTION_ID,
        number("frame_no", "", "The SEND or MESSAGE frame (of the last chunk, if chunked)."),
        number("batch_index", "", "Place in the batch, from 0.", "not in a batch"),
        number("batch_size", "messages", "Messages of the batch.", "not in a batch"),
        shared.DIRECTION,
        shared.TOPIC,
        shared.PRODUCER_NAME,
        number(
            "sequence_id",
            "",
            "Sequence id that the producer gave this message.",
            "an item of a batch that carries none",
        ),
        text("partition_key", "Key of the message.", "no key"),
        flag("is_key_base64", "Whether the key is binary, shown in Base64.", "not stated"),
        text("ordering_key", "Key for ordering, as hex digits.", "none"),
        shared.EVENT_TIME_MS,
        shared.PUBLISH_TIME_MS,
        number("payload_bytes", "bytes", "Size of the message's payload.", "encrypted"),
        flag("is_null_value", "Whether the value is null, which deletes the key.", "not stated"),
        flag(
            "is_compacted_out",
            "Whether compaction removed the message and left its place.",
            "not in a batch",
        ),
        shared.SCHEMA_VERSION_HEX,
        number(
            "redelivery_count",
            "",
            "Times that the broker was asked to deliver this entry again, 0 if never.",
            "SEND",
        ),
        shared.LEDGER_ID,
        shared.ENTRY_ID,
        shared.PARTITION,
        shared.RECONSUME_TIMES,
        shared.REAL_TOPIC,
        shared.ts("Time of the frame's last byte"),
        Column(
            "properties",
            "map<string,string>",
            "",
            "Properties that the application set.",
            "unless asked for",
        ),
        text("payload_sha256", "SHA-256 of the payload.", "unless asked for"),
        number(
            "key_hash",
            "",
            "Murmur3 of the ordering key, else the key, 31 bits; modulo 65536 Key_Shared's slot.",
            "no key, one whose Base64 cannot be read, or one that held a secret",
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
