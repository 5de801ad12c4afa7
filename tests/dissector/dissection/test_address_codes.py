"""Addresses of connections as codes are those of the connections, each found once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.blocks import Coded, Column, Int64Array
from dissector.dissection import address_codes
from dissector.dissection.address_codes import AddressCodes
from dissector.dissection.endpoint_texts import EndpointPairs
from dissector.endpoints import Endpoint

NET, OTHER_NET = 0x0A00_0000, 0x0A01_0000  # 10.0.0.0 and 10.1.0.0


def ends(clients: list[Endpoint], brokers: list[Endpoint]) -> EndpointPairs:
    versions = [each.ip_version for each in clients]
    columns = [[each[n] for each in side] for side in (clients, brokers) for n in (1, 2, 3)]
    return EndpointPairs(*(np.array(column, np.int64) for column in (versions, *columns)))


def at(low: int) -> Endpoint:
    return Endpoint(4, 0, low, 1)


def texts(column: Column) -> list[str]:
    assert isinstance(column, Coded)
    return [str(column.names[code]) for code in column.codes.tolist()]


def test_addresses_are_right_where_connections_share_a_place_in_the_cache() -> None:
    """Connections 16,384 apart share one; each is asked for again when the other was there."""

    def ends_of(connections: Int64Array) -> EndpointPairs:
        numbers = connections.tolist()
        return ends([at(NET + n % 256) for n in numbers], [at(OTHER_NET + n % 3) for n in numbers])

    codes = AddressCodes()
    for numbers in ([1, 2, 1, 16_385], [16_385], [32_769, 1, 2, 16_385, 1], [2, 32_769]):
        columns = codes.columns(np.array(numbers), ends_of)
        assert [texts(column) for column in columns.values()] == [
            [f"10.0.0.{each % 256}" for each in numbers],
            [f"10.1.0.{each % 3}" for each in numbers],
        ]


def test_many_connections_of_one_call_are_asked_for_at_once() -> None:
    asked: list[int] = []

    def ends_of(connections: Int64Array) -> EndpointPairs:
        asked.append(len(connections))
        numbers = connections.tolist()
        return ends([at(NET + n % 7) for n in numbers], [at(NET + 9)] * len(numbers))

    column = AddressCodes().columns(np.arange(50_000), ends_of)["client_ip"]
    assert texts(column)[:9] == [f"10.0.0.{number % 7}" for number in range(9)]
    assert len(asked) == 2, "and once more for those that share a place in the cache"


SMALL = st.integers(-2, 2)
ENDS = st.builds(Endpoint, st.just(6), SMALL, SMALL, st.just(1)) | st.builds(at, st.integers(0, 2))


@given(st.lists(st.lists(ENDS.flatmap(lambda one: st.tuples(st.just(one), ENDS)), max_size=9)))
def test_each_address_has_one_code_in_the_order_in_which_it_comes(
    calls: list[list[tuple[Endpoint, Endpoint]]],
) -> None:
    codes, known = AddressCodes(), dict[str, int]()
    for call in calls:
        pairs = [pair for pair in call if pair[0].ip_version == pair[1].ip_version]
        columns = codes.columns_of(ends([one for one, _ in pairs], [one for _, one in pairs]))
        for pair in pairs:
            for end in pair:
                known.setdefault(end.text(), len(known))
        for side, column in enumerate(columns.values()):
            assert texts(column) == [pair[side].text() for pair in pairs]
            assert isinstance(column, Coded) and list(column.names) == list(known)


def test_too_many_addresses_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_codes, "_CACHED_ADDRESSES", 10)
    codes = AddressCodes()
    numbers = range(0, 40)
    columns = [codes.columns_of(ends([at(n)], [at(n + 1)])) for n in numbers]
    assert [texts(each["client_ip"]) for each in columns] == [[f"0.0.0.{n}"] for n in numbers]
    assert max(len(each["client_ip"].names) for each in columns) == 11  # type: ignore[union-attr]
