"""Conversations of any kind, cut anywhere, against the oracle."""

import random
from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.choosing import examples
from tests.hard.damage import Tap
from tests.oracle.conversations import CONSUMERS, KINDS, Conversation, Step, tables_of
from tests.oracle.facts import KEYS, Difference, Oracle

STEPS = st.builds(Step, st.sampled_from(KINDS), st.integers(0, CONSUMERS - 1), st.integers(0, 7))


def conversations() -> st.SearchStrategy[tuple[list[Step], str, set[int]]]:
    """Scripts with the type of their subscription, and the bytes at which their capture is cut."""
    return st.tuples(
        st.lists(STEPS, max_size=70),
        st.sampled_from(("Shared", "Exclusive")),
        st.sets(st.integers(1, 10_000), max_size=4),
    )


@settings(max_examples=examples(12, 6))
@given(st.lists(conversations(), min_size=1, max_size=12))
def test_any_conversations_have_the_rows_of_the_oracle(
    scripts: list[tuple[list[Step], str, set[int]]],
) -> None:
    captures = {
        f"conversation {number}": (Conversation(script, kind).records(), cuts)
        for number, (script, kind, cuts) in enumerate(scripts)
    }
    assert Oracle(tables_of(captures)).differences() == []


def test_a_long_conversation_has_rows_of_every_kind() -> None:
    """So that what is compared is not nothing."""
    chance = random.Random(1)
    kinds = [kind for kind in KINDS if kind != "hang up"]
    script = [
        Step(chance.choice(kinds), chance.randrange(CONSUMERS), chance.randrange(8))
        for _ in range(3000)
    ]
    oracle = Oracle(tables_of({"long": (Conversation(script, "Shared").records(), [])}))
    assert oracle.differences() == []
    assert min(oracle.rows(table) for table in KEYS) > 100


# A cumulative ack whose connection waits at a hole: by its packet it comes before the end of
# another connection, by its frame behind it, where it counts for what that one's consumer got.
WAITED = 90
WAITING = {
    Difference(f"conversation {WAITED}", "deliveries", column, 1)
    for column in ("ack_frame_no", "messages_acked", "outcome")
}


def test_conversations_that_lost_packets_have_the_rows_of_the_oracle() -> None:
    """Without pings: of two that wait before a hole the oracle has the answer for the first."""
    chance = random.Random(2)
    kinds = [kind for kind in KINDS if kind != "ping"]
    captures: dict[str, tuple[bytes, Collection[int]]] = {}
    count = examples(200, 40)
    for number in range(count):
        script = [
            Step(chance.choice(kinds), chance.randrange(CONSUMERS), chance.randrange(8))
            for _ in range(chance.choice((10, 30, 70)))
        ]
        records = Conversation(script, chance.choice(("Shared", "Exclusive"))).records()
        content = Tap.read(records).without(chance.choice((0.03, 0.1)), number).bytes()
        captures[f"conversation {number}"] = content, ()
    known = WAITING if count > WAITED else set()
    assert set(Oracle(tables_of(captures)).differences()) == known
