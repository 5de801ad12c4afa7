"""Undecided acknowledgements: the broker may refuse an ACK, or its transaction may be aborted.

Theory. An ACK with a request id counts once the broker has answered it, an ACK inside a transaction
once that is committed. Until then it has a *claim* on each delivery that it names, with the bits of
the messages that it leaves. A message is open while every ACK that may still count leaves it. A
delivery without open messages is acknowledged once the ACKs that count leave none of them.

    claim  --the answer grants it, outside a transaction--> freed: its messages stay acknowledged
           --the answer refuses it--> revoked: messages that only it acknowledged are open again
           --its transaction is committed--> freed
           --its transaction is aborted, or its entry is redelivered--> revoked
           --its connection ends unanswered, outside a transaction--> freed, as if granted

Claims are listed by transaction, or else by connection. A delivery that ends otherwise leaves its
claims in the lists; their `frame_no` then differs from the row's. Claims have the bound of
deliveries; an ACK without room for a claim ends its delivery as `unresolved_at_limit`.
"""

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.consumption import standing
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import free_words, words_at
from dissector.protocols.pulsar.consumption.deliveries import append_delivery, end_delivery
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState, TableKey
from dissector.schemas import enums
from dissector.tables import ListHeads


@inlined
def is_decided_later(frames: FrameColumns, row: int) -> bool:
    """Whether an ACK may still be refused or rolled back."""
    return bool(
        frames.request_id[row] != NULL
        or (frames.txn_most_bits[row] != NULL and frames.txn_least_bits[row] != NULL)
    )


@kernel
def _waiting_of(state: ConsumptionState, a: int, b: int, kind: int) -> int:
    """The list of claims of a key, allocated if it is new; ABSENT without room."""
    waiting = tables.find(state.table, a, b, 0, kind)
    if waiting == tables.ABSENT:
        waiting = tables.allocate_row(state.waiting_pool)
        if waiting != tables.ABSENT:
            state.waiting.first[waiting] = tables.ABSENT
            state.waiting.last[waiting] = tables.ABSENT
            state.waiting.length[waiting] = 0
            tables.put(state.table, a, b, 0, kind, waiting)
    return waiting


@kernel
def _allocate_claim(state: ConsumptionState, frames: FrameColumns, row: int, packed: int) -> int:
    """Append a claim of an ACK, on no delivery yet, to its list; ABSENT without room.

    packed: its transaction, or ABSENT.
    """
    claims = state.claims
    if packed != tables.ABSENT:
        most, least = frames.txn_most_bits[row], frames.txn_least_bits[row]
        waiting = _waiting_of(state, most, least, TableKey.COMMIT)
    else:
        waiting = _waiting_of(state, frames.connection_id[row], 0, TableKey.ANSWERS)
    claim = tables.allocate_row(state.claim_pool) if waiting != tables.ABSENT else tables.ABSENT
    if claim == tables.ABSENT:
        return tables.ABSENT
    _fill_claim(state, claim, waiting, frames.frame_no[row], packed)
    tables.list_append(state.waiting, claims, waiting, claim)
    if frames.request_id[row] != NULL:
        first = tables.find(state.table, frames.frame_no[row], 0, 0, TableKey.ACK)
        if first == tables.ABSENT:
            first = claim
            tables.put(state.table, frames.frame_no[row], 0, 0, TableKey.ACK, claim)
        claims.of_ack[first] += 1
    return claim


@inlined
def _fill_claim(
    state: ConsumptionState, claim: int, waiting: int, ack_frame_no: int, packed: int
) -> None:
    """Set all columns of a new claim of an ACK, on no delivery yet."""
    claims = state.claims
    claims.waiting[claim] = waiting
    claims.delivery[claim] = tables.ABSENT
    claims.frame_no[claim] = NULL
    claims.consumer[claim] = tables.ABSENT
    claims.ledger[claim] = NULL
    claims.entry[claim] = NULL
    claims.ack_frame_no[claim] = ack_frame_no
    claims.of_ack[claim] = 0
    claims.word_block[claim] = tables.ABSENT
    claims.transaction[claim] = packed


@inlined
def _bind_claim(state: ConsumptionState, claim: int, delivery: int) -> None:
    """Link a claim to a delivery, all of whose messages it acknowledges."""
    state.claims.delivery[claim] = delivery
    state.claims.frame_no[claim] = state.deliveries.frame_no[delivery]
    state.deliveries.was_claimed[delivery] = 1
    tables.list_append(state.deliveries, state.shares, delivery, claim)


