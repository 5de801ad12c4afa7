"""Proxied pairs: the two sides of a proxy find each other by handshakes and first frames."""

import time
from typing import Any, NamedTuple

import numpy as np
import pytest

from dissector.codecs.names import NameTable
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.pulsar.handshakes import Handshakes
from dissector.protocols.pulsar.proxy_sides import ProxySide, ProxySides
from dissector.protocols.pulsar.wire.fields import FieldDecoder
from dissector.protocols.pulsar.wire.unknown import Unknown
from tests.wire import pulsar
from tests.wire.blocks import block_of


def connect(**fields: Any) -> bytes:
    return pulsar.simple(
        pulsar.command("CONNECT", **{"client_version": "Pulsar-CPP-v4.2.0", **fields})
    )


CLIENT = connect(proxy_to_broker_url="10.0.0.2:6650")
PROXY = connect(proxy_version="4.0.6")
PLAIN = connect()
CONNECTED = pulsar.simple(pulsar.command("CONNECTED", server_version="s"))
SUBSCRIBE = pulsar.simple(
    pulsar.command("SUBSCRIBE", topic="t", subscription="s", consumer_id=0, request_id=0)
)
PRODUCER = pulsar.simple(pulsar.command("PRODUCER", topic="t", producer_id=0, request_id=1))


class Sight(NamedTuple):
    """A frame of a connection."""

    connection: int
    frame: bytes
    is_answer: bool = False


class Watch:
    """Feeds frames, one block per call."""

    def __init__(self) -> None:
        self.proxy_sides = ProxySides(0)
        self.handshakes = Handshakes(0, Unknown(0))
        self.frame_no = 0
        self.hosts: dict[int, tuple[str, str]] = {}

    def see(self, *sights: Sight) -> list[int]:
        block, sources = block_of([sight.frame for sight in sights])
        block.connection_id[:] = [sight.connection for sight in sights]
        block.direction[:] = [TO_CLIENT if sight.is_answer else TO_BROKER for sight in sights]
        block.frame_no[:] = self.frame_no + np.arange(1, len(sights) + 1)
        self.frame_no += len(sights)
        FieldDecoder(NameTable(10, 100), 0).decode(block, len(sights), sources)
        handshakes = self.handshakes.advance(block, len(sights), sources)
        return self.proxy_sides.advance(handshakes, block, len(sights), sources, self.hosts)


def shaken(client: int, proxy: int) -> list[Sight]:
    """The handshakes of a pair, the proxy's inside the client's."""
    return [
        Sight(client, CLIENT),
        Sight(proxy, PROXY),
        Sight(proxy, CONNECTED, True),
        Sight(client, CONNECTED, True),
    ]


@pytest.mark.parametrize("cut", range(1, 6), ids=str)
def test_a_pair_finds_each_other_however_the_blocks_are_cut(cut: int) -> None:
    watch = Watch()
    sights = [*shaken(4, 7), Sight(4, SUBSCRIBE), Sight(7, SUBSCRIBE)]
    assert watch.see(*sights[:cut]) + watch.see(*sights[cut:]) == [7]
    assert watch.proxy_sides.repeated == {7}
    assert watch.proxy_sides.pop(4) == ProxySide("client", 7) and watch.proxy_sides.pop(
        7
    ) == ProxySide("broker", 4)
    assert watch.proxy_sides.pop(4) is None and not watch.proxy_sides.repeated


def test_the_order_in_which_a_tap_saw_both_sides_does_not_matter() -> None:
    watch = Watch()
    assert watch.see(*shaken(4, 7), Sight(7, SUBSCRIBE), Sight(4, SUBSCRIBE)) == [7]


def test_one_side_alone_is_no_pair() -> None:
    for hop in (CLIENT, PROXY):
        watch = Watch()
        assert not watch.see(Sight(1, hop), Sight(1, SUBSCRIBE), Sight(2, PLAIN))
        assert not watch.see(Sight(2, SUBSCRIBE))
        assert watch.proxy_sides.pop(1) is None


