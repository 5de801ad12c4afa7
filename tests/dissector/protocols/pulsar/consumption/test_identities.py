"""Ids that were delivered before: pages, and intervals of what is older, against a plain set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.protocols.pulsar.consumption.bitsets import bit_of, bits_left, masked_word, popcount
from dissector.protocols.pulsar.consumption.identities import add_page, evict_page
from dissector.protocols.pulsar.consumption.published import (
    domain_of,
    end_transaction,
    proxy_side_of,
    published_ns,
    remember_published,
    set_proxy_side,
    transaction_of,
    was_committed,
)
from dissector.protocols.pulsar.consumption.state import (
    IDENTITIES_FORGOTTEN,
    PAGE_ENTRIES,
    TRANSACTION_COMMITTED,
    ConsumptionState,
    TableKey,
    make_key_room,
    new_state,
)
from dissector.tables import ABSENT, find
from tests.wire.talk import SHARED, TOPIC, Talk

WORD = st.integers(-(1 << 63), (1 << 63) - 1)
BITS_64 = (1 << 64) - 1
CONNECTION = 3


def state_of(nodes: int = 1 << 12) -> ConsumptionState:
    state = new_state(64, 64, nodes)
    state.groups.serial[0] = 5
    make_key_room(state, 1 << 12)
    return state


def deliver(state: ConsumptionState, entry: int, ledger: int = 3) -> bool:
    """Deliver an id and forget its page at once; whether it was known from before."""
    page = find(state.table, 5, ledger, entry >> 6, TableKey.PAGE)
    assert page == ABSENT
    page = add_page(state, 0, 5, ledger, entry)
    bit = entry & (PAGE_ENTRIES - 1)
    was_seen = bool((int(state.pages.seen[page]) >> bit) & 1)
    seen = (int(state.pages.seen[page]) & BITS_64) | 1 << bit
    state.pages.seen[page] = seen - (1 << 64) if seen >> 63 else seen
    evict_page(state, page)
    return was_seen


@settings(max_examples=30)
@given(st.lists(st.integers(0, 9000), max_size=300))
def test_forgotten_pages_are_remembered_as_a_set_is(entries: list[int]) -> None:
    state = state_of()
    known: set[int] = set()
    for entry in entries:
        assert deliver(state, entry) == (entry in known)
        known.add(entry)


def test_a_stream_without_holes_needs_few_nodes_however_long_it_is() -> None:
    state = state_of(nodes=64)
    for entry in range(20_000):
        assert not deliver(state, entry)
    assert state.counters[IDENTITIES_FORGOTTEN] == 0
    assert int(state.nodes.is_used.sum()) <= 11
    assert all(deliver(state, entry) for entry in range(0, 20_000, 997))
    assert not deliver(state, 20_000) and not deliver(state, 0, ledger=4)


def test_what_does_not_fit_is_forgotten_and_counted() -> None:
    state = state_of(nodes=16)
    for entry in range(0, 64 * 100, 64):
        deliver(state, entry)
    assert state.counters[IDENTITIES_FORGOTTEN] == 100 - 16
    assert deliver(state, 64 * 99) and not deliver(state, 0)


@given(WORD)
def test_bits_of_a_word(word: int) -> None:
    assert popcount(word) == (word & BITS_64).bit_count()


def test_one_bit() -> None:
    assert [bit_of(index) for index in (0, 5, 62, 63)] == [1, 32, 1 << 62, -(1 << 63)]


@given(st.lists(WORD, max_size=4), st.one_of(st.none(), st.integers(-2, 300)))
def test_bits_left_of_a_set(words: list[int], bits: int | None) -> None:
    """Trailing words that are zero are not on the wire; bits beyond the batch mean nothing."""
    whole = sum((word & BITS_64) << 64 * index for index, word in enumerate(words))
    expected = whole if bits is None else whole & ((1 << max(bits, 0)) - 1)
    array = np.array([9, *words, 9], np.int64)
    limit = NULL if bits is None else bits
    assert bits_left(array, 1, len(words), limit) == expected.bit_count()
    for index in range(5):
        found = masked_word(array, 1, len(words), index, limit)
        assert found & BITS_64 == expected >> 64 * index & BITS_64


def test_when_an_entry_was_published_is_known_per_topic_ledger_and_leg() -> None:
    state = state_of()
    remember_published(state, 1, 2, 130, 0, 777)
    assert published_ns(state, 1, CONNECTION, 2, 130, 0) == 777
    others = [(9, 2, 130, 0), (1, 9, 130, 0), (1, 2, 131, 0), (1, 2, 2, 0), (1, 2, 130, 1),
              (NULL, 2, 130, 0), (1, 2, -1, 0)]  # fmt: skip
    for topic, ledger, entry, proxy_side in others:
        assert published_ns(state, topic, CONNECTION, ledger, entry, proxy_side) == NULL


def test_without_a_topic_an_entry_is_known_on_its_own_connection() -> None:
    state = state_of()
    remember_published(state, domain_of(NULL, CONNECTION), 2, 130, 0, 777)
    assert published_ns(state, NULL, CONNECTION, 2, 130, 0) == 777
    assert published_ns(state, 5, CONNECTION, 2, 130, 0) == 777
    assert published_ns(state, NULL, CONNECTION + 1, 2, 130, 0) == NULL


def test_the_oldest_published_entries_make_room() -> None:
    state = state_of()
    room = len(state.published.topic)
    make_key_room(state, room + 2)
    for number in range(room + 1):
        remember_published(state, 1, 2, number * PAGE_ENTRIES, 0, number)
    assert published_ns(state, 1, CONNECTION, 2, 0, 0) == NULL
    assert published_ns(state, 1, CONNECTION, 2, PAGE_ENTRIES, 0) == 1


def test_legs_of_a_proxy() -> None:
    state = state_of()
    set_proxy_side(state, 4, 1)
    assert (proxy_side_of(state, 4), proxy_side_of(state, 5)) == (1, 0)
    set_proxy_side(state, 4, 0)
    assert proxy_side_of(state, 4) == 0


@pytest.mark.parametrize(("action", "committed"), [(TRANSACTION_COMMITTED, True), (1, False)])
def test_transactions_are_told_apart_by_both_halves_of_their_ids(
    action: int, committed: bool
) -> None:
    state = state_of()
    one, other = transaction_of(state, 1, 2), transaction_of(state, 2, 1)
    assert one != other and transaction_of(state, 1, 2) == one
    end_transaction(state, 1, 2, action)
    assert was_committed(state, one) == committed and not was_committed(state, other)


def test_a_long_stream_is_recognised_when_it_comes_again() -> None:
    """Through the whole of consumption: far more ids than pages, then all of them once more."""
    talk = Talk()
    talk.connect()
    talk.subscribe(0, subscription_type=SHARED, topic=TOPIC)
    for again in range(2):
        for entry in range(0, 3000, 7):
            talk.message(entry, redelivery_count=again)
            talk.ack(entry)
    rows = sorted(talk.rows()["deliveries"], key=lambda row: row["frame_no"])
    half = len(rows) // 2
    assert [row["is_redelivered"] for row in rows] == [0] * half + [1] * half
    assert [row["previous_frame_no"] for row in rows[half:]] == [
        row["frame_no"] for row in rows[:half]
    ]
