"""Positions of connections in a group, and the way back from the numbers of the replay."""

import numpy as np

from dissector.joining.positions import Positions
from dissector.limits import NULL
from tests.dissector.joining.made import placed
from tests.dissector.joining.test_links import after, row

ROWS = [
    row("a", 7, protocol="pulsar", client_ip="c1"), row("a", 9, connection_key="x"),
    after("b", 2, protocol="none"), row("b", 1, connection_key="y", protocol="cursus"),
]  # fmt: skip


def test_every_connection_has_its_chain_and_head() -> None:
    db = placed(ROWS)
    names = "capture, connection_id, rank, chain, head_capture, head_connection_id"
    found = db.sql(f"SELECT {names}, read_by FROM placed ORDER BY 1, 2").fetchall()
    assert found == [
        ("a", 7, 0, 0, "a", 7, "pulsar"), ("a", 9, 0, 1, "a", 9, None),
        ("b", 1, 1, 2, "b", 1, "cursus"), ("b", 2, 1, 0, "a", 7, "pulsar"),
    ]  # fmt: skip
    onward = db.sql("SELECT goes_on_to_broker, comes_from_to_client FROM placed ORDER BY 1, 2")
    assert onward.fetchall() == [(False, False), (False, False), (False, True), (True, False)]


def test_numbers_lead_back_to_captures_and_connections() -> None:
    places = Positions(placed(ROWS))
    ranks, chains = (np.array(each, np.int64) for each in ([0, 1, 1, 0, NULL], [0, 0, 2, 2, 0]))
    assert places.captures(ranks).to_pylist() == ["a", "b", "b", "a", None]
    assert places.connections(ranks, chains).tolist() == [7, 2, 1, NULL, NULL]
    assert places.of_roots(chains, "connection_id").to_pylist() == [7, 7, 1, 1, 7]
    assert places.of_roots(chains, "capture").to_pylist() == ["a", "a", "b", "b", "a"]
    assert places.of_roots(chains, "client_ip").to_pylist() == ["c1", "c1", None, None, "c1"]
