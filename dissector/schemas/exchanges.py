"""The table exchanges."""

from typing import Final

from dissector.schemas import shared
from dissector.schemas.column import Table, flag, name, number
from dissector.schemas.enums import KINDS, OUTCOMES, listed

_NO_REQUEST: Final = "the request was not seen"
_NO_ANSWER: Final = "no answer was seen"

TABLE: Final = Table(
    "exchanges",
    "one request and its answer, or the reason why there is none",
    (
        shared.CONNECTION_ID,
        name("kind", f"{listed(KINDS)}."),
        name("request_command", "Command of the request.", _NO_REQUEST),
        name("response_command", "Command of the answer.", _NO_ANSWER),
        number("request_frame_no", "", "Frame of the request.", _NO_REQUEST),
        number("response_frame_no", "", "Frame of the answer.", _NO_ANSWER),
        number("request_first_ns", "ns since 1970", "First byte of the request.", _NO_REQUEST),
        number("request_last_ns", "ns since 1970", "Last byte of the request.", _NO_REQUEST),
        number("response_first_ns", "ns since 1970", "First byte of the answer.", _NO_ANSWER),
        number("response_last_ns", "ns since 1970", "Last byte of the answer.", _NO_ANSWER),
        number(
            "latency_ns",
            "ns",
            "From the last byte of the request to the last byte of the answer.",
            "one of both is missing, or the answer was captured first",
        ),
        number(
            "latency_bucket", "", "Number of the histogram bucket of latency_ns.", "no latency_ns"
        ),
        number(
            "transmit_ns",
            "ns",
            "From the first to the last byte of the request.",
            f"{_NO_REQUEST}, or the capture or the connection ended within it",
        ),
        name(
            "outcome",
            f"{listed(OUTCOMES)}.",
        ),
        shared.ERROR_CODE,
        shared.ERROR_TEXT,
        flag("tainted", "Whether a gap or a retransmission touches it."),
        shared.TOPIC,
        shared.SUBSCRIPTION,
        shared.PRODUCER_NAME,
        shared.PRODUCER_ID,
        shared.CONSUMER_ID,
        shared.INCARNATION,
        shared.SEQUENCE_ID,
        number(
            "highest_sequence_id",
            "",
            "Last sequence id of the request's batch (without a request: of the answer's).",
            "not carried, or not above 0",
        ),
        shared.CHUNK_ID,
        shared.CRC32C_STORED,
        number(
            "attempt",
            "",
            "Which sending of the same entry this is, from 1.",
            "not a publish, or topic or producer is unknown",
        ),
        number(
            "message_count",
            "messages",
            "Messages of the entry; 1 on the last chunk of a message and 0 on those before.",
            "not a publish, or the metadata was not read",
        ),
        number("request_bytes", "bytes", "Size of the request's frame.", _NO_REQUEST),
        number(
            "outstanding_before",
            "",
            "Sends of this producer still unanswered when this one was sent.",
            "not a publish, or others or their answers may be in bytes that were not captured",
        ),
        number("ledger_id", "", "Ledger where the answer says it is stored.", "none, or -1"),
        number("entry_id", "", "Entry where the answer says it is stored.", "none, or -1"),
        name("client_ip", "Address of the client."),
        name("broker_ip", "Address of the broker."),
        shared.ts("Time of the request's last byte (without a request: of the answer's)"),
        number(
            "publish_time_ms",
            "ms since 1970",
            "When the client published the entry, by the client's clock.",
            "not a publish, not carried or not read, or replicated from another cluster",
        ),
        shared.CAPTURE,
        shared.ORIGIN_CAPTURE,
    ),
)
