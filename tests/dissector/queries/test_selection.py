"""Parts of a lake by time and topic, on hand-made rows."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from dissector.errors import UsageError
from dissector.queries.catalogue import catalogue, shared_views
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.selection import (
    Asked,
    Client,
    Selection,
    full_name,
    time_ns,
)
from dissector.queries.tables import columns_of, table_views
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema

T = "persistent://public/default/t"
S = 1_000_000_000


def at(second: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC)


def opened(engine: Any, what: Selection, **rows: list[dict[str, Any]]) -> Any:
    """An engine with the views of a selection over rows of one capture, given by their table."""
    for table in TABLES:
        schema = arrow_schema(table)
        given = [{"capture": "a", "connection_id": 0, **row} for row in rows.get(table, [])]
        engine.register(f"lake_{table}", pa.Table.from_pylist(given, schema=schema))
    engine.register("wanted", pa.table({"capture": ["a"]}))
    what.register(engine)
    for name, query in what.views(table_views()):
        engine.view(name, query)
    return engine


def listed(what: Selection, query: str, **rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a query of reports gives of the selected rows of one capture."""
    with DuckdbEngine(threads=1) as engine:
        opened(engine, what, **rows)
        engine.register("units", pa.table({"capture": ["a"], "unit": ["a"]}))
        engine.shared_views(shared_views(has_rows_around=not what.is_everything))
        found: list[dict[str, Any]] = engine.table(catalogue()[query].per_capture()).to_pylist()
    return found


def column(engine: Any, table: str, name: str) -> list[Any]:
    found = engine.table(f"SELECT {name} FROM {table} ORDER BY {name} NULLS LAST")
    values: list[Any] = found.column(0).to_pylist()
    return values


def test_since_is_in_and_until_is_not(db: DuckdbEngine) -> None:
    frames = [{"frame_no": second, "ts": at(second)} for second in range(5)]
    connections = [
        {"connection_id": number, "first_ts_ns": first * S, "last_ts_ns": last * S}
        for number, (first, last) in enumerate([(0, 1), (1, 3), (4, 9), (5, 6)])
    ]
    # No row has a time between two µs: such a limit leaves those behind it.
    what = Selection(S - 1, 3 * S)
    opened(db, what, frames=frames, connections=connections)
    assert column(db, "frames", "frame_no") == [1, 2]
    opened(db, Selection(2 * S, 5 * S), frames=frames, connections=connections)
    assert column(db, "connections", "connection_id") == [1, 2]
    assert column(db, "legs", "connection_id") == [1, 2]
    assert column(db, "frames", "frame_no") == [2, 3, 4]


def test_a_topic_comes_with_its_partitions_and_with_names_learnt_late(db: DuckdbEngine) -> None:
    """Those of rows, those learnt late of a producer and of a consumer; others' partitions not."""
    topics = [T, f"{T}-partition-12", f"{T}-partition-x", f"{T}2", None, None, None,
              f"{T}-partition-", f"{T}'; DROP", f"{T}-partition-1-partition-2"]  # fmt: skip
    acks = [{"frame_no": n, "topic": topic, "ts": at(n)} for n, topic in enumerate(topics)]
    exchanges = [{**row, "request_frame_no": row.pop("frame_no")} for row in map(dict, acks)]
    exchanges[4] |= {"producer_id": 7, "incarnation": 0}
    acks[5] |= {"consumer_id": 8, "incarnation": 0}
    exchanges[6] |= {"producer_id": 9, "incarnation": 0}
    rows: dict[str, list[dict[str, Any]]] = {
        "exchanges": exchanges, "acks": acks,
        "producers": [{"producer_id": 7, "incarnation": 0, "topic": T},
                      {"producer_id": 9, "incarnation": 0, "topic": f"{T}2"}],
        "consumers": [{"consumer_id": 8, "incarnation": 0, "topic": f"{T}-partition-3"}],
        "notices": [{"ts": at(0)}],
        "frames": [{"frame_no": 1, "connection_id": 0, "topic": T, "ts": at(0)},
                   {"frame_no": 2, "connection_id": 1, "topic": f"{T}2", "ts": at(0)}],
        "connections": [{"connection_id": number} for number in range(3)],
    }  # fmt: skip
    opened(db, Selection(topics=(T,)), **rows)
    assert column(db, "exchanges", "request_frame_no") == [0, 1, 4]
    assert column(db, "exchanges", "topic") == [T, T, f"{T}-partition-12"]
    assert column(db, "acks", "frame_no") == [0, 1, 5]
    assert column(db, "notices", "ts") == [at(0)], "what has no topic stays"
    assert column(db, "producers", "producer_id") == [7]
    assert column(db, "producer_names", "producer_id") == [7, 9], "names stay whole"
    assert column(db, "connections", "connection_id") == [0], "those that spoke of it"
    opened(db, Selection(until_ns=2 * S, topics=(f"{T}-partition-1", f"{T}'; DROP")), **rows)
    assert column(db, "acks", "frame_no") == []
    opened(db, Selection(topics=(f"{T}-partition-1", f"{T}'; DROP")), **rows)
    assert column(db, "acks", "frame_no") == [8, 9]


