"""Texts of many connections at once are those of one at a time."""

import ipaddress
from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dissector.dissection.endpoint_texts import EndpointPairs, end_texts, new_addresses
from dissector.endpoints import Endpoint
from dissector.schemas.text import spans_array
from dissector.tables import new_hash_table
from tests.naive.endpoints import community_id, connection_key

HALVES = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, 1, -1, 0xFFFF, 0xFFFF_0102_0304, 1 << 48, -1 << 48, 0x1_0000_0001]),
)
PORTS = st.integers(0, 0xFFFF)


def written(pairs: list[tuple[Endpoint, Endpoint]]) -> list[tuple[str, ...]]:
    """Addresses, key and Community ID of each pair."""
    columns = [
        [one.ip_version for one, _ in pairs],
        *([one[n] for one, _ in pairs] for n in (1, 2, 3)),
        *([other[n] for _, other in pairs] for n in (1, 2, 3)),
    ]
    ends = EndpointPairs(*(np.array(column, np.int64) for column in columns))
    numbers, text, bounds = new_addresses(ends, new_hash_table(1 << 10))
    known = [text[start:stop].tobytes().decode() for start, stop in pairwise(bounds.tolist())]
    addresses = [[known[number] for number in side] for side in numbers.tolist()]
    texts = (spans_array(each, 0, len(pairs)).to_pylist() for each in end_texts(ends))
    return list(zip(*addresses, *texts, strict=True))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Endpoint, Endpoint]:
    if draw(st.booleans()):
        low = st.integers(0, 0xFFFF_FFFF)
        return Endpoint(4, 0, draw(low), draw(PORTS)), Endpoint(4, 0, draw(low), draw(PORTS))
    one = Endpoint(6, draw(HALVES), draw(HALVES), draw(PORTS))
    return one, draw(st.just(one) | st.builds(Endpoint, st.just(6), HALVES, HALVES, PORTS))


@settings(max_examples=200, deadline=None)
@given(st.lists(pairs(), max_size=20))
@example([(Endpoint(6, -1, -1, 65535), Endpoint(6, -1, -2, 65535))])
@example([(Endpoint(6, 0, 0, 0), Endpoint(6, 0, 0xFFFF_0102_0304, 0))])
def test_texts_are_those_of_one_at_a_time(found: list[tuple[Endpoint, Endpoint]]) -> None:
    assert written(found) == [
        (one.text(), other.text(), connection_key(one, other, None), community_id(one, other))
        for one, other in found
    ]


def test_every_address_of_one_group_and_its_neighbours_is_written_as_python_does() -> None:
    """Runs of zeros of every length at every place."""
    found = []
    for pattern in range(256):
        groups = [0x10 * n if pattern >> n & 1 else 0 for n in range(8)]
        number = int("".join(f"{group:04x}" for group in groups), 16)
        signed = [(half ^ (1 << 63)) - (1 << 63) for half in (number >> 64, number & (1 << 64) - 1)]
        end = Endpoint(6, *signed, 1)
        assert end.text() == str(ipaddress.IPv6Address(number))
        found.append((end, end))
    assert [row[0] for row in written(found)] == [end.text() for end, _ in found]
