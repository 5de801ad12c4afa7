"""Hard cases of beginnings and ends: resets, FINs, reuse, handshakes of all kinds, many SYNs."""

from tests.hard.cases import case
from tests.hard.stream_cases import MS, SECOND, a_talk, data_at, move, taped
from tests.hard.tape import START_NS, Packet, Tape, capture, send, simple, talk
from tests.wire.captures import Record
from tests.wire.packets import ACK, FIN, RST, SYN, URG, segment


def _opened() -> Tape:
    tape = Tape()
    tape.open()
    tape.connect()
    tape.publish(0, b"before the end")
    return tape


@taped("B42")
def reset_inside_the_window() -> Tape:
    """The client resets instead of closing."""
    tape = _opened()
    tape.add(True, RST | ACK)
    return tape


@taped("B42")
def reset_outside_the_window() -> Tape:
    """Spoofed resets, far above and below what was sent, end nothing."""
    tape = _opened()
    for by in (5_000_000, -5_000_000):
        packet = tape.add(True, RST)
        tape.packets[-1] = packet._replace(sequence=(packet.sequence + by) % (1 << 32))
    tape.publish(1, b"it goes on")
    tape.close()
    return tape


@taped("B42")
def reset_with_data_and_data_after_it() -> Tape:
    """A reset that carries text, and a SEND that follows it."""
    tape = _opened()
    number = tape.next[0]
    tape.add(True, RST | ACK, b"process was killed")
    tape.next[0] = number
    tape.now += SECOND
    tape.add(True, ACK, send(1, b"too late"))
    return tape


@taped("B43")
def closed_as_pulsar_closes() -> Tape:
    """FIN of both sides, then the client's reset."""
    tape = _opened()
    tape.close()
    tape.add(True, RST)
    return tape


@taped("B44")
def fin_before_its_data() -> Tape:
    """The FIN of the client is captured before the last SENDs."""
    tape = _opened()
    for number in range(1, 6):
        tape.frame(True, send(number, b"x" * 300), is_acked=False)
    first = len(tape.packets) - 5
    tape.add(True, FIN | ACK)
    move(tape, len(tape.packets) - 1, first)
    tape.add(False, FIN | ACK)
    tape.add(True, ACK)
    return tape


@taped("B45")
def half_closed() -> Tape:
    """The client has ended its side; the broker goes on for a minute and never ends its own."""
    tape = _opened()
    tape.frame(True, send(1, b"last words"), is_acked=False)
    tape.add(True, FIN | ACK)
    for _ in range(6):
        tape.now += 10 * SECOND
        tape.frame(False, simple("PING"))
    return tape


@case("B45")
def idle_until_another_talk() -> bytes:
    """A connection without FIN is silent for two hours; then another one talks."""
    first = _opened()
    second = talk(2, client=("10.0.0.9", 40001), start_ns=first.now + 7200 * SECOND)
    return capture([*first.records(), *second.records()])


def reuse(*, is_closed: bool, syn: bool = True) -> tuple[Tape, Tape]:
    """The same addresses and ports in two connections."""
    first = talk(3, seed=1) if is_closed else _opened()
    second = talk(3, seed=2, isn=(900_000_000, 1_800_000_000), start_ns=first.now + SECOND)
    if not syn:
        second.packets = second.packets[1:]
    return first, second


@case("B46")
def ports_used_again_after_the_end() -> bytes:
    """A new SYN after both FINs."""
    return capture([record for tape in reuse(is_closed=True) for record in tape.records()])


@case("B46")
def ports_used_again_without_an_end() -> bytes:
    """The end of the first connection was never captured."""
    return capture([record for tape in reuse(is_closed=False) for record in tape.records()])


@case("B46")
def ports_used_again_without_a_syn() -> bytes:
    """Nor was the SYN of the second, only its answer."""
    tapes = reuse(is_closed=False, syn=False)
    return capture([record for tape in tapes for record in tape.records()])


@taped("B47")
def an_old_syn_after_the_end() -> Tape:
    """The connection's own SYN turns up 10 s after its FINs, without being a copy."""
    tape = a_talk()
    syn = tape.packets[0]
    tape.packets.append(
        syn._replace(ts_ns=tape.packets[-1].ts_ns + 10 * SECOND, identification=999)
    )
    return tape