def test_everything_is_left_as_it_is() -> None:
    assert list(Selection().views(table_views())) == list(table_views())


def test_selected_rows_have_all_columns(db: DuckdbEngine) -> None:
    opened(db, Selection(1, 2, (T,)))
    for table in TABLES:
        assert set(columns_of(table)) <= set(db.table(f"SELECT * FROM {table}").schema.names)


def test_options_are_read() -> None:
    found = Asked("1970-01-01T00:00:02", "1970-01-01T02:00+01:00", ["t", "x/y/z", T]).selection()
    assert (found.since_ns, found.until_ns) == (2 * S, 3600 * S)
    assert found.topics == (T, "persistent://x/y/z")
    assert full_name("non-persistent://a/b/c") == "non-persistent://a/b/c"
    assert Asked().selection().is_everything
    with pytest.raises(UsageError, match="--since"):
        time_ns("--since", "yesterday")
    assert time_ns("--since", "-1.5m", 100 * 10**9) == 10 * 10**9
    with pytest.raises(UsageError, match="no packet to count back from"):
        time_ns("--since", "-30m")


def test_clients_are_addresses_ports_or_networks(db: DuckdbEngine) -> None:
    """Rows of the connections of an address, a port of it, or a network; what has none stays."""
    ends = [
        ("10.0.0.1", 1),
        ("10.0.0.1", 2),
        ("10.1.0.1", 1),
        ("2001:db8::1", 1),
        (None, None),
        ("10.2.0.1", 1),
    ]
    connections = [
        {"connection_id": number, "client_ip": ip, "client_port": port, "started": "syn"}
        for number, (ip, port) in enumerate(ends)
    ]
    connections[5]["proxied_client_ip"] = "192.0.2.1"
    frames = [{"frame_no": number, "connection_id": number, "ts": at(0)} for number in range(6)]
    notices = [{"ts": at(0), "code": str(number), "connection_id": number} for number in range(6)]
    notices.append({"ts": at(0), "code": "of the file", "connection_id": None})
    for texts, expected in (
        (["10.0.0.1"], [0, 1]),
        (["10.0.0.1:2"], [1]),
        (["10.0.0.0/8"], [0, 1, 2, 5]),
        (["192.0.2.1"], [5]),
        (["192.0.2.0/24", "10.2.0.1"], [5]),
        (["192.0.2.1:1"], []),
        (["2001:db8::/32"], [3]),
        (["[2001:db8::1]:1", "10.0.0.1:1", "10.0.0.1"], [0, 1, 3]),
        (["[2001:db8::1]:2"], []),
    ):
        what = Selection(clients=tuple(map(Client.of, texts)))
        opened(db, what, frames=frames, connections=connections, notices=notices)
        for table in ("frames", "connections", "legs"):
            assert column(db, table, "connection_id") == expected, (texts, table)
        assert column(db, "notices", "code") == [*map(str, expected), "of the file"]


def test_a_subscription_comes_with_names_learnt_late(db: DuckdbEngine) -> None:
    """Rows that name one, or whose consumer does later; of producers there are none."""
    acks = [
        {"frame_no": 1, "subscription": "s", "ts": at(0)},
        {"frame_no": 2, "subscription": "other", "ts": at(0)},
        {"frame_no": 3, "consumer_id": 8, "incarnation": 0, "ts": at(0)},
        {"frame_no": 4, "consumer_id": 9, "incarnation": 0, "ts": at(0)},
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "acks": acks, "frames": acks, "connections": [{}],
        "messages": [{"frame_no": number, "ts": at(0), "topic": T} for number in range(5)],
        "consumers": [{"consumer_id": 8, "incarnation": 0, "subscription": "s"},
                      {"consumer_id": 9, "incarnation": 0, "subscription": "other"}],
        "producers": [{"producer_id": 1, "incarnation": 0, "topic": T}],
        "exchanges": [{"kind": "publish", "ts": at(0), "topic": T}],
    }  # fmt: skip
    opened(db, Selection(subscriptions=("s",)), **rows)
    assert column(db, "acks", "frame_no") == column(db, "messages", "frame_no") == [1, 3]
    assert column(db, "acks", "subscription") == ["s", "s"]
    assert column(db, "consumers", "consumer_id") == [8]
    assert column(db, "producers", "producer_id") == column(db, "exchanges", "kind") == []


