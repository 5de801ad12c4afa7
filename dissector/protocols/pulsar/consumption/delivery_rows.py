"""Rows of deliveries, written when they have ended."""

from typing import Final

from dissector.jit import inlined
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.frame_notices import note_frame
from dissector.protocols.pulsar.consumption import bitsets, published, standing
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, PassContext
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.schemas import enums
from dissector.tables import ABSENT

_NEGATIVE_DURATION: Final = NOTICE_NUMBER["negative_duration"]


@inlined
def sent_at(state: ConsumptionState, delivery: int) -> int:
    """When the SEND of a delivery's entry was complete, ns; null if unknown."""
    deliveries = state.deliveries
    consumer = deliveries.consumer[delivery]
    connection = state.consumers.connection[consumer]
    topic = state.consumers.topic[consumer]
    ledger, entry = deliveries.ledger[delivery], deliveries.entry[delivery]
    return published.published_ns(
        state, topic, connection, ledger, entry, published.proxy_side_of(state, connection)
    )


@inlined
def has_id(state: ConsumptionState, delivery: int) -> bool:
    """Whether a delivery was entered under its id, even if a later one replaced it there."""
    deliveries = state.deliveries
    return bool(deliveries.page[delivery] != ABSENT or deliveries.superseded_at[delivery] > 0)


@inlined
def _publish_to_delivery(
    state: ConsumptionState, context: PassContext, row: int, delivery: int
) -> int:
    """From SEND to MESSAGE in ns; null if the SEND is unknown, or, with a notice, if negative."""
    deliveries = state.deliveries
    sent_ns = deliveries.published_ns[delivery]
    # The receipt of a SEND may be seen after its MESSAGE.
    is_open = deliveries.released[delivery] == NULL
    if sent_ns == NULL and is_open and has_id(state, delivery):
        sent_ns = sent_at(state, delivery)
    if sent_ns == NULL or deliveries.is_timed[delivery] == 0:
        return NULL
    elapsed = deliveries.last_ns[delivery] - sent_ns
    if elapsed < 0:
        # A broker that began anew may have given the id to another entry since.
        if deliveries.page[delivery] == ABSENT:
            return NULL
        note_frame(context.out.notices, _NEGATIVE_DURATION, context.frames, row, NULL, NULL)
        return NULL
    return int(elapsed)


@inlined
def _write_set(state: ConsumptionState, out: ConsumptionRows, delivery: int, row: int) -> None:
    """Copy the MESSAGE's own ack_set to the row's words."""
    count = state.deliveries.set_words[delivery]
    target = state.counters[consumption_state.OUT_WORDS]
    out.deliveries.ack_set_at[row] = target
    out.deliveries.ack_set_count[row] = count
    if count > 0:
        at = bitsets.words_at(state.deliveries.word_block[delivery])
        for word in range(count):
            out.words[target + word] = state.words[at + word]
        state.counters[consumption_state.OUT_WORDS] = target + count


@inlined
def _set_ack_columns(state: ConsumptionState, delivery: int, outcome: int) -> None:
    """Set the columns of its ACK: an acked delivery has none left; any other has no latency, and
    the ACK's frame only if that explains the outcome."""
    deliveries = state.deliveries
    if outcome == enums.ACKED:
        if deliveries.left[delivery] != NULL:
            deliveries.left[delivery] = 0
        return
    deliveries.ack_latency_ns[delivery] = NULL
    if outcome not in (
        enums.DISCARDED,
        enums.ACK_REFUSED,
        enums.ACK_ROLLED_BACK,
        enums.ACK_UNCOMMITTED,
    ):
        deliveries.ack_frame_no[delivery] = NULL


@inlined
def write_row(
    state: ConsumptionState, context: PassContext, frame: int, delivery: int, outcome: int
) -> None:
    """Write a row of deliveries, with its consumer's current names."""
    _set_ack_columns(state, delivery, outcome)
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    row = state.counters[consumption_state.OUT_DELIVERIES]
    state.counters[consumption_state.OUT_DELIVERIES] = row + 1
    to = context.out.deliveries
    to.connection_id[row] = consumers.connection[consumer]
    to.frame_no[row] = deliveries.frame_no[delivery]
    to.ts[row] = deliveries.last_ns[delivery]
    to.topic[row] = consumers.topic[consumer]
    to.subscription[row] = consumers.subscription[consumer]
    to.subscription_type[row] = consumers.type[consumer]
    to.consumer_id[row] = consumers.id[consumer]
    to.incarnation[row] = consumers.incarnation[consumer]
    to.consumer_name[row] = consumers.name[consumer]
    to.ledger_id[row] = deliveries.ledger[delivery]
    to.entry_id[row] = deliveries.entry[delivery]
    to.partition[row] = deliveries.partition[delivery]
    to.batch_size[row] = deliveries.batch_size[delivery]
    count = deliveries.count[delivery]
    left = deliveries.left[delivery]
    to.message_count[row] = count
    if outcome != enums.ACKED and deliveries.length[delivery] > 0:
        left = standing.messages_left(state, delivery, standing.DECIDED)
    if outcome == enums.UNKNOWN_GAP:
        left = NULL  # what the missing acks said
    to.messages_acked[row] = max(count - left, 0) if count != NULL and left != NULL else NULL
    _write_set(state, context.out, delivery, row)
    cause = deliveries.cause[delivery]
    to.redelivery_count[row] = max(deliveries.redelivery_count[delivery], 0)
    to.is_redelivered[row] = 0 if cause == NULL else 1
    to.redelivery_cause[row] = cause
    to.previous_frame_no[row] = deliveries.previous_frame_no[delivery]
    to.previous_connection_id[row] = deliveries.previous_connection[delivery]
    to.outcome[row] = outcome
    to.ack_frame_no[row] = deliveries.ack_frame_no[delivery]
    to.ack_latency_ns[row] = deliveries.ack_latency_ns[delivery]
    to.publish_to_delivery_ns[row] = _publish_to_delivery(state, context, frame, delivery)
    to.deliver_at_ms[row] = deliveries.deliver_at_ms[delivery]
    to.checksum[row] = deliveries.checksum[delivery]
    to.crc32c_stored[row] = deliveries.crc32c[delivery]
    to.closing_row[row] = state.counters[consumption_state.ORDINAL]
