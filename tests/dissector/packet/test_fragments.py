"""Fragments of IPv4 and IPv6: rebuilt however they come, dropped where they contradict, bounded."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import DUPLICATE_WINDOW_MS, FRAGMENT_TIMEOUT_MS
from dissector.packet.fragments import Fragments
from tests.dissector.capture.reading import Reading, read_capture
from tests.dissector.packet.decoding import decode
from tests.dissector.packet.test_unwrap import same
from tests.wire.captures import RAW, Record, pcap
from tests.wire.fragments import addressed, fragments, one
from tests.wire.packets import ethernet, extension, ipv4, ipv6, tcp, time_stamps, udp
from tests.wire.tunnels import OUTER, Wrapped, over_udp, vxlan, wrapped

MS = 1_000_000
PAYLOAD = random.Random(3).randbytes(100)
V4 = ipv4(tcp(PAYLOAD, sequence=77, options=time_stamps(5, 6)), fragment=0, identification=7)
V6 = ipv6(tcp(PAYLOAD, sequence=77, options=time_stamps(5, 6), addresses=("fd00::1", "fd00::2")))
BOTH = pytest.mark.parametrize("packet", [V4, V6], ids=["v4", "v6"])


def read(packets: list[bytes], step_ns: int = MS, **options) -> Reading:
    """Packets a millisecond apart."""
    records = [Record(1 + n * step_ns, packet) for n, packet in enumerate(packets)]
    return read_capture([pcap(records, link_type=RAW)], **options)


def rebuilt(packets: list[bytes], packet: bytes, number: int | None = None) -> Reading:
    """The packet comes out once, with the number and time of the one that completes it."""
    reading = read(packets)
    (found,) = reading.segments
    number = len(packets) if number is None else number
    expected = decode(packet, RAW)
    same(found, expected._replace(packet=number, ts_ns=1 + (number - 1) * MS))
    assert reading.counts == [(1, {"ip_fragment": len(packets) - 1})]
    assert reading.notices == []
    return reading


CUTS = {"two": [64], "before the end of the header": [8], "many": list(range(8, 150, 8))}


@BOTH
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("order", ["in order", "reversed", "last first", "drawn"])
def test_fragments_in_any_order(packet, cuts, order):
    pieces = fragments(packet, cuts)
    if order == "reversed":
        pieces.reverse()
    elif order == "last first":
        pieces = [pieces[-1], *pieces[:-1]]
    elif order == "drawn":
        random.Random(1).shuffle(pieces)
    rebuilt(pieces, packet)


@given(
    seed=st.integers(0, 1 << 32),
    overlap=st.sampled_from([0, 8, 24]),
    cuts=st.lists(st.integers(1, 16).map(lambda place: 8 * place), min_size=1, max_size=9),
    is_v6=st.booleans(),
    depth=st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_any_fragments_give_the_packet_however_the_input_is_cut(seed, overlap, cuts, is_v6, depth):
    chance = random.Random(seed)
    whole = Wrapped(V6 if is_v6 else V4)
    for _ in range(depth):
        whole = wrapped(whole, chance)
    pieces = fragments(whole.packet, cuts, overlap=overlap)
    pieces += [chance.choice(pieces) for _ in range(chance.randrange(3))]
    chance.shuffle(pieces)
    around = Wrapped(b"")
    outer = [wrapped(around._replace(packet=piece), random.Random(seed)) for piece in pieces]
    content = pcap([Record(n, each.packet) for n, each in enumerate(outer)], link_type=RAW)
    reading = read_capture([content])
    (found,) = reading.segments
    same(found._replace(packet=1, ts_ns=0), decode(V6 if is_v6 else V4, RAW)._replace(ts_ns=0))
    assert found.tunnel == "/".join((*outer[0].tunnels, *whole.tunnels))
    assert reading.counts == [(1, {"ip_fragment": len(pieces) - 1})]
    cut = read_capture([content], lambda size: chance.sample(range(size), 5), block_rows=2)
    assert (cut.segments, cut.reasons) == (reading.segments, reading.reasons)


@BOTH
def test_the_inner_packet_of_a_fragmented_tunnel_may_be_a_fragment(packet):
    inner = fragments(packet, [64])
    pieces = []
    for number, piece in enumerate(inner):
        frame = ethernet(piece, 0x0800 if packet is V4 else 0x86DD)
        pieces += fragments(over_udp(vxlan(frame), 4789), [32], number)
    reading = rebuilt(pieces, packet)
    assert reading.segments[0].tunnel == "vxlan:5"


@BOTH
def test_padding_and_copies_change_nothing(packet):
    first, second = fragments(packet, [64])
    rebuilt([first + bytes(9), second + b"padding"], packet)
    rebuilt([first, first, second], packet)
    # A copy of a fragment whose packet is complete begins no other.
    rebuilt([first, second, first, second], packet, 2)


def test_fragments_that_may_not_be_fragmented_are_rebuilt_all_the_same():
    first, second = fragments(V4, [64])
    assert second[6] & 0x40 == 0
    rebuilt([first[:6] + bytes([first[6] | 0x40]) + first[7:], second], V4)


def test_extension_headers_before_and_behind_the_fragment_header():
    inner = tcp(PAYLOAD, addresses=("fd00::1", "fd00::2"))
    behind = ipv6(extension(6, inner), next_header=60)
    rebuilt(fragments(behind, [8, 64]), behind)
    whole = ipv6(inner)
    before = [
        piece[:4] + (len(piece) - 32).to_bytes(2, "big") + b"\0" + piece[7:40]
        + extension(44, piece[40:])
        for piece in fragments(whole, [64])
    ]  # fmt: skip
    rebuilt(before, whole)


def test_an_atomic_fragment_is_not_held():
    segment = decode(one(V6, 0, V6[40:], False), RAW)
    same(segment, decode(V6, RAW))


@BOTH
def test_contradictions_drop_the_packet(packet):
    first, second, third = fragments(packet, [32, 64])
    other = second[:-1] + bytes([second[-1] ^ 1])
    longer = one(packet, 64, packet[-(len(third) - 20) :] + b"more", False)
    beyond = one(packet, 400, b"beyond", False)
    middle_last = one(packet, 32, b"x" * 24, False)
    for pieces in (
        [first, second, other, third],
        [second, other, first, third],
        [third, longer, first, second],
        [third, beyond, first, second],
        [third, middle_last, first, second],
    ):
        reading = read(pieces)
        assert reading.segments == []
        count = 1 if pieces[1] is not second else 2
        assert reading.counts == [
            (0, {"ip_fragment": count, "fragment_conflict": len(pieces) - count})
        ]
        assert [(n.code, n.packet, n.value) for n in reading.notices] == [
            ("fragments_conflict", count + 1, 1)
        ]


def test_a_contradiction_after_a_while_is_a_new_packet():
    first, second = fragments(V4, [64])
    other = ipv4(tcp(PAYLOAD[::-1], sequence=177), fragment=0, identification=7)
    rest = fragments(other, [64])
    reading = read([first, *rest], 600 * MS)
    assert [each.sequence for each in reading.segments] == [177]
    assert [(n.code, n.packet, n.value) for n in reading.notices] == [("fragments_missing", 1, 1)]
    assert second != rest[1]


@BOTH
def test_what_is_never_complete_is_told(packet):
    first, second, third = fragments(packet, [32, 64])
    for pieces in ([first, second], [first, third], [second, third]):
        reading = read(pieces)
        assert reading.counts == [(0, {"ip_fragment": 2})]
        assert [(n.code, n.packet, n.value) for n in reading.notices] == [
            ("fragments_missing", 1, 1)
        ]
    late = read([first, third, second], (FRAGMENT_TIMEOUT_MS // 2 + 1) * MS)
    assert late.segments == []
    assert [(n.code, n.value) for n in late.notices] == [("fragments_missing", 2)]


def test_equal_numbers_of_other_packets_are_kept_apart():
    six = fragments(V6, [64])
    one_way, other_way = fragments(V4, [64]), fragments(addressed(V4, "10.0.0.9"), [64])
    datagram = fragments(ipv4(udp(PAYLOAD, 1, 2), protocol=17, identification=7), [64])
    tunnels = [
        [over_udp(vxlan(ethernet(piece), number), 4789) for piece in fragments(V4, [64])]
        for number in (5, 6)
    ]
    sets = [six, one_way, other_way, datagram, *tunnels]
    reading = read([pieces[place] for place in (0, 1) for pieces in sets])
    assert [each.payload for each in reading.segments] == [PAYLOAD] * 5
    assert [each.tunnel for each in reading.segments] == [None] * 3 + ["vxlan:5", "vxlan:6"]
    assert reading.counts == [(5, {"ip_fragment": 6, "udp": 1})]


def test_an_identification_used_again_is_a_new_packet():
    again = ipv4(tcp(PAYLOAD[::-1], sequence=177), fragment=0, identification=7)
    pieces = fragments(V4, [64]) + fragments(again, [64])
    for step in (MS, 2 * DUPLICATE_WINDOW_MS * MS):
        assert [each.sequence for each in read(pieces, step).segments] == [77, 177]
    same_again = read(fragments(V4, [64]) * 2, 2 * DUPLICATE_WINDOW_MS * MS)
    assert [each.packet for each in same_again.segments] == [2, 4]


@BOTH
def test_fragments_cut_by_the_snap_length(packet):
    head = len(packet) - len(PAYLOAD)
    pieces = fragments(packet, [64])
    for captured in range(head + 8, len(pieces[0]) + 1):
        records = [Record(n, each[:captured], len(each)) for n, each in enumerate(pieces, 1)]
        (found,) = read_capture([pcap(records, link_type=RAW)]).segments
        assert found.wire_bytes == len(PAYLOAD)
        assert PAYLOAD.startswith(found.payload)
        assert len(found.payload) >= min(captured, len(pieces[0])) - head - 8


@BOTH
def test_fragments_cut_anywhere_are_counted_once(packet):
    pieces = fragments(packet, [64])
    records = [
        Record(size * 100 * MS, piece[:size], len(piece))
        for size in range(len(pieces[0]))
        for piece in pieces
    ]
    reading = read_capture([pcap(records, link_type=RAW)])
    ((used, ignored),) = reading.counts
    assert used + sum(ignored.values()) == len(records)


def test_malformed_fragments_are_counted():
    for fragment, payload in ((0x2000, b"x" * 9), (0x2000, b""), (0x1FFF, b"x" * 16)):
        assert decode(ipv4(payload, fragment=fragment), RAW) == "fragment_malformed"


@pytest.mark.parametrize("limits", [{"packets": 10}, {"held_bytes": 8_000}])
def test_only_so_much_waits(monkeypatch, limits):
    from dissector.packet import reader

    monkeypatch.setattr(reader, "Fragments", lambda: Fragments(**limits))
    halves = [
        fragments(addressed(V4, f"10.1.{number >> 8}.{number & 255}"), [64])
        for number in range(1000)
    ]
    packets = [half[0] for half in halves] + [half[1] for half in halves[::-1]]
    reading = read(packets)
    kept = [each.source for each in reading.segments]
    assert 5 < len(kept) < 20 and kept[0] == "10.1.3.231"
    codes = {n.code: n.value for n in reading.notices}
    assert codes["fragments_limit"] > 1900
    assert OUTER[0] not in kept


def test_segments_stay_in_the_order_of_packets_beside_fragments():
    """Fragments are gathered until a segment comes, and some in all."""
    many = [
        piece
        for number in range(600)
        for piece in fragments(addressed(V4, f"10.2.{number >> 8}.{number & 255}"), [64])
    ]
    first, second = fragments(V4, [64])
    other = ipv4(tcp(b"other", sequence=5))
    packets = [first, other, *many[:7], second, other, *many[7:], first, other, second]  # once more
    whole = read(packets, step_ns=1000)
    numbers = [each.packet for each in whole.segments]
    assert numbers == sorted(numbers) and len(numbers) == 600 + 1 + 3
    assert [each.payload for each in whole.segments].count(PAYLOAD) == 601
    assert whole.reasons.count("ip_fragment") == len(packets) - len(numbers)
    for rows in (1, 3, 500):
        again = read(packets, step_ns=1000, block_rows=rows)
        assert (again.segments, again.reasons) == (whole.segments, whole.reasons)


@BOTH
def test_what_lies_before_the_first_fragment_that_came_is_put_before_it(packet):
    pieces = fragments(packet, [8, 32, 64, 96])
    for order in ((4, 2, 0, 1, 3), (3, 4, 1, 0, 2), (2, 1, 0, 4, 3), (4, 0, 3, 1, 2)):
        rebuilt([pieces[place] for place in order], packet)
    other = one(packet, 8, b"x" * 24, True)
    reading = read([pieces[4], pieces[1], other])
    assert reading.counts == [(0, {"ip_fragment": 2, "fragment_conflict": 1})]
