"""Acknowledgements that do not count yet: one may be refused, one may be undone with others.

Theory. An ACK with a request id counts once the broker has answered it, one inside a transaction
once that is committed. Until then it has a *claim* on each delivery that it means: the messages
that it took. A delivery of which nothing is left is acknowledged when no claim on it is open.

    claim  --the answer grants it, outside a transaction--> gone: its messages stay acknowledged
           --the answer refuses it--> taken back: its messages are open again
           --its transaction is committed--> gone
           --its transaction is aborted, or its entry comes again--> taken back
           --its connection ends unanswered, outside a transaction--> gone: nothing spoke against it

Claims stand in lists: one for each transaction, one for each connection. A delivery that ends
otherwise leaves its claims behind, which `frame_no` tells. Claims have the bound of deliveries; an
ACK that finds no room leaves its delivery `unresolved_at_limit`.
"""

from dissector import tables
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import allocate_words, free_words, words_at
from dissector.protocols.pulsar.consumption.deliveries import append_delivery, end_delivery
from dissector.protocols.pulsar.consumption.published import find_transaction
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState, TableKey
from dissector.schemas import enums


@inlined
def is_decided_later(frames: FrameColumns, row: int) -> bool:
    """Whether an ACK may still be refused or undone."""
    return bool(
        frames.request_id[row] != NULL
        or (frames.txn_most_bits[row] != NULL and frames.txn_least_bits[row] != NULL)
    )


@kernel
def _waiting_of(state: ConsumptionState, a: int, b: int, kind: int) -> int:
    """The list of claims of a key, taken up if it is new; ABSENT without room."""
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
def add_claim(
    state: ConsumptionState, frames: FrameColumns, row: int, delivery: int, transaction: int
) -> int:
    """A claim of an ACK on all that is left of a delivery; ABSENT without room."""
    claims = state.claims
    deliveries = state.deliveries
    if transaction != tables.ABSENT:
        most, least = frames.txn_most_bits[row], frames.txn_least_bits[row]
        waiting = _waiting_of(state, most, least, TableKey.COMMIT)
    else:
        waiting = _waiting_of(state, frames.connection_id[row], 0, TableKey.ANSWERS)
    claim = tables.allocate_row(state.claim_pool) if waiting != tables.ABSENT else tables.ABSENT
    if claim == tables.ABSENT:
        return tables.ABSENT
    claims.waiting[claim] = waiting
    claims.delivery[claim] = delivery
    claims.frame_no[claim] = deliveries.frame_no[delivery]
    claims.ack_frame_no[claim] = frames.frame_no[row]
    claims.of_ack[claim] = 0
    claims.messages[claim] = deliveries.left[delivery]
    claims.word_block[claim] = tables.ABSENT
    claims.is_uncommitted[claim] = 1 if transaction != tables.ABSENT else 0
    tables.list_append(state.waiting, claims, waiting, claim)
    deliveries.claims[delivery] += 1
    if transaction != tables.ABSENT:
        deliveries.transaction[delivery] = transaction
        deliveries.uncommitted[delivery] += 1
        deliveries.uncommitted_messages[delivery] += max(claims.messages[claim], 0)
    if frames.request_id[row] != NULL:
        first = tables.find(state.table, frames.frame_no[row], 0, 0, TableKey.ACK)
        if first == tables.ABSENT:
            first = claim
            tables.put(state.table, frames.frame_no[row], 0, 0, TableKey.ACK, claim)
        claims.of_ack[first] += 1
    return claim


@kernel
def keep_bits(state: ConsumptionState, claim: int, words: int) -> bool:
    """Make room for the bits that a claim takes of a batch; False without room."""
    word_block = allocate_words(state, words)
    state.claims.word_block[claim] = word_block
    if word_block == tables.ABSENT:
        return False
    for word in range(words):
        state.words[words_at(word_block) + word] = 0
    return True


@kernel
def take_bits(state: ConsumptionState, claim: int, delivery: int) -> bool:
    """A claim takes all bits that are left of a batch; False without room."""
    deliveries = state.deliveries
    count = deliveries.left_words[delivery]
    if count == 0:
        return True
    if not keep_bits(state, claim, count):
        return False
    base = words_at(deliveries.word_block[delivery]) + max(deliveries.set_words[delivery], 0)
    kept = words_at(state.claims.word_block[claim])
    for word in range(count):
        state.words[kept + word] = state.words[base + word]
        state.words[base + word] = 0
    return True


@inlined
def take_messages(state: ConsumptionState, claim: int, messages: int) -> None:
    """Say how many messages a claim on a part took."""
    claims = state.claims
    if claims.is_uncommitted[claim] == 1:
        difference = max(messages, 0) - max(claims.messages[claim], 0)
        state.deliveries.uncommitted_messages[claims.delivery[claim]] += difference
    claims.messages[claim] = messages


@kernel
def set_aside(state: ConsumptionState, delivery: int) -> None:
    """A delivery of which nothing is left waits for the claims on it, apart from its consumer's."""
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


@kernel
def _free_claim(state: ConsumptionState, claim: int) -> int:
    """Take a claim out of its list; returns its delivery, ABSENT if that has ended."""
    claims = state.claims
    deliveries = state.deliveries
    tables.list_unlink(state.waiting, claims, claims.waiting[claim], claim)
    if claims.of_ack[claim] > 0:
        tables.remove(state.table, claims.ack_frame_no[claim], 0, 0, TableKey.ACK)
    if claims.word_block[claim] != tables.ABSENT:
        free_words(state, claims.word_block[claim])
    tables.give_row(state.claim_pool, claim)
    delivery = claims.delivery[claim]
    if deliveries.frame_no[delivery] != claims.frame_no[claim]:
        return tables.ABSENT
    deliveries.claims[delivery] -= 1
    if claims.is_uncommitted[claim] == 1:
        deliveries.uncommitted[delivery] -= 1
        deliveries.uncommitted_messages[delivery] -= max(claims.messages[claim], 0)
    return int(delivery)


