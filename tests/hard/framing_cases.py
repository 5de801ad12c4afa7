"""Captures of hard cases of framing: gaps, starts in the middle, roles, protocols, lengths."""

import random
import struct

from tests.hard.cases import case
from tests.hard.tape import Packet, Tape, capture, receipt, send, simple, talk

PROXY_V1 = b"PROXY TCP4 203.0.113.9 10.0.0.2 5000 6650\r\n"
PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([203, 0, 113, 9, 10, 0, 0, 2, 1, 2, 3, 4])
BIG_BYTES = 5_000_000
SENDS = 12


def opened(**fields: object) -> Tape:
    """A tape whose connection is open and has a producer."""
    tape = Tape(**fields)  # type: ignore[arg-type]
    tape.open()
    tape.connect()
    return tape


def recorded(seed: int, sends: int = 20, size: int = 100) -> bytes:
    """What another client sent to its broker: whole frames."""
    return bytes(talk(sends, seed, (size,)).sent[0])


def data_packets(tape: Tape, to_broker: bool = True) -> list[Packet]:
    """The packets of a direction that carry bytes."""
    return [each for each in tape.packets if each.payload and each.to_broker == to_broker]


def without(tape: Tape, *lost: Packet) -> Tape:
    """The tape's packets but for some."""
    tape.packets = [each for each in tape.packets if each not in lost]
    return tape


def one_send_lost() -> Tape:
    """The packet of the fifth of some sends was not captured; its receipt was."""
    tape = opened()
    for number in range(SENDS):
        tape.publish(number, bytes([number]) * 300)
    tape.close()
    return without(tape, data_packets(tape)[2 + 4])


@case("B32")
def lost_and_acknowledged() -> bytes:
    """One SEND was never captured; the broker acknowledged and answered it."""
    return capture(one_send_lost().records())


def leading_gap() -> Tape:
    """CONNECT and PRODUCER were not captured, the SYN was."""
    tape = one_send_lost()
    return without(tape, *data_packets(tape)[:2])


@case("B35")
def gap_at_the_start() -> bytes:
    """Nothing of the first two frames after the SYN."""
    return capture(leading_gap().records())


def trailing_gap() -> Tape:
    """The last four sends were not captured, their receipts and the FIN were."""
    tape = one_send_lost()
    return without(tape, *data_packets(tape)[-4:])


@case("B35")
def gap_at_the_end() -> bytes:
    """Nothing of the last four frames before the FIN."""
    return capture(trailing_gap().records())


def wide_gap() -> Tape:
    """Six sends in a row, most of them whole, in one hole that ends inside a frame."""
    tape = opened()
    for number in range(SENDS):
        tape.publish(number, bytes([number]) * 3000)
    tape.close()
    return without(tape, *data_packets(tape)[2 + 4 : 2 + 20])


@case("B35")
def gap_over_many_frames() -> bytes:
    """A hole from the middle of a frame to the middle of one six frames later."""
    return capture(wide_gap().records())


def holed_giant(lost: range) -> Tape:
    """A message of 5 MB whose packets of these places were not captured, and one behind it."""
    tape = opened(mss=32_000)
    tape.publish(0, random.Random(1).randbytes(BIG_BYTES))
    tape.publish(1, b"behind")
    tape.close()
    packets = data_packets(tape)
    return without(tape, *[packets[2 + place] for place in lost])


@case("B36")
def holes_in_a_frame_of_5_mb() -> bytes:
    """Every ninth packet of a message of 5 MB is missing."""
    return capture(holed_giant(range(3, 150, 9)).records())


@case("B36")
def most_of_a_frame_of_5_mb() -> bytes:
    """Of a message of 5 MB only the first packet and the last two."""
    return capture(holed_giant(range(1, 155)).records())


def midstream(payload: bytes) -> Tape:
    """The capture begins inside a frame with this payload; ten sends follow."""
    tape = opened()
    tape.frame(True, send(0, payload))
    long = [place for place, each in enumerate(tape.packets) if len(each.payload) == tape.mss]
    for number in range(1, 11):
        tape.publish(number, bytes([number]) * (100 + number))
    tape.close()
    tape.packets = tape.packets[long[1] :]
    return tape


