"""Hard cases of streams: order, loss, overlaps, copies, beginnings and ends of connections.

A generator gives the tape, whose packets it damaged; what was said stands in the tape itself.
"""

import random
from collections.abc import Callable
from typing import Any

from tests.hard.cases import case
from tests.hard.tape import Packet, Tape, capture, receipt, send, simple, talk
from tests.wire.packets import ACK

MS = 1_000_000
SECOND = 1_000_000_000
TOP = 1 << 32


def taped(id: str) -> Callable[[Callable[[], Tape]], Callable[[], Tape]]:
    """Put the capture of a tape into the list of cases; the generator stays as it is."""

    def put(make: Callable[[], Tape]) -> Callable[[], Tape]:
        def written() -> bytes:
            return capture(make().records())

        written.__name__ = make.__name__
        case(id)(written)
        return make

    return put


def data_at(tape: Tape, side: int, least: int = 1) -> list[int]:
    """Places of a side's packets with at least so many bytes."""
    return [
        place
        for place, packet in enumerate(tape.packets)
        if packet.to_broker == (side == 0) and len(packet.payload) >= least
    ]


def move(tape: Tape, place: int, to: int) -> None:
    """Let a packet be captured at another place; times stay in order."""
    times = [packet.ts_ns for packet in tape.packets]
    tape.packets.insert(to, tape.packets.pop(place))
    tape.packets = [
        packet._replace(ts_ns=ts_ns) for packet, ts_ns in zip(tape.packets, times, strict=True)
    ]


def delay(tape: Tape, place: int, by_ns: int) -> None:
    """Let everything from a place on happen later."""
    tape.packets[place:] = [
        packet._replace(ts_ns=packet.ts_ns + by_ns) for packet in tape.packets[place:]
    ]


def again(packet: Packet, by_ns: int, **fields: Any) -> Packet:
    """A retransmission: the same bytes in a new IP packet."""
    number = packet.identification + 20_000 & 0xFFFF
    return packet._replace(ts_ns=packet.ts_ns + by_ns, **({"identification": number} | fields))


def a_talk(**fields: Any) -> Tape:
    """A conversation in which every third SEND fills several packets."""
    return talk(12, seed=7, sizes=(30, 600, 6000), **fields)


# -- order


@taped("B30")
def swapped_within_the_window() -> Tape:
    """Every packet with data is captured up to nine places later than it was sent."""
    tape = a_talk()
    chance = random.Random(30)
    order = sorted(
        range(3, len(tape.packets) - 3), key=lambda place: place + chance.choice([0, 0, 3, 9])
    )
    times = [packet.ts_ns for packet in tape.packets]
    order = [0, 1, 2, *order, *range(len(tape.packets) - 3, len(tape.packets))]
    tape.packets = [
        tape.packets[place]._replace(ts_ns=ts_ns) for place, ts_ns in zip(order, times, strict=True)
    ]
    return tape


@taped("B30")
def four_hundred_packets_overtake_one() -> Tape:
    """One segment of a burst is captured 400 packets later, within the window."""
    tape = Tape()
    tape.open()
    tape.connect()
    first = len(tape.packets)
    for number in range(200):
        tape.frame(True, send(number, bytes([number]) * 2000), is_acked=False)
    tape.add(False, ACK)
    for number in range(200):
        tape.frame(False, receipt(number))
    tape.close()
    tape.packets = [
        packet._replace(ts_ns=tape.packets[0].ts_ns + 100_000 * place)
        for place, packet in enumerate(tape.packets)
    ]
    move(tape, first, first + 399)
    return tape


@taped("B30")
def a_segment_five_seconds_late() -> Tape:
    """Nobody has acknowledged it in the meantime, so it is waited for."""
    tape = Tape()
    tape.open()
    tape.connect()
    lost = len(tape.packets)
    tape.frame(True, send(0, b"a" * 4000), is_acked=False)
    tape.frame(True, send(1, b"b" * 4000), is_acked=False)
    tape.add(False, ACK)
    tape.packets[lost + 1 : lost + 1] = []
    late = tape.packets.pop(lost)
    end = len(tape.packets) - 1
    tape.packets.insert(end, late._replace(ts_ns=late.ts_ns + 5 * SECOND))
    delay(tape, end + 1, 6 * SECOND)
    tape.now += 6 * SECOND
    tape.frame(False, receipt(0))
    tape.close()
    return tape


@taped("B31")
def acknowledgements_before_their_data() -> Tape:
    """Two queues of a network card: all answers are seen before what they answer."""
    tape = a_talk()
    place = 3
    while place < len(tape.packets) - 4:
        packet = tape.packets[place]
        following = tape.packets[place + 1]
        if packet.payload and packet.to_broker != following.to_broker and not following.payload:
            move(tape, place, place + 1)
            place += 1
        place += 1
    return tape


def _without(tape: Tape, places: set[int]) -> Tape:
    tape.packets = [each for place, each in enumerate(tape.packets) if place not in places]
    return tape


