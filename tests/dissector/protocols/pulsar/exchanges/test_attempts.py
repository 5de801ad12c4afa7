"""Chains of attempts against a dictionary: whatever comes, goes, grows and collides."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.pulsar.exchanges.attempts import (
    AttemptColumns,
    find_attempt,
    link_all,
    link_attempt,
    new_heads,
    unlink_attempt,
)
from dissector.tables import ABSENT

KEYS = st.tuples(*[st.integers(-2, 2)] * 4)


def write(attempts: AttemptColumns, row: int, key: tuple[int, ...]) -> None:
    names = ("source", "sequence_id", "chunk_id", "crc32c_stored")
    for name, value in zip(names, key, strict=True):
        getattr(attempts, name)[row] = value
    attempts.count[row] = 1


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=80), st.integers(1, 8))
def test_rows_are_found_by_their_keys(steps: list[tuple], rows: int) -> None:
    attempts, heads = AttemptColumns.new(rows), new_heads(1)
    known: dict[tuple, int] = {}
    free = list(range(rows))
    for key, is_coming in steps:
        if is_coming and key not in known:
            if not free:
                free = list(range(rows, 2 * rows))
                rows *= 2
                attempts, heads = attempts.grown(rows), new_heads(rows)
                link_all(attempts, heads)
            row = known[key] = free.pop()
            write(attempts, row, key)
            link_attempt(attempts, heads, row)
        elif not is_coming and key in known:
            row = known.pop(key)
            unlink_attempt(attempts, heads, row)
            free.append(row)
            assert attempts.count[row] == 0
        for each in {key, *known}:
            assert find_attempt(attempts, heads, *each) == known.get(each, ABSENT)


def test_there_are_at_least_twice_as_many_chains_as_rows() -> None:
    for rows in (1, 2, 3, 1000, 1024, 1025):
        heads = len(new_heads(rows))
        assert heads >= 2 * rows and heads & (heads - 1) == 0
