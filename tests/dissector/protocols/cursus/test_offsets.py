"""Sets of offsets against a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.cursus.offsets import Intervals


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=25))
def test_intervals_are_a_set(ranges):
    found, plain = Intervals(), set()
    for first, size in ranges:
        numbers = set(range(first, first + size + 1))
        assert found.covered(first, first + size) == bool(numbers & plain)
        found.add(first, first + size)
        plain |= numbers
    runs = sum(1 for each in plain if each - 1 not in plain)
    assert len(found) == runs
    for each in range(70):
        assert found.covered(each, each) == (each in plain)
    assert found.top() == (max(plain) + 1 if plain else 0)
    if plain:
        first = found.top_first()
        assert first in plain and first - 1 not in plain
        found.drop_top()
        assert len(found) == runs - 1 and not found.covered(first, max(plain))
