"""Captures of clients and brokers that fail at their connections, and harmless twins, made frame
by frame with the TCP packets around them.

Times are seconds from the capture's start, which itself is at `START_S`.
"""

from typing import Any

from tests.wire import cursus, pulsar
from tests.wire.captures import Record, pcap
from tests.wire.packets import ACK, BROKER, CLIENT, FIN, RST, SYN, ethernet, ipv4, tcp

START_S = 1_700_000_000
TOPIC = "persistent://public/default/t"
PING = pulsar.simple(pulsar.command("PING"))
PONG = pulsar.simple(pulsar.command("PONG"))
RTT_S = 0.001


class Tape:
    """Packets of several connections."""

    def __init__(self) -> None:
        self.packets: list[tuple[float, bytes]] = []

    def link(self, at: float, port: int, **ends: Any) -> "Link":
        """A connection that opens at this time."""
        return Link(self, at, port, **ends)

    def pulsar(self, at: float, port: int, **more: Any) -> "Link":
        """A connection of Pulsar with its handshake."""
        link = self.link(at, port, **{name: more.pop(name) for name in _ENDS if name in more})
        link.say(
            at + 0.003, "CONNECT", **{"client_version": "Made-1", "protocol_version": 21} | more
        )
        link.hear(at + 0.004, "CONNECTED", server_version="Broker-1", protocol_version=21)
        return link

    def capture(self) -> bytes:
        """The file."""
        packets = sorted(self.packets, key=lambda each: each[0])
        return pcap(Record(START_S * 10**9 + round(at * 10**9), data) for at, data in packets)


_ENDS = ("client", "broker", "broker_port")


