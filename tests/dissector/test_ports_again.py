"""Ports that are used again: the traffic of a capture once more, later, is told as the first was.

What crosses is meant to: the same entries again are redelivered, the same sends tried again.
"""

import datetime
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.anycut import rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import Row, Tables
from tests.dissector.test_capture_times import NS, WHOLE, packets, written
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_some_connections import ends_of
from tests.wire.recut import Way
from tests.wire.renumbered import renumbered, restamped

S: Final = 1_000_000_000
PAUSES: Final = {"a second": S, "ten minutes": 600 * S, "a day": 86_400 * S}
_TIMES: Final = 10**18  # greater numbers of ns are times, not durations
# Times that go back, so that the second traffic begins before the first has ended; connections from
# before the capture, whose numbers may be those of the first ones; proxies and links whose end was
# not captured; sends that Cursus stores once.
UNLIKE: Final = ("tsjitter", "py-txn_token", "produce_acks0", "nack-proxy-any", "nack-proxy-back",
                 "geo-link", "idem")  # fmt: skip
FEW: Final = (
    "cursus/go-transactions.pcap",
    "pulsar/cpp-s14_reconnect.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j73_broker_restart-bem.pcap",
    "pulsar-apache/mut-c2b-java-j12_nack.pcap",
)
ALL: Final = tuple(name for name in (*WHOLE, FEW[-1]) if not any(map(name.count, UNLIKE)))
# What the second traffic shares with the first, by table; and what tells of the packets.
CROSSING: Final = {
    "exchanges": {"attempt"},
    "deliveries": {"is_redelivered", "redelivery_cause", "previous_connection_id",
                   "previous_frame_no", "publish_to_delivery_ns", "lag"},
    "acks": {"lag"},
    "consumers": {"incarnation"},  # of members of a group, which outlive connections
    "connections": {f"{number}_{way}" for number in ("isn", "first_seq", "last_seq")
                    for way in ("to_broker", "to_client")},
}  # fmt: skip
# What ended with the capture ends with the port's second use, or for being idle.
ENDING: Final = {"connections": {"ended"}, "consumers": {"closed_by"}, "producers": {"closed_by"},
                 "deliveries": {"outcome"}, "exchanges": {"outcome"}}  # fmt: skip
COMPARED: Final = ("connections", "frames", "exchanges", "deliveries", "permits", "acks",
                   "messages", "producers", "consumers")  # fmt: skip


def same_clock(pause_ms: int) -> Callable[[Way], int]:
    return lambda way: pause_ms


def other_host(pause_ms: int) -> Callable[[Way], int]:
    """The clock of another client, behind the same gateway, shows less."""

    def add_of(way: Way) -> int:
        is_client = way[0][-2:] > way[1][-2:]
        return -100_000_000 if is_client else pause_ms

    return add_of


CLOCKS: Final = {"one client": same_clock, "another client": other_host}


def once_more(capture: bytes, pause_ns: int, clock: str) -> tuple[bytes, int]:
    """A capture twice, the second time with other sequence numbers; and how much later it is."""
    some = packets(capture)
    times = [each.ns for each in some]
    later = (max(times) - min(times) + pause_ns) // 1000 * 1000
    other = restamped(capture, CLOCKS[clock](later // 1_000_000))
    other = renumbered(other, lambda way: hash_of(way) & 0xFFFFFFFF)
    again = [each._replace(ns=each.ns + later) for each in packets(other)]
    return NS + capture[4:24] + written(capture, some)[24:] + written(other, again)[24:], later


def hash_of(way: Way) -> int:
    return int.from_bytes(way[0][-3:] + way[1][-3:], "big") * 0x9E37_79B1


def runs_of(tables: Tables, first: Tables, later_ns: int) -> list[Tables]:
    """The rows of both times, each with the ids and times of the first."""
    frames = len(first["frames"])
    counts: Counter[Any] = Counter(ends_of(row) for row in first["connections"])
    known: dict[Any, int] = {}
    run: dict[int, tuple[int, int]] = {}
    for rows in (first["connections"], tables["connections"]):
        seen: Counter[Any] = Counter()
        for row in sorted(rows, key=lambda row: row["connection_id"]):
            ends, number = ends_of(row), row["connection_id"]
            again, place = divmod(seen[ends], counts[ends])
            seen[ends] += 1
            if rows is first["connections"]:
                known[ends, place] = number
            else:
                run[number] = again, known[ends, place]

    def as_first(name: str, value: Any, is_second: int) -> Any:
        if name.endswith("connection_id") and value is not None:
            return run[value][1] if run[value][0] == is_second else value + len(run)
        if not is_second or value is None:
            return value
        if name.endswith("frame_no"):
            return value - frames
        if isinstance(value, datetime.datetime):
            return value - datetime.timedelta(microseconds=later_ns // 1000)
        return value - later_ns if name.endswith("_ns") and value > _TIMES else value

    found: list[Tables] = [{table: [] for table in COMPARED} for _ in (0, 1)]
    for table in COMPARED:
        for row in tables[table]:
            is_second = run[row["connection_id"]][0]
            changed = {name: as_first(name, value, is_second) for name, value in row.items()}
            found[is_second][table].append(changed)
    return found


def without(rows: list[Row], columns: set[str]) -> list[Row]:
    """In an order of their own: connections that never end are told last."""
    kept = [{name: row[name] for name in row if name not in columns} for row in rows]
    return sorted(kept, key=lambda row: (row["connection_id"], row.get("frame_no"), repr(row)))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("pause", PAUSES if LOOKS_AT_ALL else ["a second", "a day"])
@pytest.mark.parametrize("name", ALL if LOOKS_AT_ALL else FEW)
def test_a_second_use_of_ports_is_told_as_the_first(name: str, pause: str, clock: str) -> None:
    data, tables = whole(name)
    twice, later_ns = once_more(data, PAUSES[pause], clock)
    both = rows_of(twice)
    assert len(both["connections"]) == 2 * len(tables["connections"])
    for is_second, run in enumerate(runs_of(both, tables, later_ns)):
        for table in COMPARED:
            columns = CROSSING.get(table, set()) | (
                set() if is_second else ENDING.get(table, set())
            )
            assert without(run[table], columns) == without(tables[table], columns), table