def test_what_is_asked_for_is_said() -> None:
    what = Asked("2026-01-31", topics=["t"], subscriptions=["s"], clients=["10.0.0.1"]).selection()
    assert what.words(str) == ": from 1769817600000000000, topic t, subscription s, client 10.0.0.1"
    assert Selection.of_json(what.as_json()) == what
    assert Selection().words(str) == "" and Selection.of_json(None).is_everything
    assert Selection(until_ns=5).words(str, "") == "up to 5"
    assert str(Client.of("[2001:DB8::1]:5")) == "[2001:db8::1]:5"
    assert not Selection(clients=(Client.of("10.0.0.1"),)).has(
        None, None, {"client_ip": "10.0.0.2"}
    )


@pytest.mark.parametrize("text", ["", "x", "10.0.0.1:", "10.0.0.1:99999", "10.0.0.0/33", "::1:::2"])
def test_other_clients_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        Client.of(text)


def test_a_copy_of_a_damaged_entry_is_found_beside_what_is_selected() -> None:
    """It was sent again later, and its first delivery, wrong too, is no copy."""
    wrong = {"checksum": "mismatch", "crc32c_stored": 7, "crc32c_computed": 8, "topic": T}
    sends: list[dict[str, Any]] = [
        {"kind": "publish", "sequence_id": 5, "topic": T, "crc32c_stored": 7, "ts": at(second),
         "request_frame_no": second, "request_last_ns": second * S, "outcome": "error"}
        for second in (1, 3)
    ]  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {
        "connections": [{"last_ts_ns": 9 * S, "first_ts_ns": 0}],
        "exchanges": [*sends, {**sends[0], "request_frame_no": 2, "ts": at(2)}],
        "frames": [
            {**wrong, "frame_no": second, "ts": at(second), "command": "SEND", "sequence_id": 5}
            for second in (1, 2)
        ],
    }
    whole, part = (
        listed(what, "checksum_failures", **rows) for what in (Selection(), Selection(0, 2 * S))
    )
    assert [row["copy_frame_no"] for row in whole] == [3, 3]
    assert [(row["frame_no"], row["copy_frame_no"]) for row in part] == [(1, 3)]


def test_entries_of_a_subscription_are_those_that_its_topics_were_sent() -> None:
    entry = {"topic": T, "ledger_id": 1, "ts": at(1)}
    send = {**entry, "kind": "publish", "outcome": "ok", "request_last_ns": S}
    rows: dict[str, list[dict[str, Any]]] = {
        "connections": [{}],
        "consumers": [{"consumer_id": 1, "incarnation": 0, "topic": T, "subscription": "s"}],
        "exchanges": [
            {**send, "entry_id": 1}, {**send, "entry_id": 2}, {**send, "entry_id": 3, "topic": "x"},
        ],
        "deliveries": [{**entry, "entry_id": 1, "subscription": "s"},
                       {**entry, "entry_id": 2, "subscription": "other"}],
    }  # fmt: skip
    (row,) = listed(Selection(subscriptions=("s",)), "entries", **rows)
    assert (row["confirmed"], row["delivered"], row["either"]) == (2, 1, 2)
    assert listed(Selection(S + 1, subscriptions=("s",)), "entries", **rows) == []


def test_why_a_broker_closed_is_told_by_all_clients() -> None:
    """Another client opened the topic again."""
    connections = [
        {"connection_id": number, "client_ip": f"10.0.0.{number}", "protocol": "pulsar"}
        for number in (1, 2)
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "connections": connections,
        "producers": [{"connection_id": 1, "producer_id": 0, "incarnation": 0, "topic": T,
                       "closed_by": "broker", "closed_frame_no": 3}],
        "frames": [{"connection_id": 1, "frame_no": 3, "ts": at(3), "last_ts_ns": 3 * S}],
        "exchanges": [{"connection_id": 2, "kind": "request", "request_command": "PRODUCER",
                       "topic": T, "outcome": "ok", "request_last_ns": 4 * S, "ts": at(4)}],
    }  # fmt: skip
    for clients in ((), (Client.of("10.0.0.1"),)):
        found = listed(Selection(clients=clients), "closed_causes", **rows)
        assert [(row["cause"], row["closed"]) for row in found] == [("opened_again", 1)]