@taped("B48")
def a_syn_with_data() -> Tape:
    """TCP fast open: the SYN carries CONNECT, the SYN-ACK acknowledges it."""
    tape = Tape()
    frame = simple("CONNECT", client_version="hard-1", protocol_version=21)
    tape.frames[0].append(frame)
    tape.sent[0] += frame
    tape.add(True, SYN, frame)
    tape.add(False, SYN | ACK)
    tape.frame(False, simple("CONNECTED", server_version="broker-1", protocol_version=21))
    tape.frame(True, simple("PING"))
    tape.close()
    return tape


@taped("B48")
def both_sides_open() -> Tape:
    """A simultaneous open: two SYNs, two SYN-ACKs."""
    tape = Tape()
    first = tape.add(True, SYN)
    second = tape.add(False, SYN)
    answers = ((True, first, second), (False, second, first))
    for to_broker, own, other in answers:
        packet = Packet(tape.now, to_broker, own.sequence, other.sequence + 1, SYN | ACK)
        tape.packets.append(packet._replace(identification=50))
        tape.now += MS
    tape.connect()
    tape.publish(0, b"open")
    tape.close()
    return tape


@taped("B48")
def a_split_handshake() -> Tape:
    """The broker answers with a bare acknowledgement, then sends a SYN of its own."""
    tape = Tape()
    syn = tape.add(True, SYN)
    answer = Packet(tape.now, False, 77, syn.sequence + 1, ACK, identification=60)
    tape.packets.append(answer)
    tape.now += MS
    own = tape.add(False, SYN)
    tape.packets.append(
        Packet(tape.now, True, syn.sequence, own.sequence + 1, SYN | ACK, identification=61)
    )
    tape.now += MS
    tape.add(False, ACK)
    tape.connect()
    tape.publish(0, b"split")
    tape.close()
    return tape


@taped("B48")
def a_syn_with_another_number() -> Tape:
    """The first SYN is never answered; the next has another initial number."""
    tape = a_talk()
    syn = tape.packets[0]
    earlier = syn._replace(
        ts_ns=syn.ts_ns - SECOND, sequence=syn.sequence - 77_777_777 & 0xFFFFFFFF,
        identification=40_000,
    )  # fmt: skip
    tape.packets.insert(0, earlier)
    return tape


@taped("B48")
def no_syn() -> Tape:
    """The SYN was not captured, the rest was."""
    tape = a_talk()
    tape.packets = tape.packets[1:]
    return tape


@taped("B48")
def no_syn_ack() -> Tape:
    """The SYN-ACK was not captured, the rest was."""
    tape = a_talk()
    del tape.packets[1]
    return tape


@taped("B48")
def the_handshake_out_of_order() -> Tape:
    """Data of the client is captured before all of the handshake."""
    tape = a_talk()
    move(tape, data_at(tape, 0)[0], 0)
    move(tape, 2, 1)
    return tape


@case("B51")
def urgent_data() -> bytes:
    """One packet of a SEND has the URG flag and a pointer to its third byte."""
    tape = a_talk()
    place = data_at(tape, 0, 600)[0]
    tape.packets[place] = tape.packets[place]._replace(flags=ACK | URG)
    records = tape.records()
    data = bytearray(records[place].data)
    data[14 + 20 + 18 : 14 + 20 + 20] = b"\0\3"
    # The checksum follows the pointer.
    wrong = int.from_bytes(data[14 + 20 + 16 : 14 + 20 + 18], "big") - 3
    data[14 + 20 + 16 : 14 + 20 + 18] = (wrong % 0xFFFF).to_bytes(2, "big")
    records[place] = Record(records[place].ts_ns, bytes(data))
    return capture(records)


def syns(count: int) -> list[Record]:
    """A scan: that many SYNs of as many address pairs, 10 us apart."""
    return [
        Record(
            START_NS + number * 10_000,
            segment(
                client=(f"172.{16 + (number >> 24)}.{number >> 16 & 255}.{number >> 8 & 255}",
                        1024 + (number & 255)),
                sequence=number * 7919,
                flags=SYN,
            ),
        )
        for number in range(count)
    ]  # fmt: skip


@case("B59")
def a_scan_around_a_talk() -> bytes:
    """Three thousand SYNs without answer, and one conversation among them."""
    scan = syns(3000)
    tape = talk(4)
    return capture(sorted([*scan, *tape.records()], key=lambda record: record.ts_ns))
