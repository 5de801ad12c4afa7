"""Kernels that count attempts: how often one message was sent, over all connections.

A client that gets no answer, or an error, sends again with the same producer name and sequence id,
on another connection or on the same one. A *source* is a topic and a producer name; the proxy's leg
of a connection that was captured on both sides has sources of its own. An attempt row stays while
one of its sends waits; then it queues behind the answered ones of its source, of which the last
ones stay, because answers that a client no longer takes are sent for again.
"""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import MAX_ANSWERED_PER_PRODUCER, NULL
from dissector.protocols.pulsar.exchanges.attempt_chains import (
    find_attempt,
    link_attempt,
    unlink_attempt,
)
from dissector.protocols.pulsar.exchanges.state import (
    COUNT_HAND,
    COUNT_SOURCES,
    LIMIT_SOURCES,
    ExchangeState,
)
from dissector.protocols.tables import (
    ABSENT,
    find,
    give_row,
    list_append,
    list_unlink,
    put,
    remove,
    take_row,
)

_KEY_SOURCE: Final = -1  # first word of the keys of sources
_KEY_LEG: Final = -2  # the second word is a connection of a proxy's leg
# Answered rows forgotten per answer at most: after a reconnect the unanswered ones wait at the end
# of the queue, and those in front of them shall not take them along.
_FORGET_AT_ONCE: Final = 2
_HAND_STEPS: Final = 64


@kernel
def set_leg(state: ExchangeState, connection: int, is_proxy_leg: int) -> None:
    """Say whether a connection is the proxy's leg of a pair; its end must be said too."""
    if is_proxy_leg == 1:
        put(state.source_table, _KEY_LEG, connection, 0, 0, 1)
    else:
        remove(state.source_table, _KEY_LEG, connection, 0, 0)


@kernel
def source_of(state: ExchangeState, connection: int, topic: int, producer_name: int) -> int:
    """The source of a topic and a producer name, made if it is new; ABSENT without room."""
    table = state.source_table
    leg = max(find(table, _KEY_LEG, connection, 0, 0), 0)
    source = find(table, _KEY_SOURCE, topic, producer_name, leg)
    if source == ABSENT and state.counters[COUNT_SOURCES] < state.limits[LIMIT_SOURCES]:
        source = state.counters[COUNT_SOURCES]
        state.counters[COUNT_SOURCES] = source + 1
        put(table, _KEY_SOURCE, topic, producer_name, leg, source)
    return int(source)


@kernel
def begin_attempt(
    state: ExchangeState, source: int, sequence_id: int, chunk_id: int, crc32c_stored: int
) -> int:
    """The attempt row of a send, with this send counted in it; ABSENT without room."""
    attempts = state.attempts
    heads = state.attempt_heads
    row = find_attempt(attempts, heads, source, sequence_id, chunk_id, crc32c_stored)
    if row == ABSENT:
        row = take_row(state.attempt_pool)
        if row == ABSENT and _forget_some(state):
            row = take_row(state.attempt_pool)
        if row == ABSENT:
            return ABSENT
        attempts.source[row] = source
        attempts.sequence_id[row] = sequence_id
        attempts.chunk_id[row] = chunk_id
        attempts.crc32c_stored[row] = crc32c_stored
        attempts.count[row] = 0
        attempts.waiting[row] = 0
        link_attempt(attempts, heads, row)
    elif attempts.waiting[row] == 0:
        list_unlink(state.attempt_lists, state.attempt_links, source, row)
    attempts.count[row] += 1
    attempts.waiting[row] += 1
    return int(row)


@inlined
def end_attempt(state: ExchangeState, row: int) -> None:
    """A send of this row waits no longer."""
    attempts = state.attempts
    attempts.waiting[row] -= 1
    if attempts.waiting[row] == 0:
        source = attempts.source[row]
        list_append(state.attempt_lists, state.attempt_links, source, row)
        for _ in range(_FORGET_AT_ONCE):
            if state.attempt_lists.length[source] > MAX_ANSWERED_PER_PRODUCER:
                _forget_oldest(state, source)


@kernel
def _forget_oldest(state: ExchangeState, source: int) -> None:
    """Forget the attempt row of a source that was answered longest ago."""
    row = state.attempt_lists.first[source]
    list_unlink(state.attempt_lists, state.attempt_links, source, row)
    unlink_attempt(state.attempts, state.attempt_heads, row)
    give_row(state.attempt_pool, row)


@kernel
def _forget_some(state: ExchangeState) -> bool:
    """Forget an answered row of the next source that has one; False if none is near."""
    sources = state.counters[COUNT_SOURCES]
    for _ in range(min(_HAND_STEPS, sources)):
        hand = state.counters[COUNT_HAND] % sources
        state.counters[COUNT_HAND] = hand + 1
        if state.attempt_lists.first[hand] != ABSENT:
            _forget_oldest(state, hand)
            return True
    return False


@inlined
def attempt_number(state: ExchangeState, row: int) -> int:
    """The number of the attempt that begin_attempt has just counted, NULL without a row."""
    return NULL if row == ABSENT else state.attempts.count[row]
