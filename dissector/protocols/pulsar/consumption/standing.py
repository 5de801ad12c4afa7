"""The messages of a delivery that ACKs leave, including cumulative ACKs of later entries.

Theory. A cumulative ACK names all its consumer's open deliveries up to its id. Deliveries in the
consumer's list get a claim, or end. Deliveries set aside (other ACKs leave nothing of them) may be
many, and so may further ACKs. So such an ACK is listed once for its consumer, as a *reach*, while
deliveries of that consumer are set aside:

    listed  --the answer or the commit grants it--> certain: earlier, shorter reaches are removed
            --it is refused, or its transaction is aborted--> removed
            --no delivery of its consumer is set aside any more--> removed

Reaches are searched only when no other claim covers a delivery, and then from the last one back:
clients acknowledge in order, so that the last one mostly matches. A delivery whose own claims are
revoked gets a claim of the first undecided reach found. Reaches in transactions have a separate
list, because some searches need those outside alone.
"""

from typing import Final

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.limits import ACK_STEPS_PER_FRAME, FREE_ACK_STEPS, MAX_CHAIN_STEPS, NULL
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import popcount, words_at
from dissector.protocols.pulsar.consumption.published import find_transaction
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.tables import ABSENT, ListHeads

# Levels of ACKs to count: each includes the one before.
DECIDED: Final = 0  # outside transactions, unanswered ones included
COMMITTING: Final = 1  # in transactions whose commit was requested
UNDECIDED: Final = 2  # in transactions whose abort was not requested
ALL: Final = 3


@inlined
def has_spent(state: ConsumptionState) -> bool:
    """Whether list walks have used up their budget of steps per frame."""
    budget = FREE_ACK_STEPS + ACK_STEPS_PER_FRAME * state.counters[consumption_state.CLOCK]
    return bool(state.counters[consumption_state.SPENT_STEPS] > budget)


@inlined
def counts(state: ConsumptionState, claim: int, level: int) -> bool:
    """Whether the ACK of a claim counts at a level."""
    packed = state.claims.transaction[claim]
    if level == ALL or packed == ABSENT:
        return True
    if level == DECIDED:
        return False
    transaction = find_transaction(state, packed)
    action = NULL if transaction == ABSENT else int(state.transactions.action[transaction])
    if level == COMMITTING:
        return action == consumption_state.TRANSACTION_COMMITTED
    return action != consumption_state.TRANSACTION_ABORTED


@kernel
def messages_left(state: ConsumptionState, delivery: int, level: int) -> int:
    """How many messages of a delivery its own ACKs leave at a level, without reaches.

    Level ALL also writes the result to the delivery's bits left.
    """
    deliveries = state.deliveries
    count = deliveries.left_words[delivery]
    base = words_at(deliveries.word_block[delivery]) + max(deliveries.set_words[delivery], 0)
    total = 0
    is_whole = False
    claim = deliveries.first[delivery]
    for _ in range(deliveries.length[delivery]):
        state.counters[consumption_state.SPENT_STEPS] += 1
        if state.claims.word_block[claim] == ABSENT and counts(state, claim, level):
            is_whole = True
            break
        claim = state.shares.next[claim]
    for word_index in range(count):
        word = 0 if is_whole else int(state.words[base + count + word_index])
        claim = deliveries.first[delivery]
        for _ in range(deliveries.length[delivery]):
            if word == 0:
                break
            state.counters[consumption_state.SPENT_STEPS] += 1
            if counts(state, claim, level):
                claimed = words_at(state.claims.word_block[claim])
                word = int(word) & int(state.words[claimed + word_index])
            claim = state.shares.next[claim]
        if level == ALL:
            state.words[base + word_index] = word
        total += popcount(word)
    if count == 0:
        return 0 if is_whole else int(max(deliveries.count[delivery], 1))
    if deliveries.count[delivery] == NULL:
        return total
    return int(min(total, deliveries.count[delivery]))


@kernel
def _last_reach(
    state: ConsumptionState, reaches: ListHeads, delivery: int, level: int, most: int
) -> int:
    """The last reach of a list that covers a delivery, or ABSENT. most: reaches to examine.

    A reach from after the entry's redelivery covers that redelivery instead.
    """
    until = state.deliveries.superseded_at[delivery]
    claims = state.claims
    deliveries = state.deliveries
    consumer = deliveries.consumer[delivery]
    ledger, entry = deliveries.ledger[delivery], deliveries.entry[delivery]
    reach = reaches.last[consumer]
    for _ in range(min(reaches.length[consumer], most)):
        ack_frame_no = claims.ack_frame_no[reach]
        if ack_frame_no < deliveries.frame_no[delivery] or has_spent(state):
            return ABSENT
        state.counters[consumption_state.SPENT_STEPS] += 1
        is_behind = claims.ledger[reach] > ledger or (
            claims.ledger[reach] == ledger and claims.entry[reach] > entry
        )
        if is_behind and (until == 0 or ack_frame_no < until) and counts(state, reach, level):
            return int(reach)
        reach = state.shares.previous[reach]
    return ABSENT