class Link:
    """A TCP connection; what a side sends is acknowledged by what the other side sends next."""

    def __init__(
        self, tape: Tape, at: float, port: int, client: str = CLIENT, broker: str = BROKER,
        broker_port: int = 6650,
    ) -> None:  # fmt: skip
        self._tape = tape
        self._ends = ((client, port), (broker, broker_port))
        self._next = [1000, 5000]
        self._packet(at, 0, SYN)
        self._next[0] += 1
        self._packet(at + RTT_S, 1, SYN | ACK)
        self._next[1] += 1
        self._packet(at + 2 * RTT_S, 0, ACK)

    def _packet(self, at: float, side: int, flags: int, payload: bytes = b"") -> None:
        (source, source_port), (destination, destination_port) = (
            self._ends if side == 0 else self._ends[::-1]
        )
        segment = tcp(
            payload, source_port=source_port, destination_port=destination_port,
            sequence=self._next[side], flags=flags, addresses=(source, destination),
            acknowledgement=self._next[1 - side] if flags & ACK else 0,
        )  # fmt: skip
        number = len(self._tape.packets) + 1
        data = ethernet(
            ipv4(segment, source=source, destination=destination, identification=number & 0xFFFF)
        )
        self._tape.packets.append((at, data))

    def send(self, at: float, side: int, data: bytes, *, again: int = 0) -> None:
        """Bytes of a side (0 the client), sent again so often, a second apart."""
        for time in range(again + 1):
            self._packet(at + time, side, ACK, data)
        self._next[side] += len(data)

    def say(self, at: float, name: str, **fields: Any) -> None:
        """A command of the client."""
        self.send(at, 0, pulsar.simple(pulsar.command(name, **fields)))

    def hear(self, at: float, name: str, **fields: Any) -> None:
        """A command of the broker."""
        self.send(at, 1, pulsar.simple(pulsar.command(name, **fields)))

    def acknowledge(self, at: float, side: int) -> None:
        """A side says that it has everything."""
        self._packet(at, side, ACK)

    def fin(self, at: float, first: int = 0) -> None:
        """A side closes, and the other one, too."""
        for step, side in enumerate((first, 1 - first)):
            self._packet(at + step * RTT_S, side, FIN | ACK)
            self._next[side] += 1

    def reset(self, at: float, side: int = 0) -> None:
        """A side resets it."""
        self._packet(at, side, RST | ACK)

    # -- what often comes

    def produce(
        self,
        at: float,
        request: int,
        topic: str = TOPIC,
        name: str = "p",
        answer_s: float | None = 0.002,
        **more: Any,
    ) -> None:
        """A producer is opened; its number is that of the request."""
        self.say(
            at,
            "PRODUCER",
            topic=topic,
            producer_id=request,
            request_id=request,
            producer_name=name,
            **more,
        )
        if answer_s is not None:
            self.hear(
                at + answer_s, "PRODUCER_SUCCESS", request_id=request, producer_name=name,
                last_sequence_id=-1, producer_ready=True,
            )  # fmt: skip

    def subscribe(
        self, at: float, request: int, topic: str = TOPIC, name: str = "c", kind: str = "Shared",
        permits: int = 1000, answer_s: float | None = 0.002, **more: Any,
    ) -> None:  # fmt: skip
        """A consumer is opened, and asks for messages; its number is that of the request."""
        self.say(
            at, "SUBSCRIBE", topic=topic, subscription="s", subType=kind, consumer_id=request,
            request_id=request, consumer_name=name, **more,
        )  # fmt: skip
        if answer_s is not None:
            self.hear(at + answer_s, "SUCCESS", request_id=request)
            if permits:
                self.say(at + answer_s + 0.001, "FLOW", consumer_id=request, messagePermits=permits)

    def publish(
        self, at: float, producer: int, sequence: int, entry: int | None, clock_s: float = 0.0,
        name: str = "p", answer_s: float = 0.002, **metadata: Any,
    ) -> None:  # fmt: skip
        """A SEND, stored as this entry of ledger 7; clock_s: its client is ahead."""
        fields = {
            "producer_name": name,
            "sequence_id": sequence,
            "publish_time": millis(at + clock_s),
        }
        self.send(
            at, 0,
            pulsar.send(
                b"x", metadata_fields=fields | metadata, producer_id=producer, sequence_id=sequence
            ),
        )  # fmt: skip
        if entry is not None:
            self.hear(
                at + answer_s, "SEND_RECEIPT", producer_id=producer, sequence_id=sequence,
                message_id={"ledgerId": 7, "entryId": entry},
            )  # fmt: skip

    def message(
        self,
        at: float,
        consumer: int,
        entry: int,
        again: int = 0,
        name: str = "p",
        clock_s: float = 0.0,
        **metadata: Any,
    ) -> None:
        """A MESSAGE of ledger 7."""
        fields = {"producer_name": name, "sequence_id": entry, "publish_time": millis(at + clock_s)}
        head = pulsar.command(
            "MESSAGE", consumer_id=consumer, redelivery_count=again,
            message_id={"ledgerId": 7, "entryId": entry},
        )  # fmt: skip
        self.send(at, 1, pulsar.entry(head, pulsar.metadata(**(fields | metadata)), b"x"))

    def ack(self, at: float, consumer: int, *entries: int) -> None:
        """Entries of ledger 7 are acknowledged."""
        ids = [{"ledgerId": 7, "entryId": entry} for entry in entries]
        self.say(at, "ACK", consumer_id=consumer, ack_type="Individual", message_id=ids)

    def ping(self, at: float, side: int = 0, answer_s: float | None = 0.001) -> None:
        """A PING of a side, and its PONG if it is answered."""
        self.send(at, side, PING)
        if answer_s is not None:
            self.send(at + answer_s, 1 - side, PONG)


def millis(at: float) -> int:
    """A time of the capture in ms since 1970."""
    return round((START_S + at) * 1000)


# -- what the client speaks is not what the port does (D18)

HELLO = (
    bytes.fromhex("16030100360100003203 03".replace(" ", ""))
    + bytes(range(32))
    + bytes.fromhex("000002c02f01000007000500050100000000"[:38])
)
ALERT = bytes.fromhex("15030300020228")  # fatal, handshake_failure


