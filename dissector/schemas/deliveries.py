"""The table deliveries."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, name, number
from dissector.schemas.enums import CAUSES, DELIVERY_OUTCOMES, listed

TABLE: Final = Table(
    "deliveries",
    "one MESSAGE frame: a delivery to a client's queue, which an ack alone shows to be consumed",
    (
        shared.CONNECTION_ID,
        shared.FRAME_NO,
        shared.ts("Time of the frame's last byte"),
        shared.TOPIC,
        shared.SUBSCRIPTION,
        shared.SUBSCRIPTION_TYPE,
        shared.CONSUMER_ID,
        shared.INCARNATION,
        shared.CONSUMER_NAME,
        shared.LEDGER_ID,
        shared.ENTRY_ID,
        shared.PARTITION,
        number("batch_size", "messages", "Messages of the batch.", "not a batch"),
        number(
            "message_count",
            "messages",
            "Permits that it cost: what is left of the ack_set, else the batch, else 1.",
            "the metadata was not read",
        ),
        number(
            "messages_acked",
            "messages",
            "Messages of it that were acked.",
            "outcome is null or unknown_gap, or the metadata was not read",
        ),
        shared.ACK_SET_LEFT,
        number(
            "redelivery_count", "", "Times that the broker was asked to deliver it again, or 0."
        ),
        flag("is_redelivered", "Whether it was delivered before, as the broker says or as seen."),
        name(
            "redelivery_cause",
            f"{listed(CAUSES)}.",
            "delivered for the first time",
        ),
        number(
            "previous_frame_no",
            "",
            "Frame of the delivery before this one, which may be on another connection.",
            "none was seen, or it is forgotten",
        ),
        name(
            "outcome",
            f"{listed(DELIVERY_OUTCOMES)}.",
        ),
        number("ack_frame_no", "", "Frame that acked it, or whose ack did not count.", "not acked"),
        number(
            "ack_latency_ns",
            "ns",
            "From this frame's last byte to its ack's first.",
            "not acked, or its last byte was not captured",
        ),
        number(
            "publish_to_delivery_ns",
            "ns",
            "From the last byte of the SEND to the last byte of this frame.",
            "the SEND is not in this capture or too long ago",
        ),
        shared.DELIVER_AT_MS,
        shared.CHECKSUM,
        shared.CRC32C_STORED,
        number(
            "lag",
            "messages",
            "Messages between this delivery and the log's end as last seen.",
            "not Cursus, or the log's end was not seen",
        ),
        number(
            "previous_connection_id",
            "",
            "Connection of the delivery before this one, in the same capture (or tap run).",
            "previous_frame_no is null, or the row was landed under schema version 1",
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