def test_other_first_frames_or_clients_are_no_pair() -> None:
    assert not Watch().see(*shaken(1, 2), Sight(1, SUBSCRIBE), Sight(2, PRODUCER))
    other = connect(proxy_version="4.0.6", client_version="Pulsar-Java-v4.0.6")
    sights = [Sight(1, CLIENT), Sight(2, other), Sight(1, SUBSCRIBE), Sight(2, SUBSCRIBE)]
    assert not Watch().see(*sights)


def test_what_either_side_says_for_itself_is_passed_over() -> None:
    answer = pulsar.simple(pulsar.command("AUTH_RESPONSE", response={"auth_method_name": "m"}))
    watch = Watch()
    sights = [*shaken(1, 2), Sight(1, answer), Sight(1, pulsar.vector("PING"))]
    assert watch.see(*sights, Sight(1, SUBSCRIBE), Sight(2, SUBSCRIBE)) == [2]


def test_clients_that_begin_alike_are_told_apart_by_their_handshakes() -> None:
    watch = Watch()
    watch.see(*shaken(1, 2), *shaken(3, 4))
    # The second client is quicker than the first.
    assert watch.see(Sight(3, PRODUCER), Sight(1, PRODUCER)) == []
    assert watch.see(Sight(2, PRODUCER), Sight(4, PRODUCER)) == [2, 4]
    assert watch.proxy_sides.pop(2) == ProxySide("broker", 1) and watch.proxy_sides.pop(
        4
    ) == ProxySide("broker", 3)


def test_a_connection_that_is_over_finds_no_twin() -> None:
    watch = Watch()
    watch.see(*shaken(1, 2), Sight(1, SUBSCRIBE))
    assert watch.proxy_sides.pop(1) is None
    assert watch.see(Sight(2, SUBSCRIBE)) == [] and watch.proxy_sides.pop(2) is None
    watch.see(*shaken(5, 6))
    assert (
        watch.proxy_sides.pop(5) is None and watch.see(Sight(5, PRODUCER), Sight(6, PRODUCER)) == []
    )


BALANCED = {1: ("client", "balancer"), 2: ("balancer", "broker")}


def balanced(outer: int = 1, inner: int = 2) -> list[Sight]:
    """The handshakes of a connection through a balancer, the balancer's inside its client's."""
    return [
        Sight(outer, PLAIN),
        Sight(inner, PLAIN),
        Sight(inner, CONNECTED, True),
        Sight(outer, CONNECTED, True),
    ]


def watch_of(hosts: dict[int, tuple[str, str]]) -> Watch:
    watch = Watch()
    watch.hosts = hosts
    return watch


@pytest.mark.parametrize("cut", range(1, 6), ids=str)
def test_what_a_balancer_forwards_is_a_pair(cut: int) -> None:
    watch = watch_of(BALANCED)
    sights = [*balanced(), Sight(1, PRODUCER), Sight(2, PRODUCER)]
    assert watch.see(*sights[:cut]) + watch.see(*sights[cut:]) == [2]
    assert watch.proxy_sides.pop(1) == ProxySide("client", 2)
    assert watch.proxy_sides.pop(2) == ProxySide("broker", 1)


def test_each_of_many_clients_of_a_balancer_finds_its_own() -> None:
    hosts = {n: (f"client{n}", "balancer") for n in range(4)}
    hosts |= {10 + n: ("balancer", "broker") for n in range(4)}
    watch = watch_of(hosts)
    opened = [Sight(n, PLAIN) for n in range(4)] + [Sight(10 + n, PLAIN) for n in range(4)]
    answered = [Sight(10 + n, CONNECTED, True) for n in range(4)]
    answered += [Sight(n, CONNECTED, True) for n in range(4)]
    assert watch.see(*opened, *answered) == []
    firsts = [
        pulsar.simple(pulsar.command("PRODUCER", topic=f"t{n}", producer_id=0, request_id=1))
        for n in range(4)
    ]
    found = watch.see(*(Sight(hop + n, firsts[n]) for n in range(4) for hop in (0, 10)))
    assert found == [10, 11, 12, 13]
    assert [watch.proxy_sides.pop(n) for n in range(4)] == [
        ProxySide("client", 10 + n) for n in range(4)
    ]