def tls_on_plain_port() -> bytes:
    """TLS and HTTP to a port where another client speaks Pulsar; the broker resets."""
    tape = Tape()
    good = tape.pulsar(0.0, 40000)
    good.produce(0.1, 1)
    for time, (port, first) in enumerate(
        [
            (40001, HELLO),
            (40002, HELLO),
            (40003, b"GET /admin/v2/clusters HTTP/1.1\r\nHost: b\r\n\r\n"),
        ]
    ):
        link = tape.link(1.0 + time, port, client="10.0.0.9")
        link.send(1.01 + time, 0, first)
        link.reset(1.02 + time, 1)
    return tape.capture()


def plain_on_tls_port() -> bytes:
    """CONNECT in clear to a port of TLS, and to one that answers with an alert."""
    tape = Tape()
    good = tape.link(0.0, 40000, broker_port=6651)
    good.send(0.01, 0, HELLO)
    good.send(0.02, 1, bytes.fromhex("160303007a0200007603 03".replace(" ", "")) + bytes(120))
    for port, broker_port, answer in ((40001, 6651, b""), (40002, 6652, ALERT)):
        link = tape.link(1.0, port, client="10.0.0.9", broker_port=broker_port)
        link.say(1.01, "CONNECT", client_version="Made-1", protocol_version=21)
        if answer:
            link.send(1.015, 1, answer)
        link.fin(1.02, 1)
    return tape.capture()


def tls_refused() -> bytes:
    """A broker that answers the hello of TLS with an alert."""
    tape = Tape()
    for port in (40001, 40002):
        link = tape.link(1.0, port, broker_port=6651)
        link.send(1.01, 0, HELLO)
        link.send(1.02, 1, ALERT)
        link.fin(1.03, 1)
    return tape.capture()


def tls_and_plain() -> bytes:
    """The harmless twin: each protocol on its port, both answered, the broker closes first."""
    tape = Tape()
    plain = tape.pulsar(0.0, 40000)
    plain.fin(2.0, 1)
    secret = tape.link(0.0, 40001, broker_port=6651)
    secret.send(0.01, 0, HELLO)
    secret.send(0.02, 1, bytes.fromhex("160303007a0200007603 03".replace(" ", "")) + bytes(120))
    secret.fin(2.0, 1)
    return tape.capture()


def tls_on_default_port() -> bytes:
    """TLS to port 6650, and nothing tells what that port speaks."""
    tape = Tape()
    link = tape.link(0.0, 40001)
    link.send(0.01, 0, HELLO)
    link.fin(0.02, 1)
    return tape.capture()


# -- PINGs without a PONG (D20)


def stopped_broker() -> bytes:
    """A broker answers two PINGs, then is stopped; its client gives up."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    link.ping(30.0)
    link.ping(60.0, answer_s=0.004)
    link.ping(90.0, answer_s=None)
    link.fin(120.0, 0)
    return tape.capture()


def client_without_pongs() -> bytes:
    """A client that sends PINGs and never answers; the broker closes."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.ping(30.0, 1, answer_s=None)
    link.ping(35.0)
    link.fin(60.0, 1)
    return tape.capture()


def vanished_client() -> bytes:
    """A client's host is gone: the broker's PING is sent again, and nothing comes."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.send(30.0, 1, PING, again=3)
    link.fin(60.0, 1)
    return tape.capture()


def closed_in_a_ping() -> bytes:
    """The harmless twin: an application closes just when a PING is under way."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1)
    link.ping(30.0)
    link.ping(60.0, answer_s=None)
    link.fin(60.01, 0)
    other = tape.pulsar(0.0, 40001)
    other.ping(30.0, answer_s=20.0)
    other.fin(90.0, 0)
    return tape.capture()


# -- topics that move (D24)


