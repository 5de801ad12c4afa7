"""A capture that shows connections twice, with other addresses: its numbers are those of one view.

Around the translation of an address, and around a load balancer.
"""

import ipaddress
import json
import re
from collections import Counter
from typing import Any, Final

import pytest

from tests.anycut import rows_of
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.observed import CAPTURES, Tables
from tests.dissector.test_lost_packets import whole
from tests.dissector.test_snap_length import SAMPLES, report_of, told_otherwise, whole_report
from tests.dissector.test_some_connections import ends_of
from tests.wire.recut import balanced, beginning_at, records, translated

PAIRS: Final = {"connections.leg", "connections.twin_connection_id"}
# Of a proxied pair two connections repeat others, and the proxy's is one of them.
PROXIED: Final = ("proxy-any", "proxy-back", "proxy-front")
FEW_PACKETS: Final = 3  # of a connection that shows too little to be told a copy
# CONNECT was not captured, or is cut.
NOT_OPENED: Final = ("ring.pcap2", "snaplen96", "snap200", "midstream")
REPORTED: Final = (
    "pulsar-apache/java-j12_nack.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/node-flex.pcap",
    "pulsar-apache/java-j39_dispatch_rate.pcap",
    "pulsar-apache/java-j73_broker_restart-bem.pcap",
    "pulsar-apache/java-j74_corrupt.pcap",
    "pulsar-live/live-ack_timeout.pcap",
    "pulsar-live/live-no_acks.pcap.gz",
    "pulsar-live/live-transaction_open.pcap",
    "threads/t07-txn-ack-conflict.pcap",
    "cursus/v010-publisher_consumer.pcap",
)
ALL_REPORTED: Final = sorted(
    f"{path.parent.name}/{path.name}"
    for folder in ("pulsar", "pulsar-apache", "pulsar-live", "pulsar-random", "threads")
    for path in (CAPTURES / folder).glob("*.pcap*")
)


def addresses_of(tables: Tables) -> dict[bytes, bytes]:
    """Other addresses for all brokers of a capture."""
    brokers = {ipaddress.ip_address(row["broker_ip"]) for row in tables["connections"]}
    return {
        broker.packed: ipaddress.ip_address(
            f"10.96.0.{number}" if broker.version == 4 else f"fd00::{number}"
        ).packed
        for number, broker in enumerate(sorted(brokers, key=str), 1)
    }


def numbered(rows: list[dict[str, Any]], names: dict[bytes, bytes]) -> dict[Any, int]:
    """Connection ids by addresses, ports and how many there were between these before."""
    seen: Counter[Any] = Counter()
    ids = {}
    for row in sorted(rows, key=lambda row: row["connection_id"]):
        ends = frozenset((names.get(ip, ip), port) for ip, port in ends_of(row))
        ids[ends, seen[ends]] = row["connection_id"]
        seen[ends] += 1
    return ids


def once(double: Tables, tables: Tables, addresses: dict[bytes, bytes]) -> Tables:
    """The rows of connections that are no copies, with the ids of the capture that shows one."""
    known = {own: name for name, own in addresses.items()}
    copies = {row["connection_id"] for row in double["connections"] if is_copy(row)}
    kept = [row for row in double["connections"] if row["connection_id"] not in copies]
    true = numbered(tables["connections"], {})
    ids = {
        number: true[key]
        for key, number in reversed(numbered(kept, known).items())
        if key in true
    }  # fmt: skip
    return {
        table: [
            {
                name: ids.get(value, value) if name.endswith("connection_id") else value
                for name, value in row.items()
            }
            for row in rows
            if row.get("connection_id") in ids
        ]
        for table, rows in double.items()
    }


def is_copy(row: dict[str, Any]) -> bool:
    return row["leg"] == "broker" and row["twin_connection_id"] is not None


