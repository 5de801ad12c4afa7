"""The table consumers."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, integers, name, number
from dissector.schemas.enums import CLOSERS, KEY_SHARED_MODES, listed

_UNSEEN: Final = "its SUBSCRIBE is not in the capture"
_UNSAID: Final = "its SUBSCRIBE does not say so"

TABLE: Final = Table(
    "consumers",
    "one incarnation of a consumer",
    (
        shared.CONNECTION_ID,
        number("consumer_id", "", "The client's number of the consumer."),
        number(
            "incarnation", "", "How often this id was opened on this connection before, from 0."
        ),
        shared.TOPIC,
        name("name", "Name of the consumer, also if it was learnt late.", "unknown"),
        shared.NAME_SOURCE,
        number("opened_frame_no", "", "The SUBSCRIBE frame.", "it is not in the capture"),
        number("ready_frame_no", "", "The answer that made it usable.", "none was seen"),
        number("closed_frame_no", "", "The frame that closed it.", "no frame did"),
        name("closed_by", f"{listed(CLOSERS)}.", "its id was opened again, its close not captured"),
        name("refused_code", "Error with which the broker refused it.", "not refused"),
        shared.SUBSCRIPTION,
        shared.SUBSCRIPTION_TYPE,
        number("priority_level", "", "Priority among the consumers, 0 is served first.", _UNSEEN),
        flag("is_durable", "Whether the subscription outlives its consumers.", _UNSEEN),
        number(
            "first_flow_permits",
            "messages",
            "Permits of its first FLOW, which is the size of its receiver queue.",
            "no FLOW was seen",
        ),
        name("initial_position", "Where a new subscription starts: Latest or Earliest.", _UNSEEN),
        name(
            "key_shared_mode",
            f"Who says which keys it gets: {listed(KEY_SHARED_MODES)}.",
            _UNSAID,
        ),
        integers(
            "sticky_ranges",
            "Slots that a STICKY consumer asks for: first and last of each range, both included.",
            "it asks for none",
        ),
        flag(
            "allows_out_of_order",
            "Whether a key's messages may come out of order when consumers come and go.",
            _UNSAID,
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