@kernel
def add_claim(
    state: ConsumptionState, frames: FrameColumns, row: int, delivery: int, transaction: int
) -> int:
    """Add a claim of an ACK on all messages of a delivery; ABSENT without room."""
    claim = _allocate_claim(state, frames, row, transaction)
    if claim != tables.ABSENT:
        _bind_claim(state, claim, delivery)
    return claim


@kernel
def add_reach(
    state: ConsumptionState, context: PassContext, row: int, consumer: int, transaction: int
) -> None:
    """Add a reach: a cumulative ACK's claim on its consumer's deliveries that are set aside."""
    frames = context.frames
    is_later = is_decided_later(frames, row)
    if is_later:
        reach = _allocate_claim(state, frames, row, transaction)
    else:
        reach = tables.allocate_row(state.claim_pool)
        if reach != tables.ABSENT:
            _fill_claim(state, reach, tables.ABSENT, frames.frame_no[row], tables.ABSENT)
    if reach == tables.ABSENT:
        state.counters[consumption_state.DELIVERIES_GIVEN_UP] += 1
        return
    state.claims.ledger[reach] = context.ids.ledger_id[frames.first_id[row]]
    state.claims.entry[reach] = context.ids.entry_id[frames.first_id[row]]
    standing.list_reach(state, reach, consumer)
    if not is_later:
        standing.make_certain(state, reach)


@kernel
def set_aside(state: ConsumptionState, delivery: int) -> None:
    """Unlink a delivery without open messages from its consumer's list until it is decided."""
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    tables.list_unlink(consumers, deliveries, consumer, delivery)
    if consumers.length[consumer] == 0:
        consumers.is_ascending[consumer] = 1
    if deliveries.left[delivery] == NULL:
        consumers.unread[consumer] -= 1
    else:
        consumers.unacked[consumer] -= deliveries.left[delivery]
        deliveries.left[delivery] = 0
    consumers.claimed[consumer] += 1
    deliveries.is_claimed[delivery] = 1


@inlined
def _stop_waiting(state: ConsumptionState, claim: int) -> None:
    """Unlink a claim from its list of undecided ones."""
    claims = state.claims
    tables.list_unlink(state.waiting, claims, claims.waiting[claim], claim)
    claims.waiting[claim] = tables.ABSENT
    if claims.of_ack[claim] > 0:
        tables.remove(state.table, claims.ack_frame_no[claim], 0, 0, TableKey.ACK)
        claims.of_ack[claim] = 0


@kernel
def _free_claim(state: ConsumptionState, claim: int) -> int:
    """Free a claim; returns its delivery, ABSENT if that has ended."""
    claims = state.claims
    deliveries = state.deliveries
    _stop_waiting(state, claim)
    tables.give_row(state.claim_pool, claim)
    delivery = claims.delivery[claim]
    if deliveries.frame_no[delivery] != claims.frame_no[claim]:
        return tables.ABSENT
    tables.list_unlink(deliveries, state.shares, delivery, claim)
    return int(delivery)


@kernel
def _and_decided(state: ConsumptionState, delivery: int, word_block: int) -> bool:
    """AND the bits that a granted ACK leaves into the decided ones; True if none is left."""
    deliveries = state.deliveries
    left_words = deliveries.left_words[delivery]
    base = words_at(deliveries.word_block[delivery]) + max(deliveries.set_words[delivery], 0)
    left = 0
    for word_index in range(left_words):
        decided = base + left_words + word_index
        word = int(state.words[words_at(word_block) + word_index]) & int(state.words[decided])
        state.words[decided] = word
        left |= word
    return left == 0


@kernel
def _grant(state: ConsumptionState, context: PassContext, row: int, claim: int) -> None:
    """Free a claim whose ACK counts; end its delivery if no message of that is left."""
    if state.claims.frame_no[claim] == NULL:
        _stop_waiting(state, claim)
        if state.claims.consumer[claim] == tables.ABSENT:
            tables.give_row(state.claim_pool, claim)
        else:
            standing.make_certain(state, claim)
        return
    word_block = state.claims.word_block[claim]
    delivery = _free_claim(state, claim)
    is_over = word_block == tables.ABSENT
    if delivery != tables.ABSENT and not is_over:
        is_over = _and_decided(state, delivery, word_block)
    if word_block != tables.ABSENT:
        free_words(state, word_block)
    if delivery != tables.ABSENT and is_over and state.deliveries.is_claimed[delivery] == 1:
        end_delivery(state, context, row, delivery, enums.ACKED)


