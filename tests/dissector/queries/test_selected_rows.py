"""Rows that come as batches: the same ones as those of the views, and as by hand."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selected_rows import SelectedRows
from dissector.queries.selection import Client, Selection, full_name
from dissector.schemas.arrow import arrow_schema
from tests.choosing import examples
from tests.dissector.queries.test_selection import T, at, column, opened

TOPICS = (T, f"{T}-partition-1", f"{T}-partition-x", "orders", "orders2", None)
SOME = st.sampled_from(range(6))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "ns": st.integers(0, 6_000), "connection_id": st.integers(0, 3),
                "topic": st.sampled_from(TOPICS), "subscription": st.sampled_from(("s", "r", None)),
            }
        ),
        max_size=8,
    ),
    st.builds(
        Selection,
        st.none() | SOME.map(lambda n: n * 1000),
        st.none() | SOME.map(lambda n: n * 1000),
        st.sampled_from(((), (T,), (full_name("orders"),))),
        st.sampled_from(((), ("s",))),
        st.sampled_from(((), (Client.of("10.0.0.0/8"),), (Client.of("10.0.0.1:1"),))),
    ),
)  # fmt: skip
@settings(max_examples=examples(25, 12))
def test_views_and_batches_leave_the_same_rows(
    drawn: list[dict[str, Any]], what: Selection
) -> None:
    ends = [
        ("10.0.0.1", 1, None),
        ("10.0.0.1", 2, None),
        ("11.0.0.1", 1, "10.0.0.1"),
        (None, None, None),
    ]
    connections = [
        {"connection_id": number, "client_ip": ip, "client_port": port, "proxied_client_ip": own,
         "first_ts_ns": 1000 * number, "last_ts_ns": 1000 * number + 2500}
        for number, (ip, port, own) in enumerate(ends)
    ]  # fmt: skip
    frames = [
        {
            **row,
            "frame_no": number,
            "last_ts_ns": row["ns"],
            "ts": at(0) + timedelta(microseconds=row["ns"] // 1000),
        }
        for number, row in enumerate(drawn)
    ]
    for row in frames:
        del row["ns"]
    with DuckdbEngine() as engine:
        opened(engine, what, frames=frames, connections=connections)
        by_views = [
            column(engine, "frames", "frame_no"),
            column(engine, "connections", "connection_id"),
        ]
    chosen = SelectedRows(what, "connections")
    chosen.add_clients("a", [(number, *end) for number, end in enumerate(ends)])
    batches = {
        table: pa.RecordBatch.from_pylist(rows, schema=arrow_schema(table))
        for table, rows in (("frames", frames), ("connections", connections))
    }
    numbers = chosen.frames("a", batches["frames"]).column("frame_no").to_pylist()
    left = chosen.connections("a", batches["connections"]).column("connection_id").to_pylist()
    assert [numbers, left] == by_views
    by_hand = [
        row["frame_no"] for row in frames
        if (what.since_ns is None or row["last_ts_ns"] >= what.since_ns)
        and (what.until_ns is None or row["last_ts_ns"] < what.until_ns)
        and (not what.topics or row["topic"] in {
            T: (T, f"{T}-partition-1"), full_name("orders"): ("orders",)}[what.topics[0]])
        and (not what.subscriptions or row["subscription"] == "s")
        and (not what.clients or row["connection_id"] in
             ((0, 1, 2) if what.clients[0].port is None else (0,)))
    ]  # fmt: skip
    assert numbers == by_hand


def test_a_name_that_is_told_late_counts_frames_and_keeps_their_connection() -> None:
    """By producer and consumer; not those of another topic, subscription or incarnation."""
    frames = [
        {"connection_id": 1, "consumer_id": 7, "incarnation": 0},
        {"connection_id": 1, "consumer_id": 7, "incarnation": 1},
        {"connection_id": 2, "producer_id": 7, "incarnation": 0},
        {"connection_id": 2, "consumer_id": 7, "incarnation": 0, "topic": T},
        {"connection_id": 3, "consumer_id": 7, "incarnation": 0, "topic": "other"},
        {"connection_id": 4, "command": "PING"},
    ]
    consumers = [
        {"connection_id": number, "consumer_id": 7, "incarnation": 0, "topic": T,
         "subscription": "s"} for number in (1, 2, 3)
    ]  # fmt: skip
    producers = [{"connection_id": 2, "producer_id": 7, "incarnation": 0, "topic": T}]

    def batch(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(table))

    for what, unnamed, connections in (
        (Selection(topics=(T,)), 2, [1, 2]),
        (Selection(topics=(T,), subscriptions=("s",)), 2, [1, 2]),
        (Selection(subscriptions=("s",)), 3, [1, 2, 3]),
        (Selection(topics=("x",)), 0, []),
        (Selection(subscriptions=("r",)), 0, []),
    ):
        chosen = SelectedRows(what, "connections")
        chosen.frames("a", batch("frames", frames))
        chosen.opened("a", "consumers", batch("consumers", consumers))
        chosen.opened("a", "producers", batch("producers", producers))
        chosen.opened("a", "producers", batch("producers", producers))
        assert chosen.unnamed == unnamed, what
        rows = batch("connections", [{"connection_id": number} for number in range(5)])
        left = chosen.connections("a", rows).column("connection_id").to_pylist()
        assert left == connections, what