@case("B49")
def begins_inside_a_frame() -> bytes:
    """The first packet lies in the middle of a payload of random bytes."""
    return capture(midstream(random.Random(2).randbytes(6000)).records())


@case("B49")
def begins_inside_a_recorded_stream() -> bytes:
    """The first packet lies in a payload that is a recorded stream, cut off inside a frame."""
    return capture(midstream(recorded(3, 60)[:-37]).records())


def no_syn(**fields: object) -> Tape:
    """A conversation whose handshake was not captured."""
    tape = talk(8, seed=4, **fields)  # type: ignore[arg-type]
    tape.packets = tape.packets[3:]
    return tape


@case("B50")
def client_by_command() -> bytes:
    """No SYN, and no port that tells: CONNECT does."""
    return capture(no_syn(broker=("10.0.0.2", 16_999)).records())


def pings(broker_port: int) -> Tape:
    """No SYN, and only frames that either side may send; the broker speaks first."""
    tape = Tape(broker=("10.0.0.2", broker_port))
    for _ in range(5):
        tape.frame(False, simple("PING"))
        tape.frame(True, simple("PONG"))
    return tape


@case("B50")
def client_by_port() -> bytes:
    """Only PING and PONG: port 6650 tells."""
    return capture(pings(6650).records())


@case("B50")
def client_by_first_packet() -> bytes:
    """Only PING and PONG, and no known port: whoever is seen first."""
    return capture(pings(16_999).records())


def flipped() -> Tape:
    """The side that sends the SYN talks like a broker."""
    tape = Tape(client=("10.0.0.1", 6650), broker=("10.0.0.2", 40_000))
    tape.open()
    tape.frame(False, simple("CONNECT", client_version="c", protocol_version=21))
    tape.frame(True, simple("CONNECTED", server_version="s", protocol_version=21))
    tape.close()
    return tape


@case("B50")
def opener_is_the_broker() -> bytes:
    """The commands contradict the SYN."""
    return capture(flipped().records())


def one_way(to_broker: bool) -> Tape:
    """Only one direction was captured."""
    tape = talk(8, seed=5)
    tape.packets = [each for each in tape.packets if each.to_broker == to_broker]
    return tape


@case("B52")
def only_to_the_broker() -> bytes:
    """Nothing of what the broker sent."""
    return capture(one_way(True).records())


@case("B52")
def only_to_the_client() -> bytes:
    """Nothing of what the client sent."""
    return capture(one_way(False).records())


def answers() -> Tape:
    """Receipt 1 is lost, receipt 2 comes twice, receipt 3 comes late, send 4 is never answered."""
    tape = opened()
    for number in range(5):
        tape.frame(True, send(number, b"x" * 50))
        if number in (0, 1, 2):
            tape.frame(False, receipt(number))
        if number == 2:
            tape.frame(False, receipt(2))
    tape.now += 3_000_000_000
    tape.frame(False, receipt(3))
    tape.frame(True, simple("PING"))
    tape.frame(False, simple("PONG"))
    tape.close()
    return without(tape, data_packets(tape, False)[2 + 1])


@case("B53")
def answers_lost_late_and_double() -> bytes:
    """Each way in which an answer may fail to come."""
    return capture(answers().records())


@case("B53")
def ids_again_after_a_reconnect() -> bytes:
    """The same producer and sequence ids on a second connection; the first ends unanswered."""
    first, second = (
        opened(),
        opened(client=("10.0.0.1", 40_123), start_ns=1_700_000_100_000_000_000),
    )
    first.frame(True, send(0, b"again"))
    first.close()
    second.publish(0, b"again")
    second.close()
    return capture(first.records() + second.records())


def hello(name: bytes, protocols: tuple[bytes, ...] = ()) -> bytes:
    """A TLS ClientHello that asks for a server, and offers application protocols."""
    listed = b"".join(bytes([len(each)]) + each for each in protocols)
    extensions = [(0, struct.pack(">HBH", len(name) + 3, 0, len(name)) + name)]
    if protocols:
        extensions.append((16, struct.pack(">H", len(listed)) + listed))
    said = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions)
    body = (
        b"\3\3"
        + bytes(32)
        + b"\0"
        + b"\0\2\xc0\x2f"
        + b"\1\0"
        + struct.pack(">H", len(said))
        + said
    )
    handshake = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\3\1" + struct.pack(">H", len(handshake)) + handshake


