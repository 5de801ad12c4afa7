"""Chains of attempts against a dictionary: whatever comes, goes, grows and collides."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.pairing.attempts import (
    AttemptColumns,
    find_attempt,
    link_all,
    link_attempt,
    new_attempts,
    new_heads,
    unlink_attempt,
    with_room,
)
from dissector.tables import ABSENT, CROWDED

KEYS = st.tuples(*[st.integers(-2, 2)] * 4)


def write(rows: AttemptColumns, row: int, key: tuple[int, ...]) -> None:
    names = ("source", "sequence_id", "chunk_id", "crc32c_stored")
    for name, value in zip(names, key, strict=True):
        getattr(rows, name)[row] = value
    rows.count[row] = 1


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=80), st.integers(1, 8))
def test_rows_are_found_by_their_keys(steps: list[tuple], rows: int) -> None:
    attempts = new_attempts(rows, 1 << 10, 4)._replace(heads=new_heads(1))
    known: dict[tuple, int] = {}
    free = list(range(rows))
    for key, is_coming in steps:
        if is_coming and key not in known:
            if not free:
                free = list(range(rows, 2 * rows))
                rows *= 2
                larger = attempts.rows.grown(rows)
                attempts = attempts._replace(rows=larger, heads=new_heads(rows))
                link_all(attempts)
            row = known[key] = free.pop()
            write(attempts.rows, row, key)
            link_attempt(attempts, row)
        elif not is_coming and key in known:
            row = known.pop(key)
            unlink_attempt(attempts, row)
            free.append(row)
            assert attempts.rows.count[row] == 0
        for each in {key, *known}:
            assert find_attempt(attempts, *each) == known.get(each, ABSENT)


def test_chains_that_grew_too_long_are_made_under_another_secret() -> None:
    attempts = with_room(new_attempts(16, 1 << 12, 4), 1 << 11)
    for row in range(1 << 11):
        write(attempts.rows, row, (0, row, 0, 0))
    before = attempts._replace(heads=new_heads(1))
    link_all(before)
    find_attempt(before, 0, -1, 0, 0)
    assert before.sources.counts[CROWDED] == 1
    after = with_room(before, 0)
    assert (after.sources.secret != attempts.sources.secret).all()
    assert [find_attempt(after, 0, row, 0, 0) for row in (0, 9, 1023)] == [0, 9, 1023]


def test_there_are_at_least_twice_as_many_chains_as_rows() -> None:
    for rows in (1, 2, 3, 1000, 1024, 1025):
        heads = len(new_heads(rows))
        assert heads >= 2 * rows and heads & (heads - 1) == 0