def _moves(count: int) -> bytes:
    """A topic that is closed so often, 100 s apart, and opened again half a second later."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    link.publish(0.2, 1, 0, 0)
    for move in range(count):
        at = 100.0 * (move + 1)
        link.publish(at - 0.001, 1, 2 * move + 1, None, publish_time=move)
        link.hear(at, "CLOSE_PRODUCER", producer_id=1, request_id=-1)
        link.produce(at + 0.5, 1)
        link.publish(at + 0.6, 1, 2 * move + 1, 2 * move + 1, publish_time=move)
        link.publish(at + 0.7, 1, 2 * move + 2, 2 * move + 2)
    return tape.capture()


def moved_often() -> bytes:
    """Four moves in five minutes."""
    return _moves(4)


def moved_twice() -> bytes:
    """The harmless twin: a restart of two brokers."""
    return _moves(2)


# -- topics that cannot be opened (D23)


def fenced_topic() -> bytes:
    """Refused five times over 31 s, then opened."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    for turn, at in enumerate((1.0, 2.0, 4.0, 8.0, 32.0)):
        link.produce(at, turn + 1, answer_s=None)
        link.hear(
            at + 0.002, "ERROR", request_id=turn + 1, error="ServiceNotReady",
            message="Topic is temporarily unavailable",
        )  # fmt: skip
    link.produce(50.0, 9)
    return tape.capture()


def silent_opens() -> bytes:
    """A PRODUCER that is never answered, a SUBSCRIBE that is after 40 s, while PONGs come."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(1.0, 1, answer_s=None)
    link.subscribe(1.0, 2, permits=0, answer_s=40.0, topic=TOPIC + "2")
    link.ping(30.0)
    link.ping(60.0)
    return tape.capture()


def slow_opens() -> bytes:
    """The harmless twin: refused twice, opened late and used, waiting for an exclusive place."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    for turn, at in enumerate((1.0, 20.0)):
        link.produce(at, turn + 1, answer_s=None)
        link.hear(
            at + 0.002, "ERROR", request_id=turn + 1, error="ServiceNotReady", message="moving"
        )
    link.subscribe(20.0, 3, answer_s=35.0)
    link.produce(21.0, 4, answer_s=None, topic=TOPIC + "2", producer_access_mode="WaitForExclusive")
    for at in (30.0, 60.0, 90.0):
        link.ping(at)
    return tape.capture()


# -- CONNECT without an answer (D28)


def _connects(wait_s: float | None, count: int) -> bytes:
    """So many connections whose CONNECT is not answered; the client closes after a while."""
    tape = Tape()
    tape.pulsar(0.0, 40000).ping(80.0)
    for turn in range(count):
        at = 1.0 + 15.0 * turn
        link = tape.link(at, 40001 + turn, client="10.0.0.9")
        link.say(at + 0.01, "CONNECT", client_version="Made-1", protocol_version=21)
        link.acknowledge(at + 0.011, 1)
        if wait_s is not None:
            link.fin(at + 0.01 + wait_s, 0)
    return tape.capture()


def connects_that_time_out() -> bytes:
    """Four connections, each given up after ten seconds."""
    return _connects(10.0, 4)


def connects_that_wait() -> bytes:
    """Two connections that wait until the capture ends."""
    return _connects(None, 2)


def connects_given_up() -> bytes:
    """Two connections, each given up after 6 s."""
    return _connects(6.0, 2)


def connects_closed_at_once() -> bytes:
    """The harmless twin: a broker that stops; clients close within a second and go elsewhere."""
    return _connects(1.0, 4)


# -- credentials (D26)

_TOKEN = {"auth_method_name": "token", "auth_data": b"secret"}


def expired_connections() -> bytes:
    """A client without refresh: the broker closes each of three connections after two minutes."""
    tape = Tape()
    for turn in range(3):
        at = 150.0 * turn
        link = tape.pulsar(at, 40000 + turn, **_TOKEN)
        link.produce(at + 0.1, 1)
        link.fin(at + 120.0 + 5 * turn, 1)
    return tape.capture()