def tls() -> Tape:
    """Pulsar inside TLS: nothing to decode; a record holds what looks like frames."""
    tape = Tape(broker=("10.0.0.2", 6651))
    tape.open()
    tape.say(True, hello(b"broker.example", (b"pulsar", b"h2")))
    tape.say(False, b"\x16\3\3\0\x50" + bytes(80))
    for number in range(20):
        inside = send(number, bytes(200))
        tape.say(True, b"\x17\3\3" + struct.pack(">H", len(inside)) + inside)
        tape.say(False, b"\x17\3\3\0\x30" + bytes([number]) * 48)
    tape.close()
    return tape


@case("B57")
def inside_tls() -> bytes:
    """A ClientHello with a name, and records both ways."""
    return capture(tls().records())


@case("B57")
def inside_tls_from_the_middle() -> bytes:
    """Records without their handshake."""
    tape = tls()
    tape.packets = tape.packets[8:]
    return capture(tape.records())


def other(*said: tuple[bool, bytes]) -> Tape:
    """A connection to port 6650 on which something is said."""
    tape = Tape()
    tape.open()
    for to_broker, data in said:
        tape.say(to_broker, data)
    tape.close()
    return tape


@case("B58")
def http_on_the_port() -> bytes:
    """A probe asks for a page."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n"
    return capture(other((True, asked), (False, b"HTTP/1.1 400 Bad Request\r\n\r\n")).records())


@case("B58")
def health_check() -> bytes:
    """A load balancer opens and closes."""
    return capture(other().records())


@case("B58")
def garbage_on_the_port() -> bytes:
    """Random bytes both ways, 400 KB."""
    chance = random.Random(6)
    said = [(number % 2 == 0, chance.randbytes(20_000)) for number in range(20)]
    return capture(other(*said).records())


def proxied(header: bytes) -> Tape:
    """A conversation behind a PROXY header."""
    tape = Tape()
    tape.open()
    tape.say(True, header)
    tape.connect()
    tape.publish(0, b"x")
    tape.close()
    return tape


@case("B58")
def proxy_v1_header() -> bytes:
    """The text form."""
    return capture(proxied(PROXY_V1).records())


@case("B58")
def proxy_v2_header() -> bytes:
    """The binary form."""
    return capture(proxied(PROXY_V2).records())


ODD_LENGTHS = {
    "frame of no bytes": b"\0\0\0\0",
    "command longer than its frame": struct.pack(">II", 20, 21) + b"\x08\x06" + bytes(14),
    "command of no bytes": struct.pack(">II", 20, 0) + bytes(16),
    "frame over the limit": struct.pack(">II", 6_000_000, 20) + b"\x08\x06\x32" + bytes(20),
    "frame of 2 GiB": struct.pack(">II", 0x7FFF_FFFF, 20) + b"\x08\x06\x32" + bytes(20),
    "frame of 4 GiB": struct.pack(">II", 0xFFFF_FFFF, 0xFFFF_FFFF) + b"\x08\x06\x32" + bytes(20),
    "varint without end": struct.pack(">II", 20, 16) + b"\x08" + b"\xff" * 15,
}


def odd_length(name: str) -> Tape:
    """Sends, then a header that cannot be one, then sends."""
    tape = opened()
    for number in range(3):
        tape.publish(number, bytes(20 + number))
    tape.say(True, ODD_LENGTHS[name])
    for number in range(3, 8):
        tape.publish(number, bytes(20 + number))
    tape.close()
    return tape


@case("B60")
def lengths_that_cannot_be() -> bytes:
    """A connection for each odd header."""
    records = []
    for number, name in enumerate(ODD_LENGTHS):
        tape = odd_length(name)
        tape.client = ("10.0.0.1", 41_000 + number)
        records += tape.records()
    return capture(sorted(records, key=lambda each: each.ts_ns))


@case("B60")
def body_longer_than_its_command() -> bytes:
    """A SEND whose body says that it is longer than the command."""
    tape = opened()
    tape.publish(0, b"good")
    bad = bytearray(send(1, b"bad"))
    bad[11] = 0x7F
    tape.frame(True, bytes(bad))
    tape.publish(2, b"good")
    tape.close()
    return capture(tape.records())
