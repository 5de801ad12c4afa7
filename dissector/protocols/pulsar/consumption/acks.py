"""Rows of the table acks: one per id that a consumer acknowledged or asked for again."""

from typing import Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.columns import IdColumns
from dissector.protocols.pulsar.consumption.identities import popcount
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows
from dissector.protocols.pulsar.consumption.state import OUT_ACKS, ConsumptionState

ACTION_NAMES: Final = ("ack", "redeliver")
ACTION_ACK: Final = 0
ACTION_REDELIVER: Final = 1


class AckFrame(NamedTuple):
    """What all rows of one ACK or REDELIVER frame share; null where the frame does not say."""

    connection: int
    frame_no: int
    ts_ns: int
    consumer_id: int
    incarnation: int
    topic: int
    subscription: int
    action: int
    ack_type: int
    request_id: int
    validation_error: int
    txn_most: int
    txn_least: int


@inlined
def masked_word(words: Int64Array, at: int, count: int, place: int, bits: int) -> int:
    """Word `place` of a bit set, zero behind its end, without the bits from `bits` on.

    Trailing words that are zero are not on the wire. bits: length of the set, null: no limit.
    """
    if place >= count:
        return 0
    word = words[at + place]
    if bits == NULL:
        return int(word)
    left = bits - 64 * place
    if left >= 64:
        return int(word)
    return int(word & ~(-1 << left)) if left > 0 else 0


@inlined
def bits_left(words: Int64Array, at: int, count: int, bits: int) -> int:
    """How many bits of a bit set are set within its first `bits` bits (null: all)."""
    total = 0
    last = count if bits == NULL else min(count, (max(bits, 0) + 63) >> 6)
    for place in range(last):
        total += popcount(masked_word(words, at, count, place, bits))
    return total


@inlined
def add_ack_row(
    state: ConsumptionState,
    out: ConsumptionRows,
    frame: AckFrame,
    ids: IdColumns,
    index: int,
    words: Int64Array,
) -> None:
    """One row; index: row of the id, or -1 for a frame without ids."""
    row = state.counters[OUT_ACKS]
    acks = out.acks
    acks.connection_id[row] = frame.connection
    acks.frame_no[row] = frame.frame_no
    acks.ts[row] = frame.ts_ns
    acks.consumer_id[row] = frame.consumer_id
    acks.incarnation[row] = frame.incarnation
    acks.topic[row] = frame.topic
    acks.subscription[row] = frame.subscription
    acks.action[row] = frame.action
    acks.ack_type[row] = frame.ack_type
    acks.request_id[row] = frame.request_id
    if index < 0:
        acks.ledger_id[row] = NULL
        acks.entry_id[row] = NULL
        acks.partition[row] = NULL
        acks.batch_size[row] = NULL
        acks.ack_set_at[row] = NULL
        acks.ack_set_count[row] = NULL
        acks.remaining_in_batch[row] = NULL
    else:
        partition = ids.partition[index]
        at = ids.ack_set_at[index]
        count = ids.ack_set_count[index]
        batch_size = ids.batch_size[index]
        acks.ledger_id[row] = ids.ledger_id[index]
        acks.entry_id[row] = ids.entry_id[index]
        acks.partition[row] = partition if partition >= 0 else NULL
        acks.batch_size[row] = batch_size
        acks.ack_set_at[row] = at
        acks.ack_set_count[row] = count
        bits = batch_size if batch_size > 0 else NULL
        acks.remaining_in_batch[row] = bits_left(words, at, count, bits) if count > 0 else NULL
    acks.validation_error[row] = frame.validation_error
    acks.txn_most_bits[row] = frame.txn_most
    acks.txn_least_bits[row] = frame.txn_least
    state.counters[OUT_ACKS] = row + 1
