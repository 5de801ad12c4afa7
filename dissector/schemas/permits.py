"""The table permits."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, name, number
from dissector.schemas.enums import PERMIT_EVENTS, listed

TABLE: Final = Table(
    "permits",
    "one change of a consumer's balance of permits",
    (
        shared.CONNECTION_ID,
        shared.CONSUMER_ID,
        shared.INCARNATION,
        number(
            "frame_no", "", "Frame that changed the balance.", "a reset by the connection's end"
        ),
        shared.ts("Time of the frame's last byte"),
        name("event", f"{listed(PERMIT_EVENTS)}."),
        number("delta", "messages", "What was added, or taken if negative.", "reset"),
        number(
            "available_after",
            "messages",
            "Balance after the event; a broker may overdraw it, then it is negative.",
            "baseline_known is false",
        ),
        number(
            "unacked_after",
            "messages",
            "Messages delivered and not yet acked, after it.",
            "its SUBSCRIBE was not seen, frames are missing since, or a size was not read",
        ),
        flag("baseline_known", "Whether the balance is known from its start."),
        shared.TOPIC,
        shared.SUBSCRIPTION,
        shared.SUBSCRIPTION_TYPE,
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
