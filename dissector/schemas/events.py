"""The table events."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, name, number
from dissector.schemas.enums import DIRECTIONS, ENDED, STREAM_EVENTS, listed

_NO_BYTES: Final = "it is not about bytes"

TABLE: Final = Table(
    "events",
    "what is no frame and stands between the frames of a connection: bytes that hold none, an end",
    (
        shared.CONNECTION_ID,
        number(
            "event_no", "", "Number of the event in its capture, from 1 in the order of release."
        ),
        number(
            "behind_frame_no",
            "",
            "Last frame of the capture before it, of any connection; 0 if there is none.",
        ),
        name("event", f"{listed(STREAM_EVENTS)}."),
        name("direction", f"Where the bytes went: {listed(DIRECTIONS)}.", "both: close"),
        shared.ts("Time of the packet that brought it"),
        number("ts_ns", "ns since 1970", "The same time.", "unknown"),
        number("packet", "", "Packet that brought it, or behind which it was given up."),
        number("stream_offset", "bytes", "Where it lies in its direction's stream.", "close"),
        number("bytes", "bytes", "How many bytes are missing, or hold no frame.", _NO_BYTES),
        flag(
            "is_inside",
            "Whether they lie within one frame that has a row, so that no other is missing.",
            _NO_BYTES,
        ),
        name("ended", f"{listed(ENDED)}, of which the last has no event.", "not close"),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
