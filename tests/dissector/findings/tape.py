"""Captures made frame by frame, with the TCP packets around them.

Times are seconds from the capture's start, which itself is at `START_S`.
"""

from typing import Any

from tests.hard import tape as hard
from tests.wire import pulsar
from tests.wire.captures import Record, pcap
from tests.wire.packets import ACK, BROKER, CLIENT, FIN, RST, SYN

START_S = 1_700_000_000
TOPIC = "persistent://public/default/t"
PING = pulsar.simple(pulsar.command("PING"))
PONG = pulsar.simple(pulsar.command("PONG"))
RTT_S = 0.001


class Tape:
    """Packets of several connections."""

    def __init__(self) -> None:
        self.packets: list[Record] = []

    def link(self, at: float, port: int, **ends: Any) -> "Link":
        """A connection that opens at this time."""
        return Link(self, at, port, **ends)

    def pulsar(self, at: float, port: int, **more: Any) -> "Link":
        """A connection of Pulsar with its handshake."""
        link = self.link(at, port, **{name: more.pop(name) for name in _ENDS if name in more})
        link.tell(
            at + 0.003, "CONNECT", **{"client_version": "Made-1", "protocol_version": 21} | more
        )
        link.hear(at + 0.004, "CONNECTED", server_version="Broker-1", protocol_version=21)
        return link

    def capture(self) -> bytes:
        """The file."""
        return pcap(sorted(self.packets, key=lambda each: each.ts_ns))


_ENDS = ("client", "broker", "broker_port")


class Link(hard.Tape):
    """A TCP connection; what a side sends is acknowledged by what the other side sends next."""

    def __init__(
        self, tape: Tape, at: float, port: int, client: str = CLIENT, broker: str = BROKER,
        broker_port: int = 6650,
    ) -> None:  # fmt: skip
        super().__init__(isn=(1000, 5000), client=(client, port), broker=(broker, broker_port))
        self._tape = tape
        self._packet(at, 0, SYN)
        self._packet(at + RTT_S, 1, SYN | ACK)
        self._packet(at + 2 * RTT_S, 0, ACK)

    def _packet(self, at: float, side: int, flags: int, payload: bytes = b"") -> None:
        self.now = START_S * 10**9 + round(at * 10**9)
        packet = self.add(side == 0, flags, payload)
        self._tape.packets.append(Record(packet.ts_ns, self.whole(packet)))

    def send(self, at: float, side: int, data: bytes, *, again: int = 0) -> None:
        """Bytes of a side (0 the client), sent again so often, a second apart."""
        first = self.next[side]
        for time in range(again + 1):
            self.next[side] = first
            self._packet(at + time, side, ACK, data)

    def tell(self, at: float, name: str, **fields: Any) -> None:
        """A command of the client."""
        self.send(at, 0, hard.simple(name, **fields))

    def hear(self, at: float, name: str, **fields: Any) -> None:
        """A command of the broker."""
        self.send(at, 1, hard.simple(name, **fields))

    def acknowledge(self, at: float, side: int) -> None:
        """A side says that it has everything."""
        self._packet(at, side, ACK)

    def fin(self, at: float, first: int = 0) -> None:
        """A side closes, and the other one, too."""
        for step, side in enumerate((first, 1 - first)):
            self._packet(at + step * RTT_S, side, FIN | ACK)

    def half_close(self, at: float, side: int) -> None:
        """A side says that it sends no more; the other side's TCP takes it."""
        self._packet(at, side, FIN | ACK)
        self._packet(at + RTT_S, 1 - side, ACK)

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
        self.tell(
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
        self.tell(
            at, "SUBSCRIBE", topic=topic, subscription="s", subType=kind, consumer_id=request,
            request_id=request, consumer_name=name, **more,
        )  # fmt: skip
        if answer_s is not None:
            self.hear(at + answer_s, "SUCCESS", request_id=request)
            if permits:
                self.tell(
                    at + answer_s + 0.001, "FLOW", consumer_id=request, messagePermits=permits
                )

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
        self.tell(at, "ACK", consumer_id=consumer, ack_type="Individual", message_id=ids)

    def ping(self, at: float, side: int = 0, answer_s: float | None = 0.001) -> None:
        """A PING of a side, and its PONG if it is answered."""
        self.send(at, side, PING)
        if answer_s is not None:
            self.send(at + answer_s, 1 - side, PONG)


def millis(at: float) -> int:
    """A time of the capture in ms since 1970."""
    return round((START_S + at) * 1000)