def endless_challenges() -> bytes:
    """Four challenges in 30 s, all answered; another client's credentials are refused."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000, feature_flags={"supports_auth_refresh": True}, **_TOKEN)
    for turn in range(4):
        link.hear(10.0 + 10.0 * turn, "AUTH_CHALLENGE", protocol_version=21)
        link.say(10.01 + 10.0 * turn, "AUTH_RESPONSE", protocol_version=21)
    link.ping(70.0)
    other = tape.link(1.0, 40001, client="10.0.0.9")
    other.say(1.01, "CONNECT", client_version="Made-1", protocol_version=21, **_TOKEN)
    other.hear(
        1.02, "ERROR", request_id=-1, error="AuthenticationError", message="JWT expired at noon"
    )
    other.fin(1.03, 1)
    return tape.capture()


def brokers_restarted() -> bytes:
    """The harmless twin: two connections of equal age, closed together; two challenges a minute."""
    tape = Tape()
    for turn in range(2):
        tape.pulsar(0.0, 40000 + turn, **_TOKEN).fin(600.0, 1)
    link = tape.pulsar(0.0, 40009, feature_flags={"supports_auth_refresh": True}, **_TOKEN)
    for turn in range(2):
        link.hear(60.0 + 60.0 * turn, "AUTH_CHALLENGE", protocol_version=21)
        link.say(60.01 + 60.0 * turn, "AUTH_RESPONSE", protocol_version=21)
    return tape.capture()


def unanswered_challenge() -> bytes:
    """A client goes on working and does not answer a challenge; the broker closes."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000, **_TOKEN)
    link.produce(0.1, 1)
    link.hear(60.0, "AUTH_CHALLENGE", protocol_version=21)
    link.publish(61.0, 1, 0, 0)
    link.fin(120.0, 1)
    return tape.capture()


# -- lookups (D22)


def _looked_up(redirects: int) -> bytes:
    """A lookup that is redirected so often, then answered."""
    tape = Tape()
    links = [tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001, broker="10.0.0.3")]
    for turn in range(redirects + 1):
        link, at = links[turn % 2], 1.0 + 0.1 * turn
        link.say(at, "LOOKUP", topic=TOPIC, request_id=turn + 1, authoritative=0 < turn < redirects)
        link.hear(
            at + 0.01, "LOOKUP_RESPONSE", request_id=turn + 1, authoritative=True,
            response="Redirect" if turn < redirects else "Connect",
            brokerServiceUrl=f"pulsar://10.0.0.{2 + (turn + 1) % 2}:6650",
        )  # fmt: skip
    return tape.capture()


def lookups_redirected() -> bytes:
    """Six redirects in a row between two brokers."""
    return _looked_up(6)


def lookups_found() -> bytes:
    """The harmless twin: two redirects, then the owner."""
    return _looked_up(2)


def lookups_slow() -> bytes:
    """Four of twenty lookups take 2 s, one is refused."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    for turn in range(20):
        at = 1.0 + 3.0 * turn
        link.say(at, "PARTITIONED_METADATA", topic=TOPIC, request_id=turn + 1)
        more = {"response": "Success", "partitions": 0}
        if turn == 19:
            more = {"response": "Failed", "error": "TooManyRequests", "message": "too many"}
        link.hear(
            at + (2.0 if turn < 4 else 0.01), "PARTITIONED_METADATA_RESPONSE", request_id=turn + 1,
            **more,
        )  # fmt: skip
    return tape.capture()


# -- opened too often (D25)


def _opened(count: int, sends: int) -> bytes:
    """So many producers one after the other, each with so many sends, and as many readers."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    entry = 0
    for turn in range(count):
        at, number = 1.0 + turn, 2 * turn + 1
        link.produce(at, number, name=f"p{turn}")
        for each in range(sends):
            link.publish(at + 0.1 + 0.01 * each, number, each, entry, name=f"p{turn}")
            entry += 1
        link.say(at + 0.4, "CLOSE_PRODUCER", producer_id=number, request_id=10_000 + number)
        link.hear(at + 0.401, "SUCCESS", request_id=10_000 + number)
        link.subscribe(at + 0.5, number + 1, name=f"r{turn}", kind="Exclusive", durable=False)
        for each in range(sends):
            link.message(at + 0.6 + 0.01 * each, number + 1, entry - sends + each)
        link.say(at + 0.8, "CLOSE_CONSUMER", consumer_id=number + 1, request_id=20_000 + number)
        link.hear(at + 0.801, "SUCCESS", request_id=20_000 + number)
    return tape.capture()


def opened_per_message() -> bytes:
    """Thirty producers and readers in half a minute, a message each."""
    return _opened(30, 1)


def opened_for_ten() -> bytes:
    """The harmless twin: thirty producers and readers, ten messages each."""
    return _opened(30, 10)


