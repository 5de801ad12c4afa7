"""Captures of consumers that get nothing, made by a scripted broker and its clients.

A `Scene` has a clock and any number of connections; each thing said is one packet at the clock's
time. `pcap()` gives the file, `findings_in` what a rule finds in it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dissector.findings.finding import Finding
from dissector.findings.loading import load_rules
from tests.dissector.findings.asking import findings_in
from tests.hard.tape import START_NS, Packet, Tape, simple
from tests.wire import pulsar
from tests.wire.captures import Record, pcap

TOPIC = "persistent://public/default/stuck"
SUBSCRIPTION = "work"
LEDGER = 7
TICK_S = 0.001
RULES = {rule.number: rule for rule in load_rules()[0]}


class Line(Tape):
    """One connection of a client; what it says comes at the scene's time."""

    def __init__(self, scene: "Scene", client: tuple[str, int], server_version: str) -> None:
        super().__init__(client=client)
        self._scene = scene
        self._requests = 0
        self.open()
        self.tell(True, "CONNECT", client_version="made-1", protocol_version=19)
        self.tell(
            False, "CONNECTED", server_version=f"Pulsar Server{server_version}",
            protocol_version=19, max_message_size=5_242_880,
        )  # fmt: skip

    def add(self, to_broker: bool, flags: int, payload: bytes = b"", **fields: Any) -> Packet:
        """A packet at the scene's time."""
        self.now = START_NS + round(self._scene.now * 1e9)
        packet = super().add(to_broker, flags, payload, **fields)
        self._scene.records.append(Record(packet.ts_ns, self.whole(packet)))
        self._scene.now += TICK_S
        return packet

    def frame(self, to_broker: bool, frame: bytes, is_acked: bool = False) -> None:
        """A frame in a packet of its own."""
        super().frame(to_broker, frame, is_acked)

    def tell(self, to_broker: bool, name: str, **fields: Any) -> None:
        """A command without payload."""
        self.frame(to_broker, simple(name, **fields))

    def request(self) -> int:
        """The number of a new request."""
        self._requests += 1
        return self._requests

    def ping(self) -> None:
        """The client asks whether the broker lives; it does."""
        self.tell(True, "PING")
        self.tell(False, "PONG")


class Entry(NamedTuple):
    """What a broker stored: its place, and metadata and payload as they were sent."""

    entry_id: int
    fields: dict[str, Any]
    payload: bytes


class Scene:
    """A broker with one topic, its clients, and a clock in seconds."""

    def __init__(self, server_version: str = "4.0.6") -> None:
        self.now = 0.0
        self.records: list[Record] = []
        self.stored: list[Entry] = []
        self._version = server_version
        self._lines = 0

    def pcap(self) -> bytes:
        """The capture."""
        return pcap(self.records)

    def wait(self, seconds: float) -> None:
        """Nothing happens."""
        self.now += seconds

    def line(self) -> Line:
        """A new connection of a client of its own."""
        self._lines += 1
        return Line(self, (f"10.0.1.{self._lines}", 40_000 + self._lines), self._version)

    def producer(self) -> "Producer":
        """A producer on a connection of its own."""
        return Producer(self, self.line())

    def consumer(self, **fields: Any) -> "Consumer":
        """A consumer on a connection of its own."""
        return Consumer(self, self.line(), **fields)