@kernel
def _reopen(state: ConsumptionState, delivery: int) -> None:
    """Append a delivery that was set aside to its consumer's list again."""
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    deliveries.is_claimed[delivery] = 0
    consumers.claimed[consumer] -= 1
    if consumers.claimed[consumer] == 0:
        standing.forget_reaches(state, consumer)
    append_delivery(state, consumer, delivery)
    if deliveries.left[delivery] == NULL:
        consumers.unread[consumer] += 1
    else:
        consumers.unacked[consumer] += deliveries.left[delivery]


@kernel
def _attach_to_reach(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, reach: int
) -> None:
    """End a delivery by a decided reach; an undecided reach gets a claim on it."""
    claims = state.claims
    if claims.waiting[reach] == tables.ABSENT:
        end_delivery(state, context, row, delivery, enums.ACKED)
        return
    # The revoked claim has just freed a row.
    claim = tables.allocate_row(state.claim_pool)
    waiting, ack_frame_no = claims.waiting[reach], claims.ack_frame_no[reach]
    _fill_claim(state, claim, waiting, ack_frame_no, claims.transaction[reach])
    tables.list_insert(state.waiting, claims, waiting, reach, claim)
    if claims.of_ack[reach] > 0:
        claims.of_ack[reach] += 1
    _bind_claim(state, claim, delivery)


@kernel
def _revoke_reach(state: ConsumptionState, reach: int) -> None:
    """Remove a reach whose cumulative ACK does not count."""
    _stop_waiting(state, reach)
    if state.claims.consumer[reach] == tables.ABSENT:
        tables.give_row(state.claim_pool, reach)
    else:
        standing.unlist_reach(state, reach)


@kernel
def _revoke(
    state: ConsumptionState, context: PassContext, row: int, claim: int, outcome: int
) -> None:
    """Free a claim whose ACK does not count; messages that only it acknowledged are open again.

    But their delivery ends after a rollback, because the broker redelivers, and if its consumer is
    closed, because no ACK can follow.
    """
    deliveries = state.deliveries
    consumers = state.consumers
    if state.claims.frame_no[claim] == NULL:
        _revoke_reach(state, claim)
        return
    if state.claims.word_block[claim] != tables.ABSENT:
        free_words(state, state.claims.word_block[claim])
    delivery = _free_claim(state, claim)
    if delivery == tables.ABSENT:
        return
    deliveries.taken_back[delivery] = outcome
    if outcome == enums.ACK_ROLLED_BACK:
        deliveries.is_rolled_back[delivery] = 1
    left = standing.messages_left(state, delivery, standing.ALL)
    reach = tables.ABSENT
    if left > 0:
        reach = standing.find_reach(state, delivery, standing.ALL)
    if standing.has_spent(state):
        end_delivery(state, context, row, delivery, enums.UNRESOLVED_AT_LIMIT)
        return
    if reach != tables.ABSENT:
        _attach_to_reach(state, context, row, delivery, reach)
        return
    consumer = deliveries.consumer[delivery]
    before = deliveries.left[delivery]
    if deliveries.count[delivery] != NULL:
        deliveries.left[delivery] = left
    if deliveries.is_claimed[delivery] == 0:
        if before != NULL:
            consumers.unacked[consumer] += left - before
    elif left > 0:
        is_closed = consumers.state[consumer] == ConsumerState.CLOSED
        if outcome == enums.ACK_ROLLED_BACK or is_closed:
            end_delivery(state, context, row, delivery, outcome)
        else:
            _reopen(state, delivery)


@kernel
def _end_waiting(
    state: ConsumptionState, context: PassContext, row: int, waiting: int, is_granted: bool
) -> None:
    """Decide all claims of a list and free it. Revoked: their reaches are removed first."""
    if not is_granted:
        claim = state.waiting.first[waiting]
        for _ in range(state.waiting.length[waiting]):
            standing.unlist_reach(state, claim)
            claim = state.claims.next[claim]
    for _ in range(state.waiting.length[waiting]):
        claim = state.waiting.first[waiting]
        if is_granted:
            _grant(state, context, row, claim)
        else:
            _revoke(state, context, row, claim, enums.ACK_ROLLED_BACK)
    tables.give_row(state.waiting_pool, waiting)