@pytest.mark.parametrize("name", [name for name in SAMPLES if not any(map(name.count, PROXIED))])
def test_what_is_told_is_what_one_view_tells(name: str) -> None:
    data, tables = whole(name)
    addresses = addresses_of(tables)
    double = rows_of(translated(data, addresses))
    assert len(double["connections"]) == 2 * len(tables["connections"])
    single = once(double, tables, addresses)
    for table in ("frames", "exchanges", "deliveries", "permits", "acks", "messages", "producers",
                  "consumers"):  # fmt: skip
        assert len(single[table]) == len(tables[table])
    found = [each for each in told_otherwise(tables, single) if each[0] not in PAIRS]
    assert not found, found[:5]
    packets = Counter(row["connection_id"] for row in double["connections"] if is_copy(row))
    paired = {*packets, *(row["twin_connection_id"] for row in double["connections"])}
    for row in double["connections"]:
        assert row["connection_id"] in paired or len(row["history"]) <= FEW_PACKETS
    notices = [row for row in double["notices"] if row["code"] == "translated_copy"]
    assert {row["connection_id"] for row in notices} == {*packets}


# Of what packets and connections show, there is twice as much.
_OF_PACKETS: Final = {"V01", "V06", "V18"}
_PLACES: Final = re.compile(r"\b(frame_no|frames?|packets?|connection_id)\b[^a-z]*|\S+\.pcap\S*")


def said(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    """The sentences of findings and verdicts with what they measured, but for where it is seen."""
    return {
        (
            each["id"],
            _PLACES.sub("@", each["text"]),
            json.dumps(
                {
                    name: value
                    for name, value in (each.get("measured") or {}).items()
                    if "frame" not in name and "packet" not in name
                },
                sort_keys=True,
            ),
        )
        for part in ("findings", "verdicts")
        for each in report["findings"][part]
        if each["id"] not in _OF_PACKETS
    }


@pytest.mark.parametrize("make", [translated, balanced], ids=["translated", "balanced"])
@pytest.mark.parametrize("name", ALL_REPORTED if LOOKS_AT_ALL else REPORTED)
def test_the_report_is_that_of_one_view(name: str, make: Any, tmp_path: Any) -> None:
    data, tables = whole(name)
    if make is balanced and (name.startswith("cursus") or any(map(name.count, NOT_OPENED))):
        pytest.skip("there is no CONNECT to tell a balancer by")
    true, told = whole_report(name), report_of(make(data, addresses_of(tables)), tmp_path / "both")
    # Of attempts in vain a balancer makes as many as its clients.
    in_vain = {"V16"} if make is balanced else set()
    assert {each for each in said(told) ^ said(true) if each[0] not in in_vain} == set()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("name", [name for name in REPORTED if name.startswith("pulsar")])
def test_a_capture_that_begins_within_connections_shows_copies(name: str, share: float) -> None:
    """Whatever comes first, a packet of the client or of the broker, before or behind. Cursus'
    connections of two requests show one packet then, which is too little."""
    data, tables = whole(name)
    double = translated(data, addresses_of(tables))
    count = sum(1 for _ in records(double))
    for first in range(int(share * count), int(share * count) + 4):
        part = rows_of(beginning_at(double, first))
        # Of an odd packet one view is missing: it is in one of both captures.
        more, less = (rows_of(beginning_at(data, (first + odd) // 2)) for odd in (0, 1))
        copies = {row["connection_id"] for row in part["connections"] if is_copy(row)}
        for table in ("exchanges", "deliveries", "messages"):
            kept = sum(row["connection_id"] not in copies for row in part[table])
            assert len(less[table]) <= kept <= len(more[table])


@pytest.mark.parametrize(
    "name",
    [
        name for name in SAMPLES
        if name.startswith("pulsar") and not any(map(name.count, NOT_OPENED))
    ],
)  # fmt: skip
def test_what_is_told_is_what_the_clients_of_a_balancer_tell(name: str) -> None:
    data, tables = whole(name)
    addresses = addresses_of(tables)
    double = rows_of(balanced(data, addresses))
    single = once(double, tables, addresses)
    copies = {row["connection_id"] for row in tables["connections"] if is_copy(row)}
    tables = {
        table: [row for row in rows if row.get("connection_id") not in copies]
        for table, rows in tables.items()
    }
    opened = [row for row in tables["connections"] if row["client_version"] is not None]
    asked = [row for row in opened if row["frames_to_broker"] > 1 and row["server_version"]]
    assert sum(map(is_copy, double["connections"])) >= len(asked)
    for table in ("frames", "exchanges", "deliveries", "permits", "acks", "messages", "producers",
                  "consumers"):  # fmt: skip
        assert len(single[table]) == len(tables[table])
    if len(asked) == len(opened):
        found = [each for each in told_otherwise(tables, single) if each[0] not in PAIRS]
        assert not found, found[:5]
