"""However packets are carried, the rows are the same: in tunnels, bare and in a tunnel, as IPv6."""

import random
import struct
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.anycut import differences, rows_of
from tests.choosing import LOOKS_AT_ALL, examples
from tests.dissector.observed import CAPTURES, Tables
from tests.dissector.test_lost_packets import whole
from tests.wire.captures import ETHERNET
from tests.wire.carried import KINDS, as_ipv4, as_ipv6, carried, on_a_node
from tests.wire.recut import cut_short, headers

# What says how a packet was carried, and what each copy adds to.
CARRIED: Final = {"vlan_ids", "tunnel_id", "connection_key"}
COPIED: Final = {*CARRIED, "payload_bytes_to_broker", "payload_bytes_to_client"}
OF_ADDRESSES: Final = {"community_id", "connection_key"}
# Cut packets, one direction, a cooked capture, IPv6, resets of connections that began before.
FEW: Final = (
    "cursus/go-ipv6_loopback.pcap",
    "cursus/java-produce_acks0.pcap",
    "pulsar/cpp-s18_keepalive.pcap",
    "pulsar/tap-oneway.pcap",
    "pulsar/var-any-sll1.pcap",
    "pulsar-apache/java-j72_midstream.pcap",
    "pulsar-apache/mut-snap200-java-j03_batch_lz4.pcap",
)
ALL: Final = tuple(f"{each.parent.name}/{each.name}" for each in CAPTURES.glob("*/*.pcap*"))
SAMPLES: Final = sorted(ALL) if LOOKS_AT_ALL else FEW
# Packets that the network card divides: they stay as they are.
LARGE: Final = ("pulsar/cpp-s24_big.pcap", "pulsar/fake-f07_chunking64k.pcap")
SNAP_LENGTH: Final = 200
each_sample = pytest.mark.parametrize("name", SAMPLES)


def sample(name: str) -> tuple[bytes, Tables]:
    data, tables = whole(name)
    if struct.unpack_from("<I", data, 20)[0] not in (ETHERNET, 113):
        pytest.skip("no ethertype before its packets")
    return data, tables


def without(tables: Tables, columns: set[str]) -> Tables:
    """Rows without columns of connections, and how many packets a notice speaks of."""
    left_out = {"connections": columns, "notices": {"text"}}
    return {
        table: [
            {name: value for name, value in row.items() if name not in left_out.get(table, ())}
            for row in rows
        ]
        for table, rows in tables.items()
    }


def differs(tables: Tables, capture: bytes, columns: set[str]) -> dict[str, Any]:
    return differences(without(tables, columns), without(rows_of(capture), columns))


def drawn(seed: str, parts: Callable[[bytes], Any]) -> Callable[[bytes], str]:
    """One of all kinds for each part of the packets; each packet for itself: None."""
    chance = random.Random(seed)
    known: dict[Any, str] = {}

    def kind_of(packet: bytes) -> str:
        key = parts(packet)
        return chance.choice(KINDS) if key is None else known.setdefault(key, chance.choice(KINDS))

    return kind_of


def ends(packet: bytes) -> tuple[bytes, ...]:
    """A packet's addresses and ports."""
    at = headers(packet, 101)
    if at is None:
        return ()
    first, size = (12, 4) if packet[0] >> 4 == 4 else (8, 16)
    return tuple(
        packet[at.ip + first + side * size :][:size] + packet[at.tcp + 2 * side :][:2]
        for side in (0, 1)
    )


PARTS: Final = {
    "connections": lambda packet: frozenset(ends(packet)),
    "directions": ends,
    "packets": lambda packet: None,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FEW if LOOKS_AT_ALL else FEW[2:3])
def test_any_tunnel_or_tag_may_be_around_packets(name: str, kind: str) -> None:
    data, tables = sample(name)
    assert differs(tables, carried(data, lambda packet: kind), CARRIED) == {}


@pytest.mark.parametrize("parts", PARTS)
@each_sample
def test_each_connection_direction_or_packet_may_be_in_another_tunnel(
    name: str, parts: str
) -> None:
    """Also a reset of a side of which nothing else was captured."""
    data, tables = sample(name)
    for seed in range(examples(2, 1)):
        moved = carried(data, drawn(f"{name} {seed}", PARTS[parts]))
        assert differs(tables, moved, CARRIED) == {}


@pytest.mark.parametrize("is_bare_first", [True, False])
@pytest.mark.parametrize(("kind", "is_fragmented"), [("vxlan", False), ("ip", True)])
@each_sample
def test_a_node_of_an_overlay_shows_packets_twice(
    name: str, kind: str, is_fragmented: bool, is_bare_first: bool
) -> None:
    """Bare on a pod's interface, in a tunnel on the node's, and nothing of it counts twice."""
    data, tables = sample(name)
    seen = on_a_node(data, kind, is_bare_first=is_bare_first, is_fragmented=is_fragmented)
    assert differs(tables, seen, COPIED) == {}


@pytest.mark.parametrize("is_bare_first", [True, False])
@each_sample
def test_a_copy_that_was_cut_earlier_is_no_retransmission(name: str, is_bare_first: bool) -> None:
    """The snap length counts what is around a packet, too; what came first counts."""
    data, _ = sample(name)
    first = data if is_bare_first else carried(data, lambda packet: "vxlan")
    expected = rows_of(cut_short(first, SNAP_LENGTH))
    seen = on_a_node(data, "vxlan", is_bare_first=is_bare_first)
    assert differs(expected, cut_short(seen, SNAP_LENGTH), COPIED) == {}


@pytest.mark.parametrize("more", [(), (44,), (60, 43, 135, 0)])
@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in LARGE])
def test_packets_may_be_of_ipv6(name: str, more: tuple[int, ...]) -> None:
    """With extension headers or without, bare, in a tunnel or both."""
    data, tables = sample(name)
    six = as_ipv6(data, more)
    ways = [six, carried(six, lambda packet: "erspan 2"), on_a_node(six, "geneve")]
    for way, capture in enumerate(ways):
        rows = rows_of(capture)
        for row in (row for each in rows.values() for row in each):
            for name_, value in row.items():
                if name_.endswith("_ip") and value is not None:
                    row[name_] = as_ipv4(value)
        columns = OF_ADDRESSES | (COPIED if way == 2 else CARRIED)
        assert differences(without(tables, columns), without(rows, columns)) == {}