def test_two_clients_that_say_the_same_are_no_pair() -> None:
    """Neither of one broker, nor one behind the other, nor with other requests."""
    first = [Sight(1, PRODUCER), Sight(2, PRODUCER)]
    for hosts in (
        {1: ("a", "broker"), 2: ("b", "broker")},
        {1: ("a", "broker"), 2: ("a", "other")},
        {1: ("host", "host"), 2: ("host", "host")},
        {},
    ):
        assert not watch_of(hosts).see(*balanced(), *first)
    assert not watch_of(BALANCED).see(*balanced(2, 1), *first), "the outer one is the balancer's"
    after = [Sight(1, PLAIN), Sight(1, CONNECTED, True), Sight(2, PLAIN), Sight(2, CONNECTED, True)]
    assert not watch_of(BALANCED).see(*after, *first)
    other = connect(client_version="another")
    assert not watch_of(BALANCED).see(Sight(1, PLAIN), Sight(2, other), *first)
    assert not watch_of(BALANCED).see(*balanced(), Sight(1, PRODUCER), Sight(2, SUBSCRIBE))


def test_what_waits_for_an_answer_is_forgotten_when_it_closes() -> None:
    watch = watch_of({n: ("client", "balancer") for n in range(100)})
    watch.see(*(Sight(n, PLAIN) for n in range(100)), Sight(5, PLAIN))
    for n in range(100):
        assert watch.proxy_sides.pop(n) is None
    sides = vars(watch.proxy_sides)
    assert not any(sides[name] for name in ("_opening", "_openings", "_plain", "_proxied"))


def test_a_balancer_before_a_proxy_and_one_behind_it_are_pairs_too() -> None:
    """Four connections: to the balancer, to the proxy, to a second balancer, to the broker."""
    hosts = {1: ("client", "one"), 2: ("one", "proxy"), 3: ("proxy", "two"), 4: ("two", "broker")}
    hops = {1: CLIENT, 2: CLIENT, 3: PROXY, 4: PROXY}
    watch = watch_of(hosts)
    watch.see(*(Sight(n, hop) for n, hop in hops.items()))
    watch.see(*(Sight(n, CONNECTED, True) for n in reversed(hops)))
    assert sorted(watch.see(*(Sight(n, PRODUCER) for n in hops))) == [2, 3, 4]
    legs = [watch.proxy_sides.of(n) for n in hops]
    assert [leg and leg.name for leg in legs] == ["client", "broker", "broker", "broker"]
    for n in hops:
        watch.proxy_sides.pop(n)
    sides = vars(watch.proxy_sides)
    assert not any(sides[name] for name in ("_proxied", "_unpaired", "_without_first_frame"))


def test_a_balancer_behind_a_balancer_is_another_pair() -> None:
    watch = watch_of({1: ("client", "one"), 2: ("one", "two"), 3: ("two", "broker")})
    watch.see(*(Sight(n, PLAIN) for n in (1, 2, 3)))
    watch.see(*(Sight(n, CONNECTED, True) for n in (3, 2, 1)))
    assert sorted(watch.see(*(Sight(n, PRODUCER) for n in (1, 2, 3)))) == [2, 3]
    assert watch.proxy_sides.of(2) == ProxySide("broker", 1)


def test_many_that_begin_alike_cost_as_much_each_as_few() -> None:
    """Connections that name a proxy, which nobody else did: none is compared with all others."""
    count = 40_000
    watch = Watch()
    started = time.process_time()
    for first in range(0, count, 200):
        numbers = range(first, first + 200)
        watch.see(*(Sight(n, CLIENT) for n in numbers))
        watch.see(*(Sight(n, SUBSCRIBE) for n in numbers))
    assert time.process_time() - started < 3
    assert not watch.proxy_sides.repeated