def _asked(polls: int) -> bytes:
    """A reader with 40 messages that asks so often for the last id, and for a schema."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1, kind="Exclusive")
    for turn in range(polls):
        at, number = 1.0 + 0.1 * turn, 100 + 2 * turn
        link.say(at, "GET_LAST_MESSAGE_ID", consumer_id=1, request_id=number)
        link.hear(
            at + 0.01, "GET_LAST_MESSAGE_ID_RESPONSE", request_id=number,
            last_message_id={"ledgerId": 7, "entryId": 40},
        )  # fmt: skip
        link.say(at + 0.02, "GET_SCHEMA", topic=TOPIC, request_id=number + 1)
        link.hear(
            at + 0.03, "GET_SCHEMA_RESPONSE", request_id=number + 1,
            schema={"name": "s", "schema_data": b"", "type": "String"},
        )  # fmt: skip
    for entry in range(40):
        link.message(20.0 + 0.01 * entry, 1, entry)
    return tape.capture()


def asked_per_message() -> bytes:
    """As many questions as messages."""
    return _asked(40)


def asked_seldom() -> bytes:
    """The harmless twin: three questions."""
    return _asked(3)


def connections_grow() -> bytes:
    """A connection every 5 s, none of which ends."""
    tape = Tape()
    for turn in range(20):
        tape.pulsar(5.0 * turn, 40000 + turn)
    return tape.capture()


# -- delays (D29)


def _delays(
    kind: str, waits: tuple[float, ...], clock_s: float = 0.0, delay_s: float = 10.0
) -> bytes:  # fmt: skip
    """Messages with a delay; waits: how long after its SEND each is delivered."""
    tape = Tape()
    sender, taker = tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001)
    sender.produce(0.1, 1)
    taker.subscribe(0.1, 1, kind=kind)
    for entry, wait in enumerate(waits):
        at = 1.0 + 0.1 * entry
        due = millis(at + clock_s + delay_s)
        sender.publish(at, 1, entry, entry, clock_s=clock_s, deliver_at_time=due)
        taker.message(at + wait, 1, entry, clock_s=clock_s - wait, deliver_at_time=due)
    sender.ping(80.0)
    taker.ping(80.0)
    return tape.capture()


def delay_on_exclusive() -> bytes:
    """An exclusive subscription gets messages at once."""
    return _delays("Exclusive", (0.01, 0.01))


def delay_cut_short() -> bytes:
    """A shared subscription gets messages 4 and 5 s too early, and clocks agree."""
    return _delays("Shared", (10.0, 6.0, 5.0))


def delay_by_a_slow_clock() -> bytes:
    """The producer's clock is 8 s behind: what should wait ten seconds waits two."""
    return _delays("Shared", (2.0, 2.1), clock_s=-8.0)


def delay_overdue() -> bytes:
    """Messages come 20 s behind their time to a consumer with permits."""
    return _delays("Shared", (30.0, 30.1))


def delay_kept() -> bytes:
    """The harmless twin: a tick early, a tick late."""
    return _delays("Shared", (9.1, 10.0, 11.5))


# -- clocks (D30)


def _clocks(*clocks: float) -> bytes:
    """Clients that send thirty messages each; how far the clock of each is ahead."""
    tape = Tape()
    for turn, clock_s in enumerate(clocks):
        link = tape.pulsar(0.0, 40000, client=f"10.0.0.{10 + turn}")
        link.produce(0.1, 1, name=f"p{turn}")
        for each in range(30):
            link.publish(1.0 + 0.1 * each, 1, each, 100 * turn + each, clock_s=clock_s - 0.01)
    return tape.capture()


def clocks_that_differ() -> bytes:
    """One clock is 5 s ahead, one 90 s behind, one right."""
    return _clocks(5.0, -90.0, 0.0)


