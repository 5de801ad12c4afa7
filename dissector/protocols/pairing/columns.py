"""The columns of exchanges: one row per request and its answer."""

from typing import Final

from dissector.blocks import Int64Array
from dissector.bundles import Bundle


class KnownColumns(Bundle):
    """The columns of an exchange that a pending row has, too; int64[rows] each.

    kind: KIND_*.
    request_command, response_command, error_code: wire numbers.
    error_text: index in the texts of the block; topic, subscription, producer_name: codes of the
        name table.
    outcome: of schemas.words.OUTCOMES.
    tainted: 1 if one of its frames was retransmitted or has a gap.
    """

    topic: Int64Array
    subscription: Int64Array
    producer_name: Int64Array
    producer_id: Int64Array
    consumer_id: Int64Array
    incarnation: Int64Array
    sequence_id: Int64Array
    highest_sequence_id: Int64Array
    chunk_id: Int64Array
    crc32c_stored: Int64Array
    attempt: Int64Array
    message_count: Int64Array
    publish_time_ms: Int64Array
    outstanding_before: Int64Array
    kind: Int64Array
    tainted: Int64Array
    request_command: Int64Array
    request_frame_no: Int64Array
    request_first_ns: Int64Array
    request_last_ns: Int64Array
    transmit_ns: Int64Array
    request_bytes: Int64Array
    response_command: Int64Array
    response_frame_no: Int64Array
    response_first_ns: Int64Array
    response_last_ns: Int64Array
    latency_ns: Int64Array
    outcome: Int64Array
    error_code: Int64Array
    error_text: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array


KNOWN_COLUMNS: Final = len(KnownColumns._fields)
FIRST_OF_ANSWER: Final = KnownColumns._fields.index("response_command")


class ExchangeColumns(KnownColumns):
    """Exchanges in the order in which they closed, int64[rows] each, null is limits.NULL.

    ts: ns.
    closing_row: ordinal of the frame or event that closed it; not a column of the table.
    """

    connection_id: Int64Array
    latency_bucket: Int64Array
    ts: Int64Array
    closing_row: Int64Array
