"""The table acks."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, name, number

TABLE: Final = Table(
    "acks",
    "one message id that a consumer acknowledged or asked for again",
    (
        shared.CONNECTION_ID,
        shared.FRAME_NO,
        shared.ts("Time of the frame's last byte"),
        shared.CONSUMER_ID,
        shared.INCARNATION,
        shared.TOPIC,
        shared.SUBSCRIPTION,
        name("action", "ack, redeliver, or nack (NEGATIVE_ACK of newer clients)."),
        shared.ACK_TYPE,
        number("request_id", "", "Number that pairs it with its answer.", "no answer is asked for"),
        shared.LEDGER_ID,
        shared.ENTRY_ID,
        shared.PARTITION,
        number(
            "batch_size", "messages", "Messages of the batch, as the client says.", "not carried"
        ),
        shared.ACK_SET_LEFT,
        number(
            "remaining_in_batch", "messages", "Messages of the batch still not acked.", "no ack_set"
        ),
        shared.VALIDATION_ERROR,
        shared.TXN_MOST_BITS,
        shared.TXN_LEAST_BITS,
        number(
            "lag",
            "messages",
            "Messages between what is committed and the log's end as last seen.",
            "not Cursus, or the log's end was not seen",
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