class Producer:
    """A producer of the topic; the broker answers each send at once."""

    def __init__(self, scene: Scene, line: Line) -> None:
        self._scene, self.line = scene, line
        self._sequence = 0
        request = line.request()
        line.tell(True, "PRODUCER", topic=TOPIC, producer_id=1, request_id=request)
        line.tell(False, "PRODUCER_SUCCESS", request_id=request, producer_name="writer")

    def send(
        self, batch: int = 1, key: str | None = None, is_stored: bool = True, **metadata: Any
    ) -> Entry:
        """Send one entry, of a batch if that is more than one; the broker stores it."""
        sequence = self._sequence
        self._sequence += batch
        fields = {"producer_name": "writer", "sequence_id": sequence, **metadata}
        fields["publish_time"] = (START_NS + round(self._scene.now * 1e9)) // 1_000_000
        if key is not None:
            fields["partition_key"] = key
        payload = b"message %06d" % sequence
        if batch > 1:
            fields["num_messages_in_batch"] = batch
            payload = pulsar.batch([({}, payload)] * batch)
        said = {"producer_id": 1, "sequence_id": sequence}
        if batch > 1:
            said["num_messages"] = batch
        if "txnid_least_bits" in metadata:
            said["txnid_least_bits"] = metadata["txnid_least_bits"]
            said["txnid_most_bits"] = metadata["txnid_most_bits"]
        entry = Entry(len(self._scene.stored), fields, payload)
        self.line.frame(
            True,
            pulsar.entry(pulsar.command("SEND", **said), pulsar.metadata(**fields), payload),
        )
        if is_stored:
            self._scene.stored.append(entry)
            self.line.tell(
                False, "SEND_RECEIPT", producer_id=1, sequence_id=sequence,
                message_id={"ledgerId": LEDGER, "entryId": entry.entry_id},
            )  # fmt: skip
        return entry


class Consumer:
    """A consumer of the subscription."""

    def __init__(
        self, scene: Scene, line: Line, name: str = "reader", kind: str = "Shared",
        permits: int = 1000, consumer_id: int = 1, **fields: Any,
    ) -> None:  # fmt: skip
        self._scene, self.line, self.name = scene, line, name
        self._kind, self._id, self._fields = kind, consumer_id, fields
        self.subscribe()
        if permits:
            self.flow(permits)

    def subscribe(self) -> None:
        """SUBSCRIBE, and the broker's consent."""
        request = self.line.request()
        self.line.tell(
            True, "SUBSCRIBE", topic=TOPIC, subscription=SUBSCRIPTION, subType=self._kind,
            consumer_id=self._id, request_id=request, consumer_name=self.name, **self._fields,
        )  # fmt: skip
        self.line.tell(False, "SUCCESS", request_id=request)

    def flow(self, permits: int) -> None:
        """A FLOW."""
        self.line.tell(True, "FLOW", consumer_id=self._id, messagePermits=permits)

    def message(self, entry: Entry, flips: bool = False, **fields: Any) -> Entry:
        """The broker delivers an entry; a flip makes its last byte another one."""
        place = {"ledgerId": LEDGER, "entryId": entry.entry_id}
        said = pulsar.command("MESSAGE", consumer_id=self._id, message_id=place, **fields)
        frame = pulsar.entry(said, pulsar.metadata(**entry.fields), entry.payload)
        if flips:
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        self.line.frame(False, frame)
        return entry

    def ack(self, *entries: Entry, **fields: Any) -> None:
        """The consumer acknowledges entries."""
        places: Sequence[dict[str, Any]] = [
            {"ledgerId": LEDGER, "entryId": each.entry_id} for each in entries
        ]
        self.line.tell(
            True, "ACK", consumer_id=self._id, ack_type="Individual", message_id=places, **fields
        )

    def redeliver(self, *entries: Entry) -> None:
        """The consumer asks for entries again."""
        places = [{"ledgerId": LEDGER, "entryId": each.entry_id} for each in entries]
        self.line.tell(
            True, "REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=self._id, message_ids=places
        )

    def active(self, is_active: bool) -> None:
        """The broker says whether this consumer is the active one."""
        self.line.tell(False, "ACTIVE_CONSUMER_CHANGE", consumer_id=self._id, is_active=is_active)

    def close(self) -> None:
        """The client closes the consumer, and the broker agrees."""
        request = self.line.request()
        self.line.tell(True, "CLOSE_CONSUMER", consumer_id=self._id, request_id=request)
        self.line.tell(False, "SUCCESS", request_id=request)

    def taken_away(self) -> None:
        """The broker closes the consumer, as when it unloads the topic."""
        self.line.tell(False, "CLOSE_CONSUMER", consumer_id=self._id, request_id=-1)


def judged(folder: Path, scene: Scene, number: str) -> list[Finding]:
    """What the rule of that number finds in a scene; every frame that it names has its packet."""
    capture = folder / "made.pcap"
    capture.write_bytes(scene.pcap())
    findings = findings_in(number, capture)
    assert all(each.packet for one in findings for each in one.evidence)
    return findings