@taped("B32")
def a_lost_segment_that_the_peer_has() -> Tape:
    """The first segment of a large SEND was never captured."""
    tape = a_talk()
    return _without(tape, {data_at(tape, 0, 1448)[0]})


@taped("B33")
def one_direction_with_a_hole() -> Tape:
    """Only what the client sent was captured, one packet of it not."""
    tape = a_talk()
    lost = data_at(tape, 0, 1448)[1]
    return _without(tape, {lost, *(n for n, each in enumerate(tape.packets) if not each.to_broker)})


@taped("B34")
def the_broker_talks_while_a_segment_is_missing() -> Tape:
    """Fifty pushed frames, none of which acknowledges the late segment."""
    tape = Tape()
    tape.open()
    tape.connect()
    late = len(tape.packets)
    tape.frame(True, send(0, b"late" * 20), is_acked=False)
    tape.frame(True, send(1, b"next" * 20), is_acked=False)
    known = tape.packets[late].sequence
    for _ in range(50):
        tape.now += 100 * MS
        tape.frame(False, simple("PING"), is_acked=False)
        tape.packets[-1] = tape.packets[-1]._replace(acknowledgement=known)
    move(tape, late, len(tape.packets) - 1)
    tape.add(False, ACK)
    tape.close()
    return tape


# -- overlaps


@taped("B38")
def retransmissions_with_other_bounds() -> Tape:
    """Bytes are sent again in larger, smaller and shifted segments, some before the first came."""
    tape = a_talk()
    chance = random.Random(38)
    origin = (tape.packets[0].sequence + 1, tape.packets[1].sequence + 1)
    for place in sorted([*data_at(tape, 0), *data_at(tape, 1)], reverse=True):
        packet = tape.packets[place]
        side = 0 if packet.to_broker else 1
        start = packet.sequence - origin[side]
        end = start + len(packet.payload)
        first = max(0, start - chance.randrange(0, 2000))
        last = min(end, first + chance.randrange(2, 3000))
        if last <= first:
            continue
        copy = again(packet, 0, sequence=origin[side] + first, flags=ACK)
        copy = copy._replace(payload=bytes(tape.sent[side][first:last]))
        tape.packets.insert(place + chance.randrange(2), copy)
    return tape


# -- numbers


@taped("B39")
def sequence_numbers_begin_anew() -> Tape:
    """Both initial numbers lie just below 2^32."""
    return a_talk(isn=(TOP - 300, TOP - 1))


# -- probes and windows


@taped("B40")
def keep_alives() -> Tape:
    """Two idle minutes with probes of no byte and of a made-up one, of both sides."""
    tape = a_talk()
    place = data_at(tape, 1)[4] + 2
    probes = []
    for number in range(6):
        side = number % 2
        last = [each for each in tape.packets[:place] if each.to_broker == (side == 0)][-1]
        at = (last.sequence + len(last.payload) - 1) % TOP
        ts_ns = tape.packets[place].ts_ns + (number + 1) * 20 * SECOND
        probe = last._replace(ts_ns=ts_ns, sequence=at, flags=ACK, identification=9000 + number)
        probes.append(probe._replace(payload=b"" if number % 3 else b"\xee"))
        answer = [each for each in tape.packets[:place] if each.to_broker == (side == 1)][-1]
        at = (answer.sequence + len(answer.payload)) % TOP
        probes.append(
            answer._replace(ts_ns=ts_ns + MS, sequence=at, payload=b"", flags=ACK,
                            identification=9100 + number)
        )  # fmt: skip
    delay(tape, place, 130 * SECOND)
    tape.packets[place:place] = probes
    return tape


@taped("B40")
def a_keep_alive_opens_the_capture() -> Tape:
    """The capture begins in the middle, with a probe whose byte means nothing."""
    tape = a_talk()
    place = data_at(tape, 0)[3]
    first = tape.packets[place]
    tape.packets = [
        first._replace(ts_ns=first.ts_ns - 10 * SECOND, sequence=first.sequence - 1,
                       payload=b"\xee", identification=5),
        *tape.packets[place:],
    ]  # fmt: skip
    return tape


@taped("B41")
def a_closed_window_is_probed() -> Tape:
    """The broker's window is closed for 900 ms; probes carry the next byte."""
    tape = Tape()
    tape.open()
    tape.connect()
    tape.add(False, ACK, window=0)
    frame = send(0, b"waits for the window")
    number = tape.next[0]
    for _ in range(2):
        tape.now += 300 * MS
        tape.add(True, ACK, frame[:1])
        tape.next[0] = number
        tape.add(False, ACK, window=0)
    tape.now += 900 * MS - (tape.now - tape.packets[-5].ts_ns)
    tape.add(False, ACK, window=5000)
    tape.frame(True, frame)
    tape.frame(False, receipt(0))
    tape.close()
    return tape
