"""The table producers."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, name, number
from dissector.schemas.enums import CLOSERS, listed

TABLE: Final = Table(
    "producers",
    "one incarnation of a producer",
    (
        shared.CONNECTION_ID,
        number("producer_id", "", "The client's number of the producer."),
        number(
            "incarnation", "", "How often this id was opened on this connection before, from 0."
        ),
        shared.TOPIC,
        name("name", "Name of the producer, also if it was learnt late.", "unknown"),
        shared.NAME_SOURCE,
        number("opened_frame_no", "", "The PRODUCER frame.", "it is not in the capture"),
        number("ready_frame_no", "", "The answer that made it usable.", "none was seen"),
        number("closed_frame_no", "", "The frame that closed it.", "no frame did"),
        name("closed_by", f"{listed(CLOSERS)}.", "its id was opened again, its close not captured"),
        name("refused_code", "Error with which the broker refused it.", "not refused"),
        number("epoch", "", "How often the producer reconnected.", "not carried"),
        number("topic_epoch", "", "Epoch of an exclusive producer.", "not exclusive"),
        name(
            "access_mode",
            "Shared, Exclusive, WaitForExclusive or ExclusiveWithFencing.",
            "its PRODUCER is not in the capture",
        ),
        shared.SCHEMA_VERSION_HEX,
        number(
            "last_sequence_id",
            "",
            "Last sequence id that the broker had stored when it was opened.",
            "none, or no answer was seen",
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
