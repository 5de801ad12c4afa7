"""VLANs and tunnels: one connection behind many, many connections of equal addresses."""

import pytest

from dissector.limits import MAX_SHARED_ADDRESSES, TAG_REACH_BYTES
from tests.wire.packets import ACK, RST, SYN
from tests.wire.segments import SMALL, Packet, Released, handshake, streamed

VLAN = [0] + [number | 1 << 48 for number in range(1, 9)]


def tagged(packets: list[Packet], to_broker: int, to_client: int) -> list[Packet]:
    return [
        each._replace(vlans=VLAN[(to_broker, to_client)[each.endpoint_index]]) for each in packets
    ]


def talk(isn: int = 1000, answer: int = 5000, ms: float = 0) -> list[Packet]:
    return [
        *handshake(isn, answer, ms=ms),
        Packet(ms + 3, 0, isn + 1, b"question", answer + 1),
        Packet(ms + 4, 1, answer + 1, b"answer", isn + 9),
        Packet(ms + 5, 0, isn + 9, b"", answer + 7),
    ]


def woven(*talks: list[Packet]) -> list[Packet]:
    return sorted((each for talk in talks for each in talk), key=lambda each: each.ms)


def streams_of(released: Released) -> list[tuple[bytes, bytes]]:
    return [(released.data(id, 0), released.data(id, 1)) for id in range(len(released.connections))]


SAID = (b"question", b"answer")


@pytest.mark.parametrize("tags", [(0, 1), (1, 0), (1, 2)])
def test_directions_with_other_tags_are_one_connection(tags):
    released = streamed(tagged(talk(), *tags))
    assert streams_of(released) == [SAID]
    assert released.codes() == []


@pytest.mark.parametrize("first", range(1, 6))
def test_also_when_seen_from_the_middle_on(first):
    packets = tagged(talk(), 1, 2)[first:]
    assert len(streamed(packets).connections) == 1


def test_a_reset_goes_where_its_number_was_acknowledged() -> None:
    """Of its side nothing else was captured, and it acknowledges nothing."""
    reset = Packet(5, 0, 1009, b"", 0, RST)
    packets = tagged([Packet(4, 1, 5001, b"answer", 1009), reset], 1, 2)
    assert len(streamed(packets).connections) == 1
    packets[1] = packets[1]._replace(sequence=1009 + 2 * TAG_REACH_BYTES)
    assert len(streamed(packets).connections) == 2


@pytest.mark.parametrize("gap_ms", [0.5, 100])
def test_tenants_with_equal_addresses_are_two_connections(gap_ms):
    one, other = tagged(talk(), 1, 1), tagged(talk(9_000_000, 70_000_000, gap_ms), 2, 2)
    released = streamed(woven(one, other))
    assert streams_of(released) == [SAID, SAID]
    assert released.codes() == ["addresses_shared"]
    assert (released.notices[0]["connection_id"], released.notices[0]["value"]) == (1, 0)
    assert [row["vlans"] for _, row in sorted(released.connections.items())] == [VLAN[1], VLAN[2]]
    assert all(
        released.counted(id, endpoint_index) == {} for id in (0, 1) for endpoint_index in (0, 1)
    )


def test_tenants_whose_tags_differ_by_direction():
    one, other = tagged(talk(), 1, 2), tagged(talk(9_000_000, 70_000_000, 0.5), 3, 4)
    assert streams_of(streamed(woven(one, other))) == [SAID, SAID]


def test_tenants_seen_from_the_middle_on():
    one, other = tagged(talk(), 1, 1), tagged(talk(9_000_000, 70_000_000, 0.5), 2, 2)
    assert streams_of(streamed(woven(one[3:], other[3:]))) == [SAID, SAID]


def test_numbers_that_happen_to_lie_close_are_one_connection():
    near = tagged(talk(1000 + TAG_REACH_BYTES // 2, 5000), 2, 2)
    assert len(streamed(woven(tagged(talk(), 1, 1)[3:], near[3:])).connections) == 1
    options = SMALL._replace(vlan_in_key=True)
    assert len(streamed(woven(tagged(talk(), 1, 1)[3:], near[3:]), options).connections) == 2


@pytest.mark.parametrize("tags", [(2, 2), (2, 3), (0, 0)])
def test_copies_behind_other_tags_are_copies(tags):
    packets = [each._replace(ip_id=number) for number, each in enumerate(talk(), 1)]
    copies = [each._replace(ms=each.ms + 0.5) for each in tagged(packets, *tags)]
    released = streamed(woven(tagged(packets, 1, 1), copies))
    assert streams_of(released) == [SAID]
    assert released.counted(0, 0) == {"duplicate": 4} and released.counted(0, 1) == {"duplicate": 2}
    assert released.codes() == []


def test_a_connection_that_follows_knows_the_tags_of_the_one_before():
    packets = [each._replace(ip_id=number) for number, each in enumerate(talk(), 1)]
    packets += [
        each._replace(ip_id=number)
        for number, each in enumerate(talk(70_000_000, 90_000_000, 1000), 20)
    ]
    copies = [each._replace(ms=each.ms + 0.5) for each in tagged(packets, 2, 2)]
    # An RST far off that no number explains, with the tag that the copies have.
    stray = Packet(1003.8, 0, 3_000_000_000, flags=RST, vlans=VLAN[2])
    released = streamed(woven(tagged(packets, 1, 1), copies, [stray]))
    assert streams_of(released) == [SAID, SAID]
    assert released.codes() == ["port_reused"]


def test_a_packet_that_fits_nothing_opens_a_connection():
    released = streamed([*tagged(talk(), 1, 1), Packet(9, 0, 2_000_000_000, b"xy", 3, ACK)])
    assert streams_of(released) == [SAID, (b"xy", b"")]
    again = Packet(9, 0, 2_000_000_000, b"", 0, SYN)
    assert len(streamed([*tagged(talk(), 1, 1), again]).connections) == 2


def test_an_answer_goes_where_its_tag_is():
    syns = [
        Packet(n, 0, 1000 + 50_000_000 * n, flags=SYN, vlans=VLAN[n], ip_id=n) for n in (1, 2, 3)
    ]
    answers = [
        Packet(10 + n, 1, 7 * n, b"", 1001 + 50_000_000 * n, SYN | ACK, vlans=VLAN[n])
        for n in (2, 3, 1)
    ]
    released = streamed([*syns, *answers])
    assert len(released.connections) == 3
    assert [released.connections[id]["sides"][1]["isn"] for id in range(3)] == [7, 14, 21]


def test_of_very_many_tenants_with_equal_addresses_the_oldest_is_given_up() -> None:
    """Each packet passes by all connections of its addresses: their number is bounded."""
    more = 3
    packets = [
        Packet(number, 0, number * 500_000_000 & 0xFFFF_FFFF, b"", 0, SYN)._replace(
            vlans=1 << 48 | number
        )
        for number in range(MAX_SHARED_ADDRESSES + more)
    ]
    released = streamed(packets)
    assert len(released.connections) == MAX_SHARED_ADDRESSES + more
    assert released.codes().count("connection_limit") == 2  # told at 1, 2, 4 ... given up
    ended = [id for id, row in sorted(released.connections.items()) if row["ended"] == "idle"]
    assert ended == list(range(more))
