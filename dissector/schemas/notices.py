"""The table notices."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, name, number, text
from dissector.schemas.enums import DIRECTIONS, listed

_WHOLE: Final = "the notice is about the capture as a whole"

TABLE: Final = Table(
    "notices",
    "one notice about the capture or the traffic",
    (
        shared.ts("Capture time of what was noticed"),
        name("severity", "info, warning or error."),
        name("code", "Stable name of the notice."),
        number("connection_id", "", "Connection that it is about.", _WHOLE),
        name("direction", f"Direction that it is about: {listed(DIRECTIONS)}.", "both"),
        number("frame_no", "", "Frame that it is about.", "no single frame"),
        number("packet", "", "Packet that it is about; the capture's first is 1.", "no packet"),
        number("stream_offset", "bytes", "Place in the stream of the direction.", "no place"),
        number("bytes", "bytes", "How many bytes it is about.", "not a matter of bytes"),
        text("text", "What was noticed, in one sentence."),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
