"""Rows of deliveries, permits, acks and notices on their way out of the kernels."""

from typing import NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Bundle
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption.state import (
    OUT_NOTICES,
    PADDING,
    ConsumptionState,
    empty,
)
from dissector.states import State
from dissector.stream.columns import NoticeColumns


class DeliveryRows(Bundle):
    """Columns of the table; ack_set as its place and count in the words; names as codes.

    closing_row: ordinal of the frame or event that ended it, which is not in the table.
    """

    connection_id: Int64Array
    frame_no: Int64Array
    ts: Int64Array
    topic: Int64Array
    subscription: Int64Array
    subscription_type: Int64Array
    consumer_id: Int64Array
    incarnation: Int64Array
    consumer_name: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    batch_size: Int64Array
    message_count: Int64Array
    messages_acked: Int64Array
    ack_set_at: Int64Array
    ack_set_count: Int64Array
    redelivery_count: Int64Array
    is_redelivered: Int64Array
    redelivery_cause: Int64Array
    previous_frame_no: Int64Array
    previous_connection_id: Int64Array
    outcome: Int64Array
    ack_frame_no: Int64Array
    ack_latency_ns: Int64Array
    publish_to_delivery_ns: Int64Array
    deliver_at_ms: Int64Array
    checksum: Int64Array
    crc32c_stored: Int64Array
    closing_row: Int64Array


class PermitRows(Bundle):
    """Columns of the table; names as codes."""

    connection_id: Int64Array
    consumer_id: Int64Array
    incarnation: Int64Array
    frame_no: Int64Array
    ts: Int64Array
    event: Int64Array
    delta: Int64Array
    available_after: Int64Array
    unacked_after: Int64Array
    baseline_known: Int64Array
    topic: Int64Array
    subscription: Int64Array
    subscription_type: Int64Array


class AckRows(Bundle):
    """Columns of the table; ack_set as its place and count in the block's words."""

    connection_id: Int64Array
    frame_no: Int64Array
    ts: Int64Array
    consumer_id: Int64Array
    incarnation: Int64Array
    topic: Int64Array
    subscription: Int64Array
    action: Int64Array
    ack_type: Int64Array
    request_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    batch_size: Int64Array
    ack_set_at: Int64Array
    ack_set_count: Int64Array
    remaining_in_batch: Int64Array
    validation_error: Int64Array
    txn_most_bits: Int64Array
    txn_least_bits: Int64Array


class ConsumptionRows(State):
    """Room for rows; state.counters says how many are filled. words: ack sets of deliveries."""

    deliveries: DeliveryRows
    permits: PermitRows
    acks: AckRows
    notices: NoticeColumns
    words: Int64Array


def new_rows(rows: int, words: int) -> ConsumptionRows:
    """Room for so many rows of each table."""
    room = (rows | 63) + 1 + PADDING
    return ConsumptionRows(
        deliveries=DeliveryRows(empty(DeliveryRows, room)),
        permits=PermitRows(empty(PermitRows, room)),
        acks=AckRows(empty(AckRows, room)),
        notices=NoticeColumns(empty(NoticeColumns, room)),
        words=np.empty(words, np.int64),
    )


class Place(NamedTuple):
    """Where a notice belongs: connection, direction, frame, packet, stream offset, time in ns."""

    connection: int
    direction: int
    frame_no: int
    packet: int
    stream_offset: int
    ts_ns: int


@inlined
def add_notice(
    state: ConsumptionState, out: ConsumptionRows, kind: int, place: Place, value: int
) -> None:
    """One row of notices; kind: its place in notices.NOTICES."""
    row = state.counters[OUT_NOTICES]
    notices = out.notices
    notices.kind[row] = kind
    notices.ts_ns[row] = place.ts_ns
    notices.connection_id[row] = place.connection
    notices.side[row] = place.direction  # findings.Finding has the direction here
    notices.frame_no[row] = place.frame_no
    notices.packet[row] = place.packet
    notices.stream_offset[row] = place.stream_offset
    notices.bytes[row] = NULL
    notices.value[row] = value
    notices.value2[row] = NULL
    state.counters[OUT_NOTICES] = row + 1