@kernel
def _grant(state: ConsumptionState, block: PassContext, row: int, claim: int) -> None:
    """The ACK of a claim counts."""
    delivery = _free_claim(state, claim)
    if delivery == tables.ABSENT:
        return
    deliveries = state.deliveries
    if deliveries.is_claimed[delivery] == 1 and deliveries.claims[delivery] == 0:
        end_delivery(state, block, row, delivery, enums.ACKED)


@kernel
def _restore_bits(state: ConsumptionState, claim: int, delivery: int) -> None:
    """Bits that a claim took of a batch are left again."""
    deliveries = state.deliveries
    word_block = state.claims.word_block[claim]
    if word_block == tables.ABSENT:
        return
    base = words_at(deliveries.word_block[delivery]) + max(deliveries.set_words[delivery], 0)
    for word in range(deliveries.left_words[delivery]):
        bits = int(state.words[base + word]) | int(state.words[words_at(word_block) + word])
        state.words[base + word] = wrapped(bits)


@kernel
def _reopen(state: ConsumptionState, delivery: int) -> None:
    """A delivery that was set aside is one of its consumer's again."""
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    deliveries.is_claimed[delivery] = 0
    consumers.claimed[consumer] -= 1
    append_delivery(state, consumer, delivery)
    if deliveries.left[delivery] == NULL:
        consumers.unread[consumer] += 1
    else:
        consumers.unacked[consumer] += deliveries.left[delivery]


@kernel
def _take_back(
    state: ConsumptionState, block: PassContext, row: int, claim: int, outcome: int
) -> None:
    """The ACK of a claim does not count: what it took is open again.

    What is rolled back the broker sends anew, and a consumer that is gone acknowledges nothing.
    """
    deliveries = state.deliveries
    consumers = state.consumers
    messages = state.claims.messages[claim]
    delivery = state.claims.delivery[claim]
    if deliveries.frame_no[delivery] == state.claims.frame_no[claim]:
        _restore_bits(state, claim, delivery)
    delivery = _free_claim(state, claim)
    if delivery == tables.ABSENT:
        return
    deliveries.taken_back[delivery] = outcome
    if messages == NULL:
        deliveries.left[delivery] = NULL
    elif deliveries.left[delivery] != NULL:
        deliveries.left[delivery] += messages
    if deliveries.uncommitted[delivery] == 0 and outcome == enums.ACK_REFUSED:
        deliveries.transaction[delivery] = tables.ABSENT
    consumer = deliveries.consumer[delivery]
    if deliveries.is_claimed[delivery] == 1:
        if outcome == enums.ACK_ROLLED_BACK or consumers.state[consumer] == ConsumerState.CLOSED:
            end_delivery(state, block, row, delivery, outcome)
            return
        _reopen(state, delivery)
    elif messages != NULL:
        consumers.unacked[consumer] += messages


@kernel
def _end_waiting(
    state: ConsumptionState, block: PassContext, row: int, waiting: int, is_granted: bool
) -> None:
    """Decide all claims of a list, and give it up."""
    for _ in range(state.waiting.length[waiting]):
        claim = state.waiting.first[waiting]
        if is_granted:
            _grant(state, block, row, claim)
        else:
            _take_back(state, block, row, claim, enums.ACK_ROLLED_BACK)
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
    state: ConsumptionState, block: PassContext, row: int, most: int, least: int, is_committed: bool
) -> None:
    """A transaction has ended."""
    waiting = tables.remove(state.table, most, least, 0, TableKey.COMMIT)
    if waiting != tables.ABSENT:
        _end_waiting(state, block, row, waiting, is_committed)


@kernel
def end_claims_of_connection(
    state: ConsumptionState, block: PassContext, row: int, connection: int
) -> None:
    """No answer will come any more."""
    waiting = tables.remove(state.table, connection, 0, 0, TableKey.ANSWERS)
    if waiting != tables.ABSENT:
        _end_waiting(state, block, row, waiting, True)


@kernel
def answer_claims(
    state: ConsumptionState, block: PassContext, row: int, ack_frame_no: int, is_refused: bool
) -> None:
    """The broker answers an ACK. One inside a transaction, if not refused, goes on waiting."""
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
            _take_back(state, block, row, claim, enums.ACK_REFUSED)
        elif claims.is_uncommitted[claim] == 0:
            _grant(state, block, row, claim)
        claim = following


@inlined
def outcome_at_end(state: ConsumptionState, delivery: int) -> int:
    """What becomes of a delivery that only waits for claims, at the end of the capture.

    The end of a transaction may have been asked for and not answered yet, as an ACK may be.
    """
    deliveries = state.deliveries
    if deliveries.uncommitted[delivery] == 0:
        return enums.ACKED
    transaction = find_transaction(state, deliveries.transaction[delivery])
    action = state.transactions.action[transaction] if transaction != tables.ABSENT else NULL
    if action == consumption_state.TRANSACTION_COMMITTED:
        return enums.ACKED
    return (
        enums.ACK_ROLLED_BACK
        if action == consumption_state.TRANSACTION_ABORTED
        else enums.ACK_UNCOMMITTED
    )