@kernel
def claims_of_transaction(state: ConsumptionState, most: int, least: int) -> int:
    """How many claims the end of a transaction decides."""
    waiting = tables.find(state.table, most, least, 0, TableKey.COMMIT)
    return int(state.waiting.length[waiting]) if waiting != tables.ABSENT else 0


@kernel
def claims_of_connection(state: ConsumptionState, connection: int) -> int:
    """How many claims the end of a connection decides."""
    waiting = tables.find(state.table, connection, 0, 0, TableKey.ANSWERS)
    return int(state.waiting.length[waiting]) if waiting != tables.ABSENT else 0


@kernel
def claims_of_ack(state: ConsumptionState, ack_frame_no: int) -> int:
    """How many claims the answer to an ACK decides."""
    claim = tables.find(state.table, ack_frame_no, 0, 0, TableKey.ACK)
    return int(state.claims.of_ack[claim]) if claim != tables.ABSENT else 0


@kernel
def end_claims_of_transaction(
    state: ConsumptionState,
    context: PassContext,
    row: int,
    most: int,
    least: int,
    is_committed: bool,
) -> None:
    """Grant or revoke all claims of a transaction that has ended."""
    waiting = tables.remove(state.table, most, least, 0, TableKey.COMMIT)
    if waiting != tables.ABSENT:
        _end_waiting(state, context, row, waiting, is_committed)


@kernel
def end_claims_of_connection(
    state: ConsumptionState, context: PassContext, row: int, connection: int
) -> None:
    """Grant the unanswered claims of a connection that has ended."""
    waiting = tables.remove(state.table, connection, 0, 0, TableKey.ANSWERS)
    if waiting != tables.ABSENT:
        _end_waiting(state, context, row, waiting, True)


@kernel
def answer_claims(
    state: ConsumptionState, context: PassContext, row: int, ack_frame_no: int, is_refused: bool
) -> None:
    """Decide the claims of an answered ACK; inside a transaction, only a refusal decides them."""
    claims = state.claims
    claim = tables.remove(state.table, ack_frame_no, 0, 0, TableKey.ACK)
    if claim == tables.ABSENT:
        return
    left = claims.of_ack[claim]
    claims.of_ack[claim] = 0
    for _ in range(left):
        if claim == tables.ABSENT or claims.ack_frame_no[claim] != ack_frame_no:
            break
        following = claims.next[claim]
        if is_refused:
            _revoke(state, context, row, claim, enums.ACK_REFUSED)
        elif claims.transaction[claim] == tables.ABSENT:
            _grant(state, context, row, claim)
        claim = following


@kernel
def _decide_reaches(state: ConsumptionState, reaches: ListHeads, consumer: int) -> None:
    """Decide the reaches of one consumer in one list, at the end of the capture."""
    reach = reaches.first[consumer]
    for _ in range(reaches.length[consumer]):
        following = state.shares.next[reach]
        if not standing.counts(state, reach, standing.UNDECIDED):
            standing.unlist_reach(state, reach)
        elif standing.counts(state, reach, standing.COMMITTING):
            standing.make_certain(state, reach)
        reach = following


@kernel
def decide_reaches(state: ConsumptionState) -> None:
    """Decide all reaches at the capture's end: those whose abort was requested do not count."""
    for consumer in range(len(state.consumer_pool.rows)):
        _decide_reaches(state, state.reaches, consumer)
        _decide_reaches(state, state.transaction_reaches, consumer)


@inlined
def outcome_at_end(state: ConsumptionState, delivery: int) -> int:
    """The outcome, at the end of the capture, of a delivery that waits for claims.

    Requests without an answer count as granted: an ACK, and the end of a transaction.
    """
    # Reaches that commit are certain by now.
    is_reached = standing.find_reach(state, delivery, standing.DECIDED) != tables.ABSENT
    if is_reached or standing.messages_left(state, delivery, standing.COMMITTING) == 0:
        return enums.ACKED
    if standing.leaves_nothing(state, delivery, standing.UNDECIDED):
        return enums.ACK_UNCOMMITTED
    return enums.ACK_ROLLED_BACK
