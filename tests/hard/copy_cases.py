"""Hard cases of bytes that come more than once: copies of taps, retransmissions, conflicts."""

from tests.hard.cases import case
from tests.hard.stream_cases import MS, SECOND, a_talk, again, data_at, delay, taped
from tests.hard.tape import Packet, Tape, capture, receipt, send, talk
from tests.wire.captures import Record
from tests.wire.packets import ACK, PSH, ethernet, time_stamps


@taped("B25")
def damaged_and_sent_again() -> Tape:
    """Two packets of SENDs are damaged on their way to the tap and the broker, and come again."""
    tape = a_talk()
    for place in (data_at(tape, 0, 1448)[4], data_at(tape, 0, 600)[0]):
        packet = tape.packets[place]
        tape.packets[place] = packet._replace(is_damaged=True)
        delay(tape, place + 1, 300 * MS)
        tape.packets.insert(place + 1, again(packet, 300 * MS))
    return tape


@taped("B25")
def damaged_while_a_hole_is_open() -> Tape:
    """A damaged packet waits behind a late one when its good copy comes."""
    tape = a_talk()
    late, damaged = data_at(tape, 0, 1448)[:2]
    packet = tape.packets[damaged]
    tape.packets[damaged] = packet._replace(is_damaged=True)
    tape.packets.insert(damaged + 1, again(packet, MS // 4))
    first = tape.packets.pop(late)
    tape.packets.insert(damaged + 1, first._replace(ts_ns=packet.ts_ns + MS // 2))
    return tape


def stamped(tape: Tape) -> Tape:
    """The tape with a TCP time stamp in every packet, one per millisecond."""
    tape.packets = [
        each._replace(options=time_stamps(each.ts_ns // MS & 0xFFFFFFFF, 7))
        for each in tape.packets
    ]
    return tape


@case("B27")
def copies_back_to_back() -> bytes:
    """Every packet twice, at once."""
    return capture([record for record in a_talk().records() for _ in range(2)])


@case("B27")
def copies_of_two_ports() -> bytes:
    """Every packet twice, 4 ms apart: routed in between, with other MACs, a VLAN, a hop less."""
    tape = a_talk()
    first = tape.records()
    tape.packets = [each._replace(hop_limit=63, ts_ns=each.ts_ns + 4 * MS) for each in tape.packets]
    second = tape.records(lambda packet, _: ethernet(packet, vlans=[77]))
    return capture(sorted([*first, *second], key=lambda record: record.ts_ns))


@taped("B28")
def true_retransmissions() -> Tape:
    """Every large packet comes again after 220 ms, with another IP identification."""
    tape = a_talk()
    for place in reversed(data_at(tape, 0, 1448)):
        tape.packets.append(again(tape.packets[place], 220 * MS))
    tape.packets.sort(key=lambda packet: packet.ts_ns)
    return tape


@taped("B28")
def retransmissions_by_time_stamp() -> Tape:
    """IPv6: no identification, but another time stamp 20 ms later."""
    tape = stamped(a_talk(client=("fd00::1", 40000), broker=("fd00::2", 6650)))
    for place in reversed(data_at(tape, 0, 1448)):
        packet = tape.packets[place]
        later = time_stamps(packet.ts_ns // MS + 20 & 0xFFFFFFFF, 7)
        tape.packets.append(again(packet, 20 * MS, options=later))
    tape.packets.sort(key=lambda packet: packet.ts_ns)
    return tape


@taped("B29")
def identification_zero() -> Tape:
    """Both hosts send IP id 0; repeated acknowledgements and equal SENDs are not copies."""
    tape = Tape()
    tape.open()
    tape.connect()
    for number in range(10):
        tape.frame(True, send(number, b"equal" * 10), is_acked=False)
        tape.add(False, ACK)
        tape.add(False, ACK)
        tape.frame(False, receipt(number), is_acked=False)
    tape.close()
    tape.packets = [each._replace(identification=0) for each in tape.packets]
    return tape


GOOD, EVIL = b"G" * 150, b"E" * 150


def overlapping(first: tuple[int, int], second: tuple[int, int]) -> Tape:
    """A SEND whose first byte comes last; inside its payload two segments overlap and differ.

    first, second: bounds of the segments in the frame; the first brings its bytes as they were
    sent, the second has `E` wherever the first has been.
    """
    tape = Tape()
    tape.open()
    tape.connect()
    frame = send(0, GOOD)
    start = tape.next[0]
    base = Packet(tape.now, True, start, tape.next[1], ACK | PSH)
    tape.frame(True, frame, is_acked=False)
    tape.packets = tape.packets[:-1]
    evil = bytearray(frame)
    evil[first[0] : first[1]] = EVIL[: first[1] - first[0]]
    parts = [(*first, frame), (*second, bytes(evil))]
    covered = (min(first[0], second[0]), max(first[1], second[1]))
    parts += [(covered[1], len(frame), frame), (0, covered[0], frame)]
    for number, (begin, end, source) in enumerate(parts):
        packet = base._replace(
            ts_ns=base.ts_ns + number * MS, sequence=start + begin, payload=source[begin:end],
            identification=700 + number,
        )  # fmt: skip
        tape.packets.append(packet)
    tape.now += 10 * MS
    tape.add(False, ACK)
    tape.frame(False, receipt(0))
    tape.close()
    return tape


# Bounds of the later segment against (80, 100); policies under which its copy counts.
OVERLAPS = {
    "same": ((80, 100), "last"),
    "before_as_far": ((70, 100), "last linux windows"),
    "before_farther": ((70, 110), "last linux windows"),
    "before_less_far": ((70, 90), "last linux windows"),
    "equal_farther": ((80, 110), "last linux"),
    "equal_less_far": ((80, 90), "last"),
    "behind_as_far": ((90, 100), "last"),
    "behind_farther": ((90, 110), "last"),
    "contained": ((85, 95), "last"),
}


@taped("B37")
def a_longer_copy_that_differs() -> Tape:
    """The later copy starts before the waiting one and ends behind it."""
    return overlapping((80, 100), OVERLAPS["before_farther"][0])


def seen_twice(apart_ns: int) -> list[Record]:
    """A conversation captured by two hosts, the clock of the second of which is ahead."""
    tape = stamped(a_talk())
    first = tape.records()
    tape.packets = [
        each._replace(ts_ns=each.ts_ns + apart_ns, hop_limit=62) for each in tape.packets
    ]
    return sorted([*first, *tape.records()], key=lambda record: record.ts_ns)


@case("B55")
def two_hosts_with_different_clocks() -> bytes:
    """Merged by time stamps, seven seconds apart: longer than the whole conversation."""
    return capture(seen_twice(7 * SECOND))


@case("B55")
def two_hosts_with_clocks_close_by() -> bytes:
    """Merged by time stamps, 80 ms apart: the copies stand among later packets."""
    return capture(seen_twice(80 * MS))


@case("B56")
def before_and_behind_a_translation() -> bytes:
    """The same packets with the client's address, and with that of a gateway."""
    inside = stamped(talk(6, seed=9, isn=(3_141_592_653, 2_718_281_828)))
    outside = Tape(client=("192.0.2.7", 61000))
    outside.packets = [
        each._replace(ts_ns=each.ts_ns + MS // 10, hop_limit=63) for each in inside.packets
    ]
    records = [*inside.records(), *outside.records()]
    return capture(sorted(records, key=lambda record: record.ts_ns))
