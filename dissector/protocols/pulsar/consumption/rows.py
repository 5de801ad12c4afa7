"""Output rows of the kernels: deliveries, permits, acks and notices."""

from typing import NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Bundle
from dissector.notice_rows import Notices, new_notices
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.states import State


class DeliveryRows(Bundle):
    """Columns of the table; ack_set as its offset and count in the words; names as codes.

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
    """Columns of the table; ack_set as its offset and count in the block's words."""

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
    """Output arrays; state.counters has the numbers of filled rows. words: deliveries' ack sets."""

    deliveries: DeliveryRows
    permits: PermitRows
    acks: AckRows
    notices: Notices
    words: Int64Array


def new_rows(rows: int, words: int) -> ConsumptionRows:
    """Allocate output arrays: `rows` rows of each table, `words` words of ack sets."""
    return ConsumptionRows(
        deliveries=DeliveryRows.new(rows),
        permits=PermitRows.new(rows),
        acks=AckRows.new(rows),
        notices=new_notices(rows),
        words=np.zeros(words, np.int64),
    )


class PassContext(NamedTuple):
    """The input of the kernels for a block of frames, and their output rows.

    ids, words: ids of ACK and REDELIVER frames, and words of ack sets.
    is_volatile: int64[names], 1 for the name of a topic that is not persistent.
    """

    frames: FrameColumns
    ids: IdColumns
    words: Int64Array
    is_volatile: Int64Array
    out: ConsumptionRows
