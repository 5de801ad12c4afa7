"""Captures made by code for the rules of sends and redeliveries: talk on a clock of its own.

A `Line` is one connection whose frames are said at seconds since the start of the capture;
`written` merges the packets of several into one file.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.hard.tape import START_NS, Tape, capture, simple
from tests.wire import packets, pulsar
from tests.wire.packets import ACK, RST

TOPIC = "persistent://public/default/orders"
LEDGER = 7
SECOND_NS = 1_000_000_000


def ns(seconds: float) -> int:
    """A time of the capture's clock, in ns since 1970."""
    return START_NS + round(seconds * SECOND_NS)


def stamp(seconds: float) -> bytes:
    """What a broker puts before an entry: when it took it."""
    return pulsar.body("BrokerEntryMetadata", broker_timestamp=ns(seconds) // 1_000_000)


class Line(Tape):
    """A connection; `port` tells several apart. Requests are numbered as they are made."""

    def __init__(self, port: int = 40_000, broker: str = packets.BROKER, **more: Any) -> None:
        super().__init__(
            client=(packets.CLIENT, port), broker=(broker, packets.BROKER_PORT), **more
        )
        self.requests = 0
        self.copies = 0
        self.names: dict[int, str] = {}

    def up(self, seconds: float, frame: bytes, is_acked: bool = True) -> None:
        """A frame to the broker."""
        self.now = ns(seconds)
        self.frame(True, frame, is_acked)

    def down(self, seconds: float, frame: bytes) -> None:
        """A frame to the client."""
        self.now = ns(seconds)
        self.frame(False, frame)

    def begin(self, seconds: float = 0.0, max_message_bytes: int = 5_242_880) -> None:
        """The handshakes of TCP and of Pulsar."""
        self.now = ns(seconds)
        self.open()
        self.up(seconds + 0.01, simple("CONNECT", client_version="made-1", protocol_version=21))
        self.down(
            seconds + 0.02,
            simple(
                "CONNECTED", server_version="made-broker", protocol_version=21,
                max_message_size=max_message_bytes,
            ),
        )  # fmt: skip

    def finish(self, seconds: float, by_client: bool = True) -> None:
        """FIN of both sides."""
        self.now = ns(seconds)
        self.close(not by_client)

    def reset(self, seconds: float, by_client: bool = False) -> None:
        """A reset."""
        self.now = ns(seconds)
        self.add(by_client, RST | ACK)

    def again(self, seconds: float, packet: int = -1) -> None:
        """A packet of the tape once more, as TCP sends it that got no acknowledgement.

        It has an identification of its own: else it would be a copy that the tap made.
        """
        self.copies += 1
        self.packets.append(
            self.packets[packet]._replace(ts_ns=ns(seconds), identification=20_000 + self.copies)
        )

    # -- producers

    def produce(
        self, seconds: float, topic: str = TOPIC, producer: int = 1, name: str = "p",
        last_sequence_id: int = -1,
    ) -> None:  # fmt: skip
        """PRODUCER and its answer, 5 ms later."""
        self.requests += 1
        self.names[producer] = name
        self.up(
            seconds,
            simple(
                "PRODUCER", topic=topic, producer_id=producer, request_id=self.requests,
                producer_name=name,
            ),
        )  # fmt: skip
        self.down(
            seconds + 0.005,
            simple(
                "PRODUCER_SUCCESS", request_id=self.requests, producer_name=name,
                last_sequence_id=last_sequence_id,
            ),
        )  # fmt: skip

    def send(
        self, seconds: float, sequence: int, producer: int = 1, payload: bytes = b"hello",
        is_acked: bool = True, checksum: int | bool = True,
    ) -> None:  # fmt: skip
        """A SEND of one message."""
        frame = pulsar.entry(
            pulsar.command("SEND", producer_id=producer, sequence_id=sequence),
            pulsar.metadata(self.names.get(producer, "p"), sequence, 1_700_000_000_000),
            payload,
            checksum,
        )
        self.up(seconds, frame, is_acked)

    def receipt(
        self, seconds: float, sequence: int, entry: int | None = None, producer: int = 1,
        ledger: int = LEDGER,
    ) -> None:  # fmt: skip
        """A receipt; without an entry it names none (−1:−1)."""
        place = {"ledgerId": ledger, "entryId": entry}
        if entry is None:
            place = {"ledgerId": -1, "entryId": -1}
        frame = simple("SEND_RECEIPT", producer_id=producer, sequence_id=sequence, message_id=place)
        self.down(seconds, frame)

    def ping(self, seconds: float, answered: float | None) -> None:
        """A PING of the client, and its PONG."""
        self.up(seconds, simple("PING"))
        if answered is not None:
            self.down(answered, simple("PONG"))

    def lookup(self, seconds: float, answered: float, topic: str = TOPIC) -> None:
        """A LOOKUP, and where its topic is."""
        self.requests += 1
        self.up(seconds, simple("LOOKUP", topic=topic, request_id=self.requests))
        self.down(
            answered,
            simple(
                "LOOKUP_RESPONSE", request_id=self.requests, response="Connect",
                brokerServiceUrl="pulsar://broker:6650", authoritative=True,
            ),
        )  # fmt: skip

    @staticmethod
    def pong() -> bytes:
        """A PONG."""
        return simple("PONG")

    # -- consumers

    def subscribe(
        self, seconds: float, topic: str = TOPIC, *, consumer: int = 1, name: str = "c",
        kind: str = "Shared", permits: int = 1000, subscription: str = "sub",
    ) -> None:  # fmt: skip
        """SUBSCRIBE, its answer, and the first FLOW."""
        self.requests += 1
        self.up(
            seconds,
            simple(
                "SUBSCRIBE", topic=topic, subscription=subscription, subType=kind,
                consumer_id=consumer, request_id=self.requests, consumer_name=name,
            ),
        )  # fmt: skip
        self.down(seconds + 0.005, simple("SUCCESS", request_id=self.requests))
        self.up(seconds + 0.01, simple("FLOW", consumer_id=consumer, messagePermits=permits))

    def message(
        self, seconds: float, entry: int, *, consumer: int = 1, count: int = 0, batch: int = 0,
        name: str = "p", payload: bytes = b"hello", checksum: int | bool = True,
        sequence: int | None = None, stored_at: float | None = None,
        ack_set: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """A MESSAGE; count: of its redeliveries; batch: messages of the entry, 0 for a single."""
        more: dict[str, Any] = {}
        if batch:
            payload = pulsar.batch([({}, payload)] * batch)
            more["num_messages_in_batch"] = batch
        fields: dict[str, Any] = {"redelivery_count": count} if count else {}
        if ack_set is not None:
            fields["ack_set"] = ack_set
        number = entry if sequence is None else sequence
        frame = pulsar.entry(
            pulsar.command(
                "MESSAGE", consumer_id=consumer,
                message_id={"ledgerId": LEDGER, "entryId": entry}, **fields,
            ),
            pulsar.metadata(name, number, 1_700_000_000_000, **more),
            payload,
            checksum,
            None if stored_at is None else stamp(stored_at),
        )  # fmt: skip
        self.down(seconds, frame)

    def ack(self, seconds: float, *entries: int, consumer: int = 1, **more: Any) -> None:
        """An individual ACK."""
        ids = [{"ledgerId": LEDGER, "entryId": entry} for entry in entries]
        self.up(
            seconds,
            simple("ACK", consumer_id=consumer, ack_type="Individual", message_id=ids, **more),
        )

    def redeliver(self, seconds: float, *entries: int, consumer: int = 1) -> None:
        """A request to deliver entries again; all of them where none is named."""
        ids = [{"ledgerId": LEDGER, "entryId": entry} for entry in entries]
        self.up(
            seconds,
            simple("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=consumer, message_ids=ids),
        )

    def close_producer(self, seconds: float, producer: int = 1) -> None:
        """The broker closes a producer."""
        self.down(seconds, simple("CLOSE_PRODUCER", producer_id=producer, request_id=-1))

    def close_consumer(self, seconds: float, consumer: int = 1) -> None:
        """The broker closes a consumer."""
        self.down(seconds, simple("CLOSE_CONSUMER", consumer_id=consumer, request_id=-1))


def written(path: Path, lines: Iterable[Line]) -> Path:
    """One capture of several connections, in the order of time."""
    records = [record for line in lines for record in line.records()]
    path.write_bytes(capture(sorted(records, key=lambda record: record.ts_ns)))
    return path