def clocks_that_agree() -> bytes:
    """The harmless twin: clocks within half a second, and sends that waited for each other."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.produce(0.1, 1)
    for each in range(30):
        link.publish(1.0 + 0.1 * each, 1, each, each, clock_s=0.5 - 0.1 * each)
    return tape.capture()


# -- order (D31)


def _ordered(
    kind: str, deliveries: list[tuple[int, int, str, int]], acks: tuple[int, ...]
) -> bytes:  # fmt: skip
    """(consumer, entry, key, redelivery count) in order; two consumers on two connections."""
    tape = Tape()
    links = [tape.pulsar(0.0, 40000), tape.pulsar(0.0, 40001, client="10.0.0.9")]
    for turn in range(2 if kind == "Key_Shared" else 1):
        links[turn].subscribe(0.1 + turn, turn + 1, kind=kind, name=f"c{turn}")
    for turn, (consumer, entry, key, again) in enumerate(deliveries):
        at = 2.0 + 0.5 * turn
        links[consumer].message(at, consumer + 1, entry, again=again, partition_key=key)
        if entry in acks:
            links[consumer].ack(at + 0.1, consumer + 1, entry)
    for link in links:
        link.ping(60.0)
    return tape.capture()


def order_lost() -> bytes:
    """An exclusive consumer gets entry 5 behind 6, both for the first time."""
    entries = [(0, 4, "a", 0), (0, 6, "a", 0), (0, 5, "a", 0), (0, 7, "a", 0)]
    return _ordered("Exclusive", entries, (4, 5, 6, 7))


def order_of_keys_lost() -> bytes:
    """Key_Shared: entry 5 of key a behind 6; and key b at a second consumer while 8 is out."""
    entries = [(0, 4, "b", 0), (0, 6, "a", 0), (0, 5, "a", 0), (0, 8, "b", 0), (1, 9, "b", 0)]
    return _ordered("Key_Shared", entries, (4, 5, 6, 9))


def order_kept() -> bytes:
    """The harmless twin: two keys change places, one moves when all is acknowledged."""
    entries = [(0, 6, "a", 0), (0, 5, "b", 0), (0, 8, "b", 0), (1, 9, "b", 0), (1, 10, "a", 0)]
    return _ordered("Key_Shared", entries, (5, 6, 8, 9))


def order_given_up() -> bytes:
    """Entries come again since their consumer asked for one; a single consumer gets no counts."""
    tape = Tape()
    link = tape.pulsar(0.0, 40000)
    link.subscribe(0.1, 1, kind="Failover")
    for entry in range(4):
        link.message(1.0 + 0.1 * entry, 1, entry, publish_time=entry)
    link.say(
        2.0, "REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1,
        message_ids=[{"ledgerId": 7, "entryId": 1}],
    )  # fmt: skip
    for entry in range(4):
        link.message(3.0 + 0.1 * entry, 1, entry, publish_time=entry)
    return tape.capture()


# -- names that are taken (D21)


def _refused(
    link: Link, request: int, seconds: float, topic: str = TOPIC, text: str = "taken"
) -> None:
    """A producer is refused six times over so many seconds."""
    for turn in range(6):
        at = 50.0 + seconds * turn / 5
        link.produce(at, request + turn, answer_s=None, name="own", topic=topic)
        link.hear(
            at + 0.002, "ERROR", request_id=request + turn, error="ProducerBusy", message=text
        )


def _held(seconds: float) -> bytes:
    """The name `own` of five topics, refused for so long; holders of each kind."""
    tape = Tape()
    silent = tape.pulsar(0.0, 40000)
    silent.produce(0.1, 1, name="own")
    alive = tape.pulsar(0.0, 40001)
    alive.produce(0.1, 1, name="own", topic=TOPIC + "2")
    for at in (20.0, 40.0, 60.0, 80.0):
        alive.ping(at)
        silent.ping(at, 1, answer_s=None)
    _refused(tape.pulsar(45.0, 40002), 10, seconds)
    for port, client in ((40003, CLIENT), (40004, "10.0.0.9")):
        _refused(tape.pulsar(45.0, port, client=client), 10, seconds, TOPIC + "2")
    other = tape.pulsar(45.0, 40005, client="10.0.0.10")
    other.produce(46.0, 1, name="own", topic=TOPIC + "3")
    _refused(other, 10, seconds, TOPIC + "3")
    limited, lost = tape.pulsar(45.0, 40006), tape.pulsar(45.0, 40007)
    _refused(limited, 10, seconds, TOPIC + "4", "Topic reached max producers limit")
    _refused(lost, 10, seconds, TOPIC + "5")
    return tape.capture()


def kept_out() -> bytes:
    """For 25 s."""
    return _held(25.0)


def refused_once() -> bytes:
    """The harmless twin: for 2 s."""
    return _held(2.0)


# -- connections that are made again and again (D19)


def _again(pauses: list[float]) -> bytes:
    """A producer's connections: each gets a receipt late, and its client closes."""
    tape = Tape()
    at = 1.0
    for turn, pause in enumerate([0.0, *pauses]):
        at += pause
        link = tape.pulsar(at, 40000 + turn)
        link.produce(at + 0.01, 1)
        link.publish(at + 0.02, 1, 0, turn, answer_s=0.01, publish_time=7)
        link.fin(at + 0.05, 0)
    return tape.capture()


