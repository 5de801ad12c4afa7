"""Producers and consumers of joined connections, and the names of each capture's own."""

import pyarrow as pa

from dissector.joining import client_handles
from tests.dissector.joining.made import placed
from tests.dissector.joining.test_links import after, row


def test_joined_ones_stand_under_the_head_and_own_ones_beside_it() -> None:
    db = placed([row("a", 7, protocol="pulsar"), after("b", 2, protocol="none")])
    consumer = {"connection_id": 0, "consumer_id": 5, "incarnation": 1, "topic": "t", "name": "c",
                "rank": 1, "order_no": 40}  # fmt: skip
    number = {"chain": 0, "consumer_id": 5}
    numbers = [number | {"rank": 0, "own_incarnation": 1, "incarnation": 1},
               number | {"rank": 1, "own_incarnation": 0, "incarnation": 1}]  # fmt: skip
    told = {
        "consumers": [pa.Table.from_pylist([consumer])],
        client_handles.INCARNATIONS: [
            pa.Table.from_pylist(numbers, schema=client_handles.INCARNATION)
        ]
        * 2,
    }
    queries = client_handles.queries(db, told)
    found = {name: db.sql(query).to_arrow_table() for name, query in queries.items()}
    assert all(set(found[name].schema.names) == set(schema.names)
               for name, schema in client_handles.SCHEMAS.items())  # fmt: skip
    (joined,) = found["consumers"].to_pylist()
    assert (joined["capture"], joined["connection_id"], joined["incarnation"]) == ("a", 7, 1)
    assert (joined["closed_capture"], joined["closed_connection_id"]) == ("b", 2)
    assert joined["closed_no"] == 40
    names = {
        (each["capture"], each["connection_id"], each["incarnation"], each["topic"])
        for each in found["consumer_names"].to_pylist()
    }
    assert names == {("a", 7, 1, "t"), ("b", 2, 0, "t")}
    assert found["consumer_names"].num_rows == 2 and found["producers"].num_rows == 0
