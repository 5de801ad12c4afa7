"""A capture without one of its connections: it tells what all tell, or that it is unknown."""

import ipaddress
from typing import Any, Final

import pytest

from tests.anycut import rows_of
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_snap_length import SAMPLES, told_otherwise
from tests.wire.recut import End, filtered

MOST: Final = 12  # connections of a sample, each of which is left out once
# Consumers of Cursus may commit on a connection of their own, of which another one tells nothing.
COMMITS: Final = {"deliveries.outcome", "deliveries.messages_acked"}
_IDS: Final = ("connection_id", "previous_connection_id", "twin_connection_id")


def ends_of(row: dict[str, Any]) -> frozenset[End]:
    return frozenset(
        (ipaddress.ip_address(row[f"{end}_ip"]).packed, row[f"{end}_port"])
        for end in ("client", "broker")
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_is_what_all_connections_tell(name: str) -> None:
    data, tables = whole(name)
    ids = {ends_of(row): row["connection_id"] for row in tables["connections"]}
    if not 1 < len(tables["connections"]) == len(ids) <= MOST:
        pytest.skip("one connection, or many, or two between the same ports")
    for ends, left_out in ids.items():
        part = rows_of(filtered(data, lambda *packet, ends=ends: {*packet} != ends))
        numbers = {row["connection_id"]: ids[ends_of(row)] for row in part["connections"]}
        assert {*numbers.values()} == {*ids.values()} - {left_out}
        for rows in part.values():
            for row in rows:
                row.update(
                    {each: numbers.get(row[each], row[each]) for each in _IDS if each in row}
                )
        kept = sum(row["connection_id"] != left_out for row in tables["frames"])
        assert len(part["frames"]) == kept, "nothing of the others is lost"
        found = [*told_otherwise(tables, part)]
        known = COMMITS if name.startswith("cursus/") else set()
        assert {column for column, *_ in found} <= known, found[:5]