def looping_producer() -> bytes:
    """Twelve connections, half a second apart, in a capture that goes on for ten minutes."""
    return _again([0.5] * 11 + [600.0])


def backing_off() -> bytes:
    """Eight connections, each after twice the pause."""
    return _again([0.2 * 2**turn for turn in range(7)])


def connected_seldom() -> bytes:
    """The harmless twin: twelve connections, a minute apart."""
    return _again([60.0] * 11)


# -- Cursus (C05, C06)

MEMBER = "group=g member=m-1234 generation=1"


def _group(commits: int) -> bytes:
    """A member that gets a record a second for fifty, and commits the first so many."""
    tape = Tape()
    ends = {"broker_port": 9000}
    control = tape.link(0.0, 40000, **ends)
    control.send(0.1, 0, cursus.enveloped("JOIN_GROUP topic=t1 group=g member=m"))
    control.send(0.11, 1, cursus.bare("OK generation=1 member=m-1234 assignments=[0]"))
    stream = tape.link(0.2, 40001, **ends)
    stream.send(0.3, 0, cursus.enveloped(f"STREAM topic=t1 partition=0 offset=0 {MEMBER}"))
    for turn in range(50):
        at = 1.0 + turn
        stream.send(at, 1, cursus.batch(cursus.records(1, first=turn + 1, offset=turn)))
        if turn < commits:
            line = f"BATCH_COMMIT topic=t1 group=g generation=1 member=m-1234 P0:{turn + 1}"
            control.send(at + 0.1, 0, cursus.enveloped(line))
            control.send(at + 0.11, 1, cursus.bare("OK batched=1"))
        if turn % 3 == 0:
            control.send(at + 0.5, 0, cursus.enveloped(f"HEARTBEAT topic=t1 {MEMBER}"))
            control.send(at + 0.51, 1, cursus.bare("OK member=m-1234 generation=1"))
    return tape.capture()


def group_stalled() -> bytes:
    """Ten commits, then none."""
    return _group(10)


def group_at_work() -> bytes:
    """The harmless twin: a commit for each."""
    return _group(50)


def _not_leader(pause_s: float) -> bytes:
    """Eight requests that a broker refuses, as it does not lead; then one that it answers."""
    tape = Tape()
    link = tape.link(0.0, 40000, broker_port=9000)
    for turn in range(8):
        at = 1.0 + pause_s * turn
        link.send(at, 0, cursus.enveloped(f"CONSUME topic=t1 partition=0 offset=0 {MEMBER}"))
        link.send(at + 0.01, 1, cursus.bare("ERROR: NOT_LEADER LEADER_IS 10.0.0.3:9000"))
    at = 1.0 + pause_s * 8
    link.send(at, 0, cursus.enveloped(f"CONSUME topic=t1 partition=0 offset=0 {MEMBER}"))
    link.send(at + 0.01, 1, cursus.batch(cursus.records(2, offset=0)))
    return tape.capture()


def wrong_leader() -> bytes:
    """For 21 s."""
    return _not_leader(3.0)


def new_leader() -> bytes:
    """The harmless twin: for 2 s."""
    return _not_leader(0.3)