@kernel
def find_reach(state: ConsumptionState, delivery: int, level: int) -> int:
    """A cumulative ACK of a later entry that covers a delivery that is set aside, or ABSENT.

    A reach of a committing transaction may be listed before very many whose end is never seen:
    only the last MAX_CHAIN_STEPS are searched.
    """
    if state.deliveries.is_claimed[delivery] == 0:
        return ABSENT
    consumer = state.deliveries.consumer[delivery]
    most = state.reaches.length[consumer]
    reach = _last_reach(state, state.reaches, delivery, level, most)
    if reach == ABSENT and level != DECIDED:
        most = state.transaction_reaches.length[consumer]
        if level == COMMITTING and most > MAX_CHAIN_STEPS:
            most = MAX_CHAIN_STEPS
            tables.note_cut_walk(state.table)
        reach = _last_reach(state, state.transaction_reaches, delivery, level, most)
    return int(reach)


@kernel
def leaves_nothing(state: ConsumptionState, delivery: int, level: int) -> bool:
    """Whether the ACKs of a level, reaches included, leave nothing of a delivery."""
    return bool(
        messages_left(state, delivery, level) == 0 or find_reach(state, delivery, level) != ABSENT
    )


@kernel
def list_reach(state: ConsumptionState, reach: int, consumer: int) -> None:
    """Append a reach to its consumer's list."""
    state.claims.consumer[reach] = consumer
    reaches = state.reaches
    if state.claims.transaction[reach] != ABSENT:
        reaches = state.transaction_reaches
    tables.list_append(reaches, state.shares, consumer, reach)


@kernel
def unlist_reach(state: ConsumptionState, reach: int) -> None:
    """Remove a reach from its consumer's list; free it, unless it is still undecided."""
    claims = state.claims
    consumer = claims.consumer[reach]
    if consumer == ABSENT:
        return
    reaches = state.reaches
    if claims.transaction[reach] != ABSENT:
        reaches = state.transaction_reaches
    tables.list_unlink(reaches, state.shares, consumer, reach)
    claims.consumer[reach] = ABSENT
    if claims.waiting[reach] == ABSENT:
        tables.give_row(state.claim_pool, reach)


@inlined
def _is_covered(state: ConsumptionState, reach: int, other: int) -> bool:
    """Whether a later reach covers everything that a reach covers.

    False if an id was redelivered since: then only the first one may cover the older delivery.
    """
    claims = state.claims
    return bool(
        claims.ack_frame_no[reach] < claims.ack_frame_no[other]
        and claims.ack_frame_no[reach] > state.consumers.superseded_at[claims.consumer[reach]]
        and (
            claims.ledger[reach] < claims.ledger[other]
            or (
                claims.ledger[reach] == claims.ledger[other]
                and claims.entry[reach] <= claims.entry[other]
            )
        )
    )


@kernel
def _unlist_covered(state: ConsumptionState, reaches: ListHeads, before: int, reach: int) -> None:
    """Remove reaches that `reach` covers from a list, from `before` back to the first other one."""
    for _ in range(reaches.length[state.claims.consumer[reach]]):
        if before == ABSENT or not _is_covered(state, before, reach):
            return
        further = state.shares.previous[before]
        unlist_reach(state, before)
        before = further


@kernel
def make_certain(state: ConsumptionState, reach: int) -> None:
    """Mark a reach whose ACK counts as certain; remove earlier reaches that it covers."""
    claims = state.claims
    consumer = claims.consumer[reach]
    if claims.transaction[reach] != ABSENT:
        # It moves to the list of reaches outside transactions, by the frame of its ACK.
        tables.list_unlink(state.transaction_reaches, state.shares, consumer, reach)
        claims.transaction[reach] = ABSENT
        before = state.reaches.last[consumer]
        for _ in range(state.reaches.length[consumer]):
            if before == ABSENT or claims.ack_frame_no[before] <= claims.ack_frame_no[reach]:
                break
            state.counters[consumption_state.SPENT_STEPS] += 1
            before = ABSENT if has_spent(state) else int(state.shares.previous[before])
        tables.list_insert(state.reaches, state.shares, consumer, before, reach)
    _unlist_covered(state, state.reaches, state.shares.previous[reach], reach)
    last = state.transaction_reaches.last[consumer]
    _unlist_covered(state, state.transaction_reaches, last, reach)


@kernel
def forget_reaches(state: ConsumptionState, consumer: int) -> None:
    """Remove all reaches of a consumer, none of whose deliveries is set aside any more."""
    for _ in range(state.reaches.length[consumer]):
        unlist_reach(state, state.reaches.first[consumer])
    for _ in range(state.transaction_reaches.length[consumer]):
        unlist_reach(state, state.transaction_reaches.first[consumer])
